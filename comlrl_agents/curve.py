"""The picture of a run: reward over joint responses scored, or over updates when all were scored at once."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

EVALUATION = "eval/turn_1/reward_mean"
TRAINING = "turn_1/reward_mean"
AXES = {"env_step": "joint responses scored (env_step)", "step": "preference updates (step)"}

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


def draw_curve(lines: Lines, path: Path, title: str) -> None:
    """Write the learning curve of the logged ``lines`` as a PNG. Needs matplotlib."""
    # Imported here because it is slow and an extra; no pyplot, because that is global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axis, found = curves(lines)
    training, evaluation = found[TRAINING], found[EVALUATION]
    if training:
        axes.plot(list(training), list(training.values()), color="tab:gray", alpha=0.7, label="training items")
    if evaluation:
        axes.plot(list(evaluation), list(evaluation.values()), "o-", color="tab:blue", label="evaluation")
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel("mean reward")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if training or evaluation:
        axes.legend(frameon=False)
    figure.savefig(path)
