"""The four group baselines: magrpo, mareinforce, marloo, maremax.

All agents of a joint response share its advantage; each raises the log-probability of what it said in proportion. One
optimizer step per minibatch. Logged: ``loss`` (sum over agents), ``advantages/std``, ``logps/mean``, ``kl/reference``
where there is a reference, ``grad_norm``, ``learning_rate``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from comlrl_agents.optimisation import Optimisation, TeamOptimizer, distinct_modules
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_gradient import Experience, PolicyRule, begin_experience, policy_backward
from comlrl_agents.policy_losses import GroupBaseline, group_advantages
from comlrl_agents.rollouts import Group


class Reinforce:
    """The learner of a team from groups of at least two joint responses."""

    least_group = 2

    def __init__(
        self,
        policies: Sequence[LLMPolicy],
        baseline: GroupBaseline,
        rule: PolicyRule,
        optimisation: Optimisation,
    ) -> None:
        self.policies = list(policies)
        self.baseline = baseline
        self.rule = rule
        self.optimisation = optimisation
        self.references: Sequence[LLMPolicy] | None = None
        self.optimizer = TeamOptimizer(distinct_modules(self.policies), optimisation)

    def assess(self, groups: Sequence[Group]) -> list[Experience]:
        """Returns and advantages of a buffer under the weights that sampled it."""
        return [self._assess(group) for group in groups]

    def _assess(self, group: Group) -> Experience:
        begun = begin_experience(self.policies, self.references, group, self.rule, self.optimisation)
        return replace(begun, advantages=group_advantages(begun.returns, self.baseline, self.rule.normalize))

    def learn(self, batch: Sequence[Experience], progress: float = 0.0) -> dict[str, float]:
        """One optimizer step over a minibatch of groups; ``progress`` as for the learning-rate schedule.

        Raises:
            TrainingError: a gradient is not finite; no weight has changed then.

        """
        self.optimizer.clear_gradients()
        stats = policy_backward(self.policies, batch, self.optimisation, self.rule.clip_range)
        return stats | self.optimizer.step(progress)

    def save_critics(self, folder: Path) -> None:
        """There are none."""

    def describe_critics(self) -> list[str]:
        """There are none."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """The optimizers; the weights belong to the policies."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.optimizer.load_state_dict(state)
