"""One running sample, seen from the trusted side: its private channel, its clock, its end."""

import contextlib
import os
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

from comlrl_env.sandbox.pool import Pool, SandboxError, Server
from comlrl_env.sandbox.program import Limits, Outcome
from comlrl_env.sandbox.values import Frames, NotPlainError, decode, pack

_CREDENTIALS = struct.Struct("iII")
_FAREWELL_SECONDS = 30.0
_OWN_BYTES = Outcome("died", reason="wrote bytes of its own to the private channel")


class Process:
    """A fresh process for model-written code; raises :class:`SandboxError` when the pool cannot start one."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._frames = Frames(limits.frame_bytes)
        self._id = secrets.token_hex(8)
        self._number = 0
        self._ready = False
        self._server, self._channel = self._start()

    def _start(self) -> tuple[Server, socket.socket]:
        start = {
            "start": self._id,
            "resources": self._limits.resources(),
            "scratch_bytes": self._limits.scratch_bytes,
            "frame_bytes": self._limits.frame_bytes,
        }
        for _ in range(2):  # an idle server may have ended; a second one that does so too is no accident
            server = self._pool.acquire()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # before the sample says its first word
            with theirs:
                try:
                    server.send(start, (theirs.fileno(),))
                except OSError:
                    ours.close()
                    server.close()
                    continue
            return server, ours
        raise SandboxError("sandbox: two fork servers ended by themselves; does this machine kill processes?")

    def exchange(self, requests: Sequence[dict[str, Any]]) -> tuple[list[Outcome], bool]:
        """The outcomes of requests in order, and whether the process is still there.

        When it is not, its resources are released, and the last outcome says why; later requests have none.
        """
        nonces = [secrets.token_hex(8) for _ in requests]
        frames = [pack(request | {"nonce": nonce}) for request, nonce in zip(requests, nonces, strict=True)]
        outcomes: list[Outcome] = []
        for reply in self._replies(bytearray(b"".join(frames)), len(requests)):
            outcome = reply if isinstance(reply, Outcome) else _outcome(reply, nonces[len(outcomes)])
            outcomes.append(outcome)
            if isinstance(reply, Outcome) or outcome is _OWN_BYTES:
                self.end()
                return outcomes, False
        return outcomes, True

    def _replies(self, unsent: bytearray, expected: int) -> Iterator[Any]:
        """The replies as they come; when the process ends or is out of time, an :class:`Outcome` that says so."""
        channel, control = self._channel, self._server.control
        poller = select.poll()
        poller.register(control, select.POLLIN)
        started, cpu_before = time.monotonic(), self._cpu_seconds()
        while expected:
            poller.register(channel, select.POLLIN | (select.POLLOUT if unsent else 0))
            wall_left = self._limits.wall_seconds - (time.monotonic() - started)
            cpu_left = self._limits.cpu_seconds - (self._cpu_seconds() - cpu_before)
            patience = max(0.0, min(wall_left, cpu_left))
            events = dict(poller.poll(ceil(patience * 1000)))
            event = events.get(channel.fileno(), 0)
            data: bytes | None = None
            messages: list[Any] = []
            try:
                if event & select.POLLOUT:
                    del unsent[: channel.send(unsent)]
                if event & (select.POLLIN | select.POLLHUP):
                    data = self._receive()
                    messages = self._frames.feed(data)
            except (BrokenPipeError, ConnectionResetError):
                data = b""
            if messages and not self._ready:
                self._ready = True
                messages = messages[1:]
            for message in messages[:expected]:
                yield message
                expected -= 1
                started, cpu_before = time.monotonic(), self._cpu_seconds()
            if expected and self._frames.broken:
                yield _OWN_BYTES
                return
            if patience == 0.0 and not messages:  # the last look was after the deadline; bytes that drip are no answer
                seconds = self._limits.cpu_seconds if cpu_left <= 0 else self._limits.wall_seconds
                clock = "processor time" if cpu_left <= 0 else "real time"
                if not self._ready:
                    self.end()
                    raise SandboxError(f"sandbox: a sample's process did not start within {seconds:g} s")
                yield Outcome("hung", reason=f"no answer within {seconds:g} s of {clock}")
                return
            if expected and (data == b"" or (data is None and control.fileno() in events)):
                status = self.end()
                if not self._ready:
                    raise SandboxError("sandbox: a sample's process ended before it ran anything")
                yield Outcome("died", reason=_cause_of_death(status))
                return

    def _receive(self) -> bytes:
        data, ancillary, _, _ = self._channel.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, content in ancillary if not self._number else ():
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                # The kernel gives the sender's number as this side sees it, whatever namespace it lives in.
                self._number = _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[0]
        return data

    def _cpu_seconds(self) -> float:
        """Processor time of the process so far, from the kernel; 0 before its number is known and after its end."""
        with contextlib.suppress(OSError):
            if self._number:
                return time.clock_gettime((~self._number << 3) | 2)  # how Linux numbers a process's own clock
        return 0.0

    def end(self) -> int:
        """Stop, wait until nothing is left, give the server back, once; the wait status (0 if it ended before)."""
        if self._channel.fileno() < 0:
            return 0
        self._channel.close()
        with contextlib.suppress(OSError):
            self._server.send({"stop": self._id})
        message = self._server.receive(_FAREWELL_SECONDS)
        if message is None or message.get("ended") != self._id:
            self._server.close()
            raise SandboxError("sandbox: the fork server did not report the end of a sample")
        self._pool.release(self._server)
        status: int = message["status"]
        return status


def _outcome(reply: Any, nonce: str) -> Outcome:
    if not isinstance(reply, dict) or reply.get("nonce") != nonce:
        return _OWN_BYTES
    try:
        if "raised" in reply:
            return Outcome("raised", reason=_printable(reply["raised"]))
        if "alien" in reply:
            return Outcome("alien", reason=_printable(reply["alien"]))
        watched = tuple(_watched(one) for one in reply.get("watched", []))
        return Outcome("ok", decode(reply["value"]), watched=watched)
    except (KeyError, TypeError, NotPlainError):
        return _OWN_BYTES


def _watched(one: dict[str, Any]) -> Outcome:
    if "value" in one:
        return Outcome("ok", decode(one["value"]))
    return Outcome("alien", reason=_printable(one["alien"]))


def _printable(text: str) -> str:
    return text[:300].encode("utf-8", "replace").decode("utf-8")


def _cause_of_death(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"ended by signal {signal.Signals(-code).name}"
    return f"ended the process with exit status {code}"
