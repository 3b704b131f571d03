"""What there is to play, as a table and as one document: ``python -m comlrl_env.pages > docs/tasks.md``."""

import sys
from collections.abc import Sequence

from comlrl_env import registry
from comlrl_env.errors import ComlrlError
from comlrl_env.figures import KINDS

HEADINGS = ("id", "agents", "turns", "levels", *KINDS, "data", "what")
_INTRODUCTION = """\
# The tasks

Written by `python -m comlrl_env.pages > docs/tasks.md` from the tasks' own pages; `comlrl envs` prints the table and
`comlrl envs ID` one page. Agents, turns and figures are those of the defaults. Gold: the maximum, reached by answers
that each task can write itself. Solo: one agent answers well, the others say nothing. Random: valid answers that ignore
everything else. Each page says how they were measured.
"""


def row(env_id: str) -> tuple[str, ...]:
    """One environment as a row under :data:`HEADINGS`; one that cannot be made says why."""
    try:
        card = registry.describe(env_id)
    except ComlrlError as error:
        return (env_id, *[""] * (len(HEADINGS) - 2), f"not usable here: {error}")
    figures = [f"{card.figures[name]:.2f}" if name in card.figures else "" for name in KINDS]
    levels = "" if card.levels is None or card.levels[0] == card.levels[1] else f"{card.levels[0]}–{card.levels[1]}"
    return (env_id, str(len(card.agents)), str(card.num_turns), levels, *figures, card.data, card.summary)


def document(env_ids: Sequence[str]) -> str:
    """The table and the pages of these environments in Markdown."""
    lines = [_INTRODUCTION, f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row(env_id))} |" for env_id in env_ids]
    for env_id in env_ids:
        page = registry.page_of(registry.load_task(env_id))
        lines += ["", f"## {env_id}", "", "```text", page, "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document(sorted(registry.BUILT_IN)))
