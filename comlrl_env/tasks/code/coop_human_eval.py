"""``comlrl/CoopHumanEval-v0``: HumanEval-like problems that divide into a helper's part and an author's.

Purpose: as ``comlrl/HumanEval-v0``, with problems in which there is something to divide: what to keep and change, and
what to do with the result.

Roles: ``helper_0`` writes a function ``aux``, ``author_1`` the entry function, which may call it. Both see the problem.
They answer at once; prompts and the reading of answers are those of ``comlrl/HumanEval-v0``.

Example (the first training item of seed 0)::

    both read          def distinct_rests_of_near(numbers: list[int]):
                           '''Return the number of different ones of the remainders modulo 4 of the numbers less than
                           40 away from zero.

                           >>> distinct_rests_of_near([-16, -20, -10, 28])
                           2
                           >>> distinct_rests_of_near([18, 34, 10, 16, 38])
                           2
                           '''
    helper_0 answers   def aux(numbers):
                           return [x % 4 for x in numbers if abs(x) < 40]
    author_1 answers   def distinct_rests_of_near(numbers):
                           ys = aux(numbers)
                           return len(set(ys))
    score              .93 = .05 · 2 + .5 · 1 + .4 · (1 − 1/6): all six tests pass, one of them without aux

Reward: ``reward="strict"`` (default, in [0, 1]) and ``reward="reference"`` (as published, in [0, 4]); both formulas
stand in :mod:`comlrl_env.tasks.code.team`. A test is one ``assert``; answers run in :mod:`comlrl_env.sandbox`.

Figures (``python -m comlrl_env.figures comlrl/CoopHumanEval-v0 reward=…``, which takes minutes)::

    reward      gold   solo   random  canonical solution + unused ``z = aux()``; equal-to-everything
    strict      1.00   0.55   0.14   0.60; 0.10
    reference   4.00   2.10   1.64   3.50; 1.50

Gold on 200 items; solo (the author solves everything, the helper says nothing) and random on 40.

Data: problems of three steps (keep, change, put together) on lists of numbers, 13 thousand of them, written for this
project, Apache-2.0. Train and eval, and neighbouring seeds, share no problem: see
:func:`comlrl_env.tasks.code.problems.make_problem`. ``data=…`` reads ``OpenMLRL/CoopHumanEval`` (82 problems in
HumanEval's fields; Apache-2.0 by its card; evaluation: the first 16, training: the rest).

About 5 000 items a second: each runs its own solution on six lists.

Versions: v0 first version.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from comlrl_env.rows import PublicData
from comlrl_env.tasks.code.problems import NUMBERS, check, make_problem, stub
from comlrl_env.tasks.code.rows_task import RowsTask
from comlrl_env.tasks.code.team_task import PROBLEM_FIELDS, problem_data


class CoopHumanEval(RowsTask):
    """Problems for a helper and an author; see the page above and :class:`RowsTask` for the arguments."""

    source = PublicData("OpenMLRL/CoopHumanEval", PROBLEM_FIELDS, {"train": "test", "eval": "test"}, 16)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.55, "random": 0.14},
        "reference": {"gold": 4.0, "solo": 2.1, "random": 1.64},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """The texts of one problem."""
        problem = make_problem(NUMBERS, rng, split, self.seed)
        return {
            "prompt": stub(problem, (2, 3)),
            "entry_point": problem.name,
            "canonical_solution": problem.body,
            "test": check(problem),
        }

    def problem_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row is in HumanEval's form."""
        return problem_data(row)
