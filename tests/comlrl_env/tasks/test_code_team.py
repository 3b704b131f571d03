"""Checks split by the parser, and both rewards of a helper and an author, by hand arithmetic on small problems."""

import random

import pytest

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import Call, Limits, Outcome
from comlrl_env.tasks.code import team
from comlrl_env.tasks.code.checks import read_checks

LIMITS = Limits(cpu_seconds=0.5, wall_seconds=5.0)
CHECK = """
def check(candidate):
    assert candidate(1) == 10
    assert candidate(2) == 20, "a message"
    for i in range(3, 5):
        assert candidate(i) == 10 * i
    x = candidate(5)
    assert abs(x - 50) < 1e-6
"""
PROBLEM = team.Problem("f", "import math\n", read_checks(CHECK), "def aux(", "def f(x):\n")


def answer_by(function):
    return lambda call: Outcome("ok", function(*call.arguments))


def passed(source: str, function, trusted: str = "") -> list[bool]:
    return [test.passed for test in read_checks(source, trusted).run(answer_by(function))]


def strict(helper: str, author: str, problem: team.Problem = PROBLEM):
    return team.score(problem, helper, author, "strict", LIMITS)


def reference(helper: str, author: str, problem: team.Problem = PROBLEM):
    return team.score(problem, helper, author, "reference", LIMITS)


def test_each_assert_is_one_test_and_known_calls_come_first() -> None:
    checks = read_checks(CHECK)
    assert len(checks) == 4
    assert [call.arguments for call in checks.calls] == [(1,), (2,), (3,), (4,), (5,)]
    assert passed(CHECK, lambda x: 10 * x) == [True] * 4
    assert passed(CHECK, lambda x: 10 * x if x != 4 else 0) == [True, True, False, True]
    assert passed(CHECK, lambda x: 10) == [True, False, False, False]


def test_a_statement_that_fails_ends_the_check_as_it_would_by_itself() -> None:
    source = "def check(candidate):\n    x = candidate(1)\n    assert x == 1\n    x = candidate(2)\n    assert x == 1\n"
    checks = read_checks(source)

    def answer(call: Call) -> Outcome:
        return Outcome("ok", 1) if call.arguments == (1,) else Outcome("died", reason="gone")

    assert [test.passed for test in checks.run(answer)] == [True, False]
    assert checks.run(answer)[1].failure == "died: gone"


def test_asserts_that_prove_nothing_are_left_out() -> None:
    source = "def check(candidate):\n    assert True\n    assert 1 + 1 == 2, 'x'\n    assert candidate(1)\n"
    assert len(read_checks(source)) == 1
    with pytest.raises(TaskError, match="depends on the candidate"):
        read_checks("def check(candidate):\n    assert True\n")
    with pytest.raises(TaskError, match="no such function"):
        read_checks("x = 1")
    with pytest.raises(TaskError, match="plain data"):
        read_checks("def check(candidate):\n    assert candidate(lambda: 1)\n")


def test_random_inputs_are_the_same_each_time_and_leave_the_generator_alone() -> None:
    source = """
def check(candidate):
    import random
    from random import randint, choice
    for _ in range(20):
        assert candidate(randint(0, 10**9), random.random(), choice("abc")) == 1
"""
    state = random.getstate()
    first, second = read_checks(source), read_checks(source)
    assert first.calls == second.calls
    assert len(first.calls) == 20
    assert random.getstate() == state


def test_checks_may_use_trusted_names_and_see_no_mutation() -> None:
    source = """
def check(candidate):
    x = [2, 1]
    assert candidate(x) == double(x)
    assert x == [2, 1] and candidate(x)
"""
    assert passed(source, lambda x: [4, 2], "def double(x):\n    return [2 * v for v in x]") == [True, True]
    problem = team.Problem(
        "f", "", read_checks("def check(candidate):\n    x = [1]\n    assert candidate(x) == sorted(x)\n")
    )
    assert strict("", "def f(x):\n    x.clear()\n    return x", problem).parts["pass_rate"] == 0


def test_strict_reward_by_hand() -> None:
    main = "def f(x):\n    return aux(x) + 1"
    aux = "def aux(x):\n    return 10 * x - 1"
    # aux gives 9, 19, 29, 39, 49: None fails, 0 and each of these plus one is right at most once, where it is its own.
    score = strict(aux, main)
    assert score.parts == {"aux_ok": 1, "main_ok": 1, "pass_rate": 1, "cooperation": 1}
    assert score.reward == pytest.approx(0.05 * 2 + 0.5 + 0.4)
    assert score.is_success is True
    # A thin wrapper: p − p_wrap = 0.
    score = strict("def aux(x):\n    return 10 * x", "def f(x):\n    return aux(x)")
    assert score.reward == pytest.approx(0.1 + 0.5)
    assert "adds nothing" in score.reason
    # aux is needed for 1 and 2 only: loop and last assert pass without it, p_noaux = 2/4.
    half = "def f(x):\n    return aux(x) + 1 if x < 3 else 10 * x"
    assert strict(aux, half).reward == pytest.approx(0.1 + 0.5 + 0.4 * (1 - 2 / 4))
    # One of four tests fails: p = 3/4, stubs pass none.
    wrong = "def f(x):\n    return aux(x) + 1 if x != 2 else 0"
    assert strict(aux, wrong).reward == pytest.approx(0.1 + 0.5 * 0.75 + 0.4 * 0.75)
    assert "1 of 4 tests fail" in strict(aux, wrong).reason
    # No return in aux: not ok, and main fails on None.
    assert strict("def aux(x):\n    pass", main).reward == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("aux", "main", "why"),
    [
        ("def aux(x):\n    return 1", "def f(x):\n    z = aux(x)\n    return 10 * x", "always returns None"),
        (
            "def aux(x):\n    return 1",
            "def f(x):\n    if aux(x) is None: return 0\n    return 10 * x",
            "always returns 0",
        ),
        ("def aux(x):\n    return 7", "def f(x):\n    return 10 * x if aux(x) == 7 else 0", "always returns 7"),
        ("def aux(x):\n    return []", "def f(x):\n    return 10 * x + len(aux(x))", "always returns []"),
        (
            "def aux(x):\n    return lambda: 1",
            "def f(x):\n    return 10 * x if callable(aux(x)) else 0",
            "type function",
        ),
        ("def aux(x):\n    return (x for x in [10 * x])", "def f(x):\n    return next(aux(x)) + 0", "generator"),
        ("def aux(x):\n    return 1", "def f(x):\n    return 10 * x", "no test calls aux"),
        ("def aux(x):\n    return 0 * x", "def f(x):\n    return 10 * x + aux(x)", "always returns 0"),
        ("def f(x):\n    return 10 * x\ndef aux(x):\n    return f(x)", "def f(x):\n    return aux(x)", "adds nothing"),
        (
            "def aux(x):\n    return 1",
            "def aux(x):\n    return 10 * x\ndef f(x):\n    return 10 * x",
            "no test calls aux",
        ),
    ],
)
def test_an_aux_that_is_not_needed_earns_no_credit(aux: str, main: str, why: str) -> None:
    score = strict(aux, main)
    assert score.parts["pass_rate"] == 1
    assert score.parts["cooperation"] == 0
    assert score.reward == pytest.approx(0.6)
    assert why in score.reason
    assert score.is_success is False


def test_the_author_cannot_replace_aux_and_the_helper_cannot_replace_main() -> None:
    own = "def aux(x):\n    return 10 * x\ndef f(x):\n    return aux(x) + 0"
    assert strict("def aux(x):\n    return 'no'", own).parts["pass_rate"] == 0
    assert strict("", own).parts["pass_rate"] == 0
    assert strict("def aux(x):\n    return 1\ndef f(x):\n    return 10 * x", "").parts["pass_rate"] == 0


def test_memory_of_one_run_does_not_help_a_stub() -> None:
    """A cache in the author's code is not there when aux is replaced."""
    main = (
        "CACHE = globals().get('CACHE', {})\ndef f(x):\n    CACHE[x] = CACHE.get(x) or aux(x) + 1\n    return CACHE[x]"
    )
    assert strict("def aux(x):\n    return 10 * x - 1", main).reward == pytest.approx(1.0)


def test_hostile_answers_are_scores_with_reasons() -> None:
    cases = {
        "def f(x):\n    while True: pass": "hung",
        "import os\nos._exit(0)\ndef f(x):\n    return 1": "",
        "def f(x):\n    import os\n    os._exit(0)\n    return 1": "died",
        "def f(x):\n    raise SystemExit\n    return 1": "SystemExit",
        "def f(x):\n    return object()": "alien",
        "def f(x):\n    return 10 ** 5000": "got int too long",
        "def f(x):\n    return '\\ud800'": "got",
    }
    for author, reason in cases.items():
        score = strict("def aux(x):\n    return 1", author)
        assert score.status == "ok"
        assert score.parts["pass_rate"] == 0
        assert reason in score.reason
        score.reason.encode()


@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "é\ud800", "```", "(" * 50_000, "x" * 1_000_000, "def aux(x):", "🙂" * 1000]
)
def test_any_text_is_data(text: str) -> None:
    for reward in (strict, reference):
        score = reward(text, text)
        assert score.status == "ok"
        assert 0 <= score.reward <= 0.5
        assert score.reason


def test_reference_reward_by_hand() -> None:
    aux, main = "def aux(x):\n    return 10 * x - 1", "def f(x):\n    return aux(x) + 1"
    assert reference(aux, main).reward == pytest.approx(0.4 + 0.6 + 0.5 + 1 + 0.5 + 1)
    assert reference("def aux(x):\n    return 10 * x", "def f(x):\n    return aux(x)").reward == pytest.approx(3.0)
    ignoring = "def f(x):\n    z = aux(x)\n    return 10 * x"
    assert reference(aux, ignoring).reward == pytest.approx(3.5)
    assert reference("", "def f(x):\n    return 10 * x").reward == pytest.approx(0.6 + 0.5 + 1)
    assert reference(aux, "").reward == pytest.approx(0.4)  # the entry function is missing: stop
    assert reference(aux, "def f(x):\n    return aux(x)").reward == pytest.approx(0.4 + 0.6 + 0.5)  # no test passes
    assert reference(aux, "def f(x):\n    return aux(x) + 1 if x != 2 else 0").reward == pytest.approx(3 + 0.75)
    # Its known hole stays open there and is closed in the strict reward.
    useless = ("def aux(x):\n    return 0", "def f(x):\n    return 10 * x + aux(x)")
    assert reference(*useless).reward == pytest.approx(4.0)
    assert strict(*useless).reward == pytest.approx(0.6)
