"""The program of one sample: answers requests over its private socket until the socket closes.

Model-written code runs inside this process and may do anything to it. Nothing here is trusted by the other side
except that it sends bytes; standard library only.
"""

import random
import socket
import types
from collections.abc import Callable
from typing import Any

from comlrl_env.sandbox import answers, values

_MAX_REASON = 300
_MAX_WATCHED = 64


def serve(channel: socket.socket, limit: int) -> None:
    """Say that the process is ready, then answer requests (``read``, ``load``, ``call``) in order.

    ``limit``: the most bytes of one request or reply.
    """
    channel.sendall(values.pack({"ready": True}))
    frames = values.Frames(limit)
    program = _Program()
    random.seed(0)  # the same answer for the same code, as far as the code lets us
    while data := channel.recv(1 << 16):
        for request in frames.feed(data):
            reply = _answer(program, request)
            reply["nonce"] = request["nonce"]
            frame = values.pack(reply)
            if len(frame) > limit:
                frame = values.pack(
                    {"nonce": request["nonce"], "alien": f"a value of {len(frame)} bytes, more than {limit}"}
                )
            channel.sendall(frame)


def rehearse() -> None:
    """Run a harmless sample in this process, before any fork: what it warms up is not paid for in each sample."""
    given = {"aux": {"module": "helper", "name": "aux", "watch": True}}
    helper = {"name": "helper", "source": "def aux(x):\n    return x\n", "given": {}}
    author = {"name": "author", "source": "def f(x):\n    return aux(x)\n", "given": given}
    requests = [
        {"do": "read", "text": helper["source"], "name": "aux", "opening": "def aux("},
        {"do": "load", "modules": [helper, author], "entry": ["author", "f"]},
        {"do": "call", "call": values.encode((([1, 2.5, "x"],), {}))},
    ]
    frames, program = values.Frames(1 << 20), _Program()
    for request in requests * 20:  # as often as the interpreter wants before it specialises the code
        for message in frames.feed(values.pack(request)):
            values.pack(_answer(program, message))


def _answer(program: "_Program", request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["do"] == "read":
            return {"value": values.encode(answers.read(request["text"], request["name"], request["opening"]))}
        if request["do"] == "load":
            program.load(request["modules"], request["entry"])
            return {"value": None}
        program.watched = []
        arguments, keywords = values.decode(request["call"])
        result = program.entry(*arguments, **keywords)
    except BaseException as error:  # noqa: BLE001  # SystemExit too is just what the code did
        return {"raised": _reason(error)}
    try:
        return {"value": values.encode(result), "watched": program.watched}
    except values.NotPlainError as error:
        return {"alien": str(error)[:_MAX_REASON]}
    except BaseException as error:  # noqa: BLE001  # a method of a hostile value can raise anything
        return {"alien": _reason(error)}


class _Program:
    """The modules of one sample, executed in order, each in a namespace of its own."""

    def __init__(self) -> None:
        self.entry: Callable[..., object] = _no_program
        self.watched: list[Any] = []

    def load(self, modules: list[dict[str, Any]], entry: list[str]) -> None:
        self.entry = _no_program
        self.watched = []
        loaded: dict[str, types.ModuleType] = {}
        for description in modules:
            module = types.ModuleType(description["name"])
            loaded[description["name"]] = module
            given = {name: self._give(link, loaded) for name, link in description["given"].items()}
            missing = [name for name, value in given.items() if value is _MISSING]
            available = {name: value for name, value in given.items() if value is not _MISSING}
            module.__dict__.update(available)
            exec(compile(description["source"], f"<{description['name']}>", "exec", dont_inherit=True), module.__dict__)
            # A name that was given belongs to its giver: a definition of one's own does not replace it.
            module.__dict__.update(available)
            for name in missing:
                module.__dict__.pop(name, None)
        module_name, function_name = entry
        function = loaded[module_name].__dict__.get(function_name)
        if not callable(function):
            raise NameError(f"{module_name} defines no function {function_name!r}")  # noqa: TRY004  # as Python says it
        self.entry = function

    def _give(self, link: dict[str, Any], loaded: dict[str, types.ModuleType]) -> object:
        if "constant" in link:
            return _constant(link["constant"])
        value = loaded[link["module"]].__dict__.get(link["name"], _MISSING)
        if link["watch"] and callable(value):
            return self._watch(value)
        return value

    def _watch(self, function: Callable[..., object]) -> Callable[..., object]:
        def watched(*arguments: object, **keywords: object) -> object:
            result = function(*arguments, **keywords)
            if len(self.watched) < _MAX_WATCHED:
                try:
                    self.watched.append({"value": values.encode(result)})
                except values.NotPlainError as error:
                    self.watched.append({"alien": str(error)[:_MAX_REASON]})
            return result

        return watched


_MISSING = object()


def _constant(encoded: Any) -> Callable[..., object]:
    def constant(*_arguments: object, **_keywords: object) -> object:
        return values.decode(encoded)

    return constant


def _no_program(*_arguments: object, **_keywords: object) -> object:
    raise RuntimeError("no program is loaded")


def _reason(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"[:_MAX_REASON]
        return text.encode("utf-8", "replace").decode("utf-8")
    except BaseException:  # noqa: BLE001  # its __str__ is model-written too
        return "an exception that does not describe itself"
