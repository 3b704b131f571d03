"""What became of an item's candidates: how many pairs were kept, and why the others were not."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from comlrl_env.selection import Pair


class PairCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts for one item.

    ``kept``: pairs selected. ``duplicates``: compared pairs whose two joint responses are identical, whatever
    their scores. ``ties``: compared pairs of different responses with equal scores. ``failed``: candidates
    that the oracle could not score. ``distinct_winners``, ``distinct_losers``: different joint responses on that
    side of the kept pairs. ``gap_mean``: mean difference of the returns in kept pairs, NaN if there is none.
    """

    kept: int
    ties: int
    duplicates: int
    failed: int
    distinct_winners: int
    distinct_losers: int
    gap_mean: float


def count_pool(
    returns: Sequence[float], responses: Sequence[Hashable], kept: Sequence[Pair], dropped: int = 0
) -> PairCounts:
    """Count one pool, where every two candidates are compared.

    ``responses``: the joint response of each candidate, equal exactly where two candidates are identical.
    ``dropped``: duplicates beyond these that the selection refused to keep.
    """
    scored = [index for index, value in enumerate(returns) if not math.isnan(value)]
    alike = _twins(responses[index] for index in scored)
    level = _twins(returns[index] for index in scored)
    both = _twins((responses[index], returns[index]) for index in scored)
    return _counts(returns, responses, kept, ties=level - both, duplicates=alike + dropped)


def count_comparisons(
    returns: Sequence[float],
    responses: Sequence[Hashable],
    first: int,
    kept: Sequence[Pair],
    dropped: int = 0,
) -> PairCounts:
    """Count two sides, where candidate k meets candidate ``first`` + k only; arguments as for a pool."""
    ties = duplicates = 0
    for mine, theirs in enumerate(range(first, min(2 * first, len(returns)))):
        if math.isnan(returns[mine]) or math.isnan(returns[theirs]):
            continue
        if responses[mine] == responses[theirs]:
            duplicates += 1
        elif returns[mine] == returns[theirs]:
            ties += 1
    return _counts(returns, responses, kept, ties=ties, duplicates=duplicates + dropped)


def _twins(values: Iterable[Hashable]) -> int:
    """The number of unordered pairs of equal values."""
    return sum(count * (count - 1) // 2 for count in Counter(values).values())


def _counts(
    returns: Sequence[float], responses: Sequence[Hashable], kept: Sequence[Pair], *, ties: int, duplicates: int
) -> PairCounts:
    gaps = [returns[winner] - returns[loser] for winner, loser in kept]
    return PairCounts(
        kept=len(kept),
        ties=ties,
        duplicates=duplicates,
        failed=sum(math.isnan(value) for value in returns),
        distinct_winners=len({responses[winner] for winner, _ in kept}),
        distinct_losers=len({responses[loser] for _, loser in kept}),
        gap_mean=math.fsum(gaps) / len(gaps) if gaps else math.nan,
    )
