"""``comlrl envs`` and ``comlrl check``: what environments there are, their pages, and whether they keep the rules."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from comlrl_agents.columns import columns
from comlrl_env import pages, registry
from comlrl_env.errors import ComlrlError, ConfigError


def make_env(env_id: str, arguments: Mapping[str, Any]) -> Any:
    """The environment of that id. Raises RegistryError, ConfigError or TaskError for what is wrong."""
    return registry.make(env_id, **arguments)


def open_env(env_id: str, assignments: Sequence[str]) -> Any:
    """The environment of that id with arguments written as ``env.argument=value``.

    Raises ConfigError for any other key.
    """
    from comlrl_agents.run_keys import RUN_KEYS, read_keys  # here, because it brings all configurations with it

    keys = read_keys([f"env={env_id}", *assignments])
    strange = [*keys.fields, *(f"eval_env.{name}" for name in keys.eval_arguments)]
    if strange or any(getattr(keys, name) is not None for name in ("algorithm", *RUN_KEYS) if name != "env"):
        raise ConfigError(f"arguments: expected only env.ARGUMENT=VALUE, actually {', '.join(assignments)}")
    return make_env(env_id, keys.env_arguments)


def list_environments() -> str:
    """A table of all registered environments with their measured figures; no items are made."""
    return columns([pages.HEADINGS, *map(pages.row, registry.list_envs())])


def page(env_id: str) -> str:
    """The page of an environment: the docstring of its task's module, else of its class.

    Raises RegistryError for an unknown id, and ConfigError when there is no page.
    """
    task = registry.load_task(env_id)
    text = registry.page_of(task)
    if not text:
        raise ConfigError(f"{env_id}: neither its module nor {type(task).__name__} has a docstring to show")
    return text


def check(env_id: str, assignments: Sequence[str]) -> str:
    """What :func:`comlrl_env.testing.check_env` finds wrong, in words; empty when nothing is."""
    from comlrl_env.testing import CheckFailed, check_env

    env = open_env(env_id, assignments)
    try:
        check_env(env)
    except CheckFailed as error:
        return str(error)
    return ""


def check_all() -> dict[str, str]:
    """What :func:`check` says about every registered environment, several at once in processes of their own."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    names = registry.list_envs()
    with ProcessPoolExecutor(min(len(names), os.cpu_count() or 1), get_context("spawn")) as processes:
        return dict(zip(names, processes.map(_check_one, names), strict=True))


def _check_one(env_id: str) -> str:
    try:
        return check(env_id, ())
    except ComlrlError as error:  # such as data that are not installed
        return f"{env_id}: {error}"
