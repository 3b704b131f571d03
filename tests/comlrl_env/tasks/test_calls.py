import itertools

import pytest

from comlrl_env.tasks.calls.joint_calls import BY_NAME, TOOLS, JointCalls
from comlrl_env.tasks.calls.matching import MAX_CALLS, Call, Wanted, read_calls, same_value, score_calls

AGENTS = ("a", "b")
A, B, BOTH = frozenset("a"), frozenset("b"), frozenset("ab")


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('buy(product="pears", amount=4)', [Call("buy", (), {"product": "pears", "amount": 4})]),
        ("buy('pears', 4)", [Call("buy", ("pears", 4), {})]),
        ("1. buy('pears', -4);\n- `eat()`", [Call("buy", ("pears", -4), {}), Call("eat", (), {})]),
        (
            "[f(x=[1, 2]), math.sin(x={'a': None})]",
            [Call("f", (), {"x": [1, 2]}), Call("math.sin", (), {"x": {"a": None}})],
        ),
        ("Sure! Here are the calls:\n```python\nf(1)\n```", [Call("f", (1,), {})]),
        ("f(x=g(1))", []),
        ("f(x=__import__('os'))", []),
        ("f(**{'x': 1})", []),
        ("f(1", []),
        ("f(x=1)\x00", []),
        ("f(x='\\d')", [Call("f", (), {"x": "\\d"})]),
        ("f(" * 3000, []),
        ("f(" + "9" * 10_000 + ")", []),
        ("", []),
    ],
)
def test_reading_calls(text, calls):
    assert read_calls(text) == calls


def test_at_most_so_many_calls():
    assert len(read_calls("f(1)\n" * 1000)) == MAX_CALLS
    assert len(read_calls("[" + "f(1), " * 1000 + "]")) == MAX_CALLS


@pytest.mark.parametrize(
    ("given", "accepted", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        ("New York", "new-york", True),
        ("it's", 'it"s', True),
        ("1", 1, False),
        ([1, "A"], (1.0, "a"), True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1}, True),
        (None, None, True),
    ],
)
def test_values(given, accepted, same):
    assert same_value(given, accepted) is same


def test_optional_and_positional_arguments():
    wanted = Wanted("f", {"x": [1, 2], "unit": ["km", ""]}, BOTH)
    accepted = ["f(1)", "f(x=2)", "f(2, 'km')", "f(1, unit='KM')", "f(unit='km', x=1)"]
    refused = ["f()", "f(3)", "f(1, 'mi')", "f(1, 'km', 0)", "f(1, x=1)", "f(1, z=1)", "g(1)"]
    for text, right in [*((t, True) for t in accepted), *((t, False) for t in refused)]:
        assert wanted.accepts("a", read_calls(text)[0]) is right, text
    assert not Wanted("f", {"x": [1]}, A).accepts("b", read_calls("f(1)")[0])


def wanted(*calls):
    return [Wanted(name, {"x": [value]}, owners) for name, value, owners in calls]


EVEN = wanted(("f", 1, A), ("f", 2, A), ("g", 1, B), ("g", 2, B))
MIXED = wanted(("f", 1, A), ("g", 1, B), ("h", 1, BOTH))


@pytest.mark.parametrize(
    ("requests", "one", "two", "reward"),
    [
        (EVEN, "f(1)\nf(2)", "g(1)\ng(2)", 1),
        (EVEN, "f(1)\nf(2)", "", (2 * 2 / 6) * 0.5),
        (EVEN, "", "", 0),
        # recalls 1 and 1/2; F1 = 6/7
        (EVEN, "f(1)\nf(2)", "g(1)", (6 / 7) * 0.75),
        # a duplicate by the same agent: F1 = 8/9
        (EVEN, "f(1)\nf(1)\nf(2)", "g(1)\ng(2)", 8 / 9),
        # each makes the other's calls: nothing counts
        (EVEN, "g(1)\ng(2)", "f(1)\nf(2)", 0),
        # everyone makes everything: F1 = 8/12
        (EVEN, "f(1)\nf(2)\ng(1)\ng(2)", "f(1)\nf(2)\ng(1)\ng(2)", 8 / 12),
        (MIXED, "f(1)\nh(1)", "g(1)", 1),
        (MIXED, "f(1)", "g(1)\nh(1)", 1),
        # the shared call twice: F1 = 6/7
        (MIXED, "f(1)\nh(1)", "g(1)\nh(1)", 6 / 7),
        # nobody: F1 = 4/5, recalls 1
        (MIXED, "f(1)", "g(1)", 4 / 5),
        (MIXED, "h(1)", "h(1)", (2 / 5) * 0.5),
        # a has no call of its own: only b's recall counts
        (wanted(("g", 1, B), ("h", 1, BOTH)), "", "g(1)\nh(1)", 1),
        (wanted(("h", 1, BOTH)), "h(1)", "", 1),
    ],
)
def test_scores_by_hand(requests, one, two, reward):
    score = score_calls(requests, AGENTS, {"a": one, "b": two})
    assert score.reward == pytest.approx(reward)
    assert score.is_success == (reward == 1)


def test_matching_against_brute_force():
    requests = [
        Wanted("f", {"x": [1, 2]}, A),
        Wanted("f", {"x": [2, 3]}, BOTH),
        Wanted("f", {"x": [3]}, BOTH),
        Wanted("f", {"x": [1]}, B),
    ]
    for values in itertools.product((1, 2, 3), repeat=4):
        made = [("a", values[0]), ("a", values[1]), ("b", values[2]), ("b", values[3])]
        best, alone = 0, 0
        for order in itertools.permutations(range(4)):
            served = [requests[i].accepts(a, Call("f", (v,), {})) for i, (a, v) in zip(order, made, strict=True)]
            hits = {i for i, ok in zip(order, served, strict=True) if ok}
            if len(hits) > best:
                best, alone = len(hits), 0
            if len(hits) == best:
                alone = max(alone, len(hits & {0, 3}))
        answers = {who: "\n".join(f"f({v})" for w, v in made if w == who) for who in AGENTS}
        score = score_calls(requests, AGENTS, answers)
        assert score.parts["matched"] == best
        assert score.parts["min_recall"] == (1 if alone == 2 else 0)


def test_more_intents_than_tools_never_want_a_call_twice():
    for level in (0, 1, 2):
        task = JointCalls(level=level, num_agents=4, num_items=50)
        for split, residue in (("train", 0), ("eval", 2)):
            for item in task.items(split):
                intents = item.data["intents"]
                assert len({(name, word) for name, word, _, _ in intents}) == len(intents)
                assert all(word in BY_NAME[name].words and 4 <= n <= 60 for name, word, n, _ in intents)
                assert intents[0][2] % 4 == residue
                own = [name for names in item.data["tools"].values() for name in names]
                assert len(set(own) | set(item.data["shared"])) == len(own) + len(item.data["shared"])


def test_tools_are_different():
    assert len(BY_NAME) == len(TOOLS) == 12
    assert all(len(set(tool.words)) == 8 for tool in TOOLS)
