"""Which items a round compares: resets of an environment, the same for every candidate of an item."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from comlrl_env.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Reset:
    """The arguments of ``env.reset`` that bring one item back."""

    seed: int
    options: dict[str, Any] | None = None


class ItemSchedule:
    """Deals out items round by round.

    An environment that tells ``num_items`` is asked for items by index: all of them in order, or ``per_round`` at a
    time from shuffled passes in which no item comes twice. Any other environment is an endless source: an item is the
    seed of its reset, and ``per_round`` is required.

    Raises:
        ConfigError: ``items_per_round`` is missing for an endless source, or larger than the number of items.

    """

    def __init__(self, env: Any, per_round: int | None) -> None:
        self.num_items: int | None = getattr(env, "num_items", None)
        self.per_round = per_round
        self._left: list[int] = []
        if self.num_items is None and per_round is None:
            raise ConfigError(
                f"items_per_round: {type(env).__name__} does not tell num_items, so the number of items to compare "
                "in a round must be given, actually None"
            )
        if self.num_items is not None and per_round is not None and per_round > self.num_items:
            raise ConfigError(
                f"items_per_round: must not exceed the environment's {self.num_items} items, actually {per_round}"
            )

    def draw(self, rng: np.random.Generator) -> list[Reset]:
        """The items of the next round."""
        if self.num_items is None:
            assert self.per_round is not None
            return [Reset(int(seed)) for seed in rng.integers(2**31, size=self.per_round)]
        if self.per_round is None:
            return [item_reset(index) for index in range(self.num_items)]
        chosen: list[int] = []
        while len(chosen) < self.per_round:
            if not self._left:
                # Items of this round go to the end of the new pass, so that none comes twice in one round.
                shuffled = [int(index) for index in rng.permutation(self.num_items)]
                self._left = [i for i in shuffled if i not in chosen] + [i for i in shuffled if i in chosen]
            chosen.append(self._left.pop(0))
        return [item_reset(index) for index in chosen]

    def state_dict(self) -> dict[str, list[int]]:
        """The items left of the current pass."""
        return {"left": list(self._left)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Continue the pass that ``state`` describes."""
        self._left = list(state["left"])


def item_reset(index: int) -> Reset:
    """The reset for the item at ``index`` of an environment that tells ``num_items``."""
    return Reset(seed=index, options={"item": index})


def first_items(env: Any, count: int) -> list[Reset]:
    """The first ``count`` items (fewer when the environment has fewer): the same ones in every evaluation."""
    num_items = getattr(env, "num_items", None)
    if num_items is None:
        return [Reset(seed) for seed in range(count)]
    return [item_reset(index) for index in range(min(count, num_items))]
