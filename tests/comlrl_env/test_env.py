import copy
import math
import pickle

import numpy as np
import pytest
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test, parallel_seed_test

from comlrl_env import ActionError, ConfigError, Item, Score, TaskError, TextEnv, UnicodeText, make
from comlrl_env.env import Latency

from .toys import Match, TwoTurns

BOTH = ["caller_0", "caller_1"]


def say(text):
    return dict.fromkeys(BOTH, text)


def played(task=None, text="0", **kwargs):
    env = TextEnv(task or Match(), **kwargs)
    env.reset(options={"item": 0})
    return env.step(say(text))


def test_reset():
    env = TextEnv(Match())
    assert isinstance(env, ParallelEnv)
    assert env.possible_agents == BOTH
    assert env.agents == []
    prompts, infos = env.reset(seed=0)
    assert env.agents == BOTH
    number = env.item.data["number"]
    assert prompts == {agent: f"{agent}: write the number {number} and nothing else" for agent in BOTH}
    assert infos["caller_1"] == {
        "item": env.item.key,
        "role": "caller_1",
        "messages": [{"role": "user", "content": prompts["caller_1"]}],
    }
    assert env.num_items == 20


def test_step():
    prompts, rewards, terminations, truncations, infos = played()
    assert prompts == {"caller_0": "", "caller_1": ""}
    assert rewards == {"caller_0": 1.0, "caller_1": 1.0}
    assert terminations == dict.fromkeys(BOTH, True)
    assert truncations == dict.fromkeys(BOTH, False)
    info = infos["caller_0"]
    assert info.pop("oracle_latency") >= 0
    assert info == {
        "item": "train/0",
        "role": "caller_0",
        "messages": [],
        "raw_reward": 1.0,
        "reward_components": {"right": 2.0},
        "reward_status": "ok",
        "reward_reason": "",
        "is_success": True,
    }


def test_agents_are_gone_after_the_last_turn():
    env = TextEnv(Match())
    env.reset(seed=0)
    env.step(say(""))
    assert env.agents == []
    with pytest.raises(ActionError, match=r"the episode is over or has not begun; call reset\(\) first"):
        env.step(say(""))
    with pytest.raises(ActionError, match="call reset"):
        TextEnv(Match()).step(say(""))


@pytest.mark.parametrize("make_env", [lambda: TextEnv(Match()), lambda: TextEnv(TwoTurns())])
def test_pettingzoos_own_tests(make_env):
    parallel_api_test(make_env())
    parallel_seed_test(make_env)


def test_spaces():
    env = TextEnv(Match())
    for agent in BOTH:
        assert env.observation_space(agent) is env.observation_space(agent)
        assert env.action_space(agent) is env.action_space(agent)
        assert env.action_space(agent) == UnicodeText()
    assert env.action_space("caller_0") is not env.action_space("caller_1")
    assert env.metadata == {"name": "Match", "render_modes": ["ansi"]}
    assert make("comlrl/Partition-v0").metadata["name"] == "comlrl/Partition-v0"


def test_seeds_choose_items():
    env = TextEnv(Match())
    keys = [env.reset(seed=seed)[1]["caller_0"]["item"] for seed in range(40)]
    assert keys == [TextEnv(Match()).reset(seed=seed)[1]["caller_0"]["item"] for seed in range(40)]
    assert len(set(keys)) > 10
    env.reset(seed=5)
    stream = [env.reset()[1]["caller_0"]["item"] for _ in range(10)]
    env.reset(seed=5)
    assert [env.reset()[1]["caller_0"]["item"] for _ in range(10)] == stream
    assert len(set(stream)) > 3


def test_a_seed_starts_the_stream_of_numpy_also_behind_a_named_item(monkeypatch):
    env = TextEnv(Match())
    expected = [f"train/{index}" for index in np.random.default_rng(5).integers(20, size=6)]
    env.reset(seed=5, options={"item": 7})
    twin = copy.deepcopy(env)
    for one in (env, twin):
        assert [one.reset()[1]["caller_0"]["item"] for _ in expected] == expected
    assert env.reset(seed=5)[1]["caller_0"]["item"] == expected[0]
    unseeded = TextEnv(Match())
    unseeded.reset(options={"item": 7})
    assert copy.deepcopy(unseeded).reset() == unseeded.reset()
    monkeypatch.setattr("gymnasium.utils.seeding.np_random", None)  # building a generator would fail
    env.reset(seed=5, options={"item": 7})


def test_items_by_key_and_index():
    env = TextEnv(Match())
    assert env.reset(options={"item": 7})[1]["caller_0"]["item"] == "train/7"
    assert env.reset(options={"item": "train/19"})[1]["caller_0"]["item"] == "train/19"
    for wrong in ("train/20", 20, -1, 2.0, True):
        with pytest.raises(TaskError, match="item: expected"):
            env.reset(options={"item": wrong})


def test_the_split_option_holds_for_one_episode():
    env = TextEnv(Match())
    assert env.reset(options={"split": "eval", "item": 0})[1]["caller_0"]["item"] == "eval/20"
    assert env.reset(options={"item": 0})[1]["caller_0"]["item"] == "train/0"
    with pytest.raises(TaskError, match="split: expected 'train' or 'eval', actually 'test'"):
        env.reset(options={"split": "test"})
    assert TextEnv(Match(), "eval").num_items == 10


def test_unknown_options_are_tolerated():
    TextEnv(Match()).reset(seed=0, options={"options": 1, "colour": None})


def test_a_failed_reset_changes_nothing():
    env = TextEnv(Match())
    env.reset(options={"item": 3})
    with pytest.raises(TaskError):
        env.reset(options={"item": 99})
    assert env.item.key == "train/3"
    assert env.step(say("3"))[1]["caller_0"] == 1


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_bad_seeds(seed):
    with pytest.raises(TaskError, match="seed: expected an integer ≥ 0"):
        TextEnv(Match()).reset(seed=seed)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"caller_0": "x"}, r"expected one text for each of \['caller_0', 'caller_1'\], actually \['caller_0'\]"),
        ({**say("x"), "caller_2": "x"}, r"actually \['caller_0', 'caller_1', 'caller_2'\]"),
        ({}, r"actually \[\]"),
        (["x", "x"], r"actually \['x', 'x'\]"),
        ({"caller_0": "x", "caller_1": None}, "action of caller_1: expected a str, actually NoneType None"),
        ({"caller_0": [1, 2], "caller_1": "x"}, r"action of caller_0: expected a str, actually list \[1, 2\]"),
    ],
)
def test_wrong_joint_actions(actions, message):
    env = TextEnv(Match())
    env.reset(seed=0)
    with pytest.raises(ActionError, match=message):
        env.step(actions)
    with pytest.raises(ActionError, match=message):
        env.score_candidates([say("x"), actions])
    assert env.agents == BOTH


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "🙂" * 10, "x" * 2_000_000])
def test_any_text_is_data(text):
    assert played(text=text)[1] == {"caller_0": 0.0, "caller_1": 0.0}


def test_two_turns():
    env = TextEnv(TwoTurns())
    env.reset(seed=0)
    prompts, rewards, terminations, truncations, infos = env.step({"caller_0": "a", "caller_1": "b"})
    assert prompts == {"caller_0": "your partner said b", "caller_1": "your partner said a"}
    assert rewards == dict.fromkeys(BOTH, 0.0)
    assert not any(terminations.values())
    assert not any(truncations.values())
    assert env.agents == BOTH
    assert infos["caller_0"]["messages"] == [{"role": "user", "content": "your partner said b"}]
    assert [turn.responses for turn in env.history] == [{"caller_0": "a", "caller_1": "b"}]
    _, rewards, terminations, _, _ = env.step({"caller_0": "b", "caller_1": "a"})
    assert rewards == dict.fromkeys(BOTH, 1.0)
    assert all(terminations.values())
    assert len(env.history) == 2
    env.reset(seed=0)
    assert env.history == ()


def test_max_cycles_truncates():
    env = TextEnv(TwoTurns(), max_cycles=1)
    env.reset(seed=0)
    prompts, _, terminations, truncations, _ = env.step(say("a"))
    assert truncations == dict.fromkeys(BOTH, True)
    assert terminations == dict.fromkeys(BOTH, False)
    assert env.agents == []
    assert prompts == dict.fromkeys(BOTH, "")
    # An episode that ends by itself in its last allowed turn is no truncated one.
    assert played(max_cycles=1)[3] == dict.fromkeys(BOTH, False)


def test_score_candidates_plays_nothing():
    env = TextEnv(Match(), reward_processor=lambda r: 10 * r)
    env.reset(options={"item": 4})
    scores = env.score_candidates([say("4"), say("5"), {"caller_0": "4", "caller_1": "no"}])
    assert [score.reward for score in scores] == [1, 0, 0]
    assert [score.parts["right"] for score in scores] == [2, 0, 1]
    assert env.score_candidates([]) == []
    assert env.agents == BOTH
    assert env.history == ()
    assert env.step(say("4"))[1]["caller_0"] == 10


def test_candidates_of_the_second_turn():
    env = TextEnv(TwoTurns())
    env.reset(seed=0)
    env.step({"caller_0": "a", "caller_1": "b"})
    scores = env.score_candidates([{"caller_0": "b", "caller_1": "a"}, {"caller_0": "a", "caller_1": "b"}])
    assert [score.reward for score in scores] == [1, 0]


def test_reward_processor():
    _, rewards, _, _, infos = played(reward_processor=lambda r: 2 * r - 1)
    assert rewards["caller_0"] == 1.0
    assert infos["caller_0"]["raw_reward"] == 1.0
    assert played(reward_processor=lambda r: 2 * r - 1, text="x")[1]["caller_0"] == -1.0
    assert type(played(reward_processor=lambda r: True)[1]["caller_0"]) is float
    for broken in (math.nan, math.inf, None, "1", [1]):
        with pytest.raises(TaskError, match=r"expected a finite number for the raw reward 1\.0, actually"):
            played(reward_processor=lambda r, broken=broken: broken)
    with pytest.raises(ConfigError, match="reward_processor: expected a function"):
        TextEnv(Match(), reward_processor=2)


class Broken(Match):
    def score(self, item, history, responses):
        if responses["caller_0"] == "boom":
            raise RuntimeError("the judge is ill")
        return super().score(item, history, responses)


def test_a_failed_oracle_is_no_zero():
    _, rewards, terminations, _, infos = played(Broken(), "boom", reward_processor=lambda r: 0.0)
    assert all(math.isnan(reward) for reward in rewards.values())
    assert all(terminations.values())
    info = infos["caller_1"]
    assert info["reward_status"] == "error"
    assert info["reward_reason"] == "RuntimeError: the judge is ill"
    assert math.isnan(info["raw_reward"])
    assert info["is_success"] is None


def test_deep_copies_are_independent():
    env = TextEnv(TwoTurns())
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    twin.step(say("a"))
    assert (len(twin.history), len(env.history)) == (1, 0)
    env.step({"caller_0": "x", "caller_1": "y"})
    assert env.history[0].responses != twin.history[0].responses
    assert [env.reset()[1] for _ in range(5)] == [twin.reset()[1] for _ in range(5)]
    assert twin.action_space("caller_0") is not env.action_space("caller_0")
    assert twin.task is env.task


def test_pickled_copies():
    env = TextEnv(TwoTurns())
    env.reset(seed=0)
    env.step(say("a"))
    twin = pickle.loads(pickle.dumps(env))
    assert twin.history == env.history
    assert twin.step(say("a"))[1] == env.step(say("a"))[1]


def test_render():
    env = TextEnv(Match(), render_mode="ansi")
    assert env.render() == "Match · train · not reset yet\n"
    env.reset(options={"item": 2})
    assert env.render() == (
        "Match · train · item train/2\n-- turn 1, waiting for answers --\n"
        "caller_0 is told:\n  | caller_0: write the number 2 and nothing else\n"
        "caller_1 is told:\n  | caller_1: write the number 2 and nothing else\n"
    )
    env.step({"caller_0": "2\x1b[31m\nx", "caller_1": ""})
    shown = env.render()
    assert "caller_0 answers:\n  | 2\\x1b[31m\n  | x\ncaller_1 answers:\n  | (nothing)\n" in shown
    assert shown.endswith("reward 0 (ok)  right=0\n")
    env.reset(options={"item": 2})
    env.step(say("y" * 5000))
    assert "[… 3000 characters …]" in env.render()
    with pytest.raises(ConfigError, match="render_mode='ansi'"):
        TextEnv(Match()).render()
    with pytest.raises(ConfigError, match="render_mode: expected None or 'ansi', actually 'human'"):
        TextEnv(Match(), render_mode="human")


def test_latencies_are_numbers_that_clocks_cannot_tell_apart():
    assert Latency(0.5) == Latency(0.7)
    assert (Latency(0.5) != Latency(0.7)) is False
    assert Latency(0.5) == 0.5
    assert Latency(0.5) != 0.7
    assert Latency(0.5) < Latency(0.7)
    assert Latency(0.5) + 1 == 1.5
    assert pickle.loads(pickle.dumps(Latency(0.5))) == 0.5


def variant(**changes):
    return type("Bad", (Match,), changes)()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (None, "expected an object with a method 'items'"),
        (variant(score=None), "expected an object with a method 'score'"),
        (variant(agents=()), r"Bad.agents: expected a tuple of different role names, actually \(\)"),
        (variant(agents="ab"), "Bad.agents: expected a tuple"),
        (variant(agents=("a", "a")), "Bad.agents: expected a tuple"),
        (variant(agents=("a", 1)), "Bad.agents: expected a tuple"),
        (variant(num_turns=0), "Bad.num_turns: expected an integer ≥ 1, actually 0"),
        (variant(items=lambda self, split: []), "Bad: expected at least one train item, actually none"),
    ],
)
def test_tasks_that_are_none(task, message):
    with pytest.raises(TaskError, match=message):
        TextEnv(task)


@pytest.mark.parametrize("prompts", [{"caller_0": "x"}, {"caller_0": "x", "caller_1": 3}, {**say("x"), "z": "x"}])
def test_prompts_of_a_wrong_form(prompts):
    env = TextEnv(variant(prompts=lambda self, item, history: prompts))
    with pytest.raises(TaskError, match=r"Bad.prompts: expected one str for each of \['caller_0', 'caller_1'\]"):
        env.reset()


def test_unknown_splits():
    with pytest.raises(TaskError, match="split: expected 'train' or 'eval', actually 'validation'"):
        TextEnv(Match(), split="validation")


class ManyAtOnce(Match):
    """Counts calls, to see that candidates are scored together."""

    calls = 0

    def score_many(self, item, history, many):
        type(self).calls += 1
        return [self.score(item, history, responses) for responses in many]


def test_candidates_are_scored_together():
    env = TextEnv(ManyAtOnce())
    env.reset(seed=0)
    ManyAtOnce.calls = 0
    assert len(env.score_candidates([say(str(n)) for n in range(50)])) == 50
    assert ManyAtOnce.calls == 1


def test_time_outs_reach_the_infos():
    env = TextEnv(Sleeper(), oracle_timeout=0.5)
    env.reset(options={"item": 0})
    scores = env.score_candidates([say("0"), say("sleep")])
    assert [score.status for score in scores] == ["ok", "timeout"]
    _, rewards, _, _, infos = env.step(say("sleep"))
    assert math.isnan(rewards["caller_0"])
    assert infos["caller_0"]["reward_status"] == "timeout"
    env.close()


class Sleeper(Match):
    def score(self, item, history, responses):
        while responses["caller_0"] == "sleep":
            pass
        return super().score(item, history, responses)


def test_a_frozen_item_is_what_the_task_gets():
    seen = []

    def score(self, item, history, responses):
        seen.append((item, history, dict(responses)))
        return Score(reward=0.5)

    played(variant(score=score), "a")
    assert seen == [(Item(key="train/0", data={"number": 0}), (), say("a"))]
