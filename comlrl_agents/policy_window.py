"""What happened in policy learning since the last logged line, and the task's word on it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from comlrl_agents.collect import completion_metrics
from comlrl_agents.rollouts import Group, Scorer
from comlrl_agents.tracking import weighted_means
from comlrl_agents.types import Generation

LEAST_CORRELATED = 4
"""A correlation of fewer joint responses says nothing; that of two is always 1 or -1."""


class Window:
    """Rollouts and updates between two logged lines.

    ``updates``: the statistics of each, with the number of its joint responses. ``groups``: those that were learned
    from. ``latest``: the known rewards of the last buffer. ``samples``: of each agent, in the last buffer.
    ``seconds``: by phase.
    """

    def __init__(self) -> None:
        self.updates: list[tuple[int, dict[str, float]]] = []
        self.groups: list[Group] = []
        self.rewards: list[float] = []
        self.latest: list[float] = []
        self.failed = 0
        self.samples: list[list[Generation]] = []
        self.seconds = {"rollout": 0.0, "score": 0.0, "update": 0.0}

    def add_rollout(self, groups: Sequence[Group], sampling: float, scoring: float) -> None:
        """Take in a scored buffer and the seconds that it took."""
        self.latest = [reward for group in groups for reward in group.judged().rewards]
        self.rewards += self.latest
        for group in groups:
            self.failed += sum(map(math.isnan, group.rewards))
        agents = range(len(groups[0].answers))
        self.samples = [[answer for group in groups for answer in group.answers[agent]] for agent in agents]
        self.seconds["rollout"] += sampling
        self.seconds["score"] += scoring

    @property
    def latest_reward(self) -> float:
        """The mean reward of the last buffer, for the live line; NaN where none could be scored."""
        return float(np.mean(self.latest)) if self.latest else math.nan

    def metrics(self) -> dict[str, float]:
        """Means over the window; without those of rewards when not one joint response could be scored."""
        stats = weighted_means(self.updates)
        if self.rewards:
            stats["rollout/reward_mean"] = float(np.mean(self.rewards))
            stats["rollout/reward_std"] = float(np.std(self.rewards))
        stats["oracle/error_rate"] = self.failed / (self.failed + len(self.rewards))
        return stats | completion_metrics(self.samples)


def beside_the_task(groups: Sequence[Group], task: Scorer, count: int) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The task's rewards of the latest ``count`` joint responses beside those that were learned from.

    Metrics ``reward_check/…`` and, of each group's first joint response, a row for the samples.
    """
    chosen: list[Group] = []
    for group in reversed(groups):
        if count > 0:
            chosen.append(group.first(count))
            count -= len(chosen[-1].rewards)
    tasks = task(chosen)
    rows = [
        sample_row(group) | {"learned_reward": group.rewards[0], "reward": None if math.isnan(own[0]) else own[0]}
        for group, own in zip(chosen, tasks, strict=True)
    ]
    learned = np.array([reward for group in chosen for reward in group.rewards])
    known = np.array([reward for own in tasks for reward in own])
    learned, known = learned[~np.isnan(known)], known[~np.isnan(known)]
    if not len(known):
        return {}, rows
    metrics = {"reward_check/learned_mean": float(learned.mean()), "reward_check/task_mean": float(known.mean())}
    if len(known) >= LEAST_CORRELATED and learned.std() > 0 and known.std() > 0:
        metrics["reward_check/correlation"] = float(np.corrcoef(learned, known)[0, 1])
    return metrics, rows


def sample_row(group: Group) -> dict[str, Any]:
    """The group's first joint response for the samples."""
    return {
        "item": group.item,
        "prompts": list(group.prompts),
        "responses": list(group.joint_texts[0]),
        "reward": group.rewards[0],
    }
