"""Cooperative language tasks as PettingZoo parallel environments with one shared oracle reward."""

from comlrl_env import records, testing, wrappers
from comlrl_env.env import TextEnv
from comlrl_env.errors import (
    ActionError,
    CheckpointError,
    ComlrlError,
    ConfigError,
    RecordError,
    RegistryError,
    RewardError,
    TaskError,
    TrainingError,
)
from comlrl_env.functions import FunctionTask, from_functions
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.registry import describe, list_envs, load_task, make, register
from comlrl_env.spaces import UnicodeText
from comlrl_env.task import Task
from comlrl_env.types import Item, PreferencePair, Score, Turn

__all__ = [
    "ActionError",
    "CheckpointError",
    "ComlrlError",
    "ConfigError",
    "FunctionTask",
    "Item",
    "PreferencePair",
    "PreferenceWrapper",
    "RecordError",
    "RegistryError",
    "RewardError",
    "Score",
    "Task",
    "TaskError",
    "TextEnv",
    "TrainingError",
    "Turn",
    "UnicodeText",
    "describe",
    "from_functions",
    "list_envs",
    "load_task",
    "make",
    "records",
    "register",
    "testing",
    "wrappers",
]
