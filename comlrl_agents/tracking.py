"""The memory of a run: metrics, samples and timings in its folder, with copies for whoever wants them."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from comlrl_agents.alarms import Alarms
from comlrl_agents.journal import Journal, read_numbers
from comlrl_agents.sinks import CONSOLE, Sink, find_sinks
from comlrl_agents.terminal import Terminal, format_number
from comlrl_env.errors import CheckpointError

METRICS, SAMPLES, TIMINGS = "metrics.jsonl", "samples.jsonl", "timings.jsonl"
HEADLINE = (
    "round",
    "env_step",
    "eval/turn_1/reward_mean",
    "turn_1/reward_mean",
    "loss",
    "rewards/accuracies",
    "pairs/kept",
    "reward_model/held_out_accuracy",
    "reward_check/learned_mean",
    "reward_check/task_mean",
)
"""The metrics worth a line on the console, in this order."""


class Tracker:
    """Writes what happens in a run, in the order it happens.

    ``metrics.jsonl`` holds only what the seed determines: a run that was killed and resumed writes the same
    bytes as one that was not. Wall-clock times go to ``timings.jsonl``. ``step`` counts updates, of policies
    and reward models alike. ``report_to``: ``"console"``, ``"tensorboard"``, ``"wandb"``, or ``"module:Class"``
    of a :class:`Sink`.

    Raises ConfigError for a name in ``report_to`` that is unknown or whose package is missing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        report_to: Sequence[str] = ("tensorboard", "console"),
        terminal: Terminal | None = None,
    ) -> None:
        self._makers: list[Callable[[Path, int | None], Sink]] = find_sinks(report_to)
        self._terminal = (terminal or Terminal()) if CONSOLE in report_to else None
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._journals = {name: Journal(folder / name) for name in (METRICS, SAMPLES, TIMINGS)}
        # Opened at the first value: TensorBoard is slow to import, and must know about a rewind.
        self._sinks: list[Sink] | None = None
        self._purge_step: int | None = None
        self._alarms = Alarms()

    def log(self, step: int, metrics: Mapping[str, float], *, show: bool = False) -> None:
        """Record numbers that the seed determines; ``show`` prints the important ones on the console too.

        The line gets ``alarms/<metric>`` for every rule of :mod:`comlrl_agents.alarms` that holds on it, with
        the number of lines it has held on so far; a rule that begins to hold is said on the console.
        Raises TypeError for a value that is no number.
        """
        values = {name: _number(name, value) for name, value in metrics.items()}
        alarms = self._alarms.check(values)
        values.update({f"alarms/{alarm.name}": alarm.count for alarm in alarms})
        self._journals[METRICS].append({"step": step, **values})
        for sink in self._open_sinks():
            sink.log(step, values)
        if show:
            self.console(headline(step, values))
        for alarm in alarms:
            if alarm.new:
                self.console(f"warning at step {step}: {alarm.text}", style="yellow")

    def log_time(self, step: int, seconds: Mapping[str, float]) -> None:
        """Record wall-clock seconds by phase; no two runs agree on them, so they are no metrics."""
        values = {f"time/{name}": _number(name, value) for name, value in seconds.items()}
        self._journals[TIMINGS].append({"step": step, **values})
        for sink in self._open_sinks():
            sink.log(step, values)

    def log_samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Record joint responses as they were, one line each.

        :mod:`comlrl_agents.report` says which keys it shows.
        """
        for row in rows:
            self._journals[SAMPLES].append({"step": step, **row})

    def console(self, text: str, style: str = "") -> None:
        """Print a line, if the console is wanted at all."""
        if self._terminal is not None:
            self._terminal.line(text, style)

    def progress(self, round: int, rounds: int, phase: str, done: int, total: int, **shown: float) -> None:
        """Show progress inside a round: live on a terminal, now and then a line elsewhere."""
        if self._terminal is not None:
            self._terminal.progress(round, rounds, phase, done, total, shown)

    def position(self) -> dict[str, int]:
        """How many bytes each file has, all of them on disk: for a checkpoint. A fresh run has zeros."""
        return {name: journal.position() for name, journal in self._journals.items()}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Drop everything written after ``position`` was taken; call it before the first value is logged.

        TensorBoard hides the steps that will be logged again. Raises CheckpointError, before any file is
        changed, when a file is shorter than its position or the position does not name exactly these files.
        """
        if set(position) != set(self._journals):
            raise CheckpointError(
                f"tracker position: expected the files {', '.join(self._journals)}, "
                f"actually {', '.join(position) or 'none'}; "
                "the checkpoint was written by another version: resume with that one"
            )
        for name, journal in self._journals.items():
            journal.require(position[name])
        for name, journal in self._journals.items():
            journal.truncate(position[name])
        self._alarms = Alarms()
        self._purge_step = 0
        for line in read_numbers(self.folder / METRICS):
            step = int(line.pop("step"))
            self._alarms.check({name: value for name, value in line.items() if not name.startswith("alarms/")})
            self._purge_step = step + 1

    def close(self) -> None:
        """Close all sinks and take the live line away; a second call does nothing."""
        for sink in self._sinks or ():
            sink.close()
        self._sinks = []
        if self._terminal is not None:
            self._terminal.close()

    def __enter__(self) -> Self:
        """The tracker itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also after an error."""
        self.close()

    def _open_sinks(self) -> list[Sink]:
        if self._sinks is None:
            self._sinks = [make(self.folder, self._purge_step) for make in self._makers]
        return self._sinks


def weighted_means(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Each figure's mean over updates, each with its size: one of twice as many pairs or items counts twice."""
    if not updates:
        return {}
    sizes = [size for size, _ in updates]
    return {name: math.fsum(size * stats[name] for size, stats in updates) / sum(sizes) for name in updates[0][1]}


def headline(step: int, metrics: Mapping[str, float]) -> str:
    """One line with the metrics that a person watches; all of them when none of those is there."""
    names = [name for name in HEADLINE if name in metrics] or list(metrics)
    return "  ".join([f"step {step:,}", *(f"{name} {format_number(metrics[name])}" for name in names)])


def _number(name: str, value: Any) -> float:
    """A Python int or float from a Python, NumPy or torch number."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"metric {name!r}: expected a number, actually {type(value).__name__}: {value!r}")
    return value
