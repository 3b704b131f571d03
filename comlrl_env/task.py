"""The Task protocol: what a cooperative language task must say about itself."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from comlrl_env.errors import TaskError
from comlrl_env.items import check_count
from comlrl_env.types import Item, Score, Turn

History = tuple[Turn, ...]
JointResponse = Mapping[str, str]


@runtime_checkable
class Task(Protocol):
    """A cooperative task for several agents that answer at once and share one reward.

    ``agents``: the role names, e.g. ``("helper_0", "author_1")``. ``num_turns``: simultaneous turns per
    episode.

    Optional methods, used when present: ``gold(item, history=()) -> {agent: text}`` (a joint response that
    reaches the maximum), ``solo(item, history=()) -> {agent: text}`` (one agent answers well, the others
    say nothing), ``sample_answers(item, rng, history=()) -> {agent: text}`` (a random *valid* joint
    response), ``messages(item, history) -> {agent: [{"role": …, "content": …}]}`` (the chat form of the
    prompts) and ``score_many(item, history, joint_responses) -> list[Score]`` (the same as ``score``,
    faster for many). Optional attribute ``figures``: measured ``{"gold": …, "solo": …, "random": …}``.
    """

    agents: tuple[str, ...]
    num_turns: int

    def items(self, split: str) -> Sequence[Item]:
        """The items of ``"train"`` or ``"eval"``; the two never overlap. May be lazy; needs ``len`` and an index."""
        ...

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """What each agent is told at this point of the episode, and nothing about the answer."""
        ...

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The shared score of one joint response: a pure function of its arguments that never raises on any text."""
        ...


def as_messages(prompts: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    """Return each prompt as a chat of one user message."""
    return {agent: [{"role": "user", "content": prompt}] for agent, prompt in prompts.items()}


def check_task(task: Any) -> None:
    """Raise :class:`TaskError` unless the object has the attributes and methods of a :class:`Task`."""
    name = type(task).__name__
    for method in ("items", "prompts", "score"):
        if not callable(getattr(task, method, None)):
            raise TaskError(
                f"task: expected an object with a method {method!r} (see comlrl_env.Task), actually {task!r:.80}"
            )
    agents = getattr(task, "agents", None)
    texts = isinstance(agents, tuple | list) and all(isinstance(agent, str) and agent for agent in agents)
    if not texts or not agents or len(set(agents)) != len(agents):
        raise TaskError(f"{name}.agents: expected a tuple of different role names, actually {agents!r}")
    check_count(f"{name}.num_turns", getattr(task, "num_turns", None), 1)
