"""Procedural items: made on demand from (seed, split, index, level), the same on every machine."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.types import Item

SPLITS = ("train", "eval")
DEFAULT_SIZES: Mapping[str, int] = MappingProxyType({"train": 64, "eval": 64})

Build = Callable[[np.random.Generator, str], Mapping[str, Any]]


def check_split(split: str) -> str:
    """Return ``split`` when it is ``"train"`` or ``"eval"``; raise :class:`TaskError` otherwise."""
    if split not in SPLITS:
        raise TaskError(f"split: expected 'train' or 'eval', actually {split!r}; the two never share an item")
    return split


def check_count(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return the argument ``value`` as an int in [low, high], or raise :class:`TaskError`."""
    bounds = f"an integer ≥ {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise TaskError(f"{name}: expected {bounds}, actually {value!r} ({type(value).__name__})") from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise TaskError(f"{name}: expected {bounds}, actually {value!r}")
    return number


def split_sizes(num_items: int | Mapping[str, int]) -> dict[str, int]:
    """Return the number of items per split: one number for both splits, or a mapping with both names.

    Raises :class:`TaskError` for sizes below one and for names that are no split.
    """
    if not isinstance(num_items, Mapping):
        size = check_count("num_items", num_items, 1)
        return dict.fromkeys(SPLITS, size)
    if set(num_items) != set(SPLITS):
        raise TaskError(f"num_items: expected a number or sizes for {list(SPLITS)}, actually {dict(num_items)!r}")
    return {split: check_count(f"num_items[{split!r}]", num_items[split], 1) for split in SPLITS}


def item_rng(seed: int, split: str, index: int, level: int) -> np.random.Generator:
    """Return the random stream of one item; no two (seed, split, index, level) share one."""
    entropy = (seed, SPLITS.index(check_split(split)), index, level)
    return np.random.default_rng(np.random.SeedSequence(entropy))


def item_class(seed: int, split: str) -> int:
    """Return the class in 0 … 3 to which the items of a split belong, one by split and parity of the seed.

    A task whose content has a number modulo 4 (a sum, two parities) and that gives this class to every item keeps
    train and eval, and neighbouring seeds, apart by construction.
    """
    return 2 * SPLITS.index(check_split(split)) + seed % 2


class ProceduralItems(Sequence[Item]):
    """The items of one split, built when they are read.

    ``build(rng, split)`` returns an item's data from the item's own random stream, so that item ``i`` does
    not depend on how many others were read. Keys read ``split/level/seed/index``.
    """

    def __init__(self, build: Build, split: str, *, size: int, seed: int, level: int = 0) -> None:
        self.split = check_split(split)
        self.size = check_count("num_items", size, 1)
        self.seed = check_count("seed", seed, 0)
        self.level = check_count("level", level, 0)
        self._build = build

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        position = operator.index(index)
        if position < 0:
            position += self.size
        if not 0 <= position < self.size:
            raise IndexError(f"item index: expected 0 … {self.size - 1}, actually {index}")
        rng = item_rng(self.seed, self.split, position, self.level)
        return Item(key=self._key(position), data=self._build(rng, self.split))

    def __iter__(self) -> Iterator[Item]:
        return (self[index] for index in range(self.size))

    def position(self, key: str) -> int | None:
        """Return the index of the item with this key without building any; ``None`` when there is none."""
        tail = key.rpartition("/")[2]
        # isascii: int() also reads digits of other scripts, and those are no keys.
        if not (tail.isascii() and tail.isdigit()):
            return None
        index = int(tail)
        return index if index < self.size and key == self._key(index) else None

    def _key(self, index: int) -> str:
        return f"{self.split}/{self.level}/{self.seed}/{index}"


def position_of(items: Sequence[Item], key: str) -> int | None:
    """Return the index of the item with this key, ``None`` when there is none.

    Asks the sequence's own method ``position`` when it has one and reads item after item otherwise.
    """
    own: Callable[[str], int | None] | None = getattr(items, "position", None)
    if own is not None:
        return own(key)
    return next((index for index, item in enumerate(items) if item.key == key), None)


def find_item(items: Sequence[Item], chosen: Any) -> int:
    """Return the index of the item with this key or index; raise :class:`TaskError` when there is none."""
    if isinstance(chosen, str):
        index = position_of(items, chosen)
        if index is None:
            raise TaskError(f"item: expected a key such as {items[0].key!r}, actually {chosen!r}, which no item has")
        return index
    return check_count("item", chosen, 0, len(items) - 1)
