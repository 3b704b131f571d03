"""The public configurations: flat names and defaults of ALGORITHMS 14, checked at construction.

Learners, comparators and replay see the small typed parts that these hand out (``sampling``, ``loss``,
``optimisation``, ``replay``, ``comparator``); the flat object goes no further than trainers and what they are made of.
"""

from comlrl_agents.config.fields import descriptions, from_mapping, to_mapping, unknown_name
from comlrl_agents.config.madpo import MADPOConfig, MADPOIterConfig
from comlrl_agents.config.marlhf import MARLHFConfig, MARLHFIterConfig
from comlrl_agents.config.policy import PolicyFields, RLConfig
from comlrl_agents.config.preferences import PreferenceConfig
from comlrl_agents.config.rounds import IterConfig
from comlrl_agents.config.team import TeamConfig

__all__ = [
    "IterConfig",
    "MADPOConfig",
    "MADPOIterConfig",
    "MARLHFConfig",
    "MARLHFIterConfig",
    "PolicyFields",
    "PreferenceConfig",
    "RLConfig",
    "TeamConfig",
    "descriptions",
    "from_mapping",
    "to_mapping",
    "unknown_name",
]
