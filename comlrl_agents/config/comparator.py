"""The comparator's fields (ALGORITHMS 5 and 6): who answers on the other side of each comparison, and how."""

import sys
import typing
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.config.api import PREFIX, ApiFields
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.comparators import ComparatorRule

ComparatorPolicy = Literal["current", "current_copy", "model", "history", "api"]

FIELD_OWNERS: dict[str, tuple[str, ...]] = {
    "comparator_model_name": ("model",),
    "comparator_agents": ("model",),
    "comparator_history_k": ("history",),
    "comparator_devices": ("current_copy", "model", "history"),
}
"""Fields that mean something for some values of ``comparator_policy`` only."""


@dataclass(kw_only=True, frozen=True)
class ComparatorFields(ApiFields):
    """Who answers on the other side."""

    compares = True

    comparator_policy: ComparatorPolicy = "current"
    """Who answers on the other side of each comparison: the team, a copy of it on other devices, other models, the
    team of an earlier round, or a remote model."""
    comparator_num_candidates: int | None = None
    """Joint responses of the other side per item; none takes preference_num_candidates."""
    comparator_model_name: str | None = None
    """With model: one model for all roles, or a scripted player such as player:gold."""
    comparator_agents: list[str] | None = None
    """With model: one model per role."""
    comparator_history_k: int = 1
    """With history: how many rounds back."""
    comparator_devices: str | list[str] | None = None
    """A device for all models of the other side, or one each."""
    comparator_generation_mode: Literal["decentralized", "centralized"] = "decentralized"
    """Centralized: one model of the other side writes the answers of all roles in one text."""
    comparator_centralized_agent_index: int = 0
    """With centralized: the role whose model writes."""

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        counts = ("comparator_num_candidates", "comparator_history_k")
        return (
            super().ranges()
            | dict.fromkeys(counts, (1, sys.float_info.max))
            | {"comparator_centralized_agent_index": (0, sys.float_info.max)}
        )

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        self._refuse_strangers()
        if self.comparator_policy == "api":
            self.check_api()
        if self.comparator_model_name is not None and self.comparator_agents is not None:
            raise ConfigError(
                "comparator_agents: names one comparator per role and comparator_model_name one for all; give one of "
                f"the two, actually both ({self.comparator_model_name!r} and {self.comparator_agents!r})"
            )
        for name in ("comparator_agents", "comparator_devices"):
            value = getattr(self, name)
            allowed = (self.num_actors,) if name == "comparator_agents" else (1, self.num_actors)
            if isinstance(value, list) and len(value) not in allowed:
                raise ConfigError(f"{name}: must hold one entry per agent ({self.num_actors}), actually {value!r}")

        index = self.comparator_centralized_agent_index
        if index and self.comparator_generation_mode != "centralized":
            raise ConfigError(
                "comparator_centralized_agent_index: belongs to comparator_generation_mode='centralized', actually "
                f"{index} with {self.comparator_generation_mode!r}; leave it out"
            )
        if index >= self.num_actors:
            raise ConfigError(
                "comparator_centralized_agent_index: must be the index of an agent, below "
                f"{self.num_actors}, actually {index}"
            )

    def _refuse_strangers(self) -> None:
        """Refuse fields of another comparator policy, which would be silently without effect."""
        api = {name: ("api",) for name in self.__dataclass_fields__ if name.startswith(PREFIX)}
        for name, owners in {**FIELD_OWNERS, **api}.items():
            value = getattr(self, name)
            if value != self.__dataclass_fields__[name].default and self.comparator_policy not in owners:
                raise ConfigError(
                    f"{name}: belongs to comparator_policy={' or '.join(map(repr, owners))} and has no meaning with "
                    f"{self.comparator_policy!r}; leave it out, actually {self.shown(name)}"
                )

    @property
    def comparator(self) -> "ComparatorRule":
        """Who answers on the other side of each comparison."""
        from comlrl_agents.comparators import ComparatorRule

        return ComparatorRule(
            policy=self.comparator_policy,
            num_candidates=self.comparator_num_candidates or self.preference_num_candidates,
            models=self.comparator_agents or self.comparator_model_name,
            endpoint=self.endpoint if self.comparator_policy == "api" else None,
            concurrent=self.parallel_training == "mp",
            history_k=self.comparator_history_k,
            devices=self.comparator_devices,
            # One actor writes all roles on both sides: its prompt is the joint one already.
            centralized=self.comparator_generation_mode == "centralized" and self.collaboration_mode != "centralized",
            centralized_agent_index=self.comparator_centralized_agent_index,
        )
