"""PreferenceWrapper: scores, pairs and counts of whole calls, on our environments and on foreign ones."""

import copy
import math

import numpy as np
import pytest

from comlrl_env.env import TextEnv
from comlrl_env.errors import ActionError, ConfigError, RewardError, TaskError
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.types import Item, Score
from tests.comlrl_env.foreign_envs import EchoEnv, PickledEnv, SeedlessEnv


class NumberTask:
    """The reward is the number that both agents write, added; other text is an oracle error."""

    agents = ("a_0", "b_1")

    def __init__(self, num_turns=1):
        self.num_turns = num_turns

    def items(self, split):
        return [Item(f"{split}/{k}", {}) for k in range(2)]

    def prompts(self, item, history):
        heard = ", ".join(turn.responses["a_0"] for turn in history)
        return {agent: f"{agent} of {item.key}: {heard}" for agent in self.agents}

    def score(self, item, history, responses):
        return Score(reward=sum(float(text or 0) for text in responses.values()))


def wrap(env=None, **options):
    env = env or TextEnv(NumberTask(), reward_processor=lambda raw: raw / 4)
    wrapper = PreferenceWrapper(env, **options)
    wrapper.reset(seed=0)
    return wrapper


def side(*numbers, other="", agents=("a_0", "b_1")):
    return {agents[0]: [str(number) for number in numbers], agents[1]: [other] * len(numbers)}


def same_lists(left, right):
    return np.array_equal(left, right, equal_nan=True)


def test_one_pool():
    env = wrap(preference_pairs_per_sample=4)
    assert env.agents == ["a_0", "b_1"]
    observations, rewards, terminations, truncations, infos = env.step(side(1, 3, 2, 3, other="0"))
    assert rewards == {"a_0": 9 / 16, "b_1": 9 / 16}
    assert terminations == {"a_0": True, "b_1": True}
    assert truncations == {"a_0": False, "b_1": False}
    assert env.agents == []
    assert observations["a_0"].startswith("a_0 of train/")
    for agent, info in infos.items():
        assert info["role"] == agent
        assert info["item"].startswith("train/")
        assert info["raw_candidate_rewards"] == [1, 3, 2, 3]
        assert info["candidate_rewards"] == [0.25, 0.75, 0.5, 0.75]
        assert info["candidate_statuses"] == ["ok"] * 4
        assert info["preferences"] == [(1, 0), (3, 0), (1, 2), (2, 0)]
        counts = info["pair_counts"]
        assert (counts.kept, counts.ties, counts.duplicates, counts.failed) == (4, 0, 1, 0)
        assert (counts.distinct_winners, counts.distinct_losers) == (2, 2)  # "3" was said twice
        assert counts.gap_mean == pytest.approx((0.5 + 0.5 + 0.25 + 0.25) / 4)


def test_failed_candidates_never_pair_and_are_counted():
    _, rewards, _, _, infos = wrap().step(side(5, "x", 1, "nan", 1.0))
    info = infos["a_0"]
    assert info["candidate_statuses"] == ["ok", "error", "ok", "error", "ok"]
    assert same_lists(info["candidate_rewards"], [1.25, math.nan, 0.25, math.nan, 0.25])
    assert info["candidate_scores"][1].reason.startswith("ValueError")
    assert info["preferences"] == [(0, 2), (0, 4)]
    assert (info["pair_counts"].failed, info["pair_counts"].ties) == (2, 1)
    assert rewards["a_0"] == pytest.approx(1.75 / 3)
    _, rewards, _, _, infos = wrap().step(side("x", "y"))
    assert math.isnan(rewards["b_1"])
    assert infos["b_1"]["preferences"] == []


def test_two_sides():
    env = wrap(pair_selection="comparator_reward", preference_pairs_per_sample=None)
    _, rewards, terminations, _, infos = env.compare(side(1, 5, 2, 0), side(3, 3, 2, 1, 9))
    assert rewards == {"a_0": 0.5, "b_1": 0.5}  # the team's mean: 8 / 4 / 4
    assert all(terminations.values())
    info = infos["b_1"]
    assert info["candidate_rewards"] == [0.25, 1.25, 0.5, 0]
    assert info["comparator_rewards"] == [0.75, 0.75, 0.5, 0.25, 2.25]
    assert info["raw_comparator_rewards"] == [3, 3, 2, 1, 9]
    assert info["comparator_statuses"] == ["ok"] * 5
    assert len(info["comparator_scores"]) == 5
    assert info["preferences"] == [(4, 0), (1, 5), (7, 3)]
    assert info["pair_counts"].duplicates == 1  # 2 against 2
    assert env.reset(seed=0)
    _, rewards, _, _, infos = env.compare(side("x", 1), side(0, 0))
    assert (rewards["a_0"], infos["a_0"]["preferences"]) == (0.25, [(1, 3)])


def test_identical_responses_never_pair_even_with_different_scores():
    class Moody(EchoEnv):
        calls = 0

        def count(self, actions):
            Moody.calls += 1
            return float(Moody.calls)

    moody = wrap(Moody(), preference_pairs_per_sample=3, reward_rule="max")
    moody.reset(seed=0)
    info = moody.step(side("x", "y", "x", agents=("ann", "bob")))[4]["ann"]
    returns = info["candidate_rewards"]
    assert len(set(returns)) == 3
    pairs = info["preferences"]
    assert sorted(map(sorted, pairs)) == [[0, 1], [1, 2]]
    assert (info["pair_counts"].kept, info["pair_counts"].duplicates, info["pair_counts"].ties) == (2, 1, 0)


def test_same_tokens_drops_more_and_the_limit_counts_after_it():
    env = wrap(preference_pairs_per_sample=1)
    info = env.step(side(1, 3, 2), same_tokens=lambda i, j: {i, j} == {0, 1})[4]["a_0"]
    assert info["preferences"] == [(1, 2)]  # gaps 2, 1, 1: the first is dropped
    assert info["pair_counts"].duplicates == 1
    comparison = wrap(preference_pairs_per_sample=1)
    info = comparison.compare(side(1, 3), side(9, 4), same_tokens=lambda i, j: {i, j} == {0, 2})[4]["a_0"]
    assert (info["preferences"], info["pair_counts"].duplicates) == ([(3, 1)], 1)


def test_random_selection_has_its_own_stream():
    def play(**options):
        wrapper = wrap(pair_selection="random", preference_pairs_per_sample=3, seed=4)
        return wrapper.step(side(*range(9)), **options)[4]["a_0"]["preferences"]

    assert play() == play()
    assert play(rng=np.random.default_rng(9)) == play(rng=np.random.default_rng(9)) != play()
    wrapper = wrap(pair_selection="random", preference_pairs_per_sample=3, seed=4)
    first = wrapper.step(side(*range(9)))[4]["a_0"]["preferences"]
    wrapper.reset(seed=0)
    assert wrapper.step(side(*range(9)))[4]["a_0"]["preferences"] != first  # the stream goes on


@pytest.mark.parametrize("kind", [EchoEnv, SeedlessEnv, PickledEnv])
def test_foreign_environments_plug_in(kind):
    env = wrap(kind(), preference_pairs_per_sample=None)
    for _ in range(5):
        prompts, _ = env.reset()
        letter = prompts["ann"][-1]
        _, rewards, _, _, infos = env.step({"ann": ["", letter, letter * 2], "bob": [letter, "", letter]})
        assert infos["ann"]["candidate_rewards"] == [1, 1, 3]
        assert infos["ann"]["preferences"] == [(2, 0), (2, 1)]
        assert infos["ann"]["pair_counts"].ties == 1
        assert rewards == {"ann": 5 / 3, "bob": 5 / 3}
    assert env.action_space("ann") is env.env.action_space("ann")
    assert env.possible_agents == ["ann", "bob"]


def test_several_turns_compare_whole_episodes():
    env = wrap(TextEnv(NumberTask(num_turns=2), reward_processor=lambda raw: raw / 4))
    env.reset(options={"item": 0})
    observations, rewards, terminations, _, infos = env.step(side(1, 4, "x"))
    assert observations["b_1"] == ("b_1 of train/0: 1", "b_1 of train/0: 4", "b_1 of train/0: x")
    assert not any(terminations.values())
    assert rewards["a_0"] == 0.625
    assert infos["a_0"]["preferences"] == []
    assert infos["a_0"]["pair_counts"] is None
    with pytest.raises(ActionError, match="as many on each side as in the first turn, actually 2 of 2 after None of 3"):
        env.step(side(1, 2))
    _, rewards, terminations, _, infos = env.step(side(10, 4, 9))
    assert all(terminations.values())
    assert rewards["a_0"] == pytest.approx(23 / 4 / 3)  # this turn's mean
    assert same_lists(infos["a_0"]["raw_candidate_rewards"], [11, 8, math.nan])  # whole returns
    assert infos["a_0"]["candidate_statuses"] == ["ok", "ok", "error"]
    assert infos["a_0"]["preferences"] == [(0, 1)]


def test_several_turns_of_two_sides():
    env = wrap(EchoEnv(turns=2), preference_pairs_per_sample=None)
    prompts, _ = env.reset(seed=2)
    letter = prompts["bob"][-1]
    names = ("ann", "bob")
    observations, *_ = env.compare(side(letter, "x", agents=names), side("", agents=names))
    assert len(observations["ann"]) == 3
    with pytest.raises(ActionError, match="as many on each side"):
        env.step(side("", "", "", agents=names))
    *_, infos = env.compare(side("", "x", agents=names), side(letter * 2, agents=names))
    assert infos["ann"]["candidate_rewards"] == [1, 0]
    assert infos["ann"]["comparator_rewards"] == [2]
    assert infos["ann"]["preferences"] == [(2, 0)]


def test_the_same_texts_said_in_other_turns_are_another_episode():
    env = wrap(EchoEnv(turns=2))
    names = ("ann", "bob")
    letter = env.reset(seed=2)[0]["ann"][-1]
    env.step(side("x", "x", agents=names))
    info = env.step(side(letter, "x", agents=names))[4]["ann"]
    assert info["preferences"] == [(0, 1)]
    assert info["pair_counts"].duplicates == 0


def test_a_score_function_takes_the_place_of_the_oracle():
    env = wrap()
    seen = []

    def score(prompts, joint):
        seen.append((prompts["a_0"], [responses["a_0"] for responses in joint]))
        return [float(len(responses["a_0"])) if responses["a_0"] else math.nan for responses in joint]

    _, rewards, terminations, _, infos = env.compare(side("xx", ""), side("yyyy", "z"), score=score)
    assert seen[0][1] == ["xx", "", "yyyy", "z"]
    assert infos["a_0"]["comparator_rewards"] == infos["a_0"]["raw_comparator_rewards"] == [4, 1]  # not processed
    assert infos["a_0"]["candidate_statuses"] == ["ok", "error"]
    assert infos["a_0"]["preferences"] == [(2, 0)]
    assert rewards["a_0"] == 2
    assert all(terminations.values())
    env.reset(seed=0)
    with pytest.raises(RewardError, match=r"expected a list with one number per candidate \(2\), actually 1"):
        env.step(side(1, 2), score=lambda prompts, joint: [1.0])
    env.reset(seed=0)
    with pytest.raises(RewardError, match="finite number or NaN for candidate 1, actually inf"):
        env.step(side(1, 2), score=lambda prompts, joint: [1.0, math.inf])
    env.reset(seed=0)
    with pytest.raises(RewardError, match=r"a finite number or NaN for candidate 0, actually '1.0'"):
        env.step(side(1, 2), score=lambda prompts, joint: ["1.0", 1.0])
    env.reset(seed=0)
    with pytest.raises(RewardError, match=r"expected a list with one number per candidate \(2\), actually None"):
        env.step(side(1, 2), score=lambda prompts, joint: None)


def test_a_processor_without_a_number_stops():
    env = wrap(TextEnv(NumberTask(), reward_processor=lambda raw: raw / (raw - 3) if raw != 3 else math.nan))
    with pytest.raises(TaskError, match="reward_processor"):
        env.step(side(1, 3))


def test_step_needs_a_reset_and_fitting_candidates():
    env = wrap()
    env.step(side(1, 2))
    with pytest.raises(ActionError, match="expected reset before candidates"):
        env.step(side(1, 2))
    env.reset(seed=0)
    with pytest.raises(ActionError, match=r"actually \['a_0'\]"):
        env.step({"a_0": ["1"]})
    with pytest.raises(ActionError, match="expected a list of texts, actually str"):
        env.compare(side(1), {"a_0": "1", "b_1": "2"})
    env.step(side(1))  # what was refused left the episode as it was
    with pytest.raises(ActionError, match="expected reset before candidates"):
        PreferenceWrapper(EchoEnv()).step(side(1, agents=("ann", "bob")))


def test_illegal_choices_are_refused_at_construction():
    for options, text in (
        ({"pair_selection": "best"}, "pair_selection: expected one of"),
        ({"pair_selection": "all"}, "expected preference_pairs_per_sample=None, actually 16"),
        ({"preference_pairs_per_sample": 0}, "preference_pairs_per_sample: expected None"),
        ({"reward_rule": "median"}, "reward_rule: expected None or one of"),
    ):
        with pytest.raises(ConfigError, match=text):
            PreferenceWrapper(EchoEnv(), **options)
    env = wrap(pair_selection="comparator_reward")
    with pytest.raises(ConfigError, match="one pool and no comparator"):
        env.step(side(1, 2))


def test_deep_copies_go_their_own_way():
    env = wrap(pair_selection="random", preference_pairs_per_sample=2)
    twin = copy.deepcopy(env)
    first = env.step(side(1, 2, 3))
    second = twin.step(side(1, 2, 3))
    assert first[4]["a_0"]["preferences"] == second[4]["a_0"]["preferences"]
    assert twin.reset(seed=1)
