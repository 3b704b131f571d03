"""The fork server: a small single-threaded interpreter that runs one sample at a time, each in a fresh fork.

Started by :mod:`comlrl_env.sandbox.pool` as a fresh interpreter without site-packages, so that nothing of the trainer
(threads, CUDA, memory) is ever forked. The control socket carries JSON messages: ``start`` (with the sample's private
socket) and ``stop`` come in, ``ready`` and ``ended`` go out; its end of file ends everything here.
"""

import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from typing import Any, NoReturn

from comlrl_env.sandbox import jail, landlock, runner

_KILL_SECONDS = 10.0
_NOBODY = 65534
# Imported before the first fork: quicker than an import per sample, and they need no file when rights are gone.
_PRELOADED = """
abc array bisect cmath collections collections.abc contextlib copy dataclasses datetime decimal enum fractions functools
hashlib heapq itertools json math numbers operator queue random re statistics string struct textwrap threading time
types typing unicodedata
"""


def main(descriptor: int, isolation: str, folder: str, user: int) -> None:
    """Serve until the trusted side closes the control socket.

    ``isolation``: ``"namespaces"`` (build a jail), ``"bubblewrap"`` (already inside one) or ``"limits"``;
    ``folder``: an empty folder of this server alone; ``user``: who runs the samples, if this process is root.
    """
    control = socket.socket(fileno=descriptor)
    for name in _PRELOADED.split():
        importlib.import_module(name)
    server = _Server(control, isolation, folder, user)
    try:
        server.prepare()
    except OSError as error:
        _send(control, {"failed": str(error)})
        return
    runner.rehearse()
    _forget_ourselves()
    gc.collect()
    gc.freeze()  # collections in the forks then leave the shared pages alone
    _send(control, {"ready": isolation})
    try:
        while (message := _receive(control)) is not None:
            request, descriptors = message
            if "start" in request:
                server.run(request, descriptors[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # for a trusted side that was killed


def _forget_ourselves() -> None:
    """Code under test finds a plain interpreter: none of this kit's modules, no environment."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "comlrl_env"]:
        del sys.modules[name]
    os.environ.clear()


class _Server:
    def __init__(self, control: socket.socket, isolation: str, folder: str, user: int) -> None:
        self._control = control
        self._jailed = isolation != "limits"
        self._builds_jail = isolation == "namespaces"
        self._folder = folder
        self._namespace = -1
        self._rules = -1
        self._is_root = os.getuid() == 0
        self._user = user

    def prepare(self) -> None:
        """Enter the jail and try everything once that each sample needs; raises ``OSError`` when it does not work."""
        os.close(os.pidfd_open(os.getpid()))
        jail.adopt_orphans()
        if self._builds_jail:
            self._namespace = jail.enter_namespaces(self._folder)
        elif self._jailed:
            self._namespace = jail.pid_namespace()
        if self._is_root and not self._can_become(self._user):
            self._user = _NOBODY
        if self._jailed:
            jail.mount_scratch(self._user, 1 << 20)
            jail.unmount_scratch()
        elif landlock.version():
            self._rules = landlock.ruleset(jail.library_files(), jail.DEVICES, self._folder)
        if not self._can_become(self._user):
            raise OSError("a child cannot give up its rights")

    def _can_become(self, user: int) -> bool:
        process = self._fork()
        if process == 0:
            code = 1
            try:
                jail.drop_rights(user)
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(process, 0)[1] == 0

    def run(self, request: dict[str, Any], channel: int) -> None:
        """One sample from fork to corpse; tells the trusted side when nothing of it is left."""
        scratch = self._make_scratch(request["scratch_bytes"])
        process = self._fork()
        if process == 0:
            self._become_sample(request, channel, scratch)
        os.close(channel)
        corpse = os.pidfd_open(process)
        poller = select.poll()
        poller.register(corpse, select.POLLIN)
        poller.register(self._control, select.POLLIN)
        events = dict(poller.poll())
        while corpse not in events and self._control.fileno() in events:
            message = _receive(self._control)
            if message is None or message[0].get("stop") == request["start"]:
                break
            events = dict(poller.poll())
        os.close(corpse)
        status = self._end(process)
        self._drop_scratch(scratch)
        _send(self._control, {"ended": request["start"], "status": status})

    def _fork(self) -> int:
        if not self._jailed:
            return os.fork()
        jail.fork_into_fresh_namespaces()
        process = os.fork()
        if process:
            jail.fork_normally_again(self._namespace)
        return process

    def _become_sample(self, request: dict[str, Any], channel: int, scratch: str) -> NoReturn:
        try:
            os.setsid()
            os.chdir(scratch)
            os.umask(0o077)
            jail.limit_resources(request["resources"])
            jail.drop_rights(self._user)
            if self._rules >= 0:
                landlock.restrict(self._rules)
            os.dup2(channel, 3)
            os.closerange(4, os.sysconf("SC_OPEN_MAX"))
            runner.serve(socket.socket(fileno=3), request["frame_bytes"])
        finally:
            os._exit(0)

    def _end(self, process: int) -> int:
        """Kill everything of the sample, wait for all of it, and return the wait status of its first process."""
        _kill(process)
        if self._jailed:
            return os.waitpid(process, 0)[1]
        status = 0
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline:
            for descendant in jail.descendants(os.getpid()):
                _kill(descendant)
            try:
                while True:
                    ended, its_status = os.waitpid(-1, os.WNOHANG)
                    if ended == process:
                        status = its_status
                    if ended == 0:
                        break
            except ChildProcessError:
                return status
            time.sleep(0.001)
        sys.exit("processes of a sample outlive SIGKILL")

    def _make_scratch(self, size: int) -> str:
        if self._jailed:
            jail.mount_scratch(self._user, size)
            return jail.SCRATCH
        scratch = tempfile.mkdtemp(dir=self._folder)
        if self._is_root:
            os.chmod(self._folder, 0o711)
            os.chown(scratch, self._user, -1)
        return scratch

    def _drop_scratch(self, scratch: str) -> None:
        if self._jailed:
            jail.unmount_scratch()
            return
        os.chmod(scratch, 0o700)
        for folder, inner, _ in os.walk(self._folder):
            for name in inner:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        for entry in os.scandir(self._folder):  # an ordinary user's sample can write here, beside its own folder
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        sys.exit(0)  # the trusted side is gone, and nothing of a sample is left


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
    return (json.loads(data), descriptors) if data else None
