"""Fixtures of the environment's tests."""

from tests.comlrl_env.sandboxes import pool

__all__ = ["pool"]
