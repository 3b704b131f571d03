"""How programs, calls and limits work in the sandbox, under every isolation that this machine offers."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from comlrl_env.sandbox import (
    Box,
    Call,
    Limits,
    Link,
    Module,
    Outcome,
    Pool,
    Program,
)
from tests.comlrl_env.sandboxes import QUICK, open_descriptors, run


def test_later_calls_go_on_after_one_that_hangs_or_dies(pool: Pool) -> None:
    source = """
        import os
        def f(x):
            if x == "hang":
                while True: pass
            if x == "die": os._exit(3)
            if x == "raise": raise ValueError("no")
            return x
        """
    wanted = ["a", "hang", "b", "die", "raise", "c"]
    outcomes = run(pool, source, *[Call((x,)) for x in wanted])
    assert [outcome.kind for outcome in outcomes] == ["ok", "hung", "ok", "died", "raised", "ok"]
    assert [outcome.value for outcome in outcomes if outcome.ok] == ["a", "b", "c"]
    assert "exit status 3" in outcomes[3].reason
    assert outcomes[4].reason == "ValueError: no"
    limited = run(pool, source, *[Call(("hang",))] * 9, limits=Limits(cpu_seconds=0.1, max_hangs=2))
    assert [outcome.reason for outcome in limited].count("not tried after 2 calls that ran out of time") == 7


def test_the_time_limit_counts_processor_time(pool: Pool) -> None:
    """A program that waits longer than its processor time allows is fine; one that computes is not."""
    source = "import time\ndef f(x):\n    time.sleep(x)\n    return 1"
    assert run(pool, source, Call((0.8,)))[0].ok
    busy = "def f():\n    while True: pass"
    (outcome,) = run(pool, busy, limits=Limits(cpu_seconds=0.2, wall_seconds=30.0))
    assert outcome.reason == "no answer within 0.2 s of processor time"


def test_modules_are_given_functions_and_cannot_keep_their_own(pool: Pool) -> None:
    helper = Module("helper", "def aux(x):\n    return x * 2\ndef f(x):\n    return 'helper'")
    author = "def aux(x):\n    return 'mine'\ndef f(x):\n    return aux(x), aux(x + 1)"
    with Box(QUICK, pool) as box:
        program = Program(
            (helper, Module("author", author, {"aux": Link("helper", "aux", watch=True)})), ("author", "f")
        )
        assert box.load(program).ok
        (outcome,) = box.run([Call((3,))])
        assert outcome.value == (6, 8)
        assert [one.value for one in outcome.watched] == [6, 8]
        box.load(Program((Module("author", author, {"aux": Link(constant=[1])}),), ("author", "f")))
        assert box.run([Call((3,))])[0].value == ([1], [1])
        box.load(
            Program((Module("helper", ""), Module("author", author, {"aux": Link("helper", "aux")})), ("author", "f"))
        )
        assert "NameError" in box.run([Call((3,))])[0].reason


def test_a_program_that_does_not_load_says_why_for_each_call(pool: Pool) -> None:
    for source, reason in (("def f(:", "SyntaxError"), ("import numpy", "ModuleNotFoundError"), ("x = 1", "NameError")):
        outcomes = run(pool, source, Call(), Call())
        assert [outcome.kind for outcome in outcomes] == ["raised", "raised"]
        assert reason in outcomes[0].reason


def test_the_same_code_gives_the_same_answer(pool: Pool) -> None:
    """Hash order and the random module are fixed, in every process."""
    source = "import random\ndef f():\n    return list({'a', 'b', 'c', 'd', 'e'}), random.random()"
    fresh = Pool(pool.isolation)
    assert run(pool, source)[0].value == run(pool, source)[0].value == run(fresh, source)[0].value
    fresh.close()


@pytest.mark.slow
def test_many_samples_at_once_from_threads(pool: Pool) -> None:
    """Hundreds of samples, hostile ones among them, on all processors: each gets its own answer."""
    source = """
        import os
        def f(x):
            if x % 50 == 1: os._exit(1)
            if x % 50 == 2: raise SystemExit
            if x % 100 == 3:
                while True: pass
            return x * x
        """
    before = threading.active_count()

    def one(x: int) -> Outcome:
        return run(pool, source, Call((x,)))[0]

    count = 250 if pool.isolation == "namespaces" else 60
    with ThreadPoolExecutor(2 * len(os.sched_getaffinity(0))) as threads:
        outcomes = list(threads.map(one, range(count)))
    for x, outcome in enumerate(outcomes):
        if x % 100 == 3:
            assert outcome.kind == "hung"
        elif x % 50 == 1:
            assert outcome.kind == "died"
        elif x % 50 == 2:
            assert outcome.kind == "raised"
        else:
            assert outcome.value == x * x
    assert threading.active_count() == before
    pool.close()
    assert not [line for line in open_descriptors() if "comlrl-sandbox" in line]
