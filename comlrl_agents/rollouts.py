"""What a team answers while it learns from returns: groups of joint responses to an item, sampled and scored."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from comlrl_agents.concurrency import for_each_agent
from comlrl_agents.items import Reset
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.questions import Start, agent_prompt, refuse_more_turns
from comlrl_agents.reward_model import JointRewardModel
from comlrl_agents.types import Generation
from comlrl_env.errors import RewardError, TrainingError
from comlrl_env.shared_reward import RewardRule
from comlrl_env.slate import Slate


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The joint responses to one item.

    ``prompts``: per agent; ``answers[agent][k]``: part of joint response k; ``rewards[k]``: NaN when response k could
    not be scored.
    """

    item: str
    reset: Reset
    prompts: tuple[str, ...]
    answers: tuple[tuple[Generation, ...], ...]
    rewards: tuple[float, ...] = ()

    @property
    def joint_texts(self) -> list[tuple[str, ...]]:
        """The joint responses as texts."""
        return [tuple(answer.text for answer in joint) for joint in zip(*self.answers, strict=True)]

    def scored(self, rewards: Sequence[float]) -> "Group":
        """The group with its rewards."""
        return replace(self, rewards=tuple(rewards))

    def first(self, count: int) -> "Group":
        """Its first ``count`` joint responses."""
        return replace(self, answers=tuple(own[:count] for own in self.answers), rewards=self.rewards[:count])

    def judged(self) -> "Group":
        """The group without the joint responses that have no score."""
        kept = [k for k, reward in enumerate(self.rewards) if not math.isnan(reward)]
        answers = tuple(tuple(own[k] for k in kept) for own in self.answers)
        return replace(self, answers=answers, rewards=tuple(self.rewards[k] for k in kept))


Scorer = Callable[[Sequence[Group]], list[list[float]]]
"""Rewards of all joint responses of several groups; NaN for one that could not be scored."""


def sample_groups(
    env: Any,
    resets: Sequence[Reset],
    policies: Sequence[LLMPolicy],
    rngs: Sequence[np.random.Generator],
    count: int,
    *,
    concurrent: bool = False,
) -> list[Group]:
    """``count`` joint responses of the team to every item, each agent answering all items in one call.

    ``concurrent``: agents with different models answer at the same time, see :mod:`comlrl_agents.concurrency`.
    """
    starts = [Start(*env.reset(seed=reset.seed, options=reset.options)) for reset in resets]
    agents = list(env.possible_agents)
    asked = [
        [agent_prompt(start, agent, policy) for start in starts] for agent, policy in zip(agents, policies, strict=True)
    ]

    def answer(index: int) -> list[list[Generation]]:
        return policies[index].generate(asked[index], count, rngs[index])

    answers = for_each_agent(answer, [policy.model for policy in policies], concurrent=concurrent)
    return [
        Group(
            item=str(start.infos.get(agents[0], {}).get("item", f"seed-{reset.seed}")),
            reset=reset,
            prompts=tuple(start.prompts[agent] for agent in agents),
            answers=tuple(tuple(own[index]) for own in answers),
        )
        for index, (reset, start) in enumerate(zip(resets, starts, strict=True))
    ]


class LearnedReward:
    """Scores groups by a reward model, all in one go and without gradients."""

    def __init__(self, model: JointRewardModel, micro_batch_tokens: int | None = None) -> None:
        self.model = model
        self.micro_batch_tokens = micro_batch_tokens

    def __call__(self, groups: Sequence[Group]) -> list[list[float]]:
        """See :data:`Scorer`."""
        texts = [(group.prompts, joint) for group in groups for joint in group.joint_texts]
        values = self.model.score(texts, self.micro_batch_tokens)
        items = (group.item for group in groups for _ in group.joint_texts)
        for item, value in zip(items, values, strict=True):
            if not math.isfinite(value):
                raise TrainingError(
                    f"reward model: the reward of a joint response to item {item!r} must be finite, actually {value}; "
                    "lower reward_learning_rate"
                )
        scores = iter(values)
        return [[next(scores) for _ in group.joint_texts] for group in groups]


class TaskReward:
    """Scores groups by the environment, with its reward processor."""

    def __init__(self, env: Any, reward_rule: RewardRule | None = None) -> None:
        self._slate = Slate(env, reward_rule)

    def __call__(self, groups: Sequence[Group]) -> list[list[float]]:
        """See :data:`Scorer`."""
        return [self._scores(group) for group in groups]

    def _scores(self, group: Group) -> list[float]:
        reset = group.reset
        prompts, _ = self._slate.reset(seed=reset.seed, options=reset.options)
        if tuple(prompts.values()) != group.prompts:
            raise RewardError(
                f"environment: reset(seed={reset.seed}, options={reset.options}) must give the same prompts each time, "
                f"actually {group.prompts!r} and then {tuple(prompts.values())!r}; derive the item from the seed alone"
            )
        texts = {agent: [a.text for a in own] for agent, own in zip(prompts, group.answers, strict=True)}
        played = self._slate.step(texts)
        refuse_more_turns(played.finished)
        return [
            self._slate.process(score.reward) if score is not None and score.status == "ok" else math.nan
            for score in played.scores
        ]
