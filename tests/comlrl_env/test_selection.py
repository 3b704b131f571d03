"""Pair selection against the specification's examples and against a naive implementation of its words."""

import itertools
import math
import time
from collections import Counter

import numpy as np
import pytest

from comlrl_env.errors import ConfigError, RewardError
from comlrl_env.pair_counts import count_comparisons, count_pool
from comlrl_env.selection import check_selection, select_comparisons, select_pairs

NAN = math.nan


def usable_pairs(returns, same=lambda i, j: False):
    return [
        (i, j) for i in range(len(returns)) for j in range(len(returns)) if returns[i] > returns[j] and not same(i, j)
    ]


def by_gap(returns, pairs):
    return sorted(pairs, key=lambda pair: -(returns[pair[0]] - returns[pair[1]]))  # sorted() is stable


def naive_diverse(returns, limit, same=lambda i, j: False):
    left = by_gap(returns, usable_pairs(returns, same))
    if limit is None or limit >= len(left):
        return left
    uses, kept = Counter(), []
    while len(kept) < limit:
        best = min(left, key=lambda pair: sorted((uses[pair[0]], uses[pair[1]])))
        left.remove(best)
        kept.append(best)
        uses.update(best)
    return kept


def naive_comparisons(current, comparator):
    """All comparisons in the order of k, as (winner, loser, comparator's return, gap)."""
    found = []
    for k in range(min(len(current), len(comparator))):
        ours, theirs = current[k], comparator[k]
        if ours > theirs:
            found.append((k, len(current) + k, theirs, ours - theirs))
        elif theirs > ours:
            found.append((len(current) + k, k, theirs, theirs - ours))
    return found


def score_lists(longest, values):
    for length in range(longest + 1):
        yield from itertools.product(values, repeat=length)


def test_examples_of_the_specification():
    assert select_pairs([1, 3, 2, 3], "reward_gap", 4) == [(1, 0), (3, 0), (1, 2), (2, 0)]
    assert select_pairs([0, 1, 0, 1, 0], "reward_gap", 3) == [(1, 0), (1, 2), (1, 4)]
    assert select_pairs([1, 3, 2, 3], "all", None) == [(1, 0), (1, 2), (2, 0), (3, 0), (3, 2)]
    # comparator0 > current0, current1 > comparator1, comparator3 > current3; the fifth has no partner
    assert select_comparisons([1, 5, 2, 0], [3, 3, 2, 1, 9], "comparator_reward", None) == [
        (4, 0),
        (1, 5),
        (7, 3),
    ]


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 7])
def test_one_pool_equals_brute_force(limit):
    for returns in score_lists(5, (0.0, 1.0, 2.5, NAN)):
        pairs = usable_pairs(returns)
        assert select_pairs(returns, "reward_gap", limit) == by_gap(returns, pairs)[:limit]
        assert select_pairs(returns, "diverse", limit) == naive_diverse(returns, limit)
        if limit is None:
            assert select_pairs(returns, "all", limit) == pairs


@pytest.mark.parametrize("limit", [None, 1, 2, 4])
def test_two_sides_equal_brute_force(limit):
    values = (0.0, 1.0, 2.5, NAN)
    for current in score_lists(3, values):
        for comparator in score_lists(3, values):
            found = naive_comparisons(current, comparator)
            plain = [(winner, loser) for winner, loser, _, _ in found]
            gap = [(w, lo) for w, lo, _, _ in sorted(found, key=lambda entry: -entry[3])]
            theirs = [(w, lo) for w, lo, _, _ in sorted(found, key=lambda entry: (-entry[2], -entry[3]))]
            assert select_comparisons(current, comparator, "reward_gap", limit) == gap[:limit]
            assert select_comparisons(current, comparator, "diverse", limit) == gap[:limit]
            assert select_comparisons(current, comparator, "comparator_reward", limit) == theirs[:limit]
            if limit is None:
                assert select_comparisons(current, comparator, "all", limit) == plain


@pytest.mark.parametrize("mode", ["reward_gap", "diverse", "random", "all"])
def test_random_scores_with_ties_and_identical_responses(mode):
    rng = np.random.default_rng(3)
    for _ in range(200):
        count = int(rng.integers(1, 12))
        returns = rng.choice([0.0, 0.1, 0.2, 0.7, 1.0, NAN], size=count).tolist()
        texts = rng.integers(0, 4, size=count).tolist()
        limit = None if mode == "all" else int(rng.integers(1, 9))

        def same(i, j, texts=texts):
            return texts[i] == texts[j]

        pairs = select_pairs(returns, mode, limit, rng, same=same)
        usable = usable_pairs(returns, same)
        if mode == "reward_gap":
            assert pairs == by_gap(returns, usable)[:limit]
        elif mode == "all":
            assert pairs == usable
        elif mode == "diverse" and limit < len(usable):
            assert pairs == naive_diverse(returns, limit, same)
        assert set(pairs) <= set(usable)
        assert len(pairs) == len(set(pairs)) == min(len(usable), limit or len(usable))


def test_diverse_uses_everyone_once_before_anyone_twice():
    returns = np.random.default_rng(0).permutation(80) / 80
    pairs = select_pairs(returns, "diverse", 16)
    assert len({index for pair in pairs for index in pair}) == 32
    assert len({winner for winner, _ in select_pairs(returns, "reward_gap", 16)}) < 9  # what it mends
    forty = select_pairs(returns, "diverse", 40)
    assert sorted(index for pair in forty for index in pair) == list(range(80))
    more = select_pairs(returns, "diverse", 80)
    assert more[:40] == forty
    assert set(Counter(index for pair in more for index in pair).values()) == {2}


def test_diverse_by_hand():
    # gaps: (4,0) 4, (3,0) (4,1) 3 …; after (4,0) and (3,1) only 2 is unused, and (2,0) comes before (4,2)
    assert select_pairs([0, 1, 2, 3, 4], "diverse", 5) == [(4, 0), (3, 1), (2, 0), (4, 1), (3, 2)]
    # losers tie, so 2, 3 and 4 can only meet used winners, and these take turns
    assert select_pairs([10, 9, 0, 0, 0], "diverse", 3) == [(0, 2), (1, 3), (0, 4)]
    assert select_pairs([1, 0, 0, 0], "diverse", 2) == [(0, 1), (0, 2)]


def test_random_is_an_unbiased_subset():
    returns, draws = [0, 1, 1, 3, NAN], 6000
    usable = usable_pairs(returns)
    rng = np.random.default_rng(11)
    seen = Counter()
    for _ in range(draws):
        seen.update([tuple(select_pairs(returns, "random", 2, rng))])
    subsets = list(itertools.combinations(usable, 2))
    assert set(seen) == set(subsets)
    expected = draws / len(subsets)
    chi_square = sum((seen[subset] - expected) ** 2 / expected for subset in subsets)
    assert chi_square < 29.6  # 99.9 % of chi-square with 10 - 1 … 9 degrees of freedom lie below 27.9


def test_random_stays_unbiased_when_identical_responses_are_dropped():
    returns = [0, 1, 2]
    rng = np.random.default_rng(5)
    seen = Counter()
    for _ in range(4000):
        (pair,) = select_pairs(returns, "random", 1, rng, same=lambda i, j: (i, j) == (2, 0))
        seen[pair] += 1
    assert set(seen) == {(1, 0), (2, 1)}
    assert abs(seen[1, 0] - 2000) < 4 * math.sqrt(1000)


def test_random_depends_on_its_stream_only():
    returns = list(range(10))
    first = select_pairs(returns, "random", 5, np.random.default_rng(1))
    assert first == select_pairs(returns, "random", 5, np.random.default_rng(1))
    assert first != select_pairs(returns, "random", 5, np.random.default_rng(2))
    assert select_pairs(returns, "random", None, np.random.default_rng(1)) == usable_pairs(returns)
    two = select_comparisons([1, 0, 3, 0], [0, 1, 0, 0], "random", 2, np.random.default_rng(0))
    assert len(two) == 2
    assert set(two) <= {(0, 4), (5, 1), (2, 6)}
    with pytest.raises(ConfigError, match="expected rng=Generator, actually None"):
        select_pairs(returns, "random", 5)


def test_same_is_asked_about_pairs_about_to_be_kept_and_the_limit_counts_after_it():
    asked = []

    def same(winner, loser):
        asked.append((winner, loser))
        return loser == 1

    assert select_comparisons([9, 1, 5], [4, 2, 4.5], "reward_gap", 2, same=same) == [(0, 3), (2, 5)]
    assert asked == [(0, 3), (4, 1), (2, 5)]
    assert select_pairs([1, 3, 2, 3], "reward_gap", 2, same=lambda i, j: i == 1) == [(3, 0), (2, 0)]


def test_a_thousand_candidates_are_fast():
    returns = np.random.default_rng(0).random(1000)
    for mode, limit in (("reward_gap", 16), ("diverse", 16), ("random", 16)):
        best = math.inf
        for _ in range(3):  # processor time, because the machine may be busy
            start = time.process_time()
            pairs = select_pairs(returns, mode, limit, np.random.default_rng(0), same=lambda i, j: False)
            best = min(best, time.process_time() - start)
        assert len(pairs) == 16
        assert best < 0.2, mode


@pytest.mark.parametrize(
    ("mode", "limit", "text"),
    [
        (
            "gap",
            4,
            "pair_selection: expected one of reward_gap, random, all, diverse, comparator_reward, ",
        ),
        ("all", 4, "expected preference_pairs_per_sample=None, actually 4"),
        ("reward_gap", 0, "preference_pairs_per_sample: expected None .* actually 0"),
        ("reward_gap", True, "actually True"),
        ("reward_gap", 2.0, "actually 2.0"),
        ("comparator_reward", 4, "one pool and no comparator"),
    ],
)
def test_illegal_choices(mode, limit, text):
    with pytest.raises(ConfigError, match=text):
        check_selection(mode, limit, two_sides=False)
    with pytest.raises(ConfigError, match=text):
        select_pairs([0, 1], mode, limit)


def test_infinite_and_shapeless_returns_are_refused():
    with pytest.raises(RewardError, match="actually inf for candidate 1"):
        select_pairs([0, math.inf], "reward_gap", 1)
    with pytest.raises(RewardError, match=r"comparator: .* actually -inf for candidate 0"):
        select_comparisons([0], [-math.inf], "reward_gap", 1)
    with pytest.raises(RewardError, match=r"shape \(1, 2\)"):
        select_pairs([[0, 1]], "reward_gap", 1)


def naive_counts(returns, responses, compared):
    ties = duplicates = 0
    for i, j in compared:
        if math.isnan(returns[i]) or math.isnan(returns[j]):
            continue
        if responses[i] == responses[j]:
            duplicates += 1
        elif returns[i] == returns[j]:
            ties += 1
    return ties, duplicates


def test_counts_equal_brute_force():
    rng = np.random.default_rng(9)
    for _ in range(300):
        count = int(rng.integers(0, 9))
        returns = rng.choice([0.0, 0.5, 1.0, NAN], size=count).tolist()
        responses = [("a", str(label)) for label in rng.integers(0, 3, size=count)]
        counts = count_pool(returns, responses, [])
        assert (counts.ties, counts.duplicates) == naive_counts(
            returns, responses, itertools.combinations(range(count), 2)
        )
        assert counts.failed == sum(map(math.isnan, returns))
        first = int(rng.integers(0, count + 1))
        compared = [(k, first + k) for k in range(min(first, count - first))]
        counts = count_comparisons(returns, responses, first, [])
        assert (counts.ties, counts.duplicates) == naive_counts(returns, responses, compared)


def test_counts_of_what_was_kept():
    counts = count_pool([1, 3, 2, 3], "abcd", [(1, 0), (3, 0), (1, 2)], dropped=2)
    assert (counts.kept, counts.distinct_winners, counts.distinct_losers) == (3, 2, 2)
    assert counts.gap_mean == pytest.approx(5 / 3)
    assert (counts.ties, counts.duplicates, counts.failed) == (1, 2, 0)
    assert math.isnan(count_pool([1, 1], "ab", []).gap_mean)
