"""Scoring a program written by two: ``aux`` by the helper, the entry function, which may call ``aux``, by the author.

Each answer runs in a namespace of its own, after the problem's own imports and helper functions; the author's
namespace is given ``aux``. So ``aux`` is always the helper's, the entry function always the author's, and neither can
replace the other's.

**strict**, in [0, 1]: ``.05 (aux ok + main ok) + .5 p + .4 max(0, min(p − p_noaux, p − p_wrap))``. An answer is ok
when it parses and defines its function with a ``return`` of a value. p is the share of tests passed. p_wrap is that
share when the entry function is replaced by ``return aux(*args)``. p_noaux is the best share when ``aux`` is replaced
by a stub that always returns one value: None, the zero of a type that ``aux`` returned, or one of the three values
that it returned most often; where only one call saw such a value, that call counts as failed, since it would get its
own output. Values that are not plain data (a generator, a function) cannot be put in a stub, and earn no credit for
cooperation.

**reference**, in [0, 4], as published: .4 ``aux`` defined with a return + .6 entry function defined with a return
(missing: stop) + .5 joined text parses (else stop) + share of tests passed; when any test passes and the entry
function calls ``aux``: +.5, +1 if it is no thin wrapper, −.5 if the value of ``aux`` is ignored. Its known holes: an
unused ``z = aux()`` or a useless ``aux`` earns almost all; they stay open, because that is the published reward. The
rest of its weaknesses (execution in the trainer's process, objects that equal everything, tests lost to text
matching) is gone: both run here the same way.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from comlrl_env.sandbox import Box, Call, Limits, Link, Module, Outcome, Program
from comlrl_env.sandbox.values import encode
from comlrl_env.tasks.code.checks import CallKey, Checks, Test, call_key
from comlrl_env.types import Score

RewardName = Literal["strict", "reference"]
STRICT_LIMITS = Limits()
REFERENCE_LIMITS = Limits(cpu_seconds=10.0, wall_seconds=30.0, total_cpu_seconds=300.0, max_hangs=3)
_STUB_VALUES = 3


@dataclass(frozen=True)
class Problem:
    """What a pair of answers is judged against.

    ``prelude``: the problem's own code before the entry function, run before each answer; ``opening_helper`` and
    ``opening_author``: what the prompts end with, for answers that go on from there.
    """

    entry: str
    prelude: str
    checks: Checks
    opening_helper: str = ""
    opening_author: str = ""


def score(problem: Problem, helper: str, author: str, reward: RewardName, limits: Limits) -> Score:
    """The score of one joint response.

    Raises :class:`~comlrl_env.sandbox.SandboxError` when the sandbox is broken.
    """
    with Box(limits) as box:
        aux = box.read(helper, "aux", problem.opening_helper) or _UNREADABLE
        main = box.read(author, problem.entry, problem.opening_author) or _UNREADABLE
        judge = _strict if reward == "strict" else _reference
        return judge(box, problem, aux, main)


_UNREADABLE: Mapping[str, Any] = {
    "source": "",
    "defines": False,
    "returns": False,
    "calls": [],
    "wraps": None,
    "ignored": [],
}


def _strict(box: Box, problem: Problem, aux: Mapping[str, Any], main: Mapping[str, Any]) -> Score:
    helper = Module("helper", problem.prelude + aux["source"])
    watched = Link("helper", "aux", watch=True)
    author = Module("author", problem.prelude + main["source"], {"aux": watched})
    trial = _Trial(box, problem.checks)
    box.load(Program((helper, author), ("author", problem.entry)))
    passed = trial.run()
    share = _share(passed)

    cooperation, why_not = 0.0, "no test passes"
    if share > 0:
        wrapper = Module(
            "author", f"def {problem.entry}(*args, **kwargs):\n    return aux(*args, **kwargs)\n", {"aux": watched}
        )
        cooperation, why_not = _cooperation(box, problem, share, trial.outcomes, (helper, author, wrapper))
    parts = {
        "aux_ok": float(aux["returns"]),
        "main_ok": float(main["returns"]),
        "pass_rate": share,
        "cooperation": cooperation,
    }
    reward = 0.05 * (parts["aux_ok"] + parts["main_ok"]) + 0.5 * share + 0.4 * cooperation
    success = share == 1.0 and cooperation > 0
    return Score(reward=reward, parts=parts, reason=_reason(aux, main, problem, passed, why_not), is_success=success)


def _cooperation(
    box: Box,
    problem: Problem,
    share: float,
    outcomes: Mapping[CallKey, Outcome],
    modules: tuple[Module, Module, Module],
) -> tuple[float, str]:
    """``max(0, min(p − p_noaux, p − p_wrap))`` and, if that is zero, why; stops as soon as it is zero."""
    helper, author, wrapper = modules
    seen = {key: outcome.watched for key, outcome in outcomes.items()}
    if not any(seen.values()):
        return 0.0, "no test calls aux"
    alien = next((one for watched in seen.values() for one in watched if not one.ok), None)
    if alien is not None:
        return 0.0, f"aux returned {alien.reason}"
    box.load(Program((helper, wrapper), ("author", problem.entry)))
    best, culprit = _share(_Trial(box, problem.checks).run()), "the entry function adds nothing to aux"
    if best < share:
        box.close()  # the stubs run where the helper's code never did
        for value, own_call in _stubs(seen):
            stubbed = Module(author.name, author.source, {"aux": Link(constant=value)})
            box.load(Program((stubbed,), ("author", problem.entry)))
            rate = _share(_Trial(box, problem.checks, own_call).run())
            if rate > best:
                best, culprit = rate, f"an aux that always returns {value!r:.60} does as well"
            if best >= share:
                break
    return max(0.0, share - best), "" if best < share else culprit


def _stubs(seen: Mapping[CallKey, tuple[Outcome, ...]]) -> list[tuple[object, CallKey | None]]:
    """Values for ``aux`` to return, each with the only call that saw it, if it was only one."""
    values: dict[str, object] = {}
    callers: dict[str, set[CallKey]] = {}
    counts: Counter[str] = Counter()
    for key, watched in seen.items():
        for one in watched:
            name = repr(encode(one.value))
            values[name] = one.value
            callers.setdefault(name, set()).add(key)
            counts[name] += 1
    stubs: dict[str, tuple[object, CallKey | None]] = {repr(None): (None, None)}
    for value in values.values():
        if value is not None:
            zero = type(value)()
            stubs[repr(encode(zero))] = (zero, None)
    frequent = sorted(counts, key=lambda name: (-len(callers[name]), -counts[name]))[:_STUB_VALUES]
    for name in frequent:
        only = next(iter(callers[name])) if len(callers[name]) == 1 else None
        stubs.setdefault(name, (values[name], only))
    return list(stubs.values())


class _Trial:
    """One run of all tests with the program that is loaded in ``box``."""

    def __init__(self, box: Box, checks: Checks, fails: CallKey | None = None) -> None:
        self.outcomes: dict[CallKey, Outcome] = {}
        self._box = box
        self._checks = checks
        self._fails = fails

    def run(self) -> list[Test]:
        known = self._checks.calls
        for call, outcome in zip(known, self._box.run(known), strict=True):
            self.outcomes[call_key(call)] = outcome
        return self._checks.run(self._answer)

    def _answer(self, call: Call) -> Outcome:
        key = call_key(call)
        if key == self._fails:
            return Outcome("raised", reason="the stub would return this call's own value")
        if key not in self.outcomes:
            (self.outcomes[key],) = self._box.run([call])
        return self.outcomes[key]


def _reference(box: Box, problem: Problem, aux: Mapping[str, Any], main: Mapping[str, Any]) -> Score:
    parts = {"aux_defined": 0.4 * aux["returns"], "main_defined": 0.6 * main["returns"]}
    passed: list[Test] = []
    if main["returns"]:
        parts["parses"] = 0.5  # both parts were parsed one by one, so the text of both does too
        joined = Module("program", problem.prelude + aux["source"] + "\n" + main["source"])
        box.load(Program((joined,), ("program", problem.entry)))
        passed = _Trial(box, problem.checks).run()
        parts["tests"] = _share(passed)
        if parts["tests"] > 0 and "aux" in main["calls"]:
            parts["calls_aux"] = 0.5
            parts["no_wrapper"] = float(main["wraps"] != "aux")
            parts["ignores_aux"] = -0.5 * ("aux" in main["ignored"])
    success = bool(passed) and _share(passed) == 1.0
    reason = _reason(aux, main, problem, passed, "")
    return Score(reward=sum(parts.values()), parts=parts, reason=reason, is_success=success)


def _share(tests: list[Test]) -> float:
    return sum(test.passed for test in tests) / len(tests)


def _reason(aux: Mapping[str, Any], main: Mapping[str, Any], problem: Problem, tests: list[Test], why_not: str) -> str:
    """What keeps the score from the maximum, in words."""
    said = [
        f"{who} gives no function {name} that returns a value"
        for who, name, answer in (("the helper", "aux", aux), ("the author", problem.entry, main))
        if not answer["returns"]
    ]
    failed = [test for test in tests if not test.passed]
    if failed:
        said.append(f"{len(failed)} of {len(tests)} tests fail, first: {failed[0].text}: {failed[0].failure}")
    if why_not:
        said.append(f"no credit for cooperation: {why_not}")
    return "; ".join(said)
