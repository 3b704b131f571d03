"""A task's scripted players as policies: comparators of a known strength, and teams to evaluate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from comlrl_agents.placement import per_agent
from comlrl_agents.questions import Start
from comlrl_agents.types import Generation, Prompt
from comlrl_env.errors import ConfigError
from comlrl_env.players import players

PREFIX = "player:"


class PlayerPolicy:
    """One agent's part of ``players(task)[name]``; answers by the item and the turn, whatever the prompt says."""

    takes_starts = True

    def __init__(self, task: Any, agent: str, name: str) -> None:
        self.task, self.agent, self.name = task, agent, name

    def generate(
        self, prompts: Sequence[Prompt], n: int, rng: np.random.Generator, *, starts: Sequence[Start]
    ) -> list[list[Generation]]:
        """``n`` answers to each of ``starts``; those of a player without chance are the same."""
        return [[self._answer(start, int(rng.integers(2**32))) for _ in range(n)] for start in starts]

    def generate_each(
        self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator], *, starts: Sequence[Start]
    ) -> list[list[Generation]]:
        """One answer to each of ``starts``, each with a generator of its own."""
        return [[self._answer(start, int(rng.integers(2**32)))] for start, rng in zip(starts, rngs, strict=True)]

    def _answer(self, start: Start, seed: int) -> Generation:
        assert start.item is not None, "with_players has seen the task, so its environment tells the item"
        return Generation(players(self.task, seed)[self.name](start.item, start.history)[self.agent])


def with_players(sources: Any, env: Any, field: str) -> Any:
    """``sources``, one for all or one per agent, with a policy in place of each ``"player:NAME"``.

    Raises:
        ConfigError: ``env`` plays no task, or its task has no such player; it names ``field``.

    """
    named = [sources] if isinstance(sources, str) else sources
    if not isinstance(named, Sequence) or not any(_is_player(source) for source in named):
        return sources
    agents = list(env.possible_agents)
    return [
        _player(source.removeprefix(PREFIX), agent, env, field) if _is_player(source) else source
        for agent, source in zip(agents, per_agent(sources, len(agents), field), strict=True)
    ]


def _is_player(source: Any) -> bool:
    return isinstance(source, str) and source.startswith(PREFIX)


def _player(name: str, agent: str, env: Any, field: str) -> PlayerPolicy:
    task = getattr(getattr(env, "unwrapped", env), "task", None)
    if task is None or agent not in task.agents:
        raise ConfigError(
            f"{field}: {PREFIX}{name} plays a task of comlrl_env agent by agent, actually {env!r}; give a model"
        )
    known = players(task)
    if name not in known:
        raise ConfigError(
            f"{field}: {PREFIX}{name} must be a player of {type(task).__name__}: {', '.join(known)}; choose one of them"
        )
    return PlayerPolicy(task, agent, name)
