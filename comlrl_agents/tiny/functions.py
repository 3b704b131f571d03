"""Small Python functions, drawn from a grammar: they teach the form of code, whatever the problem asks."""

from typing import NamedTuple

import numpy as np

# One function per paragraph: the header, the doc string, and the body with the fields of a ``Collection``.
SHAPES = '''
def count_{which}({name}: {type}) -> int:
    """Count every {which} {noun}."""
    count = 0
    for {item} in {name}:
        if {test}:
            count += 1
    return count

def find_{which}({name}: {type}) -> object:
    """Find the first {which} {noun}."""
    for {item} in {name}:
        if {test}:
            return {value}
    return None

def last_{which}({name}: {type}) -> object:
    """Find the last {which} {noun}."""
    result = None
    for {item} in {name}:
        if {test}:
            result = {value}
    return result

def collect_{which}({name}: {type}) -> list:
    """Collect every {which} {noun}."""
    result = []
    for {item} in {name}:
        if {test}:
            result.append({value})
    return result

def select_{which}({name}: {type}) -> list:
    """Return every {which} {noun} of the {name}."""
    return [{value} for {item} in {name} if {test}]

def sort_{which}({name}: {type}) -> list:
    """Sort every {which} {noun} of the {name}."""
    return sorted({item} for {item} in {name} if {test})

def any_{which}({name}: {type}) -> bool:
    """Tell whether any {noun} is {which}."""
    return any({test} for {item} in {name})

def all_{which}({name}: {type}) -> bool:
    """Tell whether each {noun} is {which}."""
    for {item} in {name}:
        if not {test}:
            return False
    return True

def size_{which}({name}: {type}) -> int:
    """Return the size of the {name}."""
    if not {name}:
        return 0
    return len({name})
'''


CALLS = (
    "    return aux({name})",
    "    result = aux({name})\n    return result",
    "    result = aux({name})\n    if not result:\n        return None\n    return result",
    "    if not {name}:\n        return None\n    return aux({name})",
)


class Collection(NamedTuple):
    """What a function loops over: the argument and its type, the loop variable and its noun, tests and values."""

    name: str
    type: str
    item: str
    noun: str
    tests: dict[str, str]
    values: tuple[str, ...]


COLLECTIONS = (
    Collection(
        *("numbers", "List[int]", "x", "number"),
        {"positive": "x > 0", "even": "x % 2 == 0", "odd": "x % 2 == 1", "small": "x < 10", "nonzero": "x != 0"},
        ("x", "x * x", "x + 1", "abs(x)", "2 * x"),
    ),
    Collection(
        *("words", "List[str]", "w", "word"),
        {"long": "len(w) > 3", "short": "len(w) < 4", "lower": "w.islower()", "title": "w.istitle()"},
        ("w", "w.upper()", "len(w)", "w[0]", "w[::-1]"),
    ),
    Collection(
        *("text", "str", "c", "character"),
        {"vowel": "c in 'aeiou'", "letter": "c.isalpha()", "digit": "c.isdigit()", "upper": "c.isupper()"},
        ("c", "c.lower()", "ord(c)", "c + c"),
    ),
)


class Function(NamedTuple):
    """One function: ``head`` with the doc string and ``body``, both without a closing line break."""

    name: str
    argument: str
    head: str
    body: str


def write_function(rng: np.random.Generator, kind: Collection | None = None) -> Function:
    """Draw one function, over the given kind of collection or any."""
    kind = kind or COLLECTIONS[rng.integers(len(COLLECTIONS))]
    shapes = SHAPES.strip().split("\n\n")
    shape = shapes[rng.integers(len(shapes))]
    which, test = tuple(kind.tests.items())[rng.integers(len(kind.tests))]
    value = kind.values[rng.integers(len(kind.values))]
    lines = shape.format_map({**kind._asdict(), "which": which, "test": test, "value": value}).split("\n")
    name = lines[0].removeprefix("def ").partition("(")[0]
    return Function(name, kind.name, "\n".join(lines[:2]), "\n".join(lines[2:]))


def write_parts(rng: np.random.Generator) -> tuple[Function, str, str]:
    """Draw a problem and what a helper and an author may say to it: parts of one program that need not solve it.

    The helper's goes on from ``def aux(``; the author's is a body that may or may not call ``aux``.
    """
    kind = COLLECTIONS[rng.integers(len(COLLECTIONS))]
    problem, first, second = (write_function(rng, kind) for _ in range(3))
    call = CALLS[rng.integers(len(CALLS))].format(name=kind.name)
    return problem, f"{kind.name}):\n{first.body}", call if rng.random() < 0.5 else second.body
