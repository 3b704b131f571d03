"""The replay buffer: which stored pairs of this and earlier rounds a round trains on (ALGORITHMS 7)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

import numpy as np

from comlrl_env.records import RoundFile, write_round
from comlrl_env.types import PreferencePair

ReplayMode = Literal["current", "nearest_k", "all_history", "lambda_decay"]


@dataclass(frozen=True, slots=True)
class ReplayRule:
    """Which rounds are eligible and with what weight; ``sample_size`` None draws as many pairs as the round has."""

    mode: ReplayMode = "current"
    k: int | None = None
    decay: float | None = None
    sample_size: int | None = None


def round_weights(rule: ReplayRule, num_rounds: int) -> np.ndarray:
    """The probability of each eligible round, newest first; sums to 1.

    λ-decay: w_a = λ^a / Σ_j λ^j for age a = 0..K−1 (0 the newest; 0^0 = 1). The other modes weigh their rounds equally,
    whatever their sizes.
    """
    eligible = {"current": 1, "nearest_k": rule.k or num_rounds}.get(rule.mode, num_rounds)
    ages = np.arange(min(eligible, num_rounds))
    weights = np.power(rule.decay, ages) if rule.decay is not None else np.ones(len(ages))
    return np.asarray(weights / weights.sum())


def candidate_means(pairs: Sequence[PreferencePair]) -> dict[str, float]:
    """Mean score of the candidates that the pairs came from: ``turn_1/reward_mean`` and ``turn_1/expected_return`` of
    those that the task scored, ``turn_1/learned_reward_mean`` of the others, which no curve should show beside them.
    """
    means: dict[str, float] = {}
    for by_task, names in (
        (True, ("turn_1/reward_mean", "turn_1/expected_return")),
        (False, ("turn_1/learned_reward_mean",)),
    ):
        known = [pair.candidate_reward_mean for pair in pairs if pair.by_task == by_task]
        means |= dict.fromkeys(names, math.fsum(known) / len(known)) if known else {}
    return means


def draw_within(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` indices below ``size``: none twice while they fit, else whole shuffled copies and a remainder."""
    copies = [rng.permutation(size) for _ in range(-(-count // size))]
    return np.concatenate(copies)[:count]


class PairSample(Sequence[PreferencePair]):
    """Drawn pairs, each read from its round file only when it is asked for, so that memory stays constant."""

    def __init__(self, places: Sequence[tuple[int, int]], files: dict[int, RoundFile]) -> None:
        self.places = list(places)
        self._files = files

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> PreferencePair: ...
    @overload
    def __getitem__(self, index: slice) -> "PairSample": ...
    def __getitem__(self, index: int | slice) -> "PreferencePair | PairSample":
        if isinstance(index, slice):
            return PairSample(self.places[index], self._files)
        iteration, position = self.places[index]
        return self._files[iteration][position]

    def __iter__(self) -> Iterator[PreferencePair]:
        for iteration, position in self.places:
            yield self._files[iteration][position]

    def round_shares(self) -> dict[str, float]:
        """``replay/round_i``: the share of this sample that comes from round i."""
        iterations, counts = np.unique([iteration for iteration, _ in self.places], return_counts=True)
        return {f"replay/round_{int(i)}": float(c / len(self.places)) for i, c in zip(iterations, counts, strict=True)}


class ReplayBuffer:
    """The rounds of one run on disk, and the rule that draws training pairs from them.

    Pointing ``folder`` at the files of an older run imports nothing: only rounds added here, or named by
    ``load_state_dict``, are eligible.
    """

    def __init__(self, folder: Path, rule: ReplayRule) -> None:
        self.folder = folder
        self.rule = rule
        self._files: dict[int, RoundFile] = {}

    @property
    def iterations(self) -> list[int]:
        """The non-empty rounds, oldest first."""
        return sorted(self._files)

    def add(self, iteration: int, pairs: Sequence[PreferencePair]) -> Path:
        """Write the round's file (also when empty) and make the round eligible when it has pairs."""
        path = write_round(self.folder, iteration, pairs)
        if pairs:
            self._files[iteration] = RoundFile(path)
        return path

    def size(self, iteration: int) -> int:
        """The number of pairs of a round, 0 for an empty one."""
        return len(self._files[iteration]) if iteration in self._files else 0

    def draw(self, iteration: int, rng: np.random.Generator) -> PairSample:
        """The training pairs of round ``iteration``, shuffled; empty when no round is eligible."""
        if self.rule.mode == "current":
            return PairSample([(iteration, i) for i in range(self.size(iteration))], self._files)
        newest_first = self.iterations[::-1]
        if not newest_first:
            return PairSample([], self._files)
        weights = round_weights(self.rule, len(newest_first))
        size = self.rule.sample_size or self.size(iteration) or self.size(newest_first[0])
        counts = np.bincount(rng.choice(len(weights), size=size, p=weights), minlength=len(weights))
        places = [
            (newest_first[age], int(position))
            for age, count in enumerate(counts)
            if count
            for position in draw_within(self.size(newest_first[age]), int(count), rng)
        ]
        return PairSample([places[i] for i in rng.permutation(len(places))], self._files)

    def sample(self, places: Sequence[tuple[int, int]]) -> PairSample:
        """The sample that a checkpoint remembers by its places."""
        return PairSample([(int(i), int(p)) for i, p in places], self._files)

    def state_dict(self) -> dict[str, list[int]]:
        """The index: which rounds are eligible. Their data lies in the round files."""
        return {"iterations": self.iterations}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Reopen the rounds that ``state`` names; their files must lie in ``folder``."""
        self._files = {i: RoundFile(self.folder / f"iteration_{i:04d}.json") for i in state["iterations"]}
