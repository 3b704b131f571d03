"""Reading Python out of model answers: what is kept, what is cut, what is said about it."""

import sys
import time

import pytest

from comlrl_env.sandbox import Box
from comlrl_env.sandbox.answers import read

STUB = 'def f(a, b):\n    """Add."""\n'
ANSWERS = {
    "bare": "def f(a, b):\n    return a + b",
    "fenced": "```python\ndef f(a, b):\n    return a + b\n```",
    "fence without language": "```\ndef f(a, b):\n    return a + b\n```",
    "fence never closed": "Sure!\n```py\ndef f(a, b):\n    return a + b\n",
    "prose around a fence": "Here is it:\n\n```python\ndef f(a, b):\n    return a + b\n```\nIt adds `a` and `b`.",
    "prose around bare code": "Here is it:\ndef f(a, b):\n    return a + b\nThis adds two numbers.",
    "list item": "1. Code:\n   ```python\n   def f(a, b):\n       return a + b\n   ```",
    "usage first": "```python\nprint(f(1, 2))\n```\nand\n```python\ndef f(a, b):\n    return a + b\n```",
    "in two blocks": "```python\nimport math\n```\nthen\n```python\ndef f(a, b):\n    return math.floor(a + b)\n```",
    "body only": "    return a + b\n",
    "body then a new function": "    return a + b\n\n\ndef g(x):\n    return",
    "body in a fence": "```python\n    return a + b\n```",
    "tabs": "\treturn a + b\n",
    "cut in the middle": "def f(a, b):\n    return a + b\n\ndef g(x):\n    return [x for",
    "asserts and calls after it": "def f(a, b):\n    return a + b\nassert f(1, 2) == 4\nprint(input())\nwhile 1: pass",
    "main guard": "def f(a, b):\n    return a + b\nif __name__ == '__main__':\n    raise SystemExit",
    "future": "from __future__ import annotations\ndef f(a, b):\n    return a + b",
    "constant first": "OFFSET = 0\ndef f(a, b):\n    return a + b + OFFSET",
    "windows lines": "def f(a, b):\r\n    return a + b\r\n",
    "decorated": "import functools\n@functools.lru_cache\ndef f(a, b):\n    return a + b",
    "a string that looks like a fence": 'def f(a, b):\n    x = "```"\n    return a + b\n',
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_function_is_found_and_works(name: str) -> None:
    facts = read(ANSWERS[name], "f", STUB)
    assert facts["defines"] is True
    assert facts["returns"] is True
    namespace: dict[str, object] = {}
    exec("VERSION = 1\n" + str(facts["source"]), namespace)
    assert "__future__" not in str(facts["source"])
    assert namespace["f"](2, 3) == 5  # type: ignore[operator]


def test_an_answer_goes_on_from_an_open_signature() -> None:
    facts = read("a, b):\n    return a + b\n\nThat was it.", "f", "def f(")
    assert facts["source"] == "def f(a, b):\n    return a + b"
    again = read("def f(x):\n    return x\n", "f", "def f(")
    assert again["source"] == "def f(x):\n    return x"


@pytest.mark.parametrize(
    "text", ["", " ", "no code", "def g(x):\n    return x", "def f(", "\x00", "```", "é\ud800", "f = 3"]
)
def test_text_without_the_function(text: str) -> None:
    facts = read(text, "f", "")
    assert facts["defines"] is False
    assert facts["returns"] is False


def test_a_function_without_a_value_does_not_return() -> None:
    for body in ("pass", "return", "def g():\n        return 1", "print(lambda: 1)"):
        facts = read(f"def f(a):\n    {body}\n", "f")
        assert facts["defines"] is True
        assert facts["returns"] is False


def test_what_is_said_about_calls() -> None:
    wrapper = 'def f(a):\n    """Doc."""\n    return aux(a)'
    assert read(wrapper, "f")["wraps"] == "aux"
    assert read("def f(a):\n    r = aux(a)\n    return r", "f")["wraps"] == "aux"
    assert read("def f(a):\n    return aux(a) + 1", "f")["wraps"] is None
    assert read("def f(a):\n    aux(a)\n    return 1", "f")["ignored"] == ["aux"]
    assert read("def f(a):\n    z = aux(a)\n    return 1", "f")["ignored"] == ["aux"]
    assert read("def f(a):\n    z = aux(a)\n    return z", "f")["ignored"] == []
    assert read("def f(a):\n    aux(a)\n    return aux(a)", "f")["ignored"] == []
    assert read("def f(a):\n    return len(g(a))", "f")["calls"] == ["g", "len"]


def test_long_and_degenerate_text_takes_little_time() -> None:
    started = time.perf_counter()
    for piece in (
        "(",
        "[",
        "{",
        "f(",
        "not ",
        "lambda x: ",
        "def f(",
        "```python\n",
        "    ",
        "\n",
        "def g(): return 1\n",
        "é",
        '"""',
    ):
        read(piece * 200_000, "f", "def f(")
    assert time.perf_counter() - started < 10


def test_in_the_sandbox_the_same_facts_come_back() -> None:
    with Box() as box:
        for text in [*ANSWERS.values(), "(" * 10_000, "é\ud800"]:
            assert box.read(text, "f", STUB) == read(text, "f", STUB)


def test_reading_needs_the_standard_library_only() -> None:
    import comlrl_env.sandbox.answers as module

    names = {value.__name__ for value in vars(module).values() if type(value).__name__ == "module"}
    assert names <= set(sys.stdlib_module_names)
