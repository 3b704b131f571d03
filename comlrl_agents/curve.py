"""The picture of a run: reward over joint responses scored, or over updates when all were scored at once.

Where a reward was learned a second part shows it beside the task's on the same joint responses: a learned reward that
climbs while the task's does not is being deceived.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EVALUATION = "eval/turn_1/reward_mean"
TRAINING = "turn_1/reward_mean"
LEARNED, TASK = "reward_check/learned_mean", "reward_check/task_mean"
AXES = {"env_step": "joint responses scored (env_step)", "step": "updates (step)"}

Lines = Sequence[dict[str, float]]


def can_draw() -> bool:
    """Whether matplotlib (the extra ``plot``) is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def curves(lines: Lines) -> tuple[str, dict[str, dict[float, float]]]:
    """What the picture shows: the horizontal axis, and for each metric a value per place on it.

    The axis is ``env_step``, unless the run scored all its joint responses in one collection: then ``step``.
    At one place an evaluation counts as it was last, after the training there; training rewards are averaged.
    """
    counts = {line["env_step"] for line in lines if "env_step" in line}
    axis = "env_step" if len(counts) > 2 else "step"
    found: dict[str, dict[float, list[float]]] = {EVALUATION: {}, TRAINING: {}}
    place = 0.0
    for line in lines:
        place = line.get(axis, place)
        for name, values in found.items():
            if name in line:
                values.setdefault(place, []).append(line[name])
    evaluation = {place: values[-1] for place, values in found[EVALUATION].items()}
    training = {place: sum(values) / len(values) for place, values in found[TRAINING].items()}
    return axis, {EVALUATION: evaluation, TRAINING: training}


def checks(lines: Lines, axis: str) -> list[list[tuple[float, float, float]]]:
    """(place, learned reward, task reward) of each line that has both, a list per round.

    Each round has a reward model of its own, whose numbers do not go on with those of the last one.
    """
    rounds: dict[float, list[tuple[float, float, float]]] = {}
    place = 0.0
    for line in lines:
        place = line.get(axis, place)
        if LEARNED in line and TASK in line:
            rounds.setdefault(line.get("round", 1), []).append((place, line[LEARNED], line[TASK]))
    return list(rounds.values())


def draw_curve(lines: Lines, path: Path, title: str) -> None:
    """Write the learning curve of the logged ``lines`` as a PNG. Needs matplotlib."""
    # Imported here because it is slow and an extra; no pyplot, because that is global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis, found = curves(lines)
    compared = checks(lines, axis)
    figure = Figure(figsize=(7, 6.5 if compared else 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subplots(2 if compared else 1, sharex=True, squeeze=False)[:, 0]
    _draw_rewards(parts[0], found)
    parts[0].set_title(title)
    if compared:
        _draw_checks(parts[1], compared)
    for part in parts:
        part.grid(alpha=0.3)
    parts[-1].set_xlabel(AXES[axis])
    parts[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.savefig(path)


def _draw_rewards(axes: Any, found: Mapping[str, Mapping[float, float]]) -> None:
    training, evaluation = found[TRAINING], found[EVALUATION]
    if training:
        axes.plot(list(training), list(training.values()), ".-", color="tab:gray", alpha=0.7, label="training items")
    if evaluation:
        axes.plot(list(evaluation), list(evaluation.values()), "o-", color="tab:blue", label="evaluation")
    axes.set_ylabel("mean reward")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if training or evaluation:
        axes.legend(frameon=False)


def _draw_checks(axes: Any, rounds: Sequence[Sequence[tuple[float, float, float]]]) -> None:
    """Both rewards of the same joint responses; on scales of their own, since a learned one has no unit."""
    learned_axes = axes.twinx()
    # Rings, which are seen around the other's points: both scales have their extremes at the same heights.
    places, _, task = zip(*(check for one in rounds for check in one), strict=True)
    axes.plot(places, task, "o-", color="tab:blue", fillstyle="none", markersize=9)
    for one in rounds:  # numbers of different reward models do not go on with each other
        places, learned, _ = zip(*one, strict=True)
        learned_axes.plot(places, learned, ".-", color="tab:orange")
    axes.set_ylabel("task's reward of a few samples", color="tab:blue")
    learned_axes.set_ylabel("learned reward of the same", color="tab:orange")
    for part in (axes, learned_axes):
        part.spines["top"].set_visible(False)
