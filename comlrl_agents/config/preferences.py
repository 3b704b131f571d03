"""What the trainers that make preference pairs add."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.team import TeamConfig
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.comparators import ComparatorRule
    from comlrl_agents.replay import ReplayRule

PairSelection = Literal["reward_gap", "random", "all", "diverse", "comparator_reward"]


@dataclass(kw_only=True, frozen=True)
class PreferenceConfig(TeamConfig):
    """How candidates become pairs."""

    # No field: whether there is another side to compare with.
    compares = False

    preference_num_candidates: int = 80
    """Joint responses that are sampled and scored for each item, to make pairs of."""
    preference_pairs_per_sample: int | None = 16
    """Most pairs that are kept of an item; none keeps all."""
    pair_selection: PairSelection = "reward_gap"
    """Which pairs of an item's candidates are kept: those with the largest gaps in reward, any, all, or many different
    candidates; comparator_reward: the team's against the other side's."""
    environment_steps_per_pair: int = 2
    """Factor of a logged count that the reference library has; nothing else uses it."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        counts = ("preference_pairs_per_sample", "environment_steps_per_pair")
        return super().ranges() | dict.fromkeys(counts, (1, most)) | {"preference_num_candidates": (2, most)}

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        if self.pair_selection == "all" and self.preference_pairs_per_sample is not None:
            raise ConfigError(
                "preference_pairs_per_sample: must be None with pair_selection='all' (every pair is kept), actually "
                f"{self.preference_pairs_per_sample!r}; set it to None or choose another pair_selection"
            )
        if self.pair_selection == "comparator_reward" and not self.compares:
            raise ConfigError(
                "pair_selection: 'comparator_reward' compares with a comparator, which only the iterative trainers "
                "have; use 'reward_gap', 'random', 'all' or 'diverse'"
            )

    @property
    def replay(self) -> "ReplayRule":
        """Which stored pairs are trained on."""
        from comlrl_agents.replay import ReplayRule

        return ReplayRule()

    @property
    def comparator(self) -> "ComparatorRule | None":
        """The other side of each comparison; None compares the team's candidates with each other."""
        return None
