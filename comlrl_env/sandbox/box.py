"""One sample in its sandbox, seen from the trusted side: read answers, load a program, call it, survive it."""

import os
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from comlrl_env.sandbox.pool import POOL, Pool, SandboxError, Server
from comlrl_env.sandbox.values import Frames, NotPlainError, decode, encode, pack

_CREDENTIALS = struct.Struct("iII")
_FAREWELL_SECONDS = 30.0
Kind = Literal["ok", "raised", "hung", "died", "alien"]


@dataclass(frozen=True)
class Limits:
    """What one sample may use.

    ``cpu_seconds``: processor time of one request (loading, or one call), the limit that decides for code that
    computes; ``wall_seconds``: real time of one request, far larger, for code that sleeps, so that a busy machine does not
    change scores; ``total_cpu_seconds``: processor time of all requests of one process. ``max_hangs``, ``max_deaths``: after so
    many calls that hung or ended the process, the rest is not tried.
    """

    cpu_seconds: float = 2.0
    wall_seconds: float = 20.0
    total_cpu_seconds: float = 60.0
    memory_bytes: int = 512 << 20
    file_bytes: int = 1 << 20
    scratch_bytes: int = 16 << 20
    open_files: int = 32
    processes: int = 16
    frame_bytes: int = 1 << 20
    max_hangs: int = 3
    max_deaths: int = 10

    def resources(self) -> dict[str, int]:
        """The resource limits of the process by their names in :mod:`resource`."""
        return {
            "RLIMIT_CPU": ceil(self.total_cpu_seconds),
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True)
class Link:
    """A function that a module is given: ``name`` of an earlier ``module``, or one that always returns ``constant``.

    ``watch``: report what it returns to the module that it is given to.
    """

    module: str = ""
    name: str = ""
    watch: bool = False
    constant: object = None

    def request(self) -> dict[str, Any]:
        """The form on the wire."""
        if self.module:
            return {"module": self.module, "name": self.name, "watch": self.watch}
        return {"constant": encode(self.constant)}


@dataclass(frozen=True)
class Module:
    """Source text run in a namespace of its own, with the names that it is ``given`` before and after it runs."""

    name: str
    source: str
    given: Mapping[str, Link] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """Modules in the order in which they run, and the ``entry``, module and function, that calls go to."""

    modules: tuple[Module, ...]
    entry: tuple[str, str]

    def request(self) -> dict[str, Any]:
        """The form on the wire."""
        modules = [
            {"name": m.name, "source": m.source, "given": {name: link.request() for name, link in m.given.items()}}
            for m in self.modules
        ]
        return {"do": "load", "modules": modules, "entry": list(self.entry)}


@dataclass(frozen=True)
class Call:
    """Arguments of one call; they cross as a copy, so what the code does to them stays with it."""

    arguments: tuple[object, ...] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of one request.

    ``kind``: ``"ok"``; ``"raised"`` (an exception, ``SystemExit`` included); ``"hung"`` (out of time); ``"died"`` (the process
    ended or broke the protocol); ``"alien"`` (the value is not plain data, or too large). ``reason`` says more in words.
    ``watched``: what watched functions returned, as outcomes of kind ``"ok"`` or ``"alien"``.
    """

    kind: Kind
    value: Any = None
    reason: str = ""
    watched: tuple["Outcome", ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.kind == "ok"


class Box:
    """A sandbox for one sample: a fresh process, replaced when it hangs or dies. Use it as a context manager.

    Not for several threads at once; any number of boxes may be open in any threads. Every method raises
    :class:`SandboxError` when the sandbox itself is broken.
    """

    def __init__(self, limits: Limits | None = None, pool: Pool | None = None) -> None:
        self.limits = limits or Limits()
        self._pool = pool or POOL
        self._server: Server | None = None
        self._channel: socket.socket | None = None
        self._frames = Frames(self.limits.frame_bytes)
        self._run_id = ""
        self._process = 0
        self._program: Program | None = None
        self._load_failure: Outcome | None = None
        self._hangs = 0
        self._deaths = 0

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sample and everything that it started."""
        if self._server is not None:
            self._end()

    def read(self, text: str, name: str, opening: str = "") -> dict[str, Any] | None:
        """What a model's answer defines (see :func:`comlrl_env.sandbox.answers.read`), ``None`` if it cannot be read."""
        self._ensure_process()
        (outcome,) = self._exchange([{"do": "read", "text": text, "name": name, "opening": opening}])
        return outcome.value if outcome.ok else None

    def load(self, program: Program) -> Outcome:
        """Run the modules of ``program``, in place of one that was loaded before."""
        self._program = program
        self._ensure_process()
        return self._load()

    def _load(self) -> Outcome:
        assert self._program is not None
        (outcome,) = self._exchange([self._program.request()])
        self._load_failure = None if outcome.ok else outcome
        return outcome

    def run(self, calls: Sequence[Call]) -> list[Outcome]:
        """Call the program's entry with each of ``calls`` in order; one outcome for each.

        When a call hangs or ends the process, the program is loaded afresh for the next call. Raises
        :class:`~comlrl_env.sandbox.values.NotPlainError` for an argument that is not plain data.
        """
        requests = [{"do": "call", "call": [encode(call.arguments), encode(dict(call.keywords))]} for call in calls]
        outcomes: list[Outcome] = []
        while len(outcomes) < len(requests):
            refusal = self._refusal()
            if refusal is not None:
                outcomes += [refusal] * (len(requests) - len(outcomes))
                break
            outcomes += self._exchange(requests[len(outcomes) :])
        return outcomes

    def _refusal(self) -> Outcome | None:
        """Why no call can be made now, after trying to make one possible."""
        if self._program is None:
            raise ValueError("Box.run: no program; call load first")
        if self._load_failure is not None:
            return self._load_failure
        if self._hangs >= self.limits.max_hangs:
            return Outcome("hung", reason=f"not tried after {self._hangs} calls that ran out of time")
        if self._deaths >= self.limits.max_deaths:
            return Outcome("died", reason=f"not tried after {self._deaths} calls that ended the process")
        if self._server is None:
            self._ensure_process()
            self._load()
            return self._load_failure
        return None

    def _ensure_process(self) -> None:
        if self._server is not None:
            return
        for attempt in (1, 2):
            server = self._pool.acquire()
            ours, theirs = socket.socketpair()
            self._run_id = secrets.token_hex(8)
            start = {
                "start": self._run_id,
                "resources": self.limits.resources(),
                "scratch_bytes": self.limits.scratch_bytes,
                "frame_bytes": self.limits.frame_bytes,
            }
            try:
                server.send(start, (theirs.fileno(),))
            except OSError:
                ours.close()
                server.close()
                if attempt == 2:
                    raise SandboxError("sandbox: two fork servers ended by themselves") from None
            else:
                ours.setblocking(False)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                self._server, self._channel, self._process = server, ours, 0
                self._frames = Frames(self.limits.frame_bytes)
                return
            finally:
                theirs.close()

    def _exchange(self, requests: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Send requests, collect outcomes until all are answered or the process is gone (then the last one says why)."""
        nonces = [secrets.token_hex(8) for _ in requests]
        waiting = bytearray(b"".join(pack(request | {"nonce": nonce}) for request, nonce in zip(requests, nonces, strict=True)))
        outcomes: list[Outcome] = []
        for reply in self._replies(waiting, len(requests)):
            if isinstance(reply, Outcome):
                outcomes.append(self._gone(reply))
                break
            outcome = _outcome(reply, nonces[len(outcomes)])
            if outcome is None:
                outcomes.append(self._gone(Outcome("died", reason="wrote bytes of its own to the private channel")))
                break
            outcomes.append(outcome)
        return outcomes

    def _gone(self, outcome: Outcome) -> Outcome:
        self._hangs += outcome.kind == "hung"
        self._deaths += outcome.kind == "died"
        self._end()
        return outcome

    def _replies(self, waiting: bytearray, expected: int) -> Iterator[Any]:
        """The raw replies; at the end of the process or of its time an :class:`Outcome` that says so."""
        assert self._server is not None
        assert self._channel is not None
        channel, control = self._channel, self._server.control
        poller = select.poll()
        poller.register(control, select.POLLIN)
        started, cpu_before = time.monotonic(), self._cpu_seconds()
        while expected:
            poller.register(channel, select.POLLIN | (select.POLLOUT if waiting else 0))
            wall_left = self.limits.wall_seconds - (time.monotonic() - started)
            cpu_left = self.limits.cpu_seconds - (self._cpu_seconds() - cpu_before)
            patience = max(0.0, min(wall_left, cpu_left))
            events = dict(poller.poll(ceil(patience * 1000)))
            if not events and patience == 0.0:
                what = f"{self.limits.cpu_seconds:g} s of processor time" if cpu_left <= 0 else f"{self.limits.wall_seconds:g} s"
                yield Outcome("hung", reason=f"no answer within {what}")
                return
            event = events.get(channel.fileno(), 0)
            try:
                if event & select.POLLOUT:
                    del waiting[: channel.send(waiting)]
                data = self._receive() if event & (select.POLLIN | select.POLLHUP) else None
                messages = self._frames.feed(data) if data else []
            except NotPlainError:
                yield Outcome("died", reason="wrote bytes of its own to the private channel")
                return
            except (BrokenPipeError, ConnectionResetError):
                data, messages = b"", []
            for message in messages[:expected]:
                yield message
                expected -= 1
                started, cpu_before = time.monotonic(), self._cpu_seconds()
            if expected and (data == b"" or (data is None and control.fileno() in events)):
                yield self._post_mortem()
                return

    def _receive(self) -> bytes:
        assert self._channel is not None
        data, ancillary, _, _ = self._channel.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not self._process:
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    self._process = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
        return data

    def _cpu_seconds(self) -> float:
        """Processor time of the sample's process so far, from the kernel; 0 when it is not known or gone."""
        if not self._process:
            return 0.0
        try:
            return time.clock_gettime((~self._process << 3) | 2)  # the kernel's number of a process's CPU clock
        except OSError:
            return 0.0

    def _post_mortem(self) -> Outcome:
        status = self._end()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Outcome("died", reason=f"ended by signal {signal.Signals(number).name}")
        return Outcome("died", reason=f"ended the process with exit status {os.waitstatus_to_exitcode(status)}")

    def _end(self) -> int:
        """Stop the sample, wait until nothing of it is left, give the server back; the wait status of the process."""
        if self._server is None:
            return 0
        server, channel = self._server, self._channel
        self._server = self._channel = None
        assert channel is not None
        channel.close()
        try:
            server.send({"stop": self._run_id})
        except OSError:
            pass
        message = server.receive(_FAREWELL_SECONDS)
        if message is None or message.get("ended") != self._run_id:
            server.close()
            raise SandboxError("sandbox: the fork server did not report the end of a sample")
        self._pool.release(server)
        status: int = message["status"]
        return status


def _outcome(reply: Any, nonce: str) -> Outcome | None:
    """The outcome of a reply; ``None`` for a message that the runner did not write for this request."""
    if not isinstance(reply, dict) or reply.get("nonce") != nonce:
        return None
    if isinstance(reply.get("raised"), str):
        return Outcome("raised", reason=_printable(reply["raised"]))
    if isinstance(reply.get("alien"), str):
        return Outcome("alien", reason=_printable(reply["alien"]))
    watched = reply.get("watched", [])
    try:
        value = decode(reply["value"])
        seen = tuple(
            Outcome("ok", decode(one["value"])) if "value" in one else Outcome("alien", reason=_printable(one["alien"]))
            for one in watched
        )
    except (KeyError, TypeError, NotPlainError):
        return None
    return Outcome("ok", value, watched=seen)


def _printable(text: str) -> str:
    return text[:300].encode("utf-8", "replace").decode("utf-8")


def run_calls(source: str, name: str, calls: Sequence[Call], limits: Limits | None = None) -> list[Outcome]:
    """Run ``source`` in a fresh sandbox and call its function ``name`` with each of ``calls``.

    Raises :class:`SandboxError` when the sandbox is broken; whatever the code does is an :class:`Outcome`.
    """
    with Box(limits) as box:
        box.load(Program((Module("program", source),), ("program", name)))
        return box.run(calls)
