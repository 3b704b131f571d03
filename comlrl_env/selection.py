"""Which candidates become preference pairs: pure rules over scores, without environments and texts.

Everywhere a pair is ``(winner index, loser index)``, the winner scored strictly higher, and a return of NaN
(the oracle failed) never takes part.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from comlrl_env.errors import ConfigError, RewardError

PairSelection = Literal["reward_gap", "random", "all", "diverse", "comparator_reward"]
Pair = tuple[int, int]
Same = Callable[[int, int], bool]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_TAKEN = np.iinfo(np.int64).max


def check_selection(mode: str, limit: int | None, *, two_sides: bool = True) -> None:
    """Refuse an unknown ``mode``, an illegal ``limit``, or a senseless combination, with ConfigError.

    ``limit``: pairs kept per item (``preference_pairs_per_sample``), None for no limit. ``two_sides``:
    whether there is a comparator's side, which ``comparator_reward`` needs.
    """
    if mode not in get_args(PairSelection):
        raise ConfigError(f"pair_selection: expected one of {', '.join(get_args(PairSelection))}, actually {mode!r}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(
            f"preference_pairs_per_sample: expected None (no limit) or an integer ≥ 1, actually {limit!r}"
        )
    if mode == "all" and limit is not None:
        raise ConfigError(
            f"pair_selection='all' keeps every pair: expected preference_pairs_per_sample=None, actually {limit!r}"
        )
    if mode == "comparator_reward" and not two_sides:
        raise ConfigError(
            "pair_selection='comparator_reward' orders pairs by the comparator's reward, but there is one "
            "pool and no comparator: use 'reward_gap', 'random', 'all' or 'diverse', or compare two sides"
        )


def select_pairs(
    returns: Sequence[float],
    mode: PairSelection,
    limit: int | None,
    rng: np.random.Generator | None = None,
    *,
    same: Same | None = None,
) -> list[Pair]:
    """Choose pairs from one pool of candidates of one item.

    The usable pairs are all (i, j) with ``returns[i] > returns[j]`` that are not ``same``, in the order
    "i outer, j inner".

    - ``reward_gap``: stable sort by gap, largest first; the first ``limit``.
    - ``random``: a uniformly random subset of size ``limit``, listed in (i, j) order; needs ``rng``.
    - ``all``: every usable pair in (i, j) order; needs ``limit=None``.
    - ``diverse``: pairs are taken one at a time. Each time it is the pair whose less used member has been
      used least; among these the one whose more used member has been used least; among these the first in
      ``reward_gap`` order. No pair is taken twice. So a candidate is used again only when every other
      candidate with a usable gap has been used, or has none but used partners left. Without a limit there
      is nothing to choose, and the pairs come in ``reward_gap`` order.

    ``same(i, j)`` says that two candidates are the same joint response. It is asked only about pairs that
    would be kept, and the limit counts after it.

    Raises ConfigError for an illegal combination and RewardError for an infinite return.
    """
    check_selection(mode, limit, two_sides=False)
    scores = _scores(returns, "returns")
    winners, losers = np.nonzero(scores[:, None] > scores[None, :])
    if mode == "random":
        return sorted(_draw(winners, losers, limit, rng, same))
    if mode == "all":
        return _first(winners, losers, None, same)
    narrowness = scores[losers] - scores[winners]
    kept: list[Pair] = []
    if mode == "reward_gap" and limit is not None:  # sorting a few is enough, unless they are the same twice
        front = _smallest(narrowness, limit)
        kept = _first(winners[front], losers[front], limit, same)
    if len(kept) == limit:
        return kept
    order = np.argsort(narrowness, kind="stable")
    winners, losers = winners[order], losers[order]
    if mode == "diverse" and limit is not None and limit < len(winners):
        return _spread(winners, losers, len(scores), limit, same)
    return _first(winners, losers, limit, same)


def select_comparisons(
    current: Sequence[float],
    comparator: Sequence[float],
    mode: PairSelection,
    limit: int | None,
    rng: np.random.Generator | None = None,
    *,
    same: Same | None = None,
) -> list[Pair]:
    """Choose pairs between two sides: the team's candidate k against the comparator's candidate k only.

    k runs below the smaller of the two counts, and either side can win. Indices count through the team's
    candidates and then the comparator's, whose candidate k is ``len(current) + k``. The modes are those of
    :func:`select_pairs` over these comparisons in the order of k, and ``comparator_reward``: stable sort by
    (comparator's return, gap), largest first. Every candidate meets one other only, so ``diverse`` equals
    ``reward_gap``.

    ``same(winner, loser)`` is asked with the same indices. Raises as :func:`select_pairs` does.
    """
    check_selection(mode, limit)
    ours, theirs = _scores(current, "current"), _scores(comparator, "comparator")
    count = min(len(ours), len(theirs))
    difference = ours[:count] - theirs[:count]
    usable = np.nonzero(np.abs(difference) > 0)[0]
    we_win = difference[usable] > 0
    theirs_index = len(ours) + usable
    winners = np.where(we_win, usable, theirs_index)
    losers = np.where(we_win, theirs_index, usable)
    if mode == "random":
        return sorted(_draw(winners, losers, limit, rng, same), key=min)
    if mode != "all":
        gap = np.abs(difference[usable])
        order = np.lexsort((-gap, -theirs[usable])) if mode == "comparator_reward" else np.argsort(-gap, kind="stable")
        winners, losers = winners[order], losers[order]
    return _first(winners, losers, limit, same)


def _scores(values: Sequence[float], name: str) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1:
        raise RewardError(f"{name}: expected one number per candidate, actually an array of shape {scores.shape}")
    if np.isinf(scores).any():
        index = int(np.nonzero(np.isinf(scores))[0][0])
        raise RewardError(
            f"{name}: expected finite numbers, or NaN for a candidate that could not be scored, actually "
            f"{scores[index]} for candidate {index}: mend the reward or its processor"
        )
    return scores


def _smallest(values: Floats, count: int) -> Ints:
    """The start of the stable ascending order, at least ``count`` long where there are so many."""
    if count >= len(values):
        return np.argsort(values, kind="stable")
    bound = np.partition(values, count - 1)[count - 1]
    front = np.nonzero(values <= bound)[0]
    return front[np.argsort(values[front], kind="stable")]


def _first(winners: Ints, losers: Ints, limit: int | None, same: Same | None) -> list[Pair]:
    """The first ``limit`` pairs that are not the same response twice."""
    if same is None:
        return list(zip(winners[:limit].tolist(), losers[:limit].tolist(), strict=True))
    kept: list[Pair] = []
    for start in range(0, len(winners), 4096):  # in blocks: most walks end in the first one
        block = slice(start, start + 4096)
        for pair in zip(winners[block].tolist(), losers[block].tolist(), strict=True):
            if len(kept) == limit:
                return kept
            if not same(*pair):
                kept.append(pair)
    return kept


def _draw(
    winners: Ints, losers: Ints, limit: int | None, rng: np.random.Generator | None, same: Same | None
) -> list[Pair]:
    """The first ``limit`` pairs of a random order: an unbiased subset, also after ``same`` dropped some."""
    if rng is None:
        raise ConfigError("pair_selection='random' draws from a random stream: expected rng=Generator, actually None")
    if limit is not None:
        order = rng.permutation(len(winners))
        winners, losers = winners[order], losers[order]
    return _first(winners, losers, limit, same)


def _spread(winners: Ints, losers: Ints, count: int, limit: int, same: Same | None) -> list[Pair]:
    """The ``diverse`` rule on pairs in the order of their gaps: a step is one scan and two rows updated.

    ``burden`` of a pair: uses of its less used member, then of its more used member, as one integer.
    """
    place = np.full((count, count), -1, dtype=np.intp)
    place[winners, losers] = place[losers, winners] = np.arange(len(winners))
    burden = np.zeros(len(winners), dtype=np.int64)
    uses = np.zeros(count, dtype=np.int64)
    kept: list[Pair] = []
    while len(kept) < limit:
        best = int(np.argmin(burden))  # the first minimum, so the largest gap among equals
        if burden[best] == _TAKEN:
            break
        burden[best] = _TAKEN
        pair = int(winners[best]), int(losers[best])
        if same is not None and same(*pair):
            continue
        kept.append(pair)
        for member in pair:
            uses[member] += 1
        for member in pair:
            partners = np.nonzero(place[member] >= 0)[0]
            pairs = place[member, partners]
            fresh = burden[pairs] != _TAKEN
            partners, pairs = partners[fresh], pairs[fresh]
            low, high = np.minimum(uses[member], uses[partners]), np.maximum(uses[member], uses[partners])
            burden[pairs] = (low << 32) + high
    return kept
