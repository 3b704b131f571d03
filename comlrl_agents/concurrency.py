"""Agents at work side by side: a thread per model, because torch leaves Python while it computes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_in_thread: ContextVar[bool] = ContextVar("agent_in_thread", default=False)


def side_by_side() -> bool:
    """Whether this is the thread of one agent of several that are at work."""
    return _in_thread.get()


def for_each_agent(work: Callable[[int], T], models: Sequence[object], *, concurrent: bool) -> list[T]:
    """``work(agent)`` for every agent, results in the order of the agents.

    ``models``: what each agent computes with; agents that share one take turns. With ``concurrent`` the different
    models work at the same time; the results are the same, because no agent sees another's numbers.

    Raises what the first agent in order raises, after all have come to their end.
    """
    if not concurrent or len({id(model) for model in models}) < 2:
        return [work(agent) for agent in range(len(models))]
    agents_of: dict[int, list[int]] = {}
    for agent, model in enumerate(models):
        agents_of.setdefault(id(model), []).append(agent)

    def in_turn(agents: list[int]) -> list[T]:
        _in_thread.set(True)
        return [work(agent) for agent in agents]

    with ThreadPoolExecutor(len(agents_of), thread_name_prefix="agent") as pool:
        futures = {key: pool.submit(in_turn, agents) for key, agents in agents_of.items()}
    results: dict[int, T] = {}
    for key, agents in agents_of.items():
        results.update(zip(agents, futures[key].result(), strict=True))
    return [results[agent] for agent in range(len(models))]
