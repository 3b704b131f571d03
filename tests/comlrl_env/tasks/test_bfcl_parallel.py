"""BFCL's parallel calls: the published reward by hand arithmetic, the embedded rows, what one caller alone earns."""

import gzip
import json
from importlib import resources

import numpy as np
import pytest

from comlrl_env.errors import TaskError
from comlrl_env.tasks.calls.bfcl_parallel import AGENTS, BFCLParallel, described, rows, written
from comlrl_env.types import Item

ITEM = Item(
    key="by hand",
    data={
        "request": "f of 1 and of 2, g of a and of b",
        "functions": [{"name": "f", "about": "", "parameters": []}, {"name": "m.g", "about": "", "parameters": []}],
        "calls": [
            ["f", {"x": [1]}],
            ["f", {"x": [2], "unit": ["", "cm"]}],
            ["m.g", {"y": ["a", "A."]}],
            ["m.g", {"y": ["b"]}],
        ],
    },
)
F1, F2, GA, GB = "f(x=1)", "f(x=2)", "m.g(y='a')", "m.g(y='b')"
ALL = f"{F1}\n{F2}\n{GA}\n{GB}"
# parsed, name F1, argument match, count, balance, exact; minus overlap, lazy, extra, duplicate.
CASES = [
    (f"{F1}\n{F2}", f"{GA}\n{GB}", 0.05 + 0.25 + 0.35 + 0.1 + 0.15 + 0.2),
    (f"{GA}\n{GB}", f"{F1}\n{F2}", 1.1),
    (f"{F1}\n{GA}", f"{F2}\n{GB}", 1.1),
    (f"{F1}\nf(2, unit='CM')", f"m.g('A')\n{GB}", 1.1),
    (f"[{F1}, {F2}]", f"{GA}\n{GB}", 1.1),
    (ALL, "", 0.05 + 0.25 + 0.35 + 0.1 + 0 + 0.2 - 0.15 / 2),
    ("", ALL, 0.875),
    ("", "", -0.15),
    ("no call", "no call", -0.15),
    (F1, GA, 0.05 + 0.25 * 4 / 6 + 0.35 / 2 + 0.1 / 2 + 0.15),
    (F1, "", 0.05 + 0.25 * 2 / 5 + 0.35 / 4 + 0.1 / 4 - 0.15 / 2),
    (F1, "here it is:", 0.05 / 2 + 0.25 * 2 / 5 + 0.35 / 4 + 0.1 / 4 - 0.15 / 2),
    (f"{F1}\n{F2}\n{GA}", GB, 0.05 + 0.25 + 0.35 + 0.1 + 0.15 / 2 + 0.2),
    (f"{F1}\nf(x=3)", f"{GA}\n{GB}", 0.05 + 0.25 + 0.35 * 3 / 4 + 0.1 + 0.15),
    (f"{F1}\nh(x=2)", f"{GA}\n{GB}", 0.05 + 0.25 * 6 / 8 + 0.35 * 3 / 4 + 0.1 + 0.15),
    ("h(1)\nh(2)", "h(3)\nh(4)", 0.05 + 0.1 + 0.15),
    ("f()\nf()", "m.g()\nm.g()", 0.05 + 0.25 + 0.1 + 0.15 - 0.05 * 2 / 4),
    (ALL, ALL, 0.05 + 0.25 * 8 / 12 + 0.35 + 0 + 0.15 - 0.2 - 0.05),
    (f"{F1}\n{F2}", f"{F2}\n{GA}\n{GB}", 0.05 + 0.25 * 8 / 9 + 0.35 + 0.1 * 3 / 4 + 0.15 - 0.2 / 4 - 0.05 / 4),
    (f"{F1}\n{F1}", f"{GA}\n{GB}", 0.05 + 0.25 + 0.35 * 3 / 4 + 0.1 + 0.15 - 0.05 / 4),
    (f"{F1}\n{F2}\nz()", f"{GA}\n{GB}\nz()", 0.05 + 0.25 * 8 / 10 + 0.35 + 0.1 / 2 + 0.15 - 0.2 / 4 - 0.05 / 2),
    ("z()\n" * 20, "z()\n" * 20, 0.05 + 0.15 - 0.2 - 0.05 - 0.05 * 38 / 40),
]


def score(reward, one, two):
    return BFCLParallel(reward).score(ITEM, (), dict(zip(AGENTS, (one, two), strict=True)))


@pytest.mark.parametrize(("one", "two", "expected"), CASES)
def test_published_reward_by_hand(one, two, expected):
    got = score("reference", one, two)
    assert got.reward == pytest.approx(expected), got
    assert got.is_success is (expected == pytest.approx(1.1))
    assert got.is_success or got.reason


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (f"{F1}\n{F2}", f"{GA}\n{GB}", 1),
        (f"{GA}\n{GB}", f"{F1}\n{F2}", 0),  # not theirs to make
        (f"{F1}\n{F2}", "", 2 * 2 / (2 + 4) / 2),
        (ALL, "", 2 * 2 / (4 + 4) / 2),
        (ALL, ALL, 2 * 4 / (8 + 4)),
        (F1, GA, (2 * 2 / 6) * 0.75),
        (F1, f"{GA}\n{GB}", (2 * 3 / 7) * 0.75),
        (f"{F1}\n{F1}\n{F2}", f"{GA}\n{GB}", 8 / 9),
    ],
)
def test_strict_reward_by_hand(one, two, expected):
    assert score("strict", one, two).reward == pytest.approx(expected)


@pytest.mark.parametrize("reward", ["strict", "reference"])
def test_gold_reaches_the_maximum_on_all_four_hundred_rows(reward):
    task = BFCLParallel(reward, level=2)
    items = [item for split in ("train", "eval") for item in task.items(split)]
    assert len(items) == len({item.key for item in items}) == 400
    scores = [task.score(item, (), task.gold(item)) for item in items]
    assert all(one.reward == pytest.approx(task.figures["gold"]) and one.is_success for one in scores)


def test_a_lone_caller_earns_what_was_published_there_and_less_than_a_third_here():
    """Three rows want one call twice, which the published reward holds against nobody."""
    for reward, expected in (("reference", 0.875), ("strict", 0.28)):
        task = BFCLParallel(reward, level=2)
        alone = []
        for item in task.items("train"):
            gold = task.gold(item)
            alone.append(task.score(item, (), {AGENTS[0]: "\n".join(gold.values()), AGENTS[1]: ""}).reward)
        assert np.mean(alone) == pytest.approx(expected, abs=0.01)


def test_rows_levels_and_notice():
    document = json.loads(
        gzip.decompress(resources.files("comlrl_env.tasks.calls").joinpath("bfcl_parallel.json.gz").read_bytes())
    )
    assert "Apache License, Version 2.0" in document["notice"]
    assert "Changed:" in document["notice"]
    assert len(rows("parallel")) == len(rows("parallel_multiple")) == 200
    assert [len(BFCLParallel(level=level).items(split)) for level in (0, 2) for split in ("train", "eval")] == [
        160,
        40,
        320,
        80,
    ]
    assert rows("parallel")[0].data["calls"][0] == ["spotify.play", {"artist": ["Taylor Swift"], "duration": [20]}]
    with pytest.raises(TaskError, match="level"):
        BFCLParallel(level=3)
    with pytest.raises(TaskError, match="reward"):
        BFCLParallel("loose")


def test_functions_are_described():
    function = {
        "name": "f",
        "about": "Does.",
        "parameters": [
            {"name": "x", "type": "integer", "about": "A number."},
            {
                "name": "y",
                "type": "dict",
                "about": "More.",
                "optional": True,
                "fields": [{"name": "z", "type": "string", "about": "Deep.", "enum": ["a", "b"]}],
            },
        ],
    }
    assert described(function) == (
        "f(x, [y]): Does.\n  x (integer): A number.\n  y (dict, optional): More.\n    z (string): Deep. One of a, b."
    )
    assert written("f", {"x": [1, 2], "y": ["", 3], "z": [None]}) == "f(x=1, z=None)"
