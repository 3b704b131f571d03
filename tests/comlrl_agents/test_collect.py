import math

import numpy as np
import pytest

from comlrl_agents.collect import collect, repetition
from comlrl_agents.evaluate import evaluate
from comlrl_agents.items import Reset
from comlrl_agents.sides import Side
from comlrl_agents.types import Generation
from comlrl_env.errors import RewardError
from comlrl_env.preferences import PreferenceWrapper
from tests.comlrl_agents.toys import ColourEnv
from tests.comlrl_env.foreign_envs import EchoEnv, LockedEnv


class Player:
    """Says its words one after another and remembers what it was asked."""

    def __init__(self, *words: str) -> None:
        self.words, self.asked = words, []

    def generate(self, prompts, n, rng):
        self.asked.append((list(prompts), n))
        return [[Generation(self.words[k % len(self.words)], (3, 2), True, (1, 7)) for k in range(n)] for _ in prompts]


def side(count, *players):
    return Side(players, [np.random.default_rng(i) for i in range(len(players))], count)


def run(team, comparator=None, env=None, items=1, **wrapper):
    wrapped = PreferenceWrapper(env or ColourEnv(), **wrapper)
    return collect(wrapped, [Reset(seed) for seed in range(items)], team, comparator, np.random.default_rng(0))


def test_one_pool_by_hand():
    # Rewards: (red, green) 1, (blue, green) 0.5, (red, blue) 0.5, (blue, blue) 0.
    team = side(4, Player("red", "blue", "red", "blue"), Player("green", "green", "blue", "blue"))
    result = run(team, pair_selection="reward_gap", preference_pairs_per_sample=2)
    assert [(p.winner[0].texts, p.loser[0].texts) for p in result.pairs] == [
        (("red", "green"), ("blue", "blue")),
        (("red", "green"), ("blue", "green")),
    ]
    first = result.pairs[0]
    assert (first.winner_reward, first.loser_reward, first.candidate_reward_mean) == (1.0, 0.0, 0.5)
    assert first.raw_rewards is None
    assert first.winner[0].completions[0].token_ids == (3, 2)
    assert first.winner[0].prompt_ids == ((1, 7), (1, 7))
    metrics = result.metrics()
    assert metrics["pairs/kept"] == 2
    assert metrics["pairs/ties"] == 1
    assert metrics["pairs/gap_mean"] == pytest.approx(0.75)
    assert metrics["pairs/distinct_winners"] == 1
    assert metrics["collect/reward_mean"] == 0.5


def test_two_sides_compare_index_by_index_and_either_can_win():
    team = side(3, Player("red", "blue", "red"), Player("green", "blue", "blue"))  # 1, 0, 0.5
    other = side(2, Player("blue", "red"), Player("blue", "green"))  # 0, 1
    result = run(team, other, pair_selection="comparator_reward", preference_pairs_per_sample=None)
    assert [(p.winner[0].texts, p.loser[0].texts) for p in result.pairs] == [
        (("red", "green"), ("blue", "blue")),  # the comparator's 1 wins over the team's 0
        (("red", "green"), ("blue", "blue")),
    ]
    assert [(p.target_raw_reward, p.comparator_raw_reward) for p in result.pairs] == [(0.0, 1.0), (1.0, 0.0)]
    assert [p.raw_rewards for p in result.pairs] == [(1.0, 0.0), (1.0, 0.0)]
    assert all(p.candidate_reward_mean == pytest.approx((1 + 0 + 0.5 + 0 + 1) / 5) for p in result.pairs)
    assert result.scored == 5


def test_all_items_are_asked_at_once():
    player = Player("red")
    run(side(2, player, Player("green", "blue")), items=5)
    assert player.asked == [(["pick"] * 5, 2)]


def test_failed_candidates_are_counted_and_never_paired():
    class Moody(ColourEnv):
        def reward(self, joint):
            return math.nan if joint[0] == "blue" else super().reward(joint)

    result = run(side(3, Player("red", "blue", "gold"), Player("green")), env=Moody())
    assert (result.scored, result.failed) == (3, 1)
    assert [p.winner[0].texts[0] for p in result.pairs] == ["red"]
    assert result.metrics()["oracle/error_rate"] == pytest.approx(1 / 3)
    assert result.pairs[0].candidate_reward_mean == pytest.approx(0.75)


def test_a_collection_without_pairs_says_what_became_of_its_candidates():
    # (red, green) meets itself, (red, green) meets (gold, green), (gold, gold) meets what cannot be scored.
    class Flaky(ColourEnv):
        def reward(self, joint):
            return math.nan if joint[0] == "blue" else 0.25

    team = side(3, Player("red", "red", "gold"), Player("green", "green", "gold"))
    other = side(3, Player("red", "gold", "blue"), Player("green", "green", "gold"))
    result = run(team, other, Flaky(), pair_selection="comparator_reward")
    said = "of 6 joint responses 1 could not be scored; of the compared pairs 1 tied and 1 had the same answers twice"
    assert result.pairs == []
    assert result.without_pairs() == f"{said}; every score was 0.25"
    result.rewards[0] = 0.5
    assert result.without_pairs() == said


def test_an_environment_that_changes_the_item_between_resets_is_refused():
    class Restless(ColourEnv):
        calls = 0

        def reset(self, seed=None, options=None):
            super().reset(seed)
            Restless.calls += 1
            return dict.fromkeys(self.agents, f"pick {Restless.calls}"), {agent: {} for agent in self.agents}

    with pytest.raises(RewardError, match=r"must give the same prompts each time"):
        run(side(2, Player("red"), Player("green")), env=Restless())


def test_repetition_by_hand():
    assert repetition("a b c d e") == 0.0
    assert repetition("a b c a b c a b c") == pytest.approx(1 - 3 / 7)
    assert repetition("one two") == 0.0


def test_evaluation_by_hand():
    policies = {"a": Player("red"), "b": Player("blue")}
    outcome = evaluate(policies, ColourEnv(), 3, {name: np.random.default_rng(0) for name in policies})
    assert outcome.metrics["eval/turn_1/reward_mean"] == 0.5
    assert outcome.metrics["eval/turn_1/expected_return"] == 0.5
    assert outcome.metrics["eval/num_samples"] == 3
    assert outcome.returns == [0.5] * 3
    assert outcome.samples[0]["turns"][0]["responses"] == {"a": "red", "b": "blue"}


def test_an_environment_that_cannot_be_copied_is_evaluated_item_after_item():
    policies = {name: Player("a b") for name in LockedEnv.possible_agents}
    outcomes = {}
    for kind in (EchoEnv, LockedEnv):
        rngs = {name: np.random.default_rng(0) for name in policies}
        outcomes[kind] = evaluate(policies, kind(turns=2), 5, rngs, batch_size=3)
    letters = ["abcde"[np.random.default_rng(seed).integers(5)] for seed in range(5)]
    expected = [4.0 * (letter in "ab") for letter in letters]  # two turns, two texts, each letter once in each
    assert outcomes[LockedEnv].returns == outcomes[EchoEnv].returns == expected
    assert [len(asked) for asked, _ in policies["ann"].asked] == [3, 3, 2, 2] + [1] * 10


def test_evaluation_leaves_episodes_without_a_score_out_of_the_mean():
    class Sometimes(ColourEnv):
        def reset(self, seed=None, options=None):
            self.seed_used = seed
            return super().reset(seed, options)

        def reward(self, joint):
            return math.nan if self.seed_used == 1 else super().reward(joint)

    policies = {"a": Player("red"), "b": Player("green")}
    outcome = evaluate(policies, Sometimes(), 4, {name: np.random.default_rng(0) for name in policies})
    assert outcome.metrics["eval/failed"] == 1
    assert outcome.metrics["eval/turn_1/reward_mean"] == 1.0
    assert outcome.samples[1]["turns"][0]["reward"] is None


def test_the_gap_is_the_mean_of_all_pairs_and_answers_said_twice_are_one():
    # Rewards of the first item: 1, 1, 0, 0 (four pairs, a gap of 1 each); of the second .5, 0, 0, 0 (three of .5).
    class Two(Player):
        def generate(self, prompts, n, rng):
            first, second = self.words[:n], self.words[n:]
            return [[Generation(word, (3, 2), True, (1, 7)) for word in words] for words in (first, second)]

    one = Two("red", "red", "blue", "gold", "red", "blue", "blue", "blue")
    two = Two("green", "green", "blue", "blue", "blue", "blue", "red", "red")
    metrics = run(side(4, one, two), items=2, pair_selection="all", preference_pairs_per_sample=None).metrics()
    assert metrics["pairs/kept"] == 4 + 3
    assert metrics["pairs/gap_mean"] == pytest.approx((4 * 1 + 3 * 0.5) / 7)
    assert metrics["pairs/distinct_winners"] == (1 + 1) / 2
    assert metrics["pairs/distinct_losers"] == (2 + 2) / 2
