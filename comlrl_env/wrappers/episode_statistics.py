"""Returns, lengths and durations of episodes, as they are played."""

import time
from collections import deque
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.parallel import advance, begin

StepResult = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class EpisodeStatistics(BaseParallelWrapper[str, Any, Any]):
    """Adds ``infos[agent]["episode"]`` to the last step of an agent's episode.

    It holds ``r``, the sum of the agent's rewards (NaN where a score failed), ``l``, its turns, and ``t``, seconds
    since the reset: the names that gymnasium's wrapper uses. ``returns``, ``lengths`` and ``seconds`` keep the last
    ``window`` finished episodes (return: the mean over agents, which is the shared one), and ``episodes`` counts all.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], window: int = 100) -> None:
        super().__init__(env)
        self.episodes = 0
        self.returns: deque[float] = deque(maxlen=window)
        self.lengths: deque[int] = deque(maxlen=window)
        self.seconds: deque[float] = deque(maxlen=window)
        self._sums: dict[str, float] = {}
        self._turns: dict[str, int] = {}
        self._start = 0.0

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; one that was going on is not counted."""
        result = begin(self.env, seed, options)
        self._sums = dict.fromkeys(self.env.agents, 0.0)
        self._turns = dict.fromkeys(self.env.agents, 0)
        self._start = time.perf_counter()
        return result

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Play one joint action."""
        observations, rewards, terminations, truncations, infos = advance(self.env, actions)
        elapsed = time.perf_counter() - self._start
        for agent, reward in rewards.items():
            self._sums[agent] = self._sums.get(agent, 0.0) + float(reward)
            self._turns[agent] = self._turns.get(agent, 0) + 1
            if terminations.get(agent) or truncations.get(agent):
                summary = {"r": self._sums[agent], "l": self._turns[agent], "t": elapsed}
                infos = {**infos, agent: {**infos.get(agent, {}), "episode": summary}}
        if not self.env.agents:
            self.episodes += 1
            self.returns.append(sum(self._sums.values()) / len(self._sums))
            self.lengths.append(max(self._turns.values()))
            self.seconds.append(elapsed)
        return observations, rewards, terminations, truncations, infos
