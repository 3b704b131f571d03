"""Small classes made on demand, with their tests, in the form of a row of ClassEval."""

from typing import Any, NamedTuple

import numpy as np

from comlrl_env.items import item_class

_NAMES = "Basket Drawer Shelf Crate Pocket Tray Locker Barrel Chest Folder Wallet Cabinet Bucket Rack Vault Bin"
NAMES = tuple(_NAMES.split())


class Method(NamedTuple):
    """One method: its head after ``def``, what it does, its body, and calls that test it (argument lists in text)."""

    head: str
    text: str
    body: str
    calls: tuple[str, ...]
    decorator: str = ""

    @property
    def name(self) -> str:
        """The method's name."""
        return self.head.partition("(")[0]


METHODS = (
    Method("total(self)", "Return the sum of the numbers.", "return sum(self.numbers)", ("total()",)),
    Method(
        "largest(self)",
        "Return the greatest number, 0 if there is none.",
        "return max(self.numbers, default=0)",
        ("largest()",),
    ),
    Method(
        "spread(self)",
        "Return the greatest minus the least number, 0 if there is none.",
        "return max(self.numbers) - min(self.numbers) if self.numbers else 0",
        ("spread()",),
    ),
    Method("ordered(self)", "Return the sorted numbers as a new list.", "return sorted(self.numbers)", ("ordered()",)),
    Method(
        "evens(self)", "Return how many numbers are even.", "return sum(x % 2 == 0 for x in self.numbers)", ("evens()",)
    ),
    Method(
        "mirrored(self)",
        "Return the numbers in reverse order as a new list.",
        "return self.numbers[::-1]",
        ("mirrored()",),
    ),
    Method(
        "described(self)",
        "Return the class's name, a blank, and how many numbers there are.",
        'return f"{type(self).__name__} {len(self.numbers)}"',
        ("described()",),
    ),
    Method(
        "empty(self)",
        "Remove all numbers and return how many they were.",
        "count = len(self.numbers)\nself.numbers = []\nreturn count",
        ("empty()",),
    ),
    Method(
        "add(self, number)",
        "Append a number; raise ValueError if it is below zero.",
        'if number < 0:\n    raise ValueError("below zero")\nself.numbers.append(number)',
        ("add({n})", "add(-{n})"),
    ),
    Method(
        "scaled(self, factor)",
        "Return each number times the factor, as a new list.",
        "return [factor * x for x in self.numbers]",
        ("scaled({n})", "scaled(0)"),
    ),
    Method(
        "above(self, limit)",
        "Return how many numbers are greater than the limit.",
        "return sum(x > limit for x in self.numbers)",
        ("above({n})", "above({n}0)"),
    ),
    Method(
        "drop(self, number)",
        "Remove all numbers equal to this one and return how many they were.",
        "count = self.numbers.count(number)\nself.numbers = [x for x in self.numbers if x != number]\nreturn count",
        ("drop({n})", "drop(99)"),
    ),
    Method(
        "page(self, size)",
        "Return the first numbers, at most so many, as a new list.",
        "return self.numbers[:size]",
        ("page(2)", "page({n})"),
    ),
    Method(
        "shared(self, others)",
        "Return the sorted different numbers that are also among the others.",
        "return sorted(set(self.numbers) & set(others))",
        ("shared([{n}, 1, 2])", "shared([])"),
    ),
    Method(
        "limit(numbers, most)",
        "Return the numbers, each lowered to at most this one, as a new list.",
        "return [min(x, most) for x in numbers]",
        ("limit([1, {n}, 30], {n})",),
        "staticmethod",
    ),
    Method(
        "counted(cls, size)",
        "Return a list of the numbers from 1 to the size.",
        "return list(range(1, size + 1))",
        ("counted({n})", "counted(0)"),
        "classmethod",
    ),
)
_STATES = ("[]", "[{a}, {b}]", "[{b}, {n}, {a}, {n}]")


def make_row(rng: np.random.Generator, split: str, seed: int) -> dict[str, Any]:
    """A class with six methods, three of them with arguments, and its cases.

    Its name has the split's number (see :func:`comlrl_env.items.item_class`) modulo 4.
    """
    which = int(rng.integers(len(NAMES) // 4))
    name = NAMES[4 * which + item_class(seed, split)]
    # Half of the methods take only self, half take more.
    chosen = [METHODS[half + i] for half in (0, 8) for i in sorted(rng.permutation(8)[:3].tolist())]
    numbers = dict(zip("abn", rng.integers(3, 9, size=3).tolist(), strict=True))
    constructor = f"class {name}:\n    def __init__(self, numbers=()):\n        self.numbers = list(numbers)\n"
    solution = constructor + "".join(f"\n{_written(method)}" for method in chosen)
    names: dict[str, Any] = {}
    exec(solution, names)
    methods, tests = [], []
    for method in chosen:
        case = f"{name}Test{method.name.capitalize()}"
        code = _cases(names[name], name, case, method, numbers)
        tests.append(code)
        methods.append(
            {
                "method_name": method.name,
                "method_description": _written(method, described_only=True),
                "test_class": case,
                "test_code": code,
                "solution_code": _written(method),
            }
        )
    return {
        "class_name": name,
        "class_description": f"A {name.lower()} of numbers.",
        "import_statement": [],
        "class_constructor": constructor,
        "methods_info": methods,
        "solution_code": solution,
        "test": "import unittest\n\n" + "\n\n".join(tests),
    }


def _written(method: Method, *, described_only: bool = False) -> str:
    decorator = f"    @{method.decorator}\n" if method.decorator else ""
    head = f"{decorator}    def {method.head}:\n"
    body = f'"""{method.text}"""' if described_only else method.body
    return head + "".join(f"        {line}\n" for line in body.split("\n"))


def _cases(made: Any, name: str, case: str, method: Method, numbers: dict[str, int]) -> str:
    """One case for each state of the object, with the values that the solution gives."""
    lines = [f"class {case}(unittest.TestCase):"]
    for number, state in enumerate(_STATES):
        lines += [f"    def test_{number}(self):", f"        made = {name}({state.format(**numbers)})"]
        thing = made(eval(state.format(**numbers)))
        for call in method.calls:
            written = call.format(**numbers)
            try:
                value = eval(f"thing.{written}", {"thing": thing})
                lines.append(f"        self.assertEqual(made.{written}, {value!r})")
            except ValueError:
                lines += ["        with self.assertRaises(ValueError):", f"            made.{written}"]
        lines.append(f"        self.assertEqual(made.numbers, {thing.numbers!r})")
    return "\n".join([*lines, ""])
