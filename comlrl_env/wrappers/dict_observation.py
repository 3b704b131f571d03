"""Observations as dictionaries, for tools that cannot work with plain texts (PettingZoo's AEC conversion is one)."""

from typing import Any

from gymnasium.spaces import Dict
from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.parallel import advance, begin

Observations = dict[str, dict[str, Any]]


class DictObservation(BaseParallelWrapper[str, dict[str, Any], Any]):
    """Puts each observation under the key ``"text"``."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        super().__init__(env)
        self._spaces = {agent: Dict({"text": env.observation_space(agent)}) for agent in env.possible_agents}

    def observation_space(self, agent: str) -> Dict:
        """A Dict space around the environment's space, the same object each time."""
        return self._spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, dict[str, Any]]]:
        """Begin an episode."""
        observations, infos = begin(self.env, seed, options)
        return _in_dicts(observations), infos

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Play one joint action."""
        observations, rewards, terminations, truncations, infos = advance(self.env, actions)
        return _in_dicts(observations), rewards, terminations, truncations, infos


def _in_dicts(observations: dict[str, Any]) -> Observations:
    return {agent: {"text": observation} for agent, observation in observations.items()}
