"""Teams of language models and the learners that improve them from preferences between joint responses.

Names are imported when they are first used: torch and transformers take two seconds, and ``comlrl --help`` needs
neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comlrl_agents.config import MADPOConfig, MADPOIterConfig, MARLHFConfig, MARLHFIterConfig, RLConfig
    from comlrl_agents.policy import LLMPolicy, ScriptedPolicy, load_policy
    from comlrl_agents.reward_model import JointRewardModel
    from comlrl_agents.trainers import MADPOIterTrainer, MADPOTrainer, MARLHFIterTrainer, MARLHFTrainer, RLTrainer
    from comlrl_agents.types import Generation, Policy, Sampling

_MODULES = {
    "config": ("MADPOConfig", "MADPOIterConfig", "MARLHFConfig", "MARLHFIterConfig", "RLConfig"),
    "policy": ("LLMPolicy", "ScriptedPolicy", "load_policy"),
    "reward_model": ("JointRewardModel",),
    "trainers": ("MADPOIterTrainer", "MADPOTrainer", "MARLHFIterTrainer", "MARLHFTrainer", "RLTrainer"),
    "types": ("Generation", "Policy", "Sampling"),
}

__all__ = [
    "Generation",
    "JointRewardModel",
    "LLMPolicy",
    "MADPOConfig",
    "MADPOIterConfig",
    "MADPOIterTrainer",
    "MADPOTrainer",
    "MARLHFConfig",
    "MARLHFIterConfig",
    "MARLHFIterTrainer",
    "MARLHFTrainer",
    "Policy",
    "RLConfig",
    "RLTrainer",
    "Sampling",
    "ScriptedPolicy",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
