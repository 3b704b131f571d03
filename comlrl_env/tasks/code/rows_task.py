"""The base of team tasks whose problems are made on demand or read from rows."""

from collections.abc import Mapping
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.items import DEFAULT_SIZES
from comlrl_env.reference_task import ReferenceTask
from comlrl_env.tasks.code.team_task import AUTHOR, HELPER, TeamTask, parsed_problem
from comlrl_env.types import Item


class RowsTask(TeamTask, ReferenceTask):
    """A :class:`TeamTask` with the arguments of a :class:`~comlrl_env.reference_task.ReferenceTask`."""

    roles = (HELPER, AUTHOR)
    levels = (0, 0)

    def __init__(
        self,
        reward: str = "strict",
        *,
        level: int | None = None,
        seed: int = 0,
        num_items: int | Mapping[str, int] = DEFAULT_SIZES,
        data: str | None = None,
        revision: str | None = None,
        workers: int | None = None,
    ) -> None:
        TeamTask.__init__(self, reward, workers=workers)
        ReferenceTask.__init__(self, reward, level=level, seed=seed, num_items=num_items, data=data, revision=revision)

    def from_row(self, item: Item) -> Item:
        """The item with the fields of a problem, looked through once. Raises :class:`TaskError` for a bad one."""
        try:
            problem = self.problem_of(item.data)
            parsed_problem(problem)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise TaskError(f"code task: expected Python source text in {item.key}, actually {error}") from error
        return Item(key=item.key, data=problem)

    def problem_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """The texts ``prompt``, ``entry_point``, ``canonical_solution`` and ``test`` of a row."""
        raise NotImplementedError
