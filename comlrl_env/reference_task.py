"""The base of reference tasks: two rewards, and items made on demand or read from a public data set."""

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, cast, get_args

from comlrl_env.errors import TaskError
from comlrl_env.items import DEFAULT_SIZES, check_split
from comlrl_env.procedural import ProceduralTask
from comlrl_env.rows import PublicData
from comlrl_env.types import Item

RewardName = Literal["strict", "reference"]


class ReferenceTask(ProceduralTask):
    """A :class:`~comlrl_env.procedural.ProceduralTask` with a published reward beside its own.

    ``reward``: ``"strict"`` (in [0, 1], the default) or ``"reference"`` (the published formula, on its own scale).
    ``data``: ``None`` for items made from (seed, split, index); a file or a folder of rows; or ``"hub"`` with the
    commit ``revision`` (see :class:`~comlrl_env.rows.PublicData`). The other arguments are those of the base.

    A subclass sets ``reward_figures`` (by reward), ``source`` and, where rows need work, ``from_row``.
    """

    source: ClassVar[PublicData | None] = None
    reward_figures: ClassVar[Mapping[str, Mapping[str, float]]]

    def __init__(
        self,
        reward: str = "strict",
        *,
        level: int | None = None,
        seed: int = 0,
        num_items: int | Mapping[str, int] = DEFAULT_SIZES,
        num_agents: int | None = None,
        data: str | None = None,
        revision: str | None = None,
    ) -> None:
        super().__init__(level=level, seed=seed, num_items=num_items, num_agents=num_agents)
        if reward not in get_args(RewardName):
            raise TaskError(f"reward: expected 'strict' or 'reference', actually {reward!r}")
        self.reward = cast(RewardName, reward)
        self.figures = self.reward_figures[reward]
        self._rows: dict[str, list[Item]] | None = None
        if data is not None:
            if self.source is None:
                raise TaskError(f"data: {type(self).__name__} makes all its items itself; leave it out")
            read = self.source.items(data, revision)
            self._rows = {split: self._usable(split, items) for split, items in read.items()}

    def items(self, split: str) -> Sequence[Item]:
        """The items of one split."""
        return super().items(split) if self._rows is None else self._rows[check_split(split)]

    def from_row(self, item: Item) -> Item:
        """The item of one row. Raises :class:`TaskError` for a row that cannot be one."""
        return item

    def _usable(self, split: str, items: Sequence[Item]) -> list[Item]:
        made, refused = [], []
        for item in items:
            try:
                made.append(self.from_row(item))
            except TaskError as error:
                refused.append(f"{item.key} ({error})")
        if not made:
            raise TaskError(f"data: expected usable rows for {split}, actually none: {refused[0]}")
        if refused:
            warnings.warn(
                f"{len(refused)} {split} rows are left out: {'; '.join(refused)}", RuntimeWarning, stacklevel=4
            )
        return made
