"""Scripted players of a task: what the figures in its page, the checks and the attacks are played with."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from comlrl_env.task import History
from comlrl_env.types import Item

Player = Callable[[Item, History], Mapping[str, str]]
"""Answers for all agents in one turn of one item."""

GARBAGE = ("", "\x00\x1b[2J", "ñ 漢字 🙂 \u202e", "-1e999 {0} %s ${x} '\"`\\", "(" * 400, "the same words again " * 40)


def players(task: Any, seed: int = 0) -> dict[str, Player]:
    """The players that a task allows: ``gold``, ``solo`` and ``random`` where it has the method, and ``garbage``.

    ``gold``: the maximum. ``solo``: one agent answers well, the others say nothing. ``random``: valid answers that
    ignore everything else. ``garbage``: texts that are no answers. All are pure functions of ``seed``, item and turn.
    """
    found: dict[str, Player] = {name: getattr(task, name) for name in ("gold", "solo") if hasattr(task, name)}
    if hasattr(task, "sample_answers"):
        found["random"] = lambda item, history: task.sample_answers(item, _rng(seed, item, history), history)
    found["garbage"] = lambda item, history: _garbage(task.agents, _rng(seed, item, history))
    return found


def _rng(seed: int, item: Item, history: History) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(item.key.encode()), len(history)))


def _garbage(agents: tuple[str, ...], rng: np.random.Generator) -> dict[str, str]:
    return {agent: GARBAGE[i] for agent, i in zip(agents, rng.integers(len(GARBAGE), size=len(agents)), strict=True)}
