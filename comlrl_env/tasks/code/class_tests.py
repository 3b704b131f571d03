"""Trusted ``unittest`` cases against a class that lives in a sandbox.

The test code runs in this process, on a stand-in for the class: every construction, call, attribute read or write is
sent to the sandbox and comes back as a value of exact builtin type, or as an exception of the builtin class that the
code under test raised. Verdicts are made here, so that no answer can write a test's result, patch an assertion, or
return an object that equals everything. Objects of the class stay there; here they have an identity and nothing else:
no ``len``, ``==`` or ``in`` asks the code under test. What a test does to a list that it read from an attribute stays
with the test.
"""

import builtins
import unittest
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import Box, Call, Link, Module, NotPlainError, Outcome, Program
from comlrl_env.syntax import parse
from comlrl_env.tasks.code.checks import Test

_OBJECT, _METHOD = "\0object", "\0method"
_DRIVER = f"""
_objects = []

def _in(value):
    return _objects[value[1]] if isinstance(value, tuple) and value[:1] == ({_OBJECT!r},) else value

def _out(value):
    if not isinstance(value, Subject):
        return value
    _objects.append(value)
    return ({_OBJECT!r}, len(_objects) - 1)

def drive(action, number, name, arguments, keywords):
    owner = Subject if number < 0 else _objects[number]
    arguments, keywords = [_in(a) for a in arguments], {{k: _in(v) for k, v in keywords.items()}}
    if action == "new":
        return _out(Subject(*arguments, **keywords))
    if action == "set":
        return setattr(owner, name, arguments[0])
    value = getattr(owner, name)
    if action == "get":
        return ({_METHOD!r},) if callable(value) else _out(value)
    return _out(value(*arguments, **keywords))
"""

Ask = Callable[[str, int, str, tuple[Any, ...], Mapping[str, Any]], Any]


class CallFailedError(BaseException):
    """The sandbox gave no answer. No ``Exception``, so that ``assertRaises(Exception)`` does not count it as raised."""


@dataclass(frozen=True)
class ClassTests:
    """The cases of one class: ``names`` of those that depend on it, as (case class, method).

    ``methods``: what the class is known to offer, which is called without being read first.
    """

    code: CodeType
    subject: str
    methods: frozenset[str]
    names: tuple[tuple[str, str], ...]

    def run(self, source: str, box: Box) -> dict[tuple[str, str], Test]:
        """The verdict on each case for the module text ``source``, which defines the class."""
        program = (Module("program", source), Module("driver", _DRIVER, {"Subject": Link("program", self.subject)}))
        loaded = box.load(Program(program, ("driver", "drive")))
        if not loaded.ok:
            return {name: Test(".".join(name), f"{loaded.kind}: {loaded.reason}") for name in self.names}

        def ask(action: str, number: int, name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
            try:
                call = Call(
                    (action, number, name, tuple(map(_sent, arguments)), {k: _sent(v) for k, v in keywords.items()})
                )
                (outcome,) = box.run([call])
            except NotPlainError as error:
                raise CallFailedError(f"the test passes {error}") from None
            if outcome.ok:
                return _received(outcome.value, ask, self.methods)
            raise _raised(outcome)

        return _run(self.code, self.subject, self.methods, self.names, ask)


def read_tests(test: str, subject: str, methods: Iterable[str] = ()) -> ClassTests:
    """The ``unittest`` cases in the source text ``test``, without those that pass without any class ``subject``.

    Raises :class:`~comlrl_env.errors.TaskError` when none is left, and ``SyntaxError`` for text that is not Python.
    """
    code = compile(parse(test), "<tests>", "exec", dont_inherit=True)

    def nothing(*_ignored: object) -> Any:
        raise CallFailedError("no class")

    known = frozenset(methods)
    verdicts = _run(code, subject, known, None, nothing)
    names = tuple(name for name, verdict in verdicts.items() if not verdict.passed)
    if not names:
        raise TaskError(f"class task: expected unittest cases that use {subject}, actually there are none")
    return ClassTests(code, subject, known, names)


class _Remote:
    """An object of the class under test, or the class itself, seen from here."""

    __slots__ = ("_ask", "_methods", "_number")

    def __init__(self, ask: Ask, methods: frozenset[str], number: int) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_methods", methods)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        value = (_METHOD,) if name in self._methods else self._ask("get", self._number, name, (), {})
        if value == (_METHOD,):
            return lambda *arguments, **keywords: self._ask("call", self._number, name, arguments, keywords)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", self._number, name, (value,), {})


class _RemoteClass(_Remote):
    __slots__ = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._ask("new", -1, "", arguments, keywords)


def _sent(value: Any) -> Any:
    return (_OBJECT, value._number) if isinstance(value, _Remote) else value


def _received(value: Any, ask: Ask, methods: frozenset[str]) -> Any:
    if isinstance(value, tuple) and len(value) == 2 and value[0] == _OBJECT and type(value[1]) is int:
        return _Remote(ask, methods, max(0, value[1]))
    return value


def _raised(outcome: Outcome) -> BaseException:
    if outcome.kind != "raised":
        return CallFailedError(f"{outcome.kind}: {outcome.reason}")
    name, _, message = outcome.reason.partition(": ")
    kind = getattr(builtins, name, None)
    known = (
        isinstance(kind, type) and issubclass(kind, Exception) and kind not in (UnicodeDecodeError, UnicodeEncodeError)
    )
    return kind(message) if known and kind is not None else RuntimeError(outcome.reason)


def _run(
    code: CodeType, subject: str, methods: frozenset[str], wanted: tuple[tuple[str, str], ...] | None, ask: Ask
) -> dict[tuple[str, str], Test]:
    namespace: dict[str, Any] = {"__name__": "tests", "unittest": unittest, subject: _RemoteClass(ask, methods, -1)}
    exec(code, namespace)
    verdicts = {}
    for case in list(namespace.values()):
        if not (isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == "tests"):
            continue
        for method in unittest.defaultTestLoader.getTestCaseNames(case):
            name = (case.__name__, method)
            if wanted is None or name in wanted:
                result = unittest.TestResult()
                case(method).run(result)
                bad = [text for _, text in [*result.failures, *result.errors]] + [why for _, why in result.skipped]
                failure = bad[0].strip().splitlines()[-1][:160] if bad else ""
                verdicts[name] = Test(".".join(name), failure or ("no result" if bad or result.testsRun != 1 else ""))
    return verdicts
