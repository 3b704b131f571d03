"""Small programming problems made on demand: keep some members of a list, change each, put them together.

Every step has words, source text and meaning from one place, so that a problem's text, its canonical solution and its
tests agree by construction. ``k`` and ``m`` are numbers from 2 to 9.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from comlrl_env.items import item_class


class Step(NamedTuple):
    """One step: a word for names, words for the text, an expression."""

    name: str
    text: str
    code: str

    def written(self, number: int) -> tuple[str, str]:
        """Text and expression with their number."""
        return self.text.replace("{k}", str(number)), self.code.replace("{k}", str(number))

    def uses(self, number: int) -> int:
        """The number, or 0 where the step has none: it tells problems apart."""
        return number if "{k}" in self.code else 0


class Kind(NamedTuple):
    """Problems on lists of one type; ``keep`` and ``change`` speak of ``x``, ``join`` of the list ``ys``."""

    argument: str
    members: str
    keep: tuple[Step, ...]
    change: tuple[Step, ...]
    join: tuple[Step, ...]
    draw: Callable[[np.random.Generator], list[list[Any]]]


def _number_lists(rng: np.random.Generator) -> list[list[Any]]:
    sizes = (0, 1, 4, 5, 6, 8)
    numbers = iter(rng.integers(-20, 40, size=sum(sizes)).tolist())
    return [[next(numbers) for _ in range(size)] for size in sizes]


_LETTERS = "aeiounrstldm"


def _word_lists(rng: np.random.Generator) -> list[list[Any]]:
    sizes = (0, 1, 4, 5, 6, 8)
    numbers = iter(rng.integers(len(_LETTERS), size=11 * sum(sizes)).tolist())
    lists = []
    for size in sizes:
        lists.append(["".join(_LETTERS[next(numbers)] for _ in range(2 + next(numbers) % 9)) for _ in range(size)])
    return lists


NUMBERS = Kind(
    "numbers: list[int]",
    "numbers",
    keep=(
        Step("even", "that are even", "x % 2 == 0"),
        Step("odd", "that are odd", "x % 2 == 1"),
        Step("positive", "above zero", "x > 0"),
        Step("undivided", "that {k} does not divide", "x % {k} != 0"),
        Step("large", "greater than {k}", "x > {k}"),
        Step("small", "of at most {k}", "x <= {k}"),
        Step("near", "less than {k}0 away from zero", "abs(x) < {k}0"),
        Step("ending", "whose last digit is at most {k}", "abs(x) % 10 <= {k}"),
    ),
    change=(
        Step("squares", "the squares of", "x * x"),
        Step("opposites", "the opposites of", "-x"),
        Step("distances", "the absolute values of", "abs(x)"),
        Step("multiples", "{k} times each of", "{k} * x"),
        Step("sums", "{k} added to each of", "x + {k}"),
        Step("rests", "the remainders modulo {k} of", "x % {k}"),
        Step("gaps", "the distances to {k} of", "abs(x - {k})"),
        Step("shares", "the quotients (rounded down) by {k} of", "x // {k}"),
    ),
    join=(
        Step("total", "the sum", "sum(ys)"),
        Step("greatest", "the greatest (0 if there is none)", "max(ys, default=0)"),
        Step("least", "the least (0 if there is none)", "min(ys, default=0)"),
        Step("ordered", "the sorted list", "sorted(ys)"),
        Step("reversed", "the list in reverse order", "ys[::-1]"),
        Step("distinct", "the number of different ones", "len(set(ys))"),
        Step("alternating", "the alternating sum (first minus second plus third …)", "sum(ys[::2]) - sum(ys[1::2])"),
        Step("differences", "the list of differences of neighbours", "[b - a for a, b in zip(ys, ys[1:])]"),
    ),
    draw=_number_lists,
)
WORDS = Kind(
    "words: list[str]",
    "words",
    keep=(
        Step("vowel", "that begin with a vowel", 'x[0] in "aeiou"'),
        Step("ending", "that do not end with a vowel", 'x[-1] not in "aeiou"'),
        Step("with_a", "that contain an a", '"a" in x'),
        Step("unlike", "whose length is not {k}", "len(x) != {k}"),
        Step("short", "of at most {k} letters", "len(x) <= {k}"),
        Step("undivided", "whose length {k} does not divide", "len(x) % {k} != 0"),
        Step("plain", "with at most {k} different letters", "len(set(x)) <= {k}"),
        Step("rising", "whose first letter comes before their last", "x[0] < x[-1]"),
    ),
    change=(
        Step("upper", "the upper case of", "x.upper()"),
        Step("mirrored", "the reverse of each of", "x[::-1]"),
        Step("initials", "the first {k} letters of each of", "x[:{k}]"),
        Step("tails", "the last {k} letters of each of", "x[-{k}:]"),
        Step("repeated", "{k} copies in a row of each of", "x * {k}"),
        Step("sorted", "the sorted letters of each of", '"".join(sorted(x))'),
        Step("marked", "the length and the first letter (as in 4t) of each of", "str(len(x)) + x[0]"),
        Step("doubled", "each letter {k} times for each of", '"".join(c * {k} for c in x)'),
    ),
    join=(
        Step("joined", "one text with a dash between them", '"-".join(ys)'),
        Step("longest", "the longest, the first of them (empty if there is none)", 'max(ys, key=len, default="")'),
        Step("ordered", "the sorted list", "sorted(ys)"),
        Step("reversed", "the list in reverse order", "ys[::-1]"),
        Step("distinct", "the number of different ones", "len(set(ys))"),
        Step("letters", "the total number of characters", "sum(len(y) for y in ys)"),
        Step("every_other", "the list of every other one from the first on", "ys[::2]"),
        Step("lengths", "the list of their lengths", "[len(y) for y in ys]"),
    ),
    draw=_word_lists,
)


class Problem(NamedTuple):
    """One problem: its function's ``name`` and ``signature``, what it returns in words, its ``body``, its examples.

    ``examples``: (argument, value) pairs, the value computed by the canonical solution.
    """

    name: str
    signature: str
    text: str
    body: str
    examples: list[tuple[list[Any], Any]]


@functools.lru_cache(maxsize=4096)
def meaning(expression: str, variable: str) -> Callable[[Any], Any]:
    """The function of one variable that an expression of the kit's own is."""
    found: Callable[[Any], Any] = eval(f"lambda {variable}: {expression}")
    return found


def make_problem(kind: Kind, rng: np.random.Generator, split: str, seed: int) -> Problem:
    """Draw one problem of the class that belongs to the split and to the parity of the seed.

    The class is the sum of the numbers of its three steps and of the numbers in them, modulo 4: see
    :func:`comlrl_env.items.item_class`. The third step is chosen to fit.
    """
    first, second, third, k, m = rng.integers((8, 8, 2, 8, 8)).tolist()
    keep, change = kind.keep[first], kind.change[second]
    told = first + second + keep.uses(k + 2) + change.uses(m + 2)
    last = 4 * third + (item_class(seed, split) - told) % 4
    join = kind.join[last]
    (which, condition), (changed, expression) = keep.written(k + 2), change.written(m + 2)
    kept, made, joined = meaning(condition, "x"), meaning(expression, "x"), meaning(join.code, "ys")
    argument = kind.argument.partition(":")[0]
    examples = []
    for given in kind.draw(rng):
        examples.append((given, joined([made(x) for x in given if kept(x)])))
    return Problem(
        name=f"{join.name}_{change.name}_of_{keep.name}",
        signature=f"{join.name}_{change.name}_of_{keep.name}({kind.argument})",
        text=f"{join.text} of {changed} the {kind.members} {which}",
        body=f"    ys = [{expression} for x in {argument} if {condition}]\n    return {join.code}\n",
        examples=examples,
    )


def stub(problem: Problem, shown: Sequence[int]) -> str:
    """The function up to its body: signature, docstring, and the examples with these numbers."""
    lines = [f"def {problem.signature}:", f'    """Return {problem.text}.', ""]
    for number in shown:
        given, value = problem.examples[number]
        lines += [f"    >>> {problem.name}({given!r})", f"    {value!r}"]
    return "\n".join([*lines, '    """', ""])


def check(problem: Problem) -> str:
    """A function ``check(candidate)`` with one assert per example."""
    asserts = [f"    assert candidate({given!r}) == {value!r}\n" for given, value in problem.examples]
    return "def check(candidate):\n" + "".join(asserts)
