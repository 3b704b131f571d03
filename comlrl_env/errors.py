"""The errors of the kit. Each text names the thing, the rule, the value and the way out.

An answer of a model is never one of these: it is data and gets a :class:`~comlrl_env.types.Score`.
"""


class ComlrlError(Exception):
    """Base of all errors that this kit raises on purpose."""


class TaskError(ComlrlError):
    """A task, its items or its reward function breaks the contract."""


class ActionError(ComlrlError):
    """A joint action does not have the form that the environment needs (a missing agent, a value that is no str)."""


class RegistryError(ComlrlError):
    """An environment id is unknown, malformed or taken."""


class RewardError(ComlrlError):
    """Rewards that are not one shared finite number, where the kit needs one."""


class RecordError(ComlrlError):
    """A file of preference pairs cannot be read."""


class ConfigError(ComlrlError):
    """A configuration field is unknown, has an illegal value, or does not go with another."""


class CheckpointError(ComlrlError):
    """A checkpoint is incomplete or does not fit the run."""


class TrainingError(ComlrlError):
    """Training cannot go on: a value that is not finite, or no usable answer from any source."""
