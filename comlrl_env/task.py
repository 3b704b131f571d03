"""The Task protocol: what a cooperative language task must say about itself."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from comlrl_env.types import Item, Score, Turn

History = tuple[Turn, ...]
JointResponse = Mapping[str, str]


@runtime_checkable
class Task(Protocol):
    """A cooperative task for several agents that answer at once and share one reward.

    ``agents``: the role names, e.g. ``("helper_0", "author_1")``. ``num_turns``: simultaneous turns per episode.

    Optional methods, used when present: ``gold(item, history=()) -> {agent: text}`` (a joint response that reaches
    the maximum), ``solo(item, history=()) -> {agent: text}`` (one agent answers well, the others say nothing),
    ``sample_answers(item, rng, history=()) -> {agent: text}`` (a random *valid* joint response),
    ``messages(item, history) -> {agent: [{"role": …, "content": …}]}`` (the chat form of the prompts) and
    ``score_many(item, history, joint_responses) -> list[Score]`` (the same as ``score``, faster for many).
    Optional attribute ``figures``: measured ``{"gold": …, "solo": …, "random": …}``.
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
