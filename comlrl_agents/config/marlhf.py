"""The configurations of MARLHF: a joint reward model fitted to preferences, and policy learning from it."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.policy import PolicyFields
from comlrl_agents.config.preferences import PreferenceConfig
from comlrl_agents.config.rounds import IterConfig

if typing.TYPE_CHECKING:
    from comlrl_agents.learners.marlhf import RewardFitRule


@dataclass(kw_only=True, frozen=True)
class MARLHFConfig(PolicyFields, PreferenceConfig):
    """One collection, one fit of a reward model, then ``num_train_epochs`` of policy learning over the items.

    ``reward_model_name``: a model whose body every fit begins with, under a fresh head, or the folder of a saved reward
    model, which goes on with its own. ``reward_max_length`` None: what the model's context holds, or
    the limit of a saved reward model.
    """

    reward_model_name: str | None = None
    """Model whose body every fit begins with, or a saved reward model, head included; none takes agent 0's."""
    reward_model_device: str | None = None
    """None takes that of agent 0."""
    reward_learning_rate: float = 1e-5
    """AdamW's learning rate for the reward model."""
    reward_num_train_epochs: int = 1
    """Passes over the pairs of a fit."""
    reward_train_batch_size: int = 1
    """Pairs per update of the reward model."""
    reward_max_length: int | None = None
    """Most tokens of a joint text, longer ones are cut; none takes the model's context, or a saved reward model's own
    limit."""
    reward_freeze_backbone: bool = False
    """Learn the head alone."""
    # Ours; neither is learned from
    reward_held_out_share: float = 0.1
    """Share of the items whose pairs only measure the fit."""
    task_reward_samples: int = 8
    """Joint responses per logged line that the task scores too, beside the learned reward; 0 is none."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        counts = ("reward_num_train_epochs", "reward_train_batch_size", "reward_max_length")
        return (
            super().ranges()
            | dict.fromkeys(counts, (1, most))
            | {
                "reward_learning_rate": (0, most),
                "reward_held_out_share": (0, 0.9),
                "task_reward_samples": (0, most),
            }
        )

    @property
    def reward_fit(self) -> "RewardFitRule":
        """How the reward model is fitted."""
        from comlrl_agents.learners.marlhf import RewardFitRule

        return RewardFitRule(
            learning_rate=self.reward_learning_rate,
            num_epochs=self.reward_num_train_epochs,
            batch_size=self.reward_train_batch_size,
            max_length=self.reward_max_length,
            freeze_backbone=self.reward_freeze_backbone,
            held_out_share=self.reward_held_out_share,
            max_grad_norm=self.max_grad_norm,
            micro_batch_tokens=self.micro_batch_tokens,
        )


@dataclass(kw_only=True, frozen=True)
class MARLHFIterConfig(IterConfig, MARLHFConfig):
    """MARLHF in rounds against a comparator, with a fresh reward model in each.

    ``preference_scoring_reward`` "reward_model": the reward model of the round before labels the new comparisons; the
    task does until there is one.
    """

    num_train_epochs: int = 2
    reward_num_train_epochs: int = 2
    preference_scoring_reward: Literal["task", "reward_model"] = "task"
    """Who labels new comparisons: the task, or from the second round on the reward model of the round before."""
