"""Rules that notice a run going wrong, from the numbers that it logs anyway.

An alarm is named after the metric it watches. A rule looks only at lines that carry its metric, so
"in a row" and "first" count those lines. The rules and their thresholds:

==============================  ============================================================================
``loss``                        within 5e-4 of ln 2 = 0.6931 three times in a row: the winner equals the loser
``logps/chosen``                means of the last 4 values of both ``logps/chosen`` and ``logps/rejected`` at
                                least 10 % below the means of the 4 before: both answers become unlikely
``agent_i/drift``               at least 1.5 nats below its first value, and at least twice as far from zero:
                                the samples no longer look like language to the initial weights
``*/mean_length``               below a quarter of its first value: the answers shrink away
``agent_i/repetition``          above 0.5, and at least 0.2 above its first value
``completions/clipped_ratio``   at least 0.95: nearly all answers are cut at ``max_new_tokens``
``rollout/reward_std``          0 three times in a row, all rewards one and the same number, and no critic that could
                                still learn it: answers that are worth the same teach a group nothing
``reward_check/task_mean``      of the last 6 to 8 values the second half has a mean of the task's reward at least 25 %
                                lower than the first, and the learned one rose within the rounds (each has a reward
                                model of its own): the reward model is deceived
``oracle/error_rate``,          above 0: a broken oracle is not a bad answer, and no pair is made from it
``oracle/timeout_rate``
``non_finite``                  any logged value is NaN or infinite
==============================  ============================================================================
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LN_2 = math.log(2)
STUCK = 3
WINDOW = 4
LEAST_HALF = 3
ALIKE = 1e-9
"""Means and deviations of one number repeated differ from it by rounding."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One rule that holds on one logged line.

    ``count``: on how many lines so far; ``new``: it did not hold the last time its metric was seen.
    """

    name: str
    text: str
    count: int
    new: bool


class Alarms:
    """The state of all rules: a pure function of the lines fed to it, so feeding a log again restores it."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._recent: dict[str, deque[float]] = {}
        self._checks: deque[tuple[float, float, float]] = deque(maxlen=2 * WINDOW)  # round, learned, task
        self._counts: dict[str, int] = {}
        self._ringing: set[str] = set()

    def check(self, metrics: Mapping[str, float]) -> list[Alarm]:
        """Take in one line of metrics and say which rules hold on it."""
        broken = [name for name, value in metrics.items() if not math.isfinite(value)]
        for name, value in metrics.items():
            if name not in broken:
                self._first.setdefault(name, value)
                self._recent.setdefault(name, deque(maxlen=2 * WINDOW)).append(value)
        learned, task = (metrics.get(f"reward_check/{name}_mean", math.nan) for name in ("learned", "task"))
        if math.isfinite(learned) and math.isfinite(task):
            self._checks.append((metrics.get("round", 1), learned, task))
        found = []
        for name, text in self._verdicts(metrics, broken):
            if text is None:
                self._ringing.discard(name)
                continue
            self._counts[name] = self._counts.get(name, 0) + 1
            found.append(Alarm(name, text, self._counts[name], new=name not in self._ringing))
            self._ringing.add(name)
        return found

    def _verdicts(self, metrics: Mapping[str, float], broken: list[str]) -> Iterator[tuple[str, str | None]]:
        """Every rule that this line lets us judge, with its warning or None."""
        yield "non_finite", f"not finite: {', '.join(broken)}" if broken else None
        for name, value in metrics.items():
            if name in broken:
                continue
            kind = name.rsplit("/", 1)[-1]
            if name == "loss":
                yield name, self._loss_stuck()
            elif name == "logps/chosen":
                yield name, self._both_falling()
            elif kind == "drift":
                yield name, self._drifted(name, value)
            elif kind == "mean_length":
                yield name, self._shrunk(name, value)
            elif kind == "repetition":
                yield name, self._repeats(name, value)
            elif name == "completions/clipped_ratio":
                yield name, _clipped(value)
            elif name == "rollout/reward_std" and "value/loss" not in metrics:
                yield name, self._all_alike()
            elif name == "reward_check/task_mean":
                yield name, self._deceived()
            elif name in ("oracle/error_rate", "oracle/timeout_rate"):
                yield name, _oracle_fails(name, value)

    def _loss_stuck(self) -> str | None:
        last = list(self._recent["loss"])[-STUCK:]
        if len(last) < STUCK or any(abs(loss - LN_2) > 5e-4 for loss in last):
            return None
        return (
            f"the loss stays at {last[-1]:.4f} (ln 2): winner and loser get the same log-probability; look at the pairs"
        )

    def _all_alike(self) -> str | None:
        spreads = list(self._recent["rollout/reward_std"])[-STUCK:]
        means = list(self._recent.get("rollout/reward_mean", ()))[-STUCK:]
        if len(means) < STUCK or max(*spreads, max(means) - min(means)) > ALIKE * max(1.0, abs(means[-1])):
            return None
        return (
            f"every reward on the last {STUCK} logged lines is {means[-1]:.4g}, and a group of answers that are worth "
            "the same teaches nothing: the task is done, or out of reach; see samples.jsonl"
        )

    def _both_falling(self) -> str | None:
        changes = []
        for name in ("logps/chosen", "logps/rejected"):
            values = list(self._recent.get(name, ()))
            if len(values) < 2 * WINDOW:
                return None
            before, after = sum(values[:WINDOW]) / WINDOW, sum(values[WINDOW:]) / WINDOW
            if after > before - 0.1 * abs(before):
                return None
            changes.append(f"{name} from {before:.4g} to {after:.4g}")
        return f"{' and '.join(changes)}: winners become unlikely too; lower the learning rate, or add a winner term"

    def _deceived(self) -> str | None:
        checks = list(self._checks)
        half = len(checks) // 2
        if half < LEAST_HALF:
            return None
        before, after = (_mean([task for _, _, task in some]) for some in (checks[:half], checks[-half:]))
        rise = sum(_rise([own for at, own, _ in checks if at == number]) for number in {at for at, _, _ in checks})
        if rise <= 0 or after > before - 0.25 * abs(before):
            return None
        return (
            f"the learned reward rose by {rise:.3g} while the task's fell from {before:.3g} to {after:.3g}: the team "
            "deceives its reward model; train for fewer epochs, raise reference_kl_coef, or take more pairs, or rounds"
        )

    def _drifted(self, name: str, value: float) -> str | None:
        first = self._first[name]
        if value > first - max(1.5, abs(first)):
            return None
        return (
            f"{name} fell from {first:.3g} to {value:.3g} nats: "
            "the samples no longer look like the initial model's language"
        )

    def _shrunk(self, name: str, value: float) -> str | None:
        first = self._first[name]
        if value >= 0.25 * first:
            return None
        return f"{name} fell from {first:.3g} to {value:.3g} tokens: the answers shrink away"

    def _repeats(self, name: str, value: float) -> str | None:
        first = self._first[name]
        if value <= 0.5 or value < first + 0.2:
            return None
        return f"{name} rose from {first:.2f} to {value:.2f}: the answers repeat themselves"


def _rise(values: list[float]) -> float:
    """How far the second half of the values lies above the first on average; 0 of one value."""
    half = len(values) // 2
    return _mean(values[-half:]) - _mean(values[:half]) if half else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _clipped(value: float) -> str | None:
    if value < 0.95:
        return None
    return f"{value:.0%} of the answers are cut at max_new_tokens: raise it, or ask for shorter answers"


def _oracle_fails(name: str, value: float) -> str | None:
    if value <= 0:
        return None
    return f"{name} is {value:.2%}: these joint responses have no score and make no pair"
