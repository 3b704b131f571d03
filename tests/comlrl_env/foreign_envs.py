"""Parallel environments as somebody else might write them: they know nothing of comlrl_env."""

import threading
from typing import ClassVar

import numpy as np
from gymnasium.spaces import Discrete, Text
from gymnasium.utils import EzPickle
from pettingzoo import ParallelEnv

SPACE = Text(max_length=1000)


class EchoEnv(ParallelEnv):
    """A seeded target letter; the reward counts it in both texts. ``turns`` turns, the prompt tells what was said."""

    metadata: ClassVar = {"name": "echo", "render_modes": []}
    possible_agents: ClassVar = ["ann", "bob"]

    def __init__(self, turns=1, reward=None):
        self.turns = turns
        self.reward = reward or (lambda env, actions: {a: env.count(actions) for a in actions})
        self.agents = []

    def observation_space(self, agent):
        return SPACE

    def action_space(self, agent):
        return SPACE

    def count(self, actions):
        return float(sum(text.count(self.letter) for text in actions.values()))

    def draw(self, seed):
        return np.random.default_rng(seed)

    def reset(self, seed=None, options=None):
        self.rng = self.draw(seed)
        self.letter = "abcde"[self.rng.integers(5)]
        self.agents = list(self.possible_agents)
        self.turn = 0
        return {agent: f"{agent}: use {self.letter}" for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        acted = list(self.agents)
        rewards = self.reward(self, actions)
        self.turn += 1
        over = self.turn == self.turns
        prompts = {agent: f"turn {self.turn}, heard {sorted(actions.values())}" for agent in acted}
        if over:
            self.agents = []
        infos = {agent: {"is_success": rewards.get(agent) == 2} for agent in acted}
        return prompts, rewards, dict.fromkeys(acted, over), dict.fromkeys(acted, False), infos


class LockedEnv(EchoEnv):
    """Cannot be copied."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lock = threading.Lock()


class SeedlessEnv(EchoEnv):
    """Ignores its seed; deep copies are exact."""

    counter = 0

    def draw(self, seed):
        SeedlessEnv.counter += 1
        return np.random.default_rng(SeedlessEnv.counter)


class LockedSeedlessEnv(SeedlessEnv, LockedEnv):
    """Ignores its seed and cannot be copied: candidates cannot be judged on one item."""


class PickledEnv(EchoEnv, EzPickle):
    """A copy is a new environment that was never reset."""

    def __init__(self, turns=1):
        EchoEnv.__init__(self, turns)
        EzPickle.__init__(self, turns)


class LayeredEnv(EchoEnv):
    """Keeps its own list of agents around an environment whose copies forget the episode."""

    def __init__(self, turns=1):
        super().__init__(turns)
        self.inner = PickledEnv(turns)

    def reset(self, seed=None, options=None):
        result = self.inner.reset(seed, options)
        self.agents = list(self.inner.agents)
        return result

    def step(self, actions):
        result = self.inner.step(actions)
        self.agents = list(self.inner.agents)
        return result


class RockPaperScissors(ParallelEnv):
    """Two rounds of integers; observations are the other's last move."""

    metadata: ClassVar = {"name": "rps", "render_modes": []}
    possible_agents: ClassVar = ["player_0", "player_1"]

    def __init__(self):
        self.agents = []
        self.spaces = {agent: Discrete(3) for agent in self.possible_agents}

    def observation_space(self, agent):
        return Discrete(4)

    def action_space(self, agent):
        return self.spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.round = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, 3), {agent: {} for agent in self.agents}

    def step(self, actions):
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        assert 0 <= first < 3
        assert 0 <= second < 3
        value = ((first - second + 1) % 3) - 1
        self.round += 1
        acted, over = list(self.agents), self.round == 2
        if over:
            self.agents = []
        return (
            {"player_0": second, "player_1": first},
            {"player_0": float(value), "player_1": float(-value)},
            dict.fromkeys(acted, over),
            dict.fromkeys(acted, False),
            {agent: {} for agent in acted},
        )
