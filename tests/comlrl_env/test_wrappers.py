"""Other views of an environment keep its rewards and say what they cannot do."""

import copy
import math
import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env as gymnasium_check
from pettingzoo.test import api_test, parallel_api_test
from pettingzoo.utils.conversions import parallel_to_aec

from comlrl_env.env import TextEnv
from comlrl_env.errors import ActionError, ConfigError, RewardError
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.types import Item, Score
from comlrl_env.wrappers import (
    CentralisedEnv,
    DictObservation,
    EpisodeStatistics,
    TextAdapter,
    describe,
    read_choice,
)
from tests.comlrl_env.foreign_envs import EchoEnv, RockPaperScissors


class WordTask:
    """Reward: words of all answers; "broken" is an oracle error."""

    agents = ("a_0", "b_1")

    def __init__(self, num_turns=1):
        self.num_turns = num_turns

    def items(self, split):
        return [Item(f"{split}/{k}", {}) for k in range(4)]

    def prompts(self, item, history):
        return {agent: f"{agent} {item.key} {len(history)}" for agent in self.agents}

    def score(self, item, history, responses):
        if "broken" in responses.values():
            raise RuntimeError("broken")
        return Score(reward=float(sum(len(text.split()) for text in responses.values())))


def text_env(turns=1):
    return TextEnv(WordTask(turns))


class TestCentralised:
    def test_one_action_for_all(self):
        env = CentralisedEnv(text_env(turns=2))
        observation, info = env.reset(seed=0, options={"item": 3})
        assert observation == {"a_0": "a_0 train/3 0", "b_1": "b_1 train/3 0"}
        assert info["b_1"]["role"] == "b_1"
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = env.step({"a_0": "one two", "b_1": "three"})
        assert (observation["a_0"], reward, terminated, truncated) == ("a_0 train/3 1", 3.0, False, False)
        _, reward, terminated, truncated, info = env.step(("", "four"))
        assert (reward, terminated, truncated) == (1.0, True, False)
        assert info["a_0"]["reward_status"] == "ok"
        with pytest.raises(ActionError, match="the episode is over"):
            env.step(("", ""))

    def test_gymnasium_finds_no_fault(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("error")
            warnings.filterwarnings("ignore", message=".*(render|spec|For Box|obs space).*")
            gymnasium_check(CentralisedEnv(text_env()), skip_render_check=True)

    def test_failed_scores_are_nan(self):
        env = CentralisedEnv(text_env())
        env.reset(seed=0)
        _, reward, terminated, _, info = env.step(["broken", ""])
        assert math.isnan(reward)
        assert terminated
        assert info["a_0"]["reward_status"] == "error"

    def test_truncation(self):
        env = CentralisedEnv(TextEnv(WordTask(3), max_cycles=1))
        env.reset(seed=0)
        assert env.step(["", ""])[2:4] == (False, True)

    def test_rewards_that_differ(self):
        def play(rule):
            env = CentralisedEnv(EchoEnv(reward=lambda env, actions: {"ann": 1.0, "bob": 2.0}), rule)
            env.reset(seed=0)
            return env.step(["", ""])[1]

        assert play("mean") == 1.5
        with pytest.raises(RewardError, match="name a rule"):
            play(None)

    def test_an_agent_that_left(self):
        class LeavingEnv(EchoEnv):
            def step(self, actions):
                result = super().step(actions)
                self.agents = self.agents[:1]
                return result

        env = CentralisedEnv(LeavingEnv(turns=2))
        env.reset(seed=0)
        first, _, terminated, *_ = env.step(["x", "y"])
        assert not terminated
        last, *_ = env.step({"ann": "z"})
        assert last["ann"] == "turn 2, heard ['z']"
        assert last["bob"] == first["bob"]

    @pytest.mark.parametrize("action", [["x"], "xy", {"a_0": "x"}, {"a_0": "", "b_1": "", "c": ""}, None])
    def test_actions_of_another_form(self, action):
        env = CentralisedEnv(text_env())
        env.reset(seed=0)
        with pytest.raises(ActionError, match=r"expected one action for each of \['a_0', 'b_1'\]"):
            env.step(action)


class TestDictObservation:
    def test_pettingzoo_finds_no_fault(self):
        parallel_api_test(DictObservation(text_env()), num_cycles=20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # api_test warns of every space that is no Box
            api_test(parallel_to_aec(DictObservation(text_env(turns=2))), num_cycles=20)

    def test_observations_and_spaces(self):
        env = DictObservation(text_env())
        observations, _ = env.reset(options={"item": 0})
        assert observations["a_0"] == {"text": "a_0 train/0 0"}
        assert env.observation_space("a_0").contains(observations["a_0"])
        assert env.observation_space("a_0") is env.observation_space("a_0")
        observations, rewards, *_ = env.step({"a_0": "x", "b_1": "y"})
        assert observations["b_1"] == {"text": ""}
        assert rewards["a_0"] == 2


class TestEpisodeStatistics:
    def test_sums_and_turns(self):
        env = EpisodeStatistics(text_env(turns=2), window=2)
        for number in range(3):
            env.reset(seed=number)
            *_, infos = env.step({"a_0": "one", "b_1": ""})
            assert "episode" not in infos["a_0"]
            *_, infos = env.step({"a_0": "two " * number, "b_1": ""})
            episode = infos["b_1"]["episode"]
            assert (episode["r"], episode["l"]) == (1 + number, 2)
            assert 0 < episode["t"] < 5
            assert infos["b_1"]["reward_status"] == "ok"
        assert env.episodes == 3
        assert list(env.returns) == [2, 3]
        assert list(env.lengths) == [2, 2]
        assert len(env.seconds) == 2

    def test_unfinished_and_failed_episodes(self):
        env = EpisodeStatistics(text_env(turns=2))
        env.reset(seed=0)
        env.step({"a_0": "one", "b_1": ""})
        env.reset(seed=0)
        env.step({"a_0": "broken", "b_1": ""})
        env.step({"a_0": "x", "b_1": ""})
        assert env.episodes == 1
        assert math.isnan(env.returns[0])


class MaskedEnv(RockPaperScissors):
    """Observations with an action mask: the last action is forbidden."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return {a: self.masked(o) for a, o in observations.items()}, infos

    def step(self, actions):
        observations, *rest = super().step(actions)
        return {a: self.masked(o) for a, o in observations.items()}, *rest

    def masked(self, observation):
        return {"observation": np.array([observation]), "action_mask": np.array([0, 1, 1], dtype=np.int8)}


NAMES = ("rock", "paper", "scissors")


class TestTextAdapter:
    def test_plays_numbers_in_words(self):
        env = TextAdapter(RockPaperScissors(), names=NAMES)
        prompts, _ = env.reset(seed=0)
        assert prompts["player_1"] == (
            "You are player_1.\nYou observe: 3\nAnswer with one of these actions: 0 (rock), 1 (paper), 2 (scissors)."
        )
        prompts, rewards, _, _, infos = env.step({"player_0": "I play Paper!", "player_1": "0, not 1"})
        assert rewards == {"player_0": 1, "player_1": -1}
        assert "You observe: 0" in prompts["player_0"]
        assert infos["player_0"]["parse_failed"] == 0
        _, rewards, terminations, _, infos = env.step({"player_0": "", "player_1": "scissors"})
        assert rewards["player_0"] == 1  # nothing readable plays 0, rock
        assert {agent: info["parse_failed"] for agent, info in infos.items()} == {"player_0": 1, "player_1": 0}
        assert all(terminations.values())
        env.reset(seed=0)
        assert env.step({"player_0": "0", "player_1": "0"})[4]["player_0"]["parse_failed"] == 0

    def test_pettingzoo_finds_no_fault(self):
        parallel_api_test(TextAdapter(RockPaperScissors()), num_cycles=20)

    def test_plugs_into_preferences_with_a_rule(self):
        env = PreferenceWrapper(TextAdapter(RockPaperScissors(), names=NAMES), reward_rule="max")
        env.reset(seed=0)
        env.step({"player_0": ["rock", "rock", "paper"], "player_1": ["rock", "paper", "?"]})
        *_, infos = env.step({"player_0": ["0", "0", "0"], "player_1": ["0", "0", "0"]})
        assert infos["player_0"]["candidate_rewards"] == [0, 1, 1]
        assert infos["player_0"]["preferences"] == [(1, 0), (2, 0)]

    def test_action_masks(self):
        env = TextAdapter(MaskedEnv(), names=NAMES)
        prompts, _ = env.reset(seed=0)
        assert prompts["player_0"].endswith(
            "You observe: [3]\nAnswer with one of these actions: 1 (paper), 2 (scissors)."
        )
        *_, infos = env.step({"player_0": "rock", "player_1": "2"})  # rock is forbidden: paper is played
        assert infos["player_0"]["parse_failed"] == 1
        assert infos["player_1"]["parse_failed"] == 0
        assert "[1]" in env.step({"player_0": "1", "player_1": "1"})[0]["player_1"]

    def test_functions_of_ones_own(self):
        class Throw(RockPaperScissors):
            def action_space(self, agent):
                return Box(0.0, 2.0, (), np.float64)

        with pytest.raises(
            ConfigError, match=r"expected a Discrete action space for 'player_0', actually Box.* pass act="
        ):
            TextAdapter(Throw())

        def act(agent, text, space):
            return float(text) if text else None

        env = TextAdapter(Throw(), observe=lambda agent, seen, space: f"{agent} saw {seen}", act=act)
        prompts, _ = env.reset(seed=0)
        assert prompts["player_0"] == "player_0 saw 3"
        _, rewards, *_ = env.step({"player_0": "1.0", "player_1": "0"})
        assert rewards["player_0"] == 1
        twin = copy.deepcopy(env)
        first, second = (each.step({"player_0": "", "player_1": "0"}) for each in (env, twin))
        assert first == second  # an unreadable answer plays the same action each time
        with pytest.raises(ActionError, match="action of 'player_0': expected a str, actually 1"):
            twin.step({"player_0": 1, "player_1": "0"})

    def test_spaces(self):
        env = TextAdapter(RockPaperScissors())
        assert env.action_space("player_0").contains("rock")
        assert env.observation_space("player_0") is env.observation_space("player_0")

    @pytest.mark.parametrize(
        ("text", "choice"),
        [
            ("2", 2),
            ("I choose 1 of 3", 1),
            ("SCISSORS then rock", 2),
            ("rocket", None),
            ("x2", None),
            ("3", None),
            ("-1", None),
            ("9" * 5000, None),
            ("", None),
            ("papier", None),
            ("1.", 1),
        ],
    )
    def test_reading_choices(self, text, choice):
        assert read_choice(text, Discrete(3), NAMES) == choice
        shifted = read_choice(text, Discrete(3, start=0), ("rock", "paper", "scissors"))
        assert shifted == choice

    def test_spaces_that_do_not_start_at_zero(self):
        space = Discrete(3, start=-1)
        assert read_choice("-1", space, NAMES) == -1
        assert read_choice("scissors", space, NAMES) == 1
        assert read_choice("2", space, NAMES) is None
        assert "-1 (rock), 0 (paper), 1" in describe("a", 0, space, NAMES[:2])


def test_real_pettingzoo_environment():
    pytest.importorskip("pygame")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pettingzoo announces another way to make it
        from pettingzoo.classic import rps_v2

    env = TextAdapter(rps_v2.parallel_env(num_actions=3, max_cycles=1), names=NAMES)
    prompts, _ = env.reset(seed=0)
    assert "0 (rock), 1 (paper), 2 (scissors)" in prompts["player_0"]
    _, rewards, *_ = env.step({"player_0": "paper", "player_1": "rock"})
    assert rewards == {"player_0": 1, "player_1": -1}
    wrapped = PreferenceWrapper(env, reward_rule="max")
    wrapped.reset(seed=0)
    *_, infos = wrapped.step({"player_0": ["rock", "paper"], "player_1": ["rock", "rock"]})
    assert infos["player_0"]["preferences"] == [(1, 0)]
