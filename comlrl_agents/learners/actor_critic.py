"""iac and maac: policy gradients whose baseline is a learned value.

``iac``: a critic per agent, a model of its own or a value head on the actor. ``maac``: one critic that reads what all
agents are asked, its value computed once per joint prompt. One turn: the target is the return, A = target − V,
normalised over a buffer of two joint responses or more. Every minibatch steps actors and critics once. With critic type
"q" the value is that of the answer given, so that A is what the critic could not foresee; it fades as the critic
becomes exact.

Logged beside the policy's figures: ``value/loss`` (sum over critics), ``value/mean``, ``value/grad_norm``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from comlrl_agents.critics import Critic, expected, save_critic
from comlrl_agents.head import gradients_in_place
from comlrl_agents.optimisation import Optimisation, TeamOptimizer, distinct_modules
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_gradient import Experience, PolicyRule, begin_experience, policy_backward
from comlrl_agents.policy_losses import standardised, value_loss
from comlrl_agents.rollouts import Group
from comlrl_agents.scalar_model import lookups, save_head
from comlrl_agents.scored_states import Row


@dataclass(frozen=True, slots=True)
class ValueRule:
    """How values are learned; ``clip_range`` counts for a head on the actor only."""

    coefficient: float = 0.6
    clip_range: float = 0.2


class ActorCritic:
    """The learner of a team with critics.

    ``critics``: one per agent, or a single one that reads all agents' prompts (``central``). ``on_actor``: the critics
    are heads on the actors' bodies and are stepped with them; otherwise ``critic_optimisation`` steps them.
    """

    least_group = 1

    def __init__(
        self,
        policies: Sequence[LLMPolicy],
        critics: Sequence[Critic],
        rule: PolicyRule,
        values: ValueRule,
        optimisation: Optimisation,
        critic_optimisation: Optimisation,
        *,
        central: bool = False,
        on_actor: bool = False,
    ) -> None:
        self.policies = list(policies)
        self.critics = list(critics)
        self.rule, self.values = rule, values
        self.optimisation = optimisation
        self.central, self.on_actor = central, on_actor
        self.references: Sequence[LLMPolicy] | None = None
        stepped: Mapping[int, nn.Module] = distinct_modules(self.policies)
        if on_actor:
            stepped = {i: nn.ModuleList([module, self.critics[i].model.head]) for i, module in stepped.items()}
        self.optimizer = TeamOptimizer(stepped, optimisation)
        self.critic_optimizer = None
        if not on_actor:
            models = {index: critic.model for index, critic in enumerate(self.critics)}
            self.critic_optimizer = TeamOptimizer(
                models, critic_optimisation, "critic", "critic_learning_rate", lookups(models)
            )

    def assess(self, groups: Sequence[Group]) -> list[Experience]:
        """Returns, values and advantages of a buffer under the weights that sampled it."""
        begun = [
            begin_experience(self.policies, self.references, group, self.rule, self.optimisation) for group in groups
        ]
        budget = self.optimisation.micro_batch_tokens
        rows = [expected(critic, self._rows(groups, index), budget) for index, critic in enumerate(self.critics)]
        values = torch.stack(rows * len(self.policies) if self.central else rows)
        advantages = torch.cat([experience.returns for experience in begun], dim=1) - values
        if self.rule.normalize:  # of a single response nothing is left: it says nothing about which is better
            advantages = standardised(advantages)
        sizes = [len(group.rewards) for group in groups]
        return [
            replace(experience, advantages=own, values=value)
            for experience, own, value in zip(
                begun, torch.split(advantages, sizes, 1), torch.split(values, sizes, 1), strict=True
            )
        ]

    def learn(self, batch: Sequence[Experience], progress: float = 0.0) -> dict[str, float]:
        """One step of the actors and one of the critics over a minibatch of groups.

        Raises:
            TrainingError: a log-probability or a gradient is not finite.

        """
        self.optimizer.clear_gradients()
        if self.critic_optimizer is not None:
            self.critic_optimizer.clear_gradients()
        stats = policy_backward(self.policies, batch, self.optimisation, self.rule.clip_range)
        stats |= self._value_backward(batch)
        stats |= self.optimizer.step(progress)
        if self.critic_optimizer is not None:
            stats["value/grad_norm"] = self.critic_optimizer.step(progress)["grad_norm"]
        return stats

    def _value_backward(self, batch: Sequence[Experience]) -> dict[str, float]:
        groups = [experience.group for experience in batch]
        returns = torch.cat([experience.returns for experience in batch], dim=1)
        targets = returns.mean(0, keepdim=True) if self.central else returns
        old = torch.cat([experience.values for experience in batch if experience.values is not None], dim=1)
        total, means = 0.0, []
        for index, critic in enumerate(self.critics):
            with gradients_in_place():
                values = critic.model.values(self._rows(groups, index), self.optimisation.micro_batch_tokens)
            clip = self.values.clip_range if self.on_actor else None
            target = targets[index].float().to(values.device)
            loss = value_loss(values, target, old[index].to(values.device), clip)
            (self.values.coefficient * loss).backward()  # type: ignore[no-untyped-call]  # torch's own annotation
            total += loss.item()
            means.append(values.detach().mean().item())
        return {"value/loss": total, "value/mean": sum(means) / len(means)}

    def _rows(self, groups: Sequence[Group], index: int) -> list[Row]:
        critic = self.critics[index]
        return critic.joint_rows(groups) if self.central else critic.agent_rows(groups, index, self.policies[index])

    def save_critics(self, folder: Path) -> None:
        """``critic_0``, … that can go on elsewhere, or ``value_head_0.safetensors``, … of heads on the actors."""
        for index, critic in enumerate(self.critics):
            if self.on_actor:
                save_head(critic.model, folder / f"value_head_{index}.safetensors")
            else:
                save_critic(critic, folder / f"critic_{index}")

    def describe_critics(self) -> list[str]:
        """The shape of each critic in words."""
        return [f"{sum(p.numel() for p in critic.model.parameters())} weights" for critic in self.critics]

    def state_dict(self) -> dict[str, Any]:
        """Optimizers and critics; the actors' weights belong to the policies."""
        state: dict[str, Any] = {"actors": self.optimizer.state_dict(), "critics": self._critic_weights()}
        if self.critic_optimizer is not None:
            state["critic_optimizer"] = self.critic_optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.optimizer.load_state_dict(state["actors"])
        for module, weights in zip(self._critic_modules(), state["critics"], strict=True):
            module.load_state_dict(weights)
        if self.critic_optimizer is not None:
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])

    def _critic_modules(self) -> list[nn.Module]:
        return [critic.model.head if self.on_actor else critic.model for critic in self.critics]

    def _critic_weights(self) -> list[dict[str, Tensor]]:
        return [module.state_dict() for module in self._critic_modules()]
