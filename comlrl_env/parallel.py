"""``reset`` and ``step`` of a ParallelEnv that somebody else wrote: what they return is held to its form."""

from collections.abc import Mapping
from typing import Any

from pettingzoo import ParallelEnv

from comlrl_env.errors import TaskError

Infos = dict[str, dict[str, Any]]
Began = tuple[dict[str, Any], Infos]
Stepped = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], Infos]


def begin(env: ParallelEnv[str, Any, Any], seed: int | None = None, options: dict[str, Any] | None = None) -> Began:
    """Reset the environment: observations and infos by agent; TaskError when it returns anything else."""
    parts: Began = _checked(env, "reset", ("observations", "infos"), env.reset(seed=seed, options=options))
    return parts


def advance(env: ParallelEnv[str, Any, Any], actions: dict[str, Any]) -> Stepped:
    """Step the environment: five dictionaries by agent; TaskError when it returns anything else."""
    names = ("observations", "rewards", "terminations", "truncations", "infos")
    parts: Stepped = _checked(env, "step", names, env.step(actions))
    return parts


def acting_agents(env: ParallelEnv[str, Any, Any]) -> list[str]:
    """The agents that act next, in the order of ``possible_agents``: that of ``agents`` is each environment's own."""
    now = set(env.agents)
    return [agent for agent in env.possible_agents if agent in now]


def scores_itself(env: Any) -> bool:
    """Whether the environment scores many candidates at once as its ``step`` would.

    Types are asked, because wrappers forward attributes and would let candidates pass them by; a subclass with a
    ``step`` of its own scores by that.
    """
    kinds = type(env).__mro__
    stepping = next((place for place, kind in enumerate(kinds) if "step" in vars(kind)), len(kinds))
    return any("score_candidates" in vars(kind) for kind in kinds[: stepping + 1])


def read_prompts(observations: Mapping[str, Any], agents: list[str]) -> dict[str, str]:
    """The observations of the agents that act next; TaskError when one is missing or no text."""
    for agent in agents:
        if not isinstance(observations.get(agent), str):
            raise TaskError(
                f"observation of {agent!r}: expected a str, actually {type(observations.get(agent)).__name__}: wrap "
                "an environment that does not speak text in comlrl_env.wrappers.TextAdapter"
            )
    return {agent: observations[agent] for agent in agents}


def _checked(env: Any, call: str, names: tuple[str, ...], returned: Any) -> Any:
    whole = isinstance(returned, tuple | list) and len(returned) == len(names)
    parts = dict(zip(names, returned, strict=True)) if whole else {"what it returns": returned}
    wrong = {name: part for name, part in parts.items() if not whole or not isinstance(part, dict)}
    if not wrong:
        wrong = {f"infos[{agent!r}]": info for agent, info in parts["infos"].items() if not isinstance(info, dict)}
    for name, part in wrong.items():
        env_name = type(getattr(env, "unwrapped", env)).__name__
        raise TaskError(
            f"{env_name}.{call}: expected a tuple of {len(names)} dictionaries with one entry per agent "
            f"({', '.join(names)}; infos may hold empty ones), actually {name}: {type(part).__name__} {part!r:.80}; "
            "`comlrl check` tells what else an environment must keep"
        )
    return returned
