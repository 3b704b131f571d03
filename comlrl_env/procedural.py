"""The base of tasks whose items are made on demand: their arguments, their items, the two forms of their prompts."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.items import DEFAULT_SIZES, ProceduralItems, check_count, item_class, split_sizes
from comlrl_env.task import History
from comlrl_env.types import Item


class ProceduralTask:
    """A :class:`~comlrl_env.task.Task` without its rules.

    A subclass sets ``figures`` (and ``role``, ``levels``, ``num_turns``, ``team_sizes`` where they differ) and
    writes ``build``, ``instructions``, ``score``, ``gold`` and ``sample_answers``. Every argument out of range is a
    :class:`~comlrl_env.errors.TaskError`.

    ``level``: how hard the items are. ``seed`` and ``num_items``: which items, and how many in each split.
    ``num_agents``: how many play, within ``team_sizes``; their names are ``role_0``, ``role_1``, … unless the class
    has ``roles``.
    """

    role: ClassVar[str] = "helper"
    roles: ClassVar[tuple[str, ...]] = ()
    levels: ClassVar[tuple[int, int]] = (0, 2)
    team_sizes: ClassVar[tuple[int, int]] = (2, 4)
    cues: tuple[str, ...] = ("Answer:",)
    data_source = "procedural"
    figures: Mapping[str, float]
    num_turns = 1

    def __init__(
        self,
        *,
        level: int | None = None,
        seed: int = 0,
        num_items: int | Mapping[str, int] = DEFAULT_SIZES,
        num_agents: int | None = None,
    ) -> None:
        low, high = self.levels
        self.level = low if level is None else check_count("level", level, low, high)
        self.seed = check_count("seed", seed, 0)
        self._sizes = split_sizes(num_items)
        self.agents = self.roles
        if not self.roles:
            fewest, most = self.team_sizes
            count = fewest if num_agents is None else check_count("num_agents", num_agents, fewest, most)
            self.agents = tuple(f"{self.role}_{i}" for i in range(count))
        elif num_agents not in (None, len(self.roles)):
            raise TaskError(f"num_agents: expected {len(self.roles)} ({', '.join(self.roles)}), actually {num_agents}")

    def items(self, split: str) -> Sequence[Item]:
        """The items of one split; ``build`` tells what their data hold."""
        return ProceduralItems(self.build, split, size=self._sizes.get(split, 0), seed=self.seed, level=self.level)

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """The instructions, ending with the cue of the turn from which a base model goes on."""
        return {agent: f"{text}\n{self.cues[len(history)]}" for agent, text in self.instructions(item, history).items()}

    def messages(self, item: Item, history: History) -> dict[str, list[dict[str, str]]]:
        """The instructions as one user message for each agent."""
        return {agent: [{"role": "user", "content": text}] for agent, text in self.instructions(item, history).items()}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first agent answers well, the others say nothing."""
        answers = self.gold(item, history)
        return {agent: answers[agent] if agent == self.agents[0] else "" for agent in self.agents}

    def item_class(self, split: str) -> int:
        """The class in 0 … 3 that the items of this split must have; see :func:`comlrl_env.items.item_class`."""
        return item_class(self.seed, split)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """The data of one item, drawn from its own random stream."""
        raise NotImplementedError

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """What each agent is told in this turn."""
        raise NotImplementedError

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """A joint response that reaches the maximum."""
        raise NotImplementedError
