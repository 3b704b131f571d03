"""What the iterative trainers add: rounds, a comparator, a replay buffer (ALGORITHMS 5 to 7)."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.comparator import ComparatorFields
from comlrl_agents.config.preferences import PairSelection
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.replay import ReplayRule


@dataclass(kw_only=True, frozen=True)
class IterConfig(ComparatorFields):
    """What the iterative trainers add: rounds, a comparator, a replay buffer."""

    num_iterations: int = 6
    """Rounds of collection and training."""
    num_train_epochs: int = 1
    preference_num_candidates: int = 20
    preference_pairs_per_sample: int | None = 4
    pair_selection: PairSelection = "comparator_reward"
    preference_replay_mode: Literal["current", "nearest_k", "all_history", "lambda_decay"] = "current"
    """Pairs that a round trains on: its own, or drawn from the latest k rounds, from all, or from all with later ones
    likelier; as many as preference_replay_sample_size."""
    preference_replay_k: int | None = None
    """With nearest_k: of how many of the latest rounds."""
    preference_replay_lambda: float | None = None
    """With lambda_decay: a round weighs this to the power of its age in rounds."""
    preference_replay_sample_size: int | None = None
    """Pairs drawn from the stored rounds; none draws as many as the latest one has."""
    preference_replay_dir: str | None = None
    """Folder of the stored pairs; none takes the one inside output_dir."""
    policy_checkpoint_dir: str | None = None
    """Folder of the team's weights of earlier rounds; none takes the one inside output_dir."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        counts = "num_iterations preference_replay_k preference_replay_sample_size"
        return (
            super().ranges()
            | dict.fromkeys(counts.split(), (1, sys.float_info.max))
            | {
                "preference_replay_lambda": (0, 1),
            }
        )

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        for name in ("preference_replay_dir", "policy_checkpoint_dir"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name}: must name a folder, actually ''; None takes the one inside output_dir")
        mode, k = self.preference_replay_mode, self.preference_replay_k
        needs: dict[str, dict[str, bool]] = {
            "current": {"preference_replay_lambda": False, "preference_replay_sample_size": False},
            "nearest_k": {"preference_replay_k": True, "preference_replay_lambda": False},
            "all_history": {"preference_replay_k": False, "preference_replay_lambda": False},
            "lambda_decay": {"preference_replay_lambda": True, "preference_replay_k": False},
        }
        for name, needed in needs[mode].items():
            value = getattr(self, name)
            if needed and value is None:
                raise ConfigError(f"{name}: is required by preference_replay_mode={mode!r}, actually None")
            if not needed and value is not None:
                raise ConfigError(
                    f"{name}: has no meaning with preference_replay_mode={mode!r}, actually {value!r}; leave it out"
                )
        if mode == "current" and k not in (None, 1):
            raise ConfigError(
                f"preference_replay_k: must be None or 1 with preference_replay_mode='current', actually {k!r}"
            )

    @property
    def rounds(self) -> int:
        """Rounds of comparison and training."""
        return self.num_iterations

    @property
    def replay(self) -> "ReplayRule":
        """Which stored pairs of which rounds are trained on."""
        from comlrl_agents.replay import ReplayRule

        return ReplayRule(
            mode=self.preference_replay_mode,
            k=self.preference_replay_k,
            decay=self.preference_replay_lambda,
            sample_size=self.preference_replay_sample_size,
        )
