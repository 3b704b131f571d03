"""The two sides of a comparison: the team and its comparator, each with its policies and random streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from comlrl_agents.concurrency import for_each_agent
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.questions import Start, agent_prompt, ask
from comlrl_agents.types import Generation, Policy, Prompt, Sampling
from comlrl_env.joint_text import JointAdapter, joint_prompt, read_roles


@dataclass(frozen=True, slots=True)
class Answers:
    """``by_item[item][agent][candidate]``: every agent of an item has the same number, at most the number asked for.

    ``reason``: why the last missing candidate is missing. ``counts``: requests, retries and cached answers of remote
    models.
    """

    by_item: list[list[list[Generation]]]
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


class CandidateSource(Protocol):
    """A side of a comparison."""

    @property
    def num_candidates(self) -> int:
        """How many joint candidates it is asked for per item."""
        ...

    def answers(self, agents: Sequence[str], starts: Sequence[Start]) -> Answers:
        """Joint candidates for each of the items."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """A policy and a random stream per agent, and the number of candidates per item.

    ``keep_tokens``: False for an agent whose tokens are those of another tokenizer than the one that learns from
    them; None keeps all. ``concurrent``: agents with different models answer at the same time.
    """

    policies: Sequence[Policy]
    rngs: Sequence[np.random.Generator]
    num_candidates: int
    keep_tokens: Sequence[bool] | None = None
    concurrent: bool = False

    def answers(self, agents: Sequence[str], starts: Sequence[Start]) -> Answers:
        """Every agent answers its own prompt; candidate k of all agents is joint candidate k."""

        def own(agent: int) -> list[list[Generation]]:
            policy = self.policies[agent]
            prompts = [agent_prompt(start, agents[agent], policy) for start in starts]
            groups = ask(policy, prompts, starts, self.num_candidates, self.rngs[agent])
            if self.keep_tokens is None or self.keep_tokens[agent]:
                return groups
            return [[_text_only(g) for g in group] for group in groups]

        models = [getattr(policy, "model", policy) for policy in self.policies]
        groups = for_each_agent(own, models, concurrent=self.concurrent)
        by_item = []
        for index in range(len(starts)):
            item = [group[index] for group in groups]
            # Samples are independent, so what is left after a failure may be put together in order.
            fewest = min(map(len, item))
            by_item.append([group[:fewest] for group in item])
        return Answers(by_item, _last_failure(self.policies), _counts(self.policies))


@dataclass(frozen=True, slots=True)
class CentralSide:
    """One policy that writes every role's response in one text (ALGORITHMS 5, central generation).

    Its ``sampling`` leaves room for all roles. A text in which nothing can be read is a missing candidate.
    """

    policy: Policy
    rng: np.random.Generator
    num_candidates: int
    adapter: JointAdapter
    sampling: Sampling

    def answers(self, agents: Sequence[str], starts: Sequence[Start]) -> Answers:
        """Ask for all roles at once and take the texts apart."""
        texts = [joint_prompt(self.adapter, s.data, [s.prompts[agent] for agent in agents]) for s in starts]
        prompts: list[Prompt] = [*texts]
        if getattr(self.policy, "uses_chat", False):
            prompts = [[{"role": "user", "content": text}] for text in texts]
        sampling = replace(self.sampling, max_new_tokens=len(agents) * self.sampling.max_new_tokens)
        groups = ask(self.policy, prompts, starts, self.num_candidates, self.rng, sampling)
        reason = _last_failure([self.policy])
        by_item = []
        for start, group in zip(starts, groups, strict=True):
            joint = []
            for generation in group:
                roles = read_roles(self.adapter, generation.text, start.data, len(agents))
                if roles is None:
                    reason = f"a text in which no role's answer can be read: {generation.text!r:.120}"
                else:
                    joint.append([Generation(role) for role in roles])
            by_item.append([[roles[agent] for roles in joint] for agent in range(len(agents))])
        return Answers(by_item, reason, _counts([self.policy]))


def answers_of(sides: Sequence[CandidateSource], agents: Sequence[str], starts: Sequence[Start]) -> list[Answers]:
    """The answers of each side. Where both are the same models, each model samples for both sides in one batch: a step
    of decoding takes as long for twice the rows.
    """
    if len(sides) == 2:
        team, other = sides
        if isinstance(team, Side) and isinstance(other, Side) and _same_models(team, other):
            return _answers_of_same(team, other, agents, starts)
    return [side.answers(agents, starts) for side in sides]


def _same_models(team: Side, other: Side) -> bool:
    return all(
        # A policy that answers in a way of its own is asked in that way.
        isinstance(own, LLMPolicy) and type(own).generate is LLMPolicy.generate and own is theirs
        for own, theirs in zip(team.policies, other.policies, strict=True)
    )


def _answers_of_same(team: Side, other: Side, agents: Sequence[str], starts: Sequence[Start]) -> list[Answers]:
    def own(agent: int) -> list[list[list[Generation]]]:
        policy: Any = team.policies[agent]
        prompts = [agent_prompt(start, agents[agent], policy) for start in starts]
        draws = [(side.num_candidates, side.rngs[agent]) for side in (team, other)]
        found: list[list[list[Generation]]] = policy.generate_draws(prompts, draws)
        return found

    models = [getattr(policy, "model", policy) for policy in team.policies]
    by_agent = for_each_agent(own, models, concurrent=team.concurrent)
    return [
        Answers([[groups[side][index] for groups in by_agent] for index in range(len(starts))]) for side in range(2)
    ]


def _text_only(generation: Generation) -> Generation:
    return Generation(generation.text, (), generation.finished)


def _counts(policies: Sequence[Policy]) -> dict[str, int]:
    total: dict[str, int] = {}
    for policy in policies:
        if hasattr(policy, "take_counts"):
            for name, count in policy.take_counts().items():
                total[name] = total.get(name, 0) + count
    return total


def _last_failure(policies: Sequence[Policy]) -> str:
    """Why a remote model last failed to answer; other policies always answer."""
    return next((reason for policy in policies if (reason := getattr(policy, "last_failure", ""))), "")
