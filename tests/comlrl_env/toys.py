"""Small environments and tasks that the tests break in one place each."""

import itertools
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

from comlrl_env import Item, Score
from comlrl_env.testing import find_faults


class Match:
    """Two agents get a number and both must write it; as small as a task gets."""

    agents = ("caller_0", "caller_1")
    num_turns = 1

    def items(self, split: str) -> list[Item]:
        numbers = range(20) if split == "train" else range(20, 30)
        return [Item(key=f"{split}/{n}", data={"number": n}) for n in numbers]

    def prompts(self, item: Item, history: tuple) -> dict[str, str]:
        return {agent: f"{agent}: write the number {item.data['number']} and nothing else" for agent in self.agents}

    def score(self, item: Item, history: tuple, responses: Any) -> Score:
        right = [responses[agent].strip() == str(item.data["number"]) for agent in self.agents]
        return Score(reward=float(all(right)), parts={"right": float(sum(right))}, is_success=all(right))

    def gold(self, item: Item, history: tuple = ()) -> dict[str, str]:
        return dict.fromkeys(self.agents, str(item.data["number"]))


class TwoTurns(Match):
    """A message that earns nothing, then the answer: the partner's message and the number, joined."""

    num_turns = 2

    def prompts(self, item: Item, history: tuple) -> dict[str, str]:
        if not history:
            return dict.fromkeys(self.agents, "send a message")
        heard = dict(zip(self.agents, reversed(list(history[0].responses.values())), strict=True))
        return {agent: f"your partner said {heard[agent]}" for agent in self.agents}

    def score(self, item: Item, history: tuple, responses: Any) -> Score:
        if not history:
            return Score(reward=0.0)
        right = all(responses[a] == history[0].responses[b] for a, b in itertools.permutations(self.agents, 2))
        return Score(reward=float(right), is_success=right)

    def gold(self, item: Item, history: tuple = ()) -> dict[str, str]:
        said = {agent: f"{agent[-1]}" for agent in self.agents}
        return said if not history else dict(zip(self.agents, reversed(list(said.values())), strict=True))


class Dice(ParallelEnv[str, Any, int]):
    """Written by someone else: numbers, not texts. Both see a die and should choose the same face."""

    def __init__(self) -> None:
        self.metadata = {"name": "dice"}
        self.possible_agents = ["left_0", "right_0"]
        self.agents: list[str] = []
        self.observation_spaces = {agent: Box(0, 6, (1,), np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: Discrete(6) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = seeding.np_random(seed)[0]
        self.die = int(self.rng.integers(6))
        self.agents = self.possible_agents[:]
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self) -> dict[str, Any]:
        return {agent: np.array([self.die], np.float32) for agent in self.possible_agents}

    def reward(self, actions: dict[str, int]) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, float(all(a == self.die for a in actions.values())))

    def step(self, actions: dict[str, int]) -> Any:
        self.agents = []
        over, cut = dict.fromkeys(self.possible_agents, True), dict.fromkeys(self.possible_agents, False)
        return self.observe(), self.reward(actions), over, cut, {agent: {} for agent in self.possible_agents}


def findings(env: Any) -> dict[str, str]:
    """What check_env says about an environment, by check."""
    return {finding.check: str(finding) for finding in find_faults(env)}


def only(env: Any, check: str) -> str:
    """The environment has exactly this fault; return its text."""
    found = findings(env)
    assert list(found) == [check], found
    return found[check]


# What an oracle may stumble over, by the labels of comlrl_env.env_checks.HOSTILE.
TRAPS = {
    "an empty answer": lambda text: not text,
    "unicode": lambda text: "漢" in text and "\n" not in text,
    "control characters": lambda text: "\x00" in text,
    "one huge word": lambda text: len(text) > 100_000,
    "very many lines": lambda text: text.count("\n") > 1000,
}
