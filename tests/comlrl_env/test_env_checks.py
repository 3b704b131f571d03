"""Each fault of an environment has its own broken one, and the message says what to mend."""

import itertools
import math
import random
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from comlrl_env import TextEnv, UnicodeText
from comlrl_env.env_checks import HOSTILE
from comlrl_env.testing import check_env

from .toys import TRAPS, Dice, Match, findings, only


def test_observation_outside_its_space_at_reset() -> None:
    class Bad(Dice):
        def observe(self) -> dict[str, Any]:
            return {agent: np.array([self.die], np.float64) for agent in self.possible_agents}

    message = only(Bad(), "observation")
    assert "reset gave left_0 ndarray" in message
    assert "widen observation_space(agent)" in message


def test_observation_outside_its_space_after_a_step() -> None:
    class Bad(TextEnv):
        def step(self, actions: Any) -> Any:
            _, *rest = super().step(actions)
            return (dict.fromkeys(self.possible_agents, "\ud800"), *rest)

    assert "step gave caller_0 str '\\ud800', which is outside UnicodeText(" in only(Bad(Match()), "observation")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reward_that_is_not_finite(value: float) -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, value)

    message = only(Bad(), "reward")
    assert f"is {value!r} while its status is ok" in message
    assert "return a finite number, or say in infos[agent]['reward_status'] that the oracle failed" in message


def test_nan_reward_of_a_text_env() -> None:
    class Bad(TextEnv):
        def step(self, actions: Any) -> Any:
            prompts, rewards, *rest = super().step(actions)
            return (prompts, dict.fromkeys(rewards, math.nan), *rest)

    assert "is nan while its status is ok" in only(Bad(Match()), "reward")


@pytest.mark.parametrize("value", ["1.0", None, [1.0]])
def test_reward_that_is_no_number(value: Any) -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, value)

    assert "reward" in findings(Bad())


def test_different_rewards() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return {"left_0": 1.0, "right_0": 0.5}

    message = only(Bad(), "shared reward")
    assert "{'left_0': 1.0, 'right_0': 0.5}" in message
    assert "reward_rule='mean'" in message


def test_ignored_seed_of_a_foreign_env() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.rng = getattr(self, "rng", np.random.default_rng(0))
            return super().reset(None, options)

    message = only(Bad(), "seed")
    assert "gave two different observations: the seed is ignored" in message
    assert "np_random(seed)" in message


def test_seed_that_only_a_counter_obeys() -> None:
    class Bad(TextEnv):
        calls = 0

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.calls += 1
            return super().reset(seed, {"item": self.calls % 20} | dict(options or {}))

    assert "the seed is ignored" in findings(Bad(Match()))["seed"]


def test_seed_that_always_gives_one_item() -> None:
    class Bad(TextEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(0, options)

    assert "32 seeds all gave item" in only(Bad(Match()), "seed")


def test_impure_step_of_a_foreign_env() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, random.random())

    found = findings(Bad())
    assert "the oracle is impure" in found["purity"]


def test_agents_left_after_the_last_step() -> None:
    class Bad(Dice):
        def step(self, actions: Any) -> Any:
            made = super().step(actions)
            self.agents = self.possible_agents[:]
            return made

    message = only(Bad(), "agents")
    assert "agents is ['left_0', 'right_0'] when ['left_0', 'right_0'] have just finished" in message
    assert "after the last step agents must be []" in message


def test_episode_without_end() -> None:
    class Bad(Dice):
        def step(self, actions: Any) -> Any:
            observations, rewards, _, cut, infos = super().step(actions)
            self.agents = self.possible_agents[:]
            return observations, rewards, cut, cut, infos

    assert "has not ended after 1000 steps" in only(Bad(), "ends")


def test_spaces_made_anew() -> None:
    class Bad(Dice):
        def observation_space(self, agent: str) -> Any:
            return Box(0, 6, (1,), np.float32)

    message = only(Bad(), "spaces")
    assert "observation_space('left_0') makes a new object at each call" in message


def test_space_that_is_none() -> None:
    class Bad(Dice):
        def action_space(self, agent: str) -> Any:
            return None

    assert "action_space('left_0') is None" in only(Bad(), "spaces")


@pytest.mark.parametrize("agents", [[], ["a", "a"], None])
def test_bad_agents(agents: Any) -> None:
    env = Dice()
    env.possible_agents = agents
    assert "set possible_agents to a list of different names" in only(env, "agents")


def test_options_not_tolerated() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            if options:
                raise KeyError("options")
            return super().reset(seed)

    message = only(Bad(), "reset")
    assert "raised KeyError" in message
    assert "ignore options you do not know" in message


def test_reset_without_infos() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed)[0]

    assert "returned dict" in only(Bad(), "reset")


def test_missing_entries() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return {"left_0": 0.0}

    assert "rewards lack ['right_0']" in findings(Bad())["step"]


def test_no_metadata() -> None:
    env = Dice()
    env.metadata = None  # type: ignore[assignment]
    assert "set metadata" in only(env, "metadata")


def test_env_that_cannot_be_copied() -> None:
    env = Dice()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    message = only(env, "copies")
    assert "copy.deepcopy raised TypeError" in message
    assert "keep no open files, locks" in message


def test_copies_that_share_state() -> None:
    steps = itertools.count()

    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            nonlocal steps
            steps = itertools.count()
            return super().reset(seed)

        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, float(next(steps)))

    assert "gave different results for the same actions" in only(Bad(), "copies")


class Writers(Dice):
    """A foreign environment whose actions are texts."""

    def __init__(self) -> None:
        super().__init__()
        self.action_spaces = {agent: UnicodeText() for agent in self.possible_agents}

    def reward(self, actions: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, float(len(actions["left_0"]) == len(actions["right_0"])))


@pytest.mark.parametrize("label", TRAPS)
@pytest.mark.parametrize("trapped", ["left_0", "right_0"])
def test_step_that_raises_on_an_answer(label: str, trapped: str) -> None:
    class Bad(Writers):
        def reward(self, actions: Any) -> dict[str, Any]:
            if TRAPS[label](actions[trapped]) and actions[trapped] in HOSTILE.values():
                raise UnicodeError("no")
            return super().reward(actions)

    message = findings(Bad())["hostile"]
    assert message.startswith(f"hostile: step with {label} from ['left_0', 'right_0'] raised UnicodeError: no")
    assert "answers of a model are data" in message


def test_writers_are_sound() -> None:
    check_env(Writers())
