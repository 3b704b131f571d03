"""The configurations of MADPO: one collection, and rounds against a comparator."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.preferences import PreferenceConfig
from comlrl_agents.config.rounds import IterConfig
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.losses import PreferenceLoss


@dataclass(kw_only=True, frozen=True)
class MADPOConfig(PreferenceConfig):
    """Direct preference optimisation of a team; one collection, then ``num_train_epochs`` over its pairs."""

    dpo_beta: float = 0.1
    """How hard a margin is pushed: the loss is -log sigmoid(beta * margin)."""
    # Ours: variants of the loss, all off by default
    loss_type: Literal["sigmoid", "ipo"] = "sigmoid"
    """sigmoid, or the squared distance of the margin from a target (IPO)."""
    label_smoothing: float = 0.0
    """Share of pairs whose label is taken to be wrong."""
    target_margin: float = 0.0
    """Margin that the sigmoid loss asks for."""
    length_normalization: bool = False
    """Margins of mean log-probabilities per token instead of sums."""
    winner_term_weight: float = 0.0
    """Weight of the winner's own negative log-probability, which keeps the language."""
    reference_anchored: bool = False
    """Margins relative to those of the initial weights, as in DPO."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        return super().ranges() | {
            "dpo_beta": (1e-12, sys.float_info.max),
            "label_smoothing": (0, 0.4999),
            "target_margin": (0, sys.float_info.max),
            "winner_term_weight": (0, sys.float_info.max),
        }

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        for name in ("label_smoothing", "target_margin"):
            if self.loss_type == "ipo" and getattr(self, name):
                raise ConfigError(
                    f"{name}: belongs to loss_type='sigmoid'; with 'ipo' it must be 0, actually {getattr(self, name)}"
                )

    @property
    def loss(self) -> "PreferenceLoss":
        """The preference loss."""
        from comlrl_agents.losses import PreferenceLoss

        return PreferenceLoss(
            beta=self.dpo_beta,
            loss_type=self.loss_type,
            label_smoothing=self.label_smoothing,
            target_margin=self.target_margin,
            length_normalization=self.length_normalization,
            winner_term_weight=self.winner_term_weight,
            reference_anchored=self.reference_anchored,
        )


@dataclass(kw_only=True, frozen=True)
class MADPOIterConfig(IterConfig, MADPOConfig):
    """MADPO in rounds against a comparator."""
