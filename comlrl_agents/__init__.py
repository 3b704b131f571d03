"""Teams of language models and the learners that improve them from preferences between joint responses.

Names are imported when they are first used: torch and transformers take two seconds, and ``comlrl --help`` needs
neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comlrl_agents.config import MADPOConfig, MADPOIterConfig
    from comlrl_agents.policy import LLMPolicy, ScriptedPolicy, load_policy
    from comlrl_agents.trainer import MADPOIterTrainer, MADPOTrainer
    from comlrl_agents.types import Generation, Policy, Sampling

_MODULES = {
    "config": ("MADPOConfig", "MADPOIterConfig"),
    "policy": ("LLMPolicy", "ScriptedPolicy", "load_policy"),
    "trainer": ("MADPOIterTrainer", "MADPOTrainer"),
    "types": ("Generation", "Policy", "Sampling"),
}

__all__ = [
    "Generation",
    "LLMPolicy",
    "MADPOConfig",
    "MADPOIterConfig",
    "MADPOIterTrainer",
    "MADPOTrainer",
    "Policy",
    "Sampling",
    "ScriptedPolicy",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
