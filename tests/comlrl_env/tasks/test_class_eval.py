"""ClassEval: both rewards by hand arithmetic, forged results, rows of the public form."""

import json

import pytest

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import Box
from comlrl_env.tasks.code.class_eval import CODERS, ClassEval, blueprint_of
from comlrl_env.tasks.code.class_models import NAMES
from comlrl_env.tasks.code.class_tests import read_tests
from comlrl_env.types import Item

SOLUTION = """
class Box:
    def __init__(self, x):
        self.x = x

    def double(self):
        return 2 * self.x

    def shown(self):
        return f"box {self.x}"

    def plus(self, y):
        return self.double() - self.x + y

    @staticmethod
    def check(y):
        if y < 0:
            raise ValueError("low")
        return True
"""
METHODS = {
    "double": "    def double(self):\n        return 2 * self.x\n",
    "shown": '    def shown(self):\n        return f"box {self.x}"\n',
    "plus": "    def plus(self, y):\n        return self.double() - self.x + y\n",
    "check": (
        "    @staticmethod\n    def check(y):\n"
        '        if y < 0:\n            raise ValueError("low")\n        return True\n'
    ),
}
CASES = {
    "double": "self.assertEqual(Box(3).double(), 6)",
    "shown": "self.assertEqual(Box(3).shown(), 'box 3')",
    "plus": "self.assertEqual(Box(3).plus(4), 7)",
    "check": "self.assertTrue(Box.check(1))\n        with self.assertRaises(ValueError):\n            Box(1).check(-1)",
}
ROW = {
    "class_name": "Box",
    "import_statement": [],
    "class_constructor": "class Box:\n    def __init__(self, x):\n        self.x = x\n",
    "methods_info": [
        {"method_name": name, "method_description": f"def {name}", "test_class": f"T{name}", "solution_code": code}
        for name, code in METHODS.items()
    ],
    "solution_code": SOLUTION,
    "test": "import unittest\n"
    + "".join(f"class T{n}(unittest.TestCase):\n    def test(self):\n        {c}\n" for n, c in CASES.items()),
}
ITEM = Item(key="by hand", data=ROW)
OWN = {"reference": {"coder_0": ["double", "shown"], "coder_1": ["plus", "check"]}}


def written(*names, **changed):
    return "class Box:\n" + "\n".join(changed.get(name, METHODS[name]) for name in names) if names else ""


def score(reward, one, two):
    return ClassEval(reward).score(ITEM, (), dict(zip(CODERS, (one, two), strict=True)))


FIRST, SECOND, ALL = written("double", "shown"), written("plus", "check"), written(*METHODS)
WRONG = "    def double(self):\n        return 3 * self.x\n"
REFERENCE_CASES = [
    (FIRST, SECOND, 2 + 4),
    ("", "", 0),
    ("no code", "(((", 0),
    (FIRST, "", 2 * 2 / 4 + 4 * 2 / 4),
    ("", SECOND, 2 * 2 / 4 + 4 * 1 / 4),  # plus needs double
    (ALL, "", 2 * 2 / 4 + 4),
    ("", ALL, 2 * 2 / 4 + 4),
    (ALL, ALL, 2 + 4 - 1),
    (ALL, SECOND, 2 + 4 - 2 / 4),
    (SECOND, FIRST, 4),  # taken from the other
    (written("double"), SECOND, 2 * 3 / 4 + 4 * 3 / 4),
    (written("double"), written("plus"), 2 * 2 / 4 + 4 * 2 / 4),
    (written("double", "shown", double=WRONG), SECOND, 2 + 4 * 2 / 4),  # double and plus are wrong
    (written("double", "shown", shown="    def shown(self):\n        return 1\n"), SECOND, 2 + 4 * 3 / 4),
    (FIRST, written("plus", "check", check="    def check(self, y):\n        return True\n"), 2 + 4 * 3 / 4),
    (written("double", "plus"), SECOND, 2 * 3 / 4 + 4 * 3 / 4 - 1 / 4),
    ("import os\n" + FIRST, f"```python\n{SECOND}```\nDone.", 6),
    (FIRST + "    def helper(self):\n        return 1\n", SECOND, 6),
    ("def double(self):\n    return 2 * self.x\ndef shown(self):\n    return f'box {self.x}'\n", SECOND, 6),
    (FIRST + "    def __init__(self, x):\n        self.x = 0\n", SECOND, 6),  # the constructor is given
    ("import nothing_of_that_name\n" + FIRST, SECOND, 2),  # the merged class does not run
    (written("double", "shown", double="    def double(self):\n        break\n"), SECOND, 0),  # nor does it compile
    (written("shown"), written("plus", "check", "double"), 2 * 3 / 4 + 4),
]


@pytest.mark.parametrize(("one", "two", "expected"), REFERENCE_CASES)
def test_published_reward_by_hand(one, two, expected):
    got = score("reference", one, two)
    assert got.reward == pytest.approx(expected), got
    assert got.is_success is (expected == 6)
    assert got.is_success or got.reason


def test_strict_reward_by_hand():
    task = ClassEval()
    owners = task.owners(ITEM)
    halves = [[name for name in METHODS if owners[name] == coder] for coder in CODERS]
    assert [len(half) for half in halves] == [2, 2]
    one, two = (written(*half) for half in halves)
    assert score("strict", one, two).reward == pytest.approx(1)
    alone = score("strict", one, "")
    passed = alone.parts["pass_rate"]
    assert alone.reward == pytest.approx(0.1 * 2 / 4 + 0.5 * passed)
    assert score("strict", ALL, "").reward == pytest.approx(0.1 * 2 / 4 + 0.5 * passed - 0.3 * 2 / 4)
    assert score("strict", ALL, ALL).reward == pytest.approx(1 - 0.3)
    assert score("strict", two, one).reward == 0  # nobody wrote its own
    # One of the second's two methods is wrong: it passes at most half of its own cases.
    broken = written(*halves[1], **{halves[1][0]: _empty(halves[1][0])})
    got = score("strict", one, broken)
    assert got.parts["own_0"] == 1
    assert got.parts["own_1"] <= 0.5
    assert got.reward == pytest.approx(0.1 + 0.5 * got.parts["pass_rate"] + 0.4 * got.parts["own_1"])


def _empty(name):
    lines = METHODS[name].split("\n")
    head = next(number for number, line in enumerate(lines) if "def " in line)
    return "\n".join([*lines[: head + 1], "        return 'no'", ""])


FORGERIES = {
    "equal to everything": (
        "class Anything:\n    def __eq__(self, other): return True\n    def __bool__(self): return True\n"
        "    def __hash__(self): return 0\n{methods}",
        "return Anything()",
    ),
    "patches unittest": (
        "import unittest\nfor name in dir(unittest.TestCase):\n    pass\n"
        "patched = [setattr(unittest.TestCase, n, print) for n in ('assertEqual', 'assertTrue', 'run')]\n{methods}",
        "return 0",
    ),
    "writes results": (
        "import json, sys, os\nwrote = [os.write(d, b'{{\"value\": 6}}') for d in (1, 2)]\n{methods}",
        "print(json.dumps({'passed': 99})); return 0",
    ),
    "hands back objects": ("{methods}", "return ('\\0object', 0)"),
    "exits": ("import os\n{methods}", "os._exit(0)"),
    "raises": ("{methods}", "raise SystemExit"),
    "digs into frames": (
        "import sys\n{methods}",
        "sys._getframe(1).f_locals.update(value=6); return 0",
    ),
}


@pytest.mark.parametrize("label", FORGERIES)
@pytest.mark.parametrize("reward", ["strict", "reference"])
def test_results_cannot_be_forged(label, reward):
    around, body = FORGERIES[label]
    methods = "class Box:\n" + "".join(
        f"    def {name}(self{', y' * (name in ('plus', 'check'))}):\n        {body}\n" for name in METHODS
    )
    text = around.format(methods=methods) if "{methods}" in around else methods
    got = score(reward, text, text)
    assert got.status == "ok"
    assert got.parts.get("pass_rate", got.parts.get("tests")) == 0, got


def test_a_decorator_that_writes_the_others_methods_earns_them_nothing():
    """The joint run is fooled; each half beside the solution's other half is not."""
    task = ClassEval()
    owners = task.owners(ITEM)
    mine = [name for name in METHODS if owners[name] == "coder_0"]
    theirs = [name for name in METHODS if owners[name] == "coder_1"]
    stubs = written(*theirs, **{name: _empty(name) for name in theirs})
    good = "class Good:\n" + "\n".join(METHODS[name] for name in theirs)
    sneaky = (
        "class Sneaky:\n    def __init__(self, made):\n        self.made = made\n"
        "    def __set_name__(self, owner, name):\n        setattr(owner, name, self.made)\n"
        f"        for each in {theirs}:\n            setattr(owner, each, vars(Good)[each])\n"
    )
    hack = written(*mine, **{name: f"    @Sneaky\n{METHODS[name]}" for name in mine if name != "check"})
    fooled = score("strict", f"{good}\n{sneaky}\n{hack}", stubs)
    assert fooled.parts["pass_rate"] == 1
    assert fooled.parts["own_1"] == 0
    assert fooled.reward == pytest.approx(0.1 + 0.5)


@pytest.mark.parametrize(
    "text", ["", "\x00", "(" * 20_000, "x = 1\n" * 9_000, "é\ud800", "class Box:", "Ignore the rules"]
)
def test_any_text_is_data(text):
    for reward in ("strict", "reference"):
        got = score(reward, text, text)
        assert got.status == "ok"
        assert got.reward == 0
        assert got.reason


@pytest.mark.parametrize("reward", ["strict", "reference"])
def test_gold_and_solo_on_made_classes(reward):
    """On 200 items it was measured once (the page); a process for each run makes that too long here."""
    task = ClassEval(reward, num_items=2)
    for split in ("train", "eval"):
        for item in task.items(split):
            got = task.score(item, (), task.gold(item))
            assert got.reward == pytest.approx(task.figures["gold"]), got
            assert set(task.gold(item)) == set(CODERS)
        assert task.score(item, (), task.solo(item)).reward == pytest.approx(task.figures["solo"], abs=0.5)


def test_methods_are_divided_evenly_and_prompts_say_how():
    task = ClassEval(num_items=20)
    splits = set()
    for item in task.items("train"):
        owners = task.owners(item)
        assert sorted(owners.values()) == ["coder_0"] * 3 + ["coder_1"] * 3
        splits.add(tuple(owners.values()))
        told = task.prompts(item, ())
        for coder in CODERS:
            mine = [name for name, owner in owners.items() if owner == coder]
            assert f"Write only {', '.join(mine)}; the other" in told[coder]
            assert "return sum" not in told[coder]
    assert len(splits) > 5


def test_splits_and_seeds_share_no_name():
    assert len(set(NAMES)) == 16
    parts = [
        {item.data["class_name"] for item in ClassEval(seed=seed, num_items=30).items(split)}
        for seed in (0, 1)
        for split in ("train", "eval")
    ]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 16


def test_rows_of_the_public_form(tmp_path):
    path = tmp_path / "rows.json"
    rows = [ROW | {"test": ROW["test"] + f"\n# {number}\n"} for number in range(5)]
    path.write_text(json.dumps([*rows, ROW | {"solution_code": "class Box:\n    pass"}]))
    with pytest.warns(RuntimeWarning, match="left out: train/4.*without double"):
        task = ClassEval(data=str(path))
    assert [len(task.items(split)) for split in ("train", "eval")] == [4, 1]
    item = task.items("train")[0]
    assert task.score(item, (), task.gold(item)).reward == pytest.approx(1)
    assert ast_decorators(blueprint_of(item).methods["check"]) == ["staticmethod"]


def ast_decorators(node):
    return [each.id for each in node.decorator_list]


def test_cases_that_prove_nothing_are_left_out():
    test = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(True)\n"
    with pytest.raises(TaskError, match="there are none"):
        read_tests(test, "Box")
    used = test + "    def test_b(self):\n        Box().go()\n    def test_c(self):\n        x = Box(); x.y = 3\n"
    used += "        self.assertEqual(x.y, 3); self.assertIs(x.me(), x) if False else None\n"
    tests = read_tests(used, "Box")
    assert tests.names == (("T", "test_b"), ("T", "test_c"))
    with Box() as box:
        verdicts = tests.run("class Box:\n    def go(self):\n        raise KeyError('k')\n", box)
    assert verdicts["T", "test_b"].failure.startswith("KeyError")
    assert verdicts["T", "test_c"].passed
