"""Slates: every candidate of an item meets the same item, on environments written by anybody."""

import math
import re
import time

import pytest
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.env import TextEnv
from comlrl_env.errors import ActionError, ConfigError, RewardError, TaskError
from comlrl_env.shared_reward import shared_score
from comlrl_env.slate import Slate
from comlrl_env.types import Item, Score
from tests.comlrl_env.foreign_envs import (
    EchoEnv,
    LayeredEnv,
    LockedEnv,
    LockedSeedlessEnv,
    PickledEnv,
    RockPaperScissors,
    SeedlessEnv,
)


class LengthTask:
    """Reward: characters of all answers; turn 2 of 2 says what was answered before."""

    agents = ("a_0", "b_1")

    def __init__(self, num_turns=1, items=3):
        self.num_turns = num_turns
        self.count = items

    def items(self, split):
        return [Item(f"{split}/{k}", {"k": k}) for k in range(self.count)]

    def prompts(self, item, history):
        return {
            agent: f"{agent} {item.data['k']} {[turn.responses['a_0'] for turn in history]}" for agent in self.agents
        }

    def score(self, item, history, responses):
        if "slow" in responses.values():
            raise TimeoutError("slow")
        return Score(reward=float(sum(map(len, responses.values())) + 10 * len(history)), parts={"k": item.data["k"]})


def rewards(scores):
    return [None if score is None else score.reward for score in scores]


@pytest.mark.parametrize("kind", [EchoEnv, LockedEnv, SeedlessEnv, PickledEnv, LayeredEnv])
@pytest.mark.parametrize("seed", [None, 5])
def test_candidates_are_judged_on_the_item_that_was_prompted(kind, seed):
    slate = Slate(kind())
    letters = set()
    for _ in range(8):
        prompts, infos = slate.reset(seed=seed)
        assert set(infos) == set(prompts) == {"ann", "bob"}
        letter = prompts["ann"][-1]
        letters.add(letter)
        candidates = {"ann": list("abcde"), "bob": [letter] * 5}
        expected = [1.0 + (text == letter) for text in "abcde"]
        assert rewards(slate.score(candidates)) == expected
        assert rewards(slate.score(candidates)) == expected  # the item is still there
        step = slate.step(candidates)
        assert rewards(step.scores) == expected
        assert step.scores[0].is_success is (expected[0] == 2)
        assert step.finished
        assert slate.agents == []
    assert len(letters) > 1 or (seed is not None and kind is not SeedlessEnv)


def test_an_uncopyable_environment_keeps_a_reproducible_stream():
    def play(seed):
        slate = Slate(LockedEnv())
        return [slate.reset(seed=seed)[0], *(slate.reset()[0] for _ in range(6))]

    assert play(3) == play(3)
    assert play(3) != play(4)


def test_an_environment_that_ignores_its_seed_and_cannot_be_copied_is_refused():
    slate = Slate(LockedSeedlessEnv())

    def play(rounds):
        for _ in range(rounds):
            slate.reset(seed=0)
            slate.score({"ann": ["a", "b"], "bob": ["a", "b"]})

    with pytest.raises(TaskError, match="ignores its seed, so the candidates of one item would be judged on different"):
        play(20)


@pytest.mark.parametrize("kind", [EchoEnv, LockedEnv, PickledEnv, LayeredEnv])
def test_several_turns(kind):
    slate = Slate(kind(turns=3))
    prompts, _ = slate.reset(seed=1)
    letter = prompts["ann"][-1]
    first = slate.step({"ann": [letter, "x"], "bob": ["1", letter * 2]})
    assert rewards(first.scores) == [1, 2]
    assert not first.finished
    assert first.prompts[0]["bob"] == f"turn 1, heard {sorted([letter, '1'])}"
    assert first.prompts[1]["ann"] == f"turn 1, heard {sorted(['x', letter * 2])}"
    with pytest.raises(ActionError, match="expected 2 as in the first turn, actually 3"):
        slate.step({"ann": [""] * 3, "bob": [""] * 3})
    assert rewards(slate.step({"ann": ["", letter], "bob": ["", ""]}).scores) == [0, 1]
    last = slate.step({"ann": [letter * 4, ""], "bob": [letter, ""]})
    assert rewards(last.scores) == [5, 0]
    assert last.prompts == [{}, {}]


def test_copies_that_end_at_different_times():
    class ShortEnv(EchoEnv):
        def step(self, actions):
            self.turns = 1 if actions["ann"] == "stop" else self.turns
            return super().step(actions)

    slate = Slate(ShortEnv(turns=2))
    slate.reset(seed=0)
    first = slate.step({"ann": ["stop", "go"], "bob": ["", ""]})
    assert first.prompts[0] == {}
    assert set(first.prompts[1]) == {"ann", "bob"}
    assert slate.agents == ["ann", "bob"]
    last = slate.step({"ann": ["", ""], "bob": ["", ""]})
    assert last.scores[0] is None
    assert last.scores[1].status == "ok"
    assert last.finished


def test_agents_that_leave_early_are_not_asked():
    class LeavingEnv(EchoEnv):
        def step(self, actions):
            result = super().step(actions)
            self.agents = self.agents[:1]
            return result

    slate = Slate(LeavingEnv(turns=2))
    prompts, _ = slate.reset(seed=0)
    slate.step({"ann": ["", ""], "bob": ["", ""]})
    assert slate.agents == ["ann"]
    assert rewards(slate.step({"ann": [prompts["ann"][-1], ""]}).scores) == [1, 0]


def test_text_env_scores_candidates_itself():
    env = TextEnv(LengthTask(), reward_processor=lambda raw: 2 * raw)
    slate = Slate(env)
    prompts, infos = slate.reset(options={"item": "train/2"})
    assert prompts["a_0"] == "a_0 2 []"
    assert infos["b_1"]["item"] == "train/2"
    scores = slate.score({"a_0": ["x", "", "slow"], "b_1": ["yz", "", ""]})
    assert rewards(scores[:2]) == [3, 0]  # raw
    assert scores[0].parts == {"k": 2}
    assert (scores[2].status, scores[2].reason) == ("timeout", "TimeoutError: slow")
    assert slate.process(3.0) == 6.0
    step = slate.step({"a_0": ["x"], "b_1": ["yz"]})
    assert step.finished
    with pytest.raises(ActionError, match="expected reset before candidates"):
        slate.step({"a_0": ["x"], "b_1": ["yz"]})


def test_text_env_of_two_turns():
    slate = Slate(TextEnv(LengthTask(num_turns=2)))
    slate.reset(options={"item": 1})
    first = slate.step({"a_0": ["x", "yy"], "b_1": ["", ""]})
    assert rewards(first.scores) == [1, 2]
    assert [prompts["b_1"] for prompts in first.prompts] == ["b_1 1 ['x']", "b_1 1 ['yy']"]
    last = slate.step({"a_0": ["", "slow"], "b_1": ["zzz", ""]})
    assert last.scores[0].reward == 13
    assert (last.scores[1].status, last.scores[1].reason) == ("timeout", "TimeoutError: slow")
    assert last.finished


def test_a_wrapper_between_is_not_passed_by():
    class Halved(BaseParallelWrapper):
        def step(self, actions):
            observations, values, *rest = self.env.step(actions)
            return observations, {agent: value / 2 for agent, value in values.items()}, *rest

    slate = Slate(Halved(TextEnv(LengthTask(), reward_processor=lambda raw: raw + 1)))
    slate.reset(seed=0)
    assert rewards(slate.score({"a_0": ["x"], "b_1": ["yz"]})) == [2]
    assert slate.process(2) == 2


def different(env, actions):
    return {"ann": 1.0, "bob": 4.0}


@pytest.mark.parametrize(("rule", "value"), [("mean", 2.5), ("sum", 5), ("min", 1), ("max", 4)])
def test_rewards_that_differ_need_a_rule(rule, value):
    slate = Slate(EchoEnv(reward=different), reward_rule=rule)
    slate.reset(seed=0)
    assert rewards(slate.score({"ann": [""], "bob": [""]})) == [value]
    slate = Slate(EchoEnv(reward=different))
    slate.reset(seed=0)
    with pytest.raises(RewardError, match=r"actually {'ann': 1.0, 'bob': 4.0}.* name a rule with reward_rule="):
        slate.score({"ann": [""], "bob": [""]})


def test_rewards_that_are_none():
    for value in (math.nan, math.inf):
        slate = Slate(EchoEnv(reward=lambda env, actions, value=value: {"ann": 1.0, "bob": value}))
        slate.reset(seed=0)
        (score,) = slate.score({"ann": [""], "bob": [""]})
        assert (score.status, score.reason) == (
            "error",
            f"the environment gave rewards that are not finite (bob: {value})",
        )
    slate = Slate(EchoEnv(reward=lambda env, actions: {"ann": 1.0}))
    slate.reset(seed=0)
    with pytest.raises(RewardError, match="actually none for 'bob'"):
        slate.score({"ann": [""], "bob": [""]})
    for value in ("high", "1.0", b"1", None, [1.0, 2.0]):
        slate = Slate(EchoEnv(reward=lambda env, actions, value=value: {"ann": value, "bob": 1}))
        slate.reset(seed=0)
        with pytest.raises(RewardError, match=rf"for 'ann', actually {type(value).__name__} {re.escape(repr(value))}"):
            slate.score({"ann": [""], "bob": [""]})


def test_a_broken_environment_raises_and_says_on_what():
    slate = Slate(EchoEnv(reward=lambda env, actions: {"ann": 1 / 0}))
    slate.reset(seed=0)
    with pytest.raises(ZeroDivisionError) as caught:
        slate.score({"ann": ["one"], "bob": ["two"]})
    assert caught.value.__notes__ == ["while the environment stepped with {'ann': 'one', 'bob': 'two'}"]


@pytest.mark.parametrize(
    ("candidates", "text"),
    [
        ({"ann": ["x"]}, r"expected a list of texts for each of \['ann', 'bob'\], actually \['ann'\]"),
        ({"ann": ["x"], "bob": ["y"], "eve": ["z"]}, r"actually \['ann', 'bob', 'eve'\]"),
        (["x"], "actually list"),
        ({"ann": "x", "bob": ["y"]}, "candidates of 'ann': expected a list of texts, actually str"),
        ({"ann": ["x"], "bob": [1]}, "candidates of 'bob': expected text 0 to be a str, actually 1"),
        ({"ann": ["x"], "bob": ["y", "z"]}, r"the same number of texts .* actually {'ann': 1, 'bob': 2}"),
        ({"ann": [], "bob": []}, r"at least 1\) per agent, actually {'ann': 0, 'bob': 0}"),
    ],
)
def test_candidates_of_another_form(candidates, text):
    slate = Slate(EchoEnv())
    with pytest.raises(ActionError, match="expected reset before candidates"):
        slate.score({"ann": ["x"], "bob": ["y"]})
    slate.reset(seed=0)
    with pytest.raises(ActionError, match=text):
        slate.score(candidates)


def test_environments_that_do_not_speak_text_and_unknown_rules_are_refused():
    with pytest.raises(TaskError, match=r"observation of 'player_0': expected a str, actually int: wrap .*TextAdapter"):
        Slate(RockPaperScissors()).reset(seed=0)
    with pytest.raises(ConfigError, match="expected None or one of mean, sum, min, max, actually 'median'"):
        Slate(EchoEnv(), reward_rule="median")


def test_overhead_is_below_fifty_microseconds_per_joint_response():
    class CheapTask(LengthTask):
        def prompts(self, item, history):
            return {"a_0": "p", "b_1": "q"}

        def score(self, item, history, responses):
            return Score(reward=1.0)

    slate, candidates = Slate(TextEnv(CheapTask())), {"a_0": ["x"] * 16, "b_1": ["y"] * 16}
    best = math.inf
    for _ in range(20):
        start = time.process_time()
        slate.reset(options={"item": 0})
        slate.step(candidates)
        best = min(best, time.process_time() - start)
    assert best / 16 < 50e-6


def test_a_subclass_scores_by_a_step_of_its_own():
    class Stern(TextEnv):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, dict.fromkeys(rewards, -5.0), *rest

    slate = Slate(Stern(LengthTask()))
    slate.reset(seed=0)
    assert [score.reward for score in slate.score({"a_0": ["x", "yy"], "b_1": ["", ""]})] == [-5.0, -5.0]


def test_whichever_agent_is_told_of_a_failure_is_heard():
    infos = {"a": {}, "b": {"reward_status": "timeout", "reward_reason": "slept"}}
    score = shared_score({"a": math.nan, "b": math.nan}, infos, ["a", "b"], None)
    assert (score.status, score.reason) == ("timeout", "slept")
