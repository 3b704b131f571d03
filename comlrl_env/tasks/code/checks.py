"""Trusted tests of a program, split by the parser: the asserts run here, the calls they make run in a sandbox.

A data set's ``check(candidate)`` function is trusted and its asserts stay in this process. Each ``assert`` statement
is one test; it passes when it was reached and never failed, and no other statement raised before. ``candidate`` is a
proxy: it sends the arguments to the sandbox and hands back a value of exact builtin type, so no answer can bring an
``__eq__`` of its own. Arguments cross as copies: code under test cannot empty the list that the check compares with
afterwards. Tests that a candidate passes without returning anything (``assert True``) prove nothing and are left out.

``random`` inside a check is a private generator with a fixed seed: the same program meets the same inputs every time.
"""

import ast
import builtins
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, SimpleNamespace
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import Call, NotPlainError, Outcome
from comlrl_env.sandbox.values import encode
from comlrl_env.syntax import parse

_SEED = 20_210_707
_MAX_TEXT = 160
CallKey = str
"""Arguments of one call in their form on the wire: equal calls have equal keys."""


class CallFailedError(Exception):
    """The code under test gave no value for a call; raised inside the check by the proxy."""


@dataclass(frozen=True)
class Test:
    """One assert: its source text, and why it failed (empty when it passed)."""

    text: str
    failure: str

    @property
    def passed(self) -> bool:
        """Whether the assert held each time."""
        return not self.failure


@dataclass(frozen=True)
class Checks:
    """The tests of one program.

    ``calls``: the calls that can be known before any answer, in order and without repetition; a check may make more.
    """

    code: CodeType
    texts: tuple[str, ...]
    counted: tuple[int, ...]
    calls: tuple[Call, ...]

    def __len__(self) -> int:
        return len(self.counted)

    def run(self, answer: Callable[[Call], Outcome]) -> list[Test]:
        """The verdict on each counted test, with ``answer`` giving the outcome of each call."""
        failures = _execute(self.code, len(self.texts), answer)
        return [Test(self.texts[index], failures[index]) for index in self.counted]


def read_checks(test: str, trusted: str = "") -> Checks:
    """Split the source text ``test``, which defines ``check(candidate)``.

    ``trusted``: source text that runs before it, for the names that the check uses besides ``candidate``. Raises
    :class:`~comlrl_env.errors.TaskError` for a test without a check, without an assert that calls, or that passes
    arguments which are not plain data.
    """
    tree = parse(test)
    check = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
    if check is None:
        raise TaskError("checks: expected a test that defines check(candidate), actually it defines no such function")
    guard = _Guard()
    check.body = [guard.statement(node) for node in check.body]
    module = ast.Module(body=[*parse(trusted).body, *tree.body], type_ignores=[])
    code = compile(ast.fix_missing_locations(module), "<check>", "exec", dont_inherit=True)

    calls: dict[CallKey, Call] = {}

    refused: list[TaskError] = []

    def remember(call: Call) -> Outcome:
        try:
            calls[call_key(call)] = call
        except TaskError as error:
            refused.append(error)
        return Outcome("raised", reason="no candidate")

    failures = _execute(code, len(guard.texts), remember)
    if refused:
        raise refused[0]
    counted = tuple(index for index, failure in enumerate(failures) if failure)
    if not counted:
        raise TaskError("checks: expected an assert that depends on the candidate, actually none does")
    return Checks(code, tuple(guard.texts), counted, tuple(calls.values()))


def call_key(call: Call) -> CallKey:
    """The key of a call; raises :class:`~comlrl_env.errors.TaskError` for arguments that are not plain data."""
    try:
        return repr([encode(call.arguments), encode(dict(call.keywords))])
    except NotPlainError as error:
        raise TaskError(f"checks: a check can pass plain data only, actually it passes {error}") from error


class _Guard(ast.NodeTransformer):
    """Turns each assert into ``_hold(its number, its condition)``, so that one that fails does not end the check.

    A statement that is no assert and raises does end it: what comes after may need what it should have set.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []

    def statement(self, node: ast.stmt) -> ast.stmt:
        first = len(self.texts)
        guarded: ast.stmt = self.visit(node)
        return guarded if isinstance(node, ast.Assert) else _fenced(guarded, f"_stop({first}, _error)")

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:  # the name that ast.NodeTransformer calls
        number = len(self.texts)
        self.texts.append(ast.unparse(node.test)[:_MAX_TEXT])
        hold = ast.Call(ast.Name("_hold", ast.Load()), [ast.Constant(number), node.test], [])
        return _fenced(ast.Expr(hold), f"_fail({number}, _error)")


def _fenced(statement: ast.stmt, handler: str) -> ast.stmt:
    (fence,) = parse(f"try:\n    pass\nexcept Exception as _error:\n    {handler}").body
    assert isinstance(fence, ast.Try)
    fence.body = [statement]
    return fence


def _execute(code: CodeType, asserts: int, answer: Callable[[Call], Outcome]) -> list[str]:
    """Why each assert failed, empty for those that passed."""
    failures = ["was not reached"] * asserts
    failed: set[int] = set()
    last: list[object] = []

    def candidate(*arguments: object, **keywords: object) -> object:
        outcome = answer(Call(arguments, keywords))
        if not outcome.ok:
            raise CallFailedError(f"{outcome.kind}: {outcome.reason}")
        last[:] = [outcome.value]
        return outcome.value

    def hold(number: int, condition: object) -> None:
        if not condition:
            fail(number, AssertionError(f"got {_shown(last[0])}" if last else "does not hold"))
        elif number not in failed:
            failures[number] = ""

    def fail(number: int, error: Exception) -> None:
        if number not in failed:
            known = isinstance(error, AssertionError | CallFailedError)
            failures[number] = (str(error) if known else f"{type(error).__name__}: {error}")[:_MAX_TEXT]
            failed.add(number)

    def stop(first: int, error: Exception) -> None:
        for number in range(first, asserts):
            fail(number, error)

    namespace: dict[str, Any] = {
        "__builtins__": vars(builtins) | {"__import__": _seeded_import()},
        "__name__": "check",
        "_hold": hold,
        "_fail": fail,
        "_stop": stop,
    }
    exec(code, namespace)
    namespace["check"](candidate)
    return failures


def _shown(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits, too many brackets
        return f"{type(value).__name__} too long to show"


def _seeded_import() -> Callable[..., object]:
    generator = random.Random(_SEED)
    names = [name for name in random.__all__ if hasattr(generator, name)]
    private = SimpleNamespace(Random=random.Random, **{name: getattr(generator, name) for name in names})

    def seeded_import(
        name: str,
        variables: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        return private if name == "random" else __import__(name, variables, local, wanted, level)

    return seeded_import
