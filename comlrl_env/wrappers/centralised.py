"""The team as one agent: a gymnasium environment whose action holds every role's answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.spaces import Dict
from pettingzoo import ParallelEnv

from comlrl_env.errors import ActionError
from comlrl_env.parallel import advance, begin
from comlrl_env.shared_reward import RewardRule, check_rule, shared_score

Observation = dict[str, Any]


class CentralisedEnv(gymnasium.Env[Observation, Any]):
    """A parallel environment seen by one policy that plays all agents.

    Observations are ``{agent: observation}`` and actions ``{agent: action}``, or the actions alone as a list or tuple
    in the order of ``possible_agents``. The reward is the shared one, NaN where the oracle failed; ``info[agent]`` is
    the agent's info. The episode is terminated when every agent's is, and truncated when it ends otherwise. An agent
    that left early keeps its last observation and its action is not looked at.

    ``reward_rule``: how to combine rewards that differ between agents; None refuses them with RewardError.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], reward_rule: RewardRule | None = None) -> None:
        check_rule(reward_rule)
        self.env = env
        self.reward_rule = reward_rule
        self.agents = list(env.possible_agents)
        self.metadata = {**env.metadata, "render_modes": env.metadata.get("render_modes", [])}
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space = Dict({agent: env.observation_space(agent) for agent in self.agents})
        self.action_space = Dict({agent: env.action_space(agent) for agent in self.agents})
        self._last: Observation = {}
        self._terminated: set[str] = set()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; arguments go to the environment."""
        super().reset(seed=seed)
        observations, infos = begin(self.env, seed, options)
        self._last, self._terminated = dict(observations), set()
        return dict(self._last), dict(infos)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one joint action. Raises ActionError when an agent's action is missing."""
        acting = list(self.env.agents)
        if not acting:
            raise ActionError("step: the episode is over or has not begun; call reset() first")
        actions = self._by_agent(action)
        observations, rewards, terminations, _, infos = advance(self.env, {agent: actions[agent] for agent in acting})
        self._last |= observations
        self._terminated |= {agent for agent, ended in terminations.items() if ended}
        over = not self.env.agents
        terminated = over and self._terminated >= set(acting)
        score = shared_score(rewards, infos, acting, self.reward_rule)
        return dict(self._last), score.reward, terminated, over and not terminated, dict(infos)

    def render(self) -> Any:
        """What the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()  # type: ignore[no-untyped-call] # PettingZoo does not annotate it

    def _by_agent(self, action: Any) -> Mapping[str, Any]:
        if isinstance(action, Sequence) and not isinstance(action, str) and len(action) == len(self.agents):
            return dict(zip(self.agents, action, strict=True))
        if isinstance(action, Mapping) and set(self.env.agents) <= set(action) <= set(self.agents):
            return action
        given = sorted(action) if isinstance(action, Mapping) else repr(action)[:200]
        raise ActionError(
            f"action: expected one action for each of {self.agents}, by name or as a list in this order, "
            f"actually {given}"
        )
