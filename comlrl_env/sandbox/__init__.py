"""Running code that a model wrote."""

from comlrl_env.sandbox.box import Box, Call, Limits, Link, Module, Outcome, Program, run_calls
from comlrl_env.sandbox.pool import POOL, Isolation, Pool, SandboxError
from comlrl_env.sandbox.values import NotPlainError

__all__ = [
    "POOL",
    "Box",
    "Call",
    "Isolation",
    "Limits",
    "Link",
    "Module",
    "NotPlainError",
    "Outcome",
    "Pool",
    "Program",
    "SandboxError",
    "run_calls",
]
