"""``report.md``: what a run did, for a person, made from the files in its folder alone.

Of ``samples.jsonl`` it shows the evaluations: rows with ``item`` and ``turns``, a list of ``{"prompts": {agent: text},
"responses": {agent: text}, "reward": …, "status": …, "reason": …}``.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comlrl_agents.curve import EVALUATION, TRAINING, can_draw, draw_curve
from comlrl_agents.journal import read_journal, read_numbers
from comlrl_agents.tracking import METRICS, SAMPLES

REPORT, CURVE, COMMAND = "report.md", "learning_curve.png", "command.txt"
LONGEST_TEXT = 800
ROUND_COLUMNS = {
    "env_step": "joint responses",
    "task_step": "scored by the task",
    TRAINING: "training reward",
    "turn_1/learned_reward_mean": "training reward (learned)",
    EVALUATION: "evaluation reward",
    "pairs/kept": "pairs",
    "pairs/ties": "ties",
    "pairs/duplicates": "duplicates",
    "pairs/failed": "failed",
    "pairs/distinct_winners": "distinct winners",
    "pairs/gap_mean": "mean gap",
    "pairs/learned_gap_mean": "mean gap (learned)",
}
CHECK_COLUMNS = {
    "reward_check/learned_mean": "learned reward",
    "reward_check/task_mean": "task reward",
    "reward_check/correlation": "correlation",
}
REWARD_MODEL_COLUMNS = {
    "reward_model/held_out_accuracy": "held-out accuracy",
    "reward_model/held_out_pairs": "held-out pairs",
    "reward_model/empty_mean": "empty answers",
    **CHECK_COLUMNS,
    "kl/reference": "KL to the initial team",
}
MOST_CHECKS = 10
ERROR = "eval/standard_error"
LANGUAGE = ("drift", "mean_length", "repetition", "clipped_ratio")


def write_report(folder: Path) -> Path:
    """Write ``report.md`` and, where matplotlib is installed, ``learning_curve.png``; return the report's path.

    Raises RecordError when a line of the run's files cannot be read.
    """
    lines = read_numbers(folder / METRICS)
    parts = [
        f"# {folder.name}",
        _origin(folder),
        "## Before and after",
        before_and_after(lines),
        _picture(folder, lines),
        "## Rounds",
        _rounds(lines),
        *_reward_model(lines),
        "## The agents' language",
        _language(lines),
        "## Alarms",
        _alarms(lines),
        "## The same items, before and after",
        _samples(read_journal(folder / SAMPLES)),
    ]
    path = folder / REPORT
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def evaluation_rows(lines: Sequence[Mapping[str, float]]) -> list[list[str]]:
    """The first and the last evaluation in the logged ``lines`` as a table, its header first; [] without any."""
    found = [line for line in lines if any(name.startswith("eval/") for name in line)]
    if not found:
        return []
    first, last = found[0], found[-1]
    names = [name for name in last if name.startswith("eval/") and name in first]
    if first is last:
        return [["metric", f"step {last['step']:,}"], *([name, number(last[name])] for name in names)]
    header = ["metric", f"before (step {first['step']:,})", f"after (step {last['step']:,})", "change"]
    rows = [[name, number(first[name]), number(last[name]), f"{last[name] - first[name]:+.4g}"] for name in names]
    return [header, *rows]


def before_and_after(lines: Sequence[Mapping[str, float]]) -> str:
    """The table of :func:`evaluation_rows` in Markdown."""
    header, *rows = evaluation_rows(lines) or [[]]
    if not header:
        return "No evaluation was logged."
    shown = table(header, [[_metric(name), *values] for name, *values in rows])
    errors = [line[ERROR] for line in lines if ERROR in line]
    if len(errors) < 2:
        return shown
    chance = 2 * math.hypot(errors[0], errors[-1])
    return f"{shown}\n\nOf so many items, a change of the mean return below about {chance:.2g} may be chance."


def number(value: float | None) -> str:
    """Whole numbers as they are, others with four significant digits; nothing for None."""
    if value is None:
        return ""
    whole = math.isfinite(value) and float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, the first column to the left and numbers to the right."""
    align = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, align, *rows])


def _metric(name: str) -> str:
    return f"`{name}`"


def _origin(folder: Path) -> str:
    """How the run was started and with what, as far as the folder tells."""
    said = []
    if (folder / COMMAND).exists():
        said.append(f"```sh\n{(folder / COMMAND).read_text(encoding='utf-8').strip()}\n```")
    if (folder / "versions.json").exists():
        versions = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
        said.append("Made with " + ", ".join(f"{name} {value}" for name, value in versions.items()) + ".")
    if (folder / "config.yaml").exists():
        said.append("All settings: [config.yaml](config.yaml).")
    return "\n\n".join(said) or "The folder does not say how the run was started."


def _picture(folder: Path, lines: Sequence[dict[str, float]]) -> str:
    if not can_draw():
        return (
            "No picture: matplotlib is not installed. After `pip install 'comlrl-kit[plot]'`, "
            "`comlrl report` with this folder draws it."
        )
    draw_curve(lines, folder / CURVE, folder.name)
    return f"![learning curve]({CURVE})"


def _rounds(lines: Sequence[Mapping[str, float]]) -> str:
    """One row per round: the training reward as a mean over its lines, everything else as last logged.

    Round 0 is the evaluation before training.
    """
    rounds: dict[int, dict[str, float]] = {}
    training: dict[int, list[float]] = {}
    for line in lines:
        if "round" in line:
            index = 0 if EVALUATION in line and line["step"] == 0 else int(line["round"])
            rounds.setdefault(index, {}).update(line)
            training.setdefault(index, []).extend([line[TRAINING]] if TRAINING in line else [])
    for index, rewards in training.items():
        if rewards:
            rounds[index][TRAINING] = sum(rewards) / len(rewards)
    names = [name for name in ROUND_COLUMNS if any(name in values for values in rounds.values())]
    if not names:
        return "No round was logged."
    rows = [(str(index), *(number(values.get(name)) for name in names)) for index, values in sorted(rounds.items())]
    return table(["round", *(ROUND_COLUMNS[name] for name in names)], rows)


def _reward_model(lines: Sequence[Mapping[str, float]]) -> list[str]:
    """What each round's reward model was worth, as last logged; nothing where no reward was learned.

    The three numbers of a check are those of one line: a later check may have no correlation.
    """
    rounds: dict[int, dict[str, float | None]] = {}
    for line in lines:
        found: dict[str, float | None] = {name: line[name] for name in REWARD_MODEL_COLUMNS if name in line}
        if not found or "round" not in line:
            continue
        values = rounds.setdefault(int(line["round"]), {})
        if any(name in CHECK_COLUMNS for name in found):
            found = dict.fromkeys(CHECK_COLUMNS) | found
        values.update(found)
    rounds = {index: values for index, values in rounds.items() if set(values) - {"kl/reference"}}
    if not rounds:
        return []
    names = [name for name in REWARD_MODEL_COLUMNS if any(values.get(name) is not None for values in rounds.values())]
    rows = [(str(index), *(number(values.get(name)) for name in names)) for index, values in sorted(rounds.items())]
    said = (
        "A learned reward has no zero of its own: watch its changes, and whether the task's reward goes with it. Means "
        "over the few joint responses (task_reward_samples) of the round's last check, so they scatter. The held-out "
        "accuracy is agreement with whoever labelled the round's pairs. Empty answers should not be worth much more "
        "than 0, which is the mean of the answers that the model was fitted to."
    )
    parts = ["## The reward model", said, table(["round", *(REWARD_MODEL_COLUMNS[name] for name in names)], rows)]
    last = max(rounds)
    checks = [line for line in lines if "reward_check/task_mean" in line and line.get("round") == last]
    if len(checks) > 1:
        names = [name for name in (*CHECK_COLUMNS, "kl/reference") if any(name in line for line in checks)]
        rows = [(number(line["step"]), *(number(line.get(name)) for name in names)) for line in _spread(checks)]
        parts += [f"Checks of round {last}:", table(["step", *(REWARD_MODEL_COLUMNS[name] for name in names)], rows)]
    return parts


def _spread(lines: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """At most ``MOST_CHECKS`` of the lines, evenly spread, the first and the last among them."""
    count = min(len(lines), MOST_CHECKS)
    return [lines[round(at * (len(lines) - 1) / (count - 1))] for at in range(count)]


def _language(lines: Sequence[Mapping[str, float]]) -> str:
    """The first and the last figures with their steps; the last ones of a figure that was measured twice."""
    ends: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for name, value in line.items():
            if name.startswith("agent_") and name.rsplit("/", 1)[-1] in LANGUAGE:
                ends.setdefault(name, []).append((line["step"], value))
    if not ends:
        return "Nothing about it was logged."
    rows = []
    for name, seen in ends.items():
        shown = [seen[0], seen[-1]] if len(seen) > 1 else seen
        cells = [cell for step, value in shown for cell in (number(value), number(step))]
        rows.append([_metric(name), *cells, *[""] * (4 - len(cells))])
    told = table(["", "first", "at step", "last", "at step"], rows)
    if any(step > 0 for seen in ends.values() for step, _ in seen):
        return told
    said = "Answers were sampled before anything was learned and not again, so this is not how the team ended."
    return f"{said}\n\n{told}"


def _alarms(lines: Sequence[Mapping[str, float]]) -> str:
    seen: dict[str, tuple[float, float, float]] = {}
    for line in lines:
        for name, count in line.items():
            if name.startswith("alarms/"):
                first = seen[name][0] if name in seen else line["step"]
                seen[name] = (first, line["step"], count)
    if not seen:
        return "None."
    rows = [(_metric(name), *(number(value) for value in seen[name])) for name in seen]
    return table(["", "first at step", "last at step", "lines"], rows)


def _samples(rows: Sequence[Mapping[str, Any]]) -> str:
    """Some items of the first evaluation beside the same items in the last one, good and bad.

    Of those that the run has stored, which may be fewer than it evaluated.
    """
    rows = [row for row in rows if "turns" in row]
    if not rows:
        return "No samples were logged."
    first, last = _by_item(rows, rows[0]["step"]), _by_item(rows, rows[-1]["step"])
    shared = [item for item in first if item in last]
    ranked = sorted(shared, key=lambda item: -_last_reward(last[item]))
    end = f"of {len(shared)} stored at the end"
    chosen = {f"Best {end}": ranked[:1], f"Worst {end}": ranked[-1:], "First item": shared[:1]}
    shown: set[str] = set()
    parts = []
    for title, items in chosen.items():
        for item in items:
            if item not in shown:
                shown.add(item)
                parts.append(f"### {title}: item {item}\n\n{_side_by_side(first[item], last[item])}")
    return "\n\n".join(parts) or "The first and the last evaluation have no item in common."


def _by_item(rows: Sequence[Mapping[str, Any]], step: int) -> dict[str, Mapping[str, Any]]:
    """The rows of one evaluation; environments that name no item show theirs in the same order each time."""
    named: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["step"] == step:
            item = row.get("item")
            named[str(len(named) if item is None else item)] = row
    return named


def _last_reward(row: Mapping[str, Any]) -> float:
    reward = row["turns"][-1]["reward"]
    return reward if isinstance(reward, int | float) else -math.inf


def _side_by_side(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """An HTML table, because Markdown tables cannot hold texts of several lines."""
    rows = [f"<th></th><th>before (step {before['step']:,})</th><th>after (step {after['step']:,})</th>"]
    for index, (old, new) in enumerate(zip(before["turns"], after["turns"], strict=False), start=1):
        turn = f"turn {index}, " if len(after["turns"]) > 1 else ""
        for agent, prompt in new["prompts"].items():
            rows.append(f"<td>{turn}{html.escape(agent)} is asked</td><td colspan=2>{_text(prompt)}</td>")
        for agent in new["responses"]:
            answers = f"<td>{_text(old['responses'][agent])}</td><td>{_text(new['responses'][agent])}</td>"
            rows.append(f"<td>{turn}{html.escape(agent)} says</td>{answers}")
        rows.append(f"<td>{turn}reward</td><td>{_verdict(old)}</td><td>{_verdict(new)}</td>")
    return "<table>\n" + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>"


def _text(text: str) -> str:
    """Preformatted text on one line of HTML: a blank line would end the block for a Markdown reader."""
    cut = len(text) - LONGEST_TEXT
    shown = text if cut <= 0 else f"{text[:LONGEST_TEXT]} … ({cut} more characters)"
    return "<pre>" + html.escape(shown).replace("\r", "").replace("\n", "&#10;") + "</pre>"


def _verdict(turn: Mapping[str, Any]) -> str:
    reward = turn["reward"]
    said = number(reward) if isinstance(reward, int | float) else str(turn.get("status", "failed"))
    reason = turn.get("reason", "")
    return html.escape(f"{said}: {reason}" if reason else said).replace("\n", " ")
