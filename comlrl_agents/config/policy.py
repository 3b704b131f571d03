"""Learning from returns: the fields of the six back ends, and the configuration that trains on the task reward."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.team import TeamConfig
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.learners.actor_critic import ValueRule
    from comlrl_agents.optimisation import Optimisation
    from comlrl_agents.policy_gradient import PolicyRule

RLAlgorithm = Literal["magrpo", "mareinforce", "marloo", "maremax", "iac", "maac"]

CRITICS = ("iac", "maac")
NORMALISED = ("magrpo", "iac", "maac")
"""Back ends that normalise their advantages unless told otherwise. For mareinforce, marloo and maremax normalising
would take away what tells them from magrpo."""


@dataclass(kw_only=True, frozen=True)
class PolicyFields(TeamConfig):
    """How a team learns from returns.

    ``advantage_normalization`` None: on for magrpo, iac and maac, off for the others. ``eval_interval`` counts training
    items here, ``train_batch_size`` items per update.
    """

    rl_algorithm: RLAlgorithm = "magrpo"
    """How policies learn from returns."""
    num_generations: int = 4
    """Joint responses that are sampled for an item each time it is learned from."""
    advantage_normalization: bool | None = None
    """Standardise advantages; none: for magrpo, iac and maac."""
    critic_model_name: str | list[str] | None = None
    """iac and maac: model that critics begin with, or one per critic; none takes what the first agent began with."""
    critic_learning_rate: float | None = None
    """iac and maac: AdamW's learning rate for critics; none takes that of the agents."""
    critic_devices: str | list[str] | None = None
    """iac and maac: a device for all critics, or one each."""
    use_separate_critic: bool = True
    """False puts iac's value heads on the actors."""
    critic_type: Literal["v", "q"] = "v"
    """iac and maac: values of prompts (v), or of prompts with their answers (q)."""
    value_loss_coef: float = 0.6
    """iac and maac: weight of the value loss."""
    value_clip_range: float = 0.2
    """How far a value head on an actor may move from its value before the update."""
    reference_kl_enabled: bool = False
    """Whether returns are lessened by how far an answer's probability has moved from that of the initial weights."""
    reference_kl_coef: float = 0.1
    """What one nat of that takes from a return."""
    reference_devices: str | list[str] | None = None
    """A device for all initial weights, or one each."""
    # Ours
    ppo_epochs: int = 1
    """Passes over a buffer; more than one needs ppo_clip_range."""
    ppo_clip_range: float | None = None
    """PPO's bound on how far the probability of a token may move within a buffer; none does not bound."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        return super().ranges() | {
            "num_generations": (1, most),
            "critic_learning_rate": (0, most),
            "value_loss_coef": (0, most),
            "value_clip_range": (1e-12, most),
            "reference_kl_coef": (0, most),
            "ppo_epochs": (1, most),
            "ppo_clip_range": (1e-12, 1),
        }

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        if not self.has_critics and self.num_generations < 2:
            raise ConfigError(
                f"num_generations: {self.rl_algorithm!r} learns from groups of at least 2 joint responses to an item, "
                f"actually {self.num_generations}; raise it, or use 'iac' or 'maac'"
            )
        if self.batch_size > self.rollout_buffer_size:
            raise ConfigError(
                f"train_batch_size: must not exceed the {self.rollout_buffer_size} items of rollout_buffer_size, from "
                f"which minibatches are taken, actually {self.train_batch_size}; raise rollout_buffer_size"
            )
        if self.ppo_epochs > 1 and self.ppo_clip_range is None:
            raise ConfigError(
                f"ppo_epochs: more than one pass over a buffer needs ppo_clip_range, actually {self.ppo_epochs} passes "
                "without it; set ppo_clip_range, e.g. to 0.2"
            )
        if self.rl_algorithm != "iac" and not self.use_separate_critic:
            raise ConfigError(
                "use_separate_critic: False puts value heads on the actors, which only 'iac' does, actually "
                f"rl_algorithm={self.rl_algorithm!r}; leave it True"
            )
        if self.has_critics and self.policy_rule.normalize and self.num_generations * self.rollout_buffer_size < 2:
            raise ConfigError(
                "advantage_normalization: needs at least 2 joint responses in a buffer, actually one "
                "(num_generations=1, rollout_buffer_size=1), of which nothing would be left; raise one of them, or set "
                "advantage_normalization=False"
            )
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        separate = (self.has_critics and self.use_separate_critic, "a separate critic (iac, maac)")
        critics = (self.has_critics, "critics (iac, maac)")
        reference = (self.reference_kl_enabled, "reference_kl_enabled=True")
        needed = {
            "critic_model_name": separate,
            "critic_learning_rate": separate,
            "critic_devices": separate,
            "critic_type": critics,
            "value_loss_coef": critics,
            "value_clip_range": (not self.use_separate_critic, "use_separate_critic=False"),
            "reference_kl_coef": reference,
            "reference_devices": reference,
        }
        for name, (used, switch) in needed.items():
            if not used and getattr(self, name) != type(self).__dataclass_fields__[name].default:
                raise ConfigError(
                    f"{name}: has no meaning without {switch}, actually {getattr(self, name)!r}; leave it out"
                )
        for name, count in (("critic_devices", self.num_critics), ("reference_devices", self.num_actors)):
            devices = getattr(self, name)
            if isinstance(devices, list) and len(devices) not in (1, count):
                raise ConfigError(f"{name}: must name one device or {count}, actually {devices!r}")
        models = self.critic_model_name
        if isinstance(models, list) and len(models) != self.num_critics:
            raise ConfigError(
                f"critic_model_name: {self.rl_algorithm!r} needs a name, or a list of {self.num_critics}, one for each "
                f"critic, actually {models!r:.80}"
            )

    @property
    def has_critics(self) -> bool:
        """Whether values are learned."""
        return self.rl_algorithm in CRITICS

    @property
    def num_critics(self) -> int:
        """One for the whole team (maac), or one per agent."""
        return 1 if self.rl_algorithm == "maac" else self.num_actors

    @property
    def policy_rule(self) -> "PolicyRule":
        """What all back ends share."""
        from comlrl_agents.policy_gradient import PolicyRule

        asked = self.advantage_normalization
        return PolicyRule(
            normalize=self.rl_algorithm in NORMALISED if asked is None else asked,
            kl_coefficient=self.reference_kl_coef if self.reference_kl_enabled else 0.0,
            clip_range=self.ppo_clip_range,
        )

    @property
    def value_rule(self) -> "ValueRule":
        """How values are learned."""
        from comlrl_agents.learners.actor_critic import ValueRule

        return ValueRule(self.value_loss_coef, self.value_clip_range)

    @property
    def critic_optimisation(self) -> "Optimisation":
        """How the critics' weights are updated."""
        from dataclasses import replace

        rate = self.agent_learning_rate if self.critic_learning_rate is None else self.critic_learning_rate
        return replace(self.optimisation, learning_rate=rate)


@dataclass(kw_only=True, frozen=True)
class RLConfig(PolicyFields):
    """One of the six back ends, directly on the task reward."""
