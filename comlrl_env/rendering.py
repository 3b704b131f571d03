"""One episode as text that a person understands."""

from collections.abc import Mapping
from textwrap import indent

from comlrl_env.task import History
from comlrl_env.types import Score

# Of an answer longer than this only both ends are shown; models sometimes write a megabyte.
SHOWN = 2000


def render_episode(title: str, history: History, waiting: Mapping[str, str] | None = None) -> str:
    """Return the turns with prompts, answers and score parts; ``waiting``: prompts not answered yet."""
    blocks = [title]
    for number, turn in enumerate(history, start=1):
        blocks.append(f"-- turn {number} --")
        for agent, prompt in turn.prompts.items():
            blocks.append(_block(f"{agent} is told", prompt))
        for agent, text in turn.responses.items():
            blocks.append(_block(f"{agent} answers", text))
        blocks.append(render_score(turn.score))
    if waiting is not None:
        blocks.append(f"-- turn {len(history) + 1}, waiting for answers --")
        blocks += [_block(f"{agent} is told", prompt) for agent, prompt in waiting.items()]
    return "\n".join(blocks) + "\n"


def render_score(score: Score) -> str:
    """Return reward, status, parts and reason in one or two lines."""
    parts = "  ".join(f"{name}={value:.4g}" for name, value in score.parts.items())
    line = f"reward {score.reward:.4g} ({score.status})" + (f"  {parts}" if parts else "")
    return f"{line}\n  {score.reason}" if score.reason else line


def _block(head: str, text: str) -> str:
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
    # Control characters could move the cursor of the reader's terminal.
    clean = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
    return f"{head}:\n{indent(clean or '(nothing)', '  | ', lambda line: True)}"
