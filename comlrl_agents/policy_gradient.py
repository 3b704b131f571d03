"""Weighing what agents said: the gradient of a policy loss, accumulated over the tokens they really produced."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from comlrl_agents.concurrency import for_each_agent
from comlrl_agents.logprobs import MICRO_BATCH_TOKENS, backward_weighted, token_logprobs
from comlrl_agents.optimisation import Optimisation
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_losses import (
    clipped_policy_loss,
    clipped_tokens,
    policy_gradient_loss,
    reference_kl,
    shaped_returns,
)
from comlrl_agents.rollouts import Group
from comlrl_env.errors import TrainingError

TokenTable = tuple[Tensor, Tensor]
"""Log-probability of each token (N, T), and which of them are real."""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """What all back ends share: normalised advantages, a KL coefficient, the clipped ratio (None: off)."""

    normalize: bool = False
    kl_coefficient: float = 0.0
    clip_range: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """A group with what an update needs: ``returns`` and ``advantages``, both (agents, G).

    ``old``: per agent the log-probabilities when it was sampled, for ratio clipping. ``values``: what critics expected,
    (agents, G). ``divergence``: KL to the reference, (agents, G).
    """

    group: Group
    returns: Tensor
    advantages: Tensor
    old: tuple[TokenTable, ...] | None = None
    values: Tensor | None = None
    divergence: Tensor | None = None


def tokens_of(groups: Sequence[Group], agent: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """One agent's prompts and completions as token ids, response after response."""
    answers = [answer for group in groups for answer in group.answers[agent]]
    return [answer.prompt_ids for answer in answers], [answer.token_ids for answer in answers]


@torch.no_grad()
def token_table(policy: LLMPolicy, group: Group, agent: int, optimisation: Optimisation) -> TokenTable:
    """The present log-probabilities of one agent's tokens in a group, on the CPU."""
    with policy.computing():
        values, mask = token_logprobs(
            policy.model,
            *tokens_of([group], agent),
            score_final_token=optimisation.score_final_token,
            micro_batch_tokens=optimisation.micro_batch_tokens,
        )
    return values.cpu(), mask.cpu()


def begin_experience(
    policies: Sequence[LLMPolicy],
    references: Sequence[LLMPolicy] | None,
    group: Group,
    rule: PolicyRule,
    optimisation: Optimisation,
) -> Experience:
    """Returns, and what the rule needs beside them, under the weights that sampled the group; no advantage yet."""
    # In float64: rewards may lie close together and far from 0.
    returns = torch.tensor(group.rewards, dtype=torch.float64).repeat(len(policies), 1)
    tables, divergence = None, None
    if rule.clip_range is not None or references is not None:
        tables = tuple(token_table(policy, group, agent, optimisation) for agent, policy in enumerate(policies))
        if references is not None:
            rows = [
                reference_kl(values, token_table(reference, group, agent, optimisation)[0], mask)
                for agent, (reference, (values, mask)) in enumerate(zip(references, tables, strict=True))
            ]
            divergence = torch.stack(rows)
            returns = shaped_returns(returns, divergence, rule.kl_coefficient)
    old = tables if rule.clip_range is not None else None
    return Experience(group, returns, torch.zeros_like(returns), old, divergence=divergence)


def policy_backward(
    policies: Sequence[LLMPolicy], batch: Sequence[Experience], optimisation: Optimisation, clip: float | None
) -> dict[str, float]:
    """Add the gradient of every agent's policy loss to its ``.grad``; the statistics of the minibatch.

    Raises TrainingError, naming the item, when a log-probability or an advantage is not finite.
    """
    stats: dict[str, float] = {"loss": 0.0}
    means = []

    def add(agent: int) -> tuple[float, Tensor, float | None]:
        return accumulate(policies[agent], batch, agent, optimisation, clip)

    found = for_each_agent(add, [policy.model for policy in policies], concurrent=optimisation.concurrent)
    for agent, (loss, logps, _) in enumerate(found):
        _refuse_non_finite(batch, agent, logps)
        stats["loss"] += loss
        stats[f"agent_{agent}/loss"] = loss
        stats[f"agent_{agent}/logps/mean"] = logps.mean().item()
        means.append(logps)
    returns = torch.cat([experience.returns for experience in batch], dim=1)
    stats["rollout/return_mean"] = returns.mean().item()
    stats["advantages/std"] = torch.cat([e.advantages for e in batch], dim=1).std(correction=0).item()
    stats["logps/mean"] = torch.stack(means).sum(0).mean().item()
    clipped = [share for *_, share in found if share is not None]
    if clipped:
        stats["ratio/clipped"] = sum(clipped) / len(clipped)
    known = [e.divergence for e in batch if e.divergence is not None]
    if known:
        stats["kl/reference"] = torch.cat(known, dim=1).mean().item()
    return stats


def _refuse_non_finite(batch: Sequence[Experience], agent: int, logps: Tensor) -> None:
    items = [experience.group.item for experience in batch for _ in experience.group.rewards]
    weights = torch.cat([experience.advantages[agent] for experience in batch])
    bad = torch.nonzero(~torch.isfinite(logps + weights))
    if len(bad):
        at = int(bad[0])
        raise TrainingError(
            f"agent {agent}: log-probability and advantage of an answer to item {items[at]!r} must be finite, actually "
            f"{logps[at].item()} and {weights[at].item()}; lower agent_learning_rate, or look at the rewards"
        )


def accumulate(
    policy: LLMPolicy, batch: Sequence[Experience], agent: int, optimisation: Optimisation, clip: float | None
) -> tuple[float, Tensor, float | None]:
    """Add the gradient of one agent's policy loss over a minibatch to its ``.grad``.

    Returns the loss, the log-probabilities of all responses, (N,), detached, and with ``clip`` the share of tokens
    whose ratio lies outside of 1 ± clip.
    """
    batch = _evened(batch)
    if clip is not None:
        return _accumulate_clipped(policy, batch, agent, optimisation, clip)
    prompts, completions = tokens_of([experience.group for experience in batch], agent)
    advantages = torch.cat([experience.advantages[agent] for experience in batch])
    with policy.computing():
        logps = backward_weighted(
            policy.model,
            prompts,
            completions,
            -advantages / len(advantages),
            score_final_token=optimisation.score_final_token,
            micro_batch_tokens=optimisation.micro_batch_tokens,
        ).cpu()
    return policy_gradient_loss(logps, advantages).item(), logps, None


def _evened(batch: Sequence[Experience]) -> list[Experience]:
    """Advantages scaled so that a mean over all responses is one over groups of their means (ALGORITHMS 10), also where
    groups have lost responses to failed scores.
    """
    total = sum(len(experience.group.rewards) for experience in batch)
    share = [total / (len(batch) * len(experience.group.rewards)) for experience in batch]
    return [replace(one, advantages=one.advantages * factor) for one, factor in zip(batch, share, strict=True)]


def _accumulate_clipped(
    policy: LLMPolicy, batch: Sequence[Experience], agent: int, optimisation: Optimisation, clip: float
) -> tuple[float, Tensor, float]:
    """One group at a time, or as many as a micro-batch holds: the loss is a mean over responses."""
    total = sum(len(experience.group.rewards) for experience in batch)
    budget = optimisation.micro_batch_tokens or MICRO_BATCH_TOKENS
    loss, parts, outside, tokens = 0.0, [], 0, 0
    for groups in _portions(batch, agent, budget):
        prompts, completions = tokens_of([experience.group for experience in groups], agent)
        with policy.computing():
            values, mask = token_logprobs(
                policy.model, prompts, completions, score_final_token=optimisation.score_final_token
            )
        old = _padded([experience.old[agent][0] for experience in groups if experience.old], values.shape[1])
        old = old.to(values.device)
        advantages = torch.cat([experience.advantages[agent] for experience in groups]).float().to(values.device)
        part = clipped_policy_loss(values, old, mask, advantages, clip) * (len(values) / total)
        part.backward()  # type: ignore[no-untyped-call]  # torch's own annotation
        loss += part.item()
        parts.append(values.detach().sum(1).cpu())
        outside += int(clipped_tokens(values.detach(), old, mask, clip).sum())
        tokens += int(mask.sum())
    return loss, torch.cat(parts), outside / max(1, tokens)


def _portions(batch: Sequence[Experience], agent: int, budget: int) -> list[list[Experience]]:
    portions: list[list[Experience]] = []
    room = 0
    for experience in batch:
        size = sum(len(a.prompt_ids) + len(a.token_ids) for a in experience.group.answers[agent])
        if not portions or size > room:
            portions.append([])
            room = budget
        portions[-1].append(experience)
        room -= size
    return portions


def _padded(tables: Sequence[Tensor], width: int) -> Tensor:
    return torch.cat([torch.nn.functional.pad(table, (0, width - table.shape[1])) for table in tables])
