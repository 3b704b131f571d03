"""``comlrl/CodeCompose-v0``: a program g∘h made on demand, of which each sees one half.

Purpose: the division of labour of HumanEval for two, on problems that no model has seen, where neither can do the
other's part: the helper knows only h, the author only g.

Roles: ``helper_0`` writes ``aux``, which computes h; ``author_1`` writes ``solve``, which applies g to what ``aux``
returns. They answer at once and cannot see each other's code. The answers run in :mod:`comlrl_env.sandbox`.

Example (level 0; the first training item of seed 0)::

    helper_0 is told   # helper_0 and author_1 write one Python program together, at the same time, without seeing
                       each other's code.
                       # You are helper_0. Write only `aux(numbers)`: it takes a list of integers and returns the
                       squares of all numbers, as a list in the same order. author_1 calls it.

                       def aux(
    author_1 is told   # helper_0 and author_1 write one Python program together, at the same time, without seeing
                       each other's code.
                       # You are author_1. Write only `solve(numbers)`: it calls `aux(numbers)`, which helper_0
                       writes and which returns a list of integers, and returns of that list the sum of all but the
                       first and the last, minus 5 times the first.

                       def solve(numbers: list[int]):

    helper_0 answers   def aux(numbers):
                           return [x * x for x in numbers]

    author_1 answers   def solve(numbers):
                           ys = aux(numbers)
                           return sum(ys[1:-1]) - 5 * ys[0]

    score              1

Reward, in [0, 1]: .05 (aux ok + solve ok) + .5 p + .4 max(0, min(p − p_noaux, p − p_wrap)); p is the share of the six
tests passed, p_noaux that with ``aux`` replaced by a constant, p_wrap that with ``solve`` replaced by ``aux``. See
:mod:`comlrl_env.tasks.code.team`. Tests are drawn so that no constant and no half passes any.

Levels: 0 h is one change of every number; 1 two changes, one after the other; 2 some numbers are left out before.

Figures (``python -m comlrl_env.figures comlrl/CodeCompose-v0 num_items=64``; the same at all levels)::

    gold     1.00
    solo      .05   the author writes its half, the helper nothing (and the other way round)
    random    .10   two functions that return an argument, a constant or the value of aux

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the numbers of the steps (their places in their lists and their parameters), added, are 2·(0 in train, 1
in eval) + (seed modulo 2), modulo 4. Making an item computes its tests and, where two agree, draws it again: about
5 000 in a second, 2 000 at level 2.

Versions: v0 first version.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from comlrl_env.items import DEFAULT_SIZES, ProceduralItems, check_count, item_class, split_sizes
from comlrl_env.task import History
from comlrl_env.tasks.code.problems import NUMBERS, Step, meaning
from comlrl_env.tasks.code.team_task import AUTHOR, HELPER, TeamTask
from comlrl_env.types import Item

# What the author does with the list ys.
LAST = (
    Step("total", "the sum of all, plus {k}", "sum(ys) + {k}"),
    Step("joined", "one text of all, with {k} dashes between neighbours", '("-" * {k}).join(map(str, ys))'),
    Step("ends", "the first plus {k} times the last", "ys[0] + {k} * ys[-1]"),
    Step("weighted", "the first plus 2 times the second plus 3 times the third and so on, plus {k}",
         "sum(i * y for i, y in enumerate(ys, start=1)) + {k}"),
    Step("spread", "{k} times the difference of the greatest and the least", "{k} * (max(ys) - min(ys))"),
    Step("extremes", "a list of the greatest plus {k}, and the least", "[max(ys) + {k}, min(ys)]"),
    Step("products", "the sum of the products of neighbours, plus {k}",
         "sum(a * b for a, b in zip(ys, ys[1:])) + {k}"),
    Step("middle", "the sum of all but the first and the last, minus {k} times the first",
         "sum(ys[1:-1]) - {k} * ys[0]"),
)  # fmt: skip
TESTS, NUMBERS_IN_TEST = 6, 6
_PROMPT = 'def solve(numbers: list[int]):\n    """Apply the last step, {g}, to the list aux(numbers)."""\n'
_SETTING = (
    f"# {HELPER} and {AUTHOR} write one Python program together, at the same time, without seeing each other's code.\n"
)


class CodeCompose(TeamTask):
    """A composed function; see the page above. Raises :class:`TaskError` for arguments out of range."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.05, "random": 0.1}
    levels = (0, 2)
    data_source = "procedural"

    def __init__(
        self,
        *,
        level: int = 0,
        seed: int = 0,
        num_items: int | Mapping[str, int] = DEFAULT_SIZES,
        workers: int | None = None,
    ) -> None:
        super().__init__("strict", workers=workers)
        self.level = check_count("level", level, *self.levels)
        self.seed = check_count("seed", seed, 0)
        self._sizes = split_sizes(num_items)

    def items(self, split: str) -> ProceduralItems:
        """Items with ``first`` and ``last``, [text, expression] of h and g, and what a team task needs."""
        return ProceduralItems(self._build, split, size=self._sizes.get(split, 0), seed=self.seed, level=self.level)

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """Instructions as comments, then code that the answer goes on from."""
        helper, author = self._told(item)
        return {
            HELPER: f"{_SETTING}# {helper}\n\ndef aux(",
            AUTHOR: f"{_SETTING}# {author}\n\ndef solve(numbers: list[int]):\n",
        }

    def messages(self, item: Item, history: History) -> dict[str, list[dict[str, str]]]:
        """The same for chat models: one message, which asks for one block of code."""
        end = "Answer with one block of Python code."
        return {
            agent: [{"role": "user", "content": f"{_SETTING.removeprefix('# ')}{text} {end}"}]
            for agent, text in zip(self.agents, self._told(item), strict=True)
        }

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Each half as it is meant."""
        return {
            HELPER: f"def aux(numbers):\n    return {item.data['first'][1]}\n",
            AUTHOR: f"def solve(numbers):\n    ys = aux(numbers)\n    return {item.data['last'][1]}\n",
        }

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The author writes its half, the helper says nothing."""
        return {HELPER: "", AUTHOR: self.gold(item)[AUTHOR]}

    def _told(self, item: Item) -> tuple[str, str]:
        return (
            f"You are {HELPER}. Write only `aux(numbers)`: it takes a list of integers and returns "
            f"{item.data['first'][0]}, as a list in the same order. {AUTHOR} calls it.",
            f"You are {AUTHOR}. Write only `solve(numbers)`: it calls `aux(numbers)`, which {HELPER} writes and which "
            f"returns a list of integers, and returns of that list {item.data['last'][0]}.",
        )

    def _build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        wanted = item_class(self.seed, split)
        while True:
            one, two, keep, half = rng.integers((8, 8, 8, 2)).tolist()
            k, m, q, r = rng.integers(2, 10, size=4).tolist()
            steps = [(NUMBERS.change[one], k)] + [(NUMBERS.change[two], m)] * (self.level >= 1)
            kept = [(NUMBERS.keep[keep], q)] * (self.level == 2)
            mark = one + two * (self.level >= 1) + keep * (self.level == 2) + r
            mark += sum(step.uses(number) for step, number in steps + kept)
            data = self._written(steps, kept, LAST[(wanted - mark) % 4 + 4 * half].written(r))
            tests = rng.integers(-20, 40, size=(TESTS, NUMBERS_IN_TEST)).tolist()
            values = _values(tests, data["first"][1], data["last"][1])
            if values is not None:
                asserts = "".join(f"    assert candidate({x}) == {v!r}\n" for x, v in zip(tests, values, strict=True))
                return data | {"test": f"def check(candidate):\n{asserts}"}

    def _written(
        self, steps: Sequence[tuple[Step, int]], kept: Sequence[tuple[Step, int]], last: tuple[str, str]
    ) -> dict[str, Any]:
        of, code = "all numbers", "numbers"
        if kept:
            text, condition = kept[0][0].written(kept[0][1])
            of, code = f"the numbers {text}", f"[x for x in {code} if {condition}]"
        said = []
        for step, number in steps:
            text, expression = step.written(number)
            said.append(f"{text} {of}")
            of, code = "these", f"[{expression} for x in {code}]"
        return {
            "first": [", then ".join(said), code],
            "last": list(last),
            "prompt": _PROMPT.format(g=last[0]),
            "entry_point": "solve",
            "canonical_solution": f"    ys = {code}\n    return {last[1]}\n",
        }


def _values(tests: list[list[int]], first: str, last: str) -> list[Any] | None:
    """The values that the tests want, or ``None`` when a constant ``aux``, or ``aux`` alone, could pass one of them."""
    lists = [meaning(first, "numbers")(list(numbers)) for numbers in tests]
    if min(map(len, lists)) < 2:
        return None
    values = [meaning(last, "ys")(ys) for ys in lists]
    shown = {repr(value) for value in values}
    if (
        len(shown) < TESTS
        or len(set(map(repr, lists))) < TESTS
        or any(v == ys for v, ys in zip(values, lists, strict=True))
    ):
        return None
    try:
        empty = meaning(last, "ys")([])
    except (IndexError, ValueError):
        return values
    return None if repr(empty) in shown else values
