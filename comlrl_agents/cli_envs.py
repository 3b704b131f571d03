"""``comlrl envs`` and ``comlrl check``: what environments there are, their pages, and whether they keep the rules."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from comlrl_agents.columns import columns
from comlrl_agents.run_keys import read_keys
from comlrl_env import registry
from comlrl_env.errors import ComlrlError, ConfigError

FIGURES = ("gold", "solo", "random")


def make_env(env_id: str, arguments: Mapping[str, Any]) -> Any:
    """The environment of that id. Raises RegistryError, ConfigError or TaskError for what is wrong."""
    return registry.make(env_id, **arguments)


def open_env(env_id: str, assignments: Sequence[str]) -> Any:
    """The environment of that id with arguments written as ``env.argument=value``.

    Raises ConfigError for any other key.
    """
    keys = read_keys([f"env={env_id}", *assignments])
    strange = [*keys.fields, *(f"eval_env.{name}" for name in keys.eval_arguments)]
    if strange or any(key is not None for key in (keys.algorithm, keys.agents, keys.tokenizer, keys.output_dir)):
        raise ConfigError(f"arguments: expected only env.ARGUMENT=VALUE, actually {', '.join(assignments)}")
    return make_env(env_id, keys.env_arguments)


def list_environments() -> str:
    """A table of all registered environments with their measured figures; no items are made."""
    rows: list[tuple[str, ...]] = [("id", "agents", "turns", *FIGURES, "what")]
    for env_id in registry.list_envs():
        try:
            card = registry.describe(env_id)
        except ComlrlError as error:
            rows.append((env_id, "", "", "", "", "", f"not usable here: {error}"))
            continue
        figures = [f"{card.figures[name]:.2f}" if name in card.figures else "" for name in FIGURES]
        rows.append((env_id, str(len(card.agents)), str(card.num_turns), *figures, card.summary))
    return columns(rows)


def page(env_id: str) -> str:
    """The page of an environment: the docstring of its task's module, else of its class.

    Raises RegistryError for an unknown id, and ConfigError when there is no page.
    """
    task = type(registry.load_task(env_id))
    text = inspect.getdoc(inspect.getmodule(task)) or inspect.getdoc(task)
    if not text:
        raise ConfigError(f"{env_id}: neither its module nor {task.__name__} has a docstring to show")
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
