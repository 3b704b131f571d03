"""The trusted side's hold on its fork servers: start them, lend each to one sample at a time, end them."""

import atexit
import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

from comlrl_env.errors import ComlrlError
from comlrl_env.sandbox import jail

Isolation = Literal["bubblewrap", "namespaces", "limits"]
_START_SECONDS = 30.0
_FIRST_USER, _USERS = 40_000, 20_000  # free on common systems, and mapped in containers
_PACKAGE = Path(__file__).parent
# The packages are made by hand, so that the server imports none of the kit's dependencies.
_BOOT = """
import sys, types
descriptor, isolation, folder, user, package = sys.argv[1:]
for name, path in (("comlrl_env", package + "/.."), ("comlrl_env.sandbox", package)):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from comlrl_env.sandbox import server
server.main(int(descriptor), isolation, folder, int(user))
"""


class SandboxError(ComlrlError):
    """The sandbox itself does not work: this says nothing about the code that it should have run."""


class Server:
    """One fork server process and its control socket."""

    def __init__(self, isolation: Isolation) -> None:
        self.isolation = isolation
        self._folder = tempfile.mkdtemp(prefix="comlrl-sandbox-")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                self._command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                # With -I the hash seed would differ from server to server, and with it the order of a set, which is
                # to say the score: so its parts -P -s and an environment with nothing but the seed.
                env={"PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
        except OSError as error:
            self._forget_files()
            raise SandboxError(f"sandbox: the fork server does not start ({error})") from error
        finally:
            theirs.close()
        hello = self.receive(_START_SECONDS)
        if hello is None or "ready" not in hello:
            self.close()
            said = "no answer" if hello is None else hello["failed"]
            raise SandboxError(f"sandbox: the fork server with isolation {isolation!r} does not start ({said})")
        if isolation != "limits":
            shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, descriptor: int) -> list[str]:
        python = [os.path.realpath(sys.executable), "-s", "-P", "-S", "-B", "-c", _BOOT]
        # An unused user of its own for each server, so that the limit on processes counts one sample's only.
        user = _FIRST_USER + secrets.randbelow(_USERS) if os.getuid() == 0 else os.getuid()
        arguments = [str(descriptor), self.isolation, self._folder, str(user), str(_PACKAGE)]
        prefix = _bubblewrap_command() if self.isolation == "bubblewrap" else []
        return prefix + python + arguments

    def send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Raises ``OSError`` when the server is gone."""
        socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message; ``None`` when the server is gone or says nothing for ``seconds``."""
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        try:
            data = self.control.recv(1 << 16) if poller.poll(seconds * 1000) else b""
        except OSError:
            return None
        message: dict[str, Any] | None = json.loads(data) if data else None
        return message

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the server and whatever it still runs, and wait for it."""
        self.control.close()
        try:
            self._process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget_files()

    def _forget_files(self) -> None:
        self.control.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Pool:
    """Idle servers, lent to one sample at a time; there are as many as samples ever ran at once.

    ``isolation``: ``None`` takes the strongest that works on this machine, tried once: bubblewrap, namespaces,
    limits.
    """

    def __init__(self, isolation: Isolation | None = None) -> None:
        self._choice: list[Isolation] = [isolation] if isolation else ["bubblewrap", "namespaces", "limits"]
        if isolation is None and shutil.which("bwrap") is None:
            self._choice.remove("bubblewrap")
        self._lock = threading.Lock()
        self._idle: list[Server] = []

    @property
    def isolation(self) -> Isolation:
        """The isolation that samples get here; starts a server if none ran yet."""
        server = self.acquire()
        self.release(server)
        return server.isolation

    def acquire(self) -> Server:
        """A server for one sample; raises :class:`SandboxError` when none can be started."""
        with self._lock:
            while self._idle:
                server = self._idle.pop()
                if server.alive:
                    return server
                server.close()
            if len(self._choice) > 1:
                return self._first_server()
        return Server(self._choice[0])

    def _first_server(self) -> Server:
        while True:
            try:
                server = Server(self._choice[0])
            except SandboxError:
                if len(self._choice) == 1:
                    raise
                del self._choice[0]
            else:
                del self._choice[1:]
                return server

    def release(self, server: Server) -> None:
        """Give back a server that runs nothing."""
        with self._lock:
            self._idle.append(server)

    def close(self) -> None:
        """End the idle servers."""
        with self._lock:
            servers, self._idle = self._idle, []
        for server in servers:
            server.close()

    def forget(self) -> None:
        """After a fork of the trusted process: its servers are not ours, and a thread may have held the lock."""
        self._lock = threading.Lock()
        for server in self._idle:
            server.control.close()
        _NOT_OURS.extend(self._idle)
        self._idle = []


def _bubblewrap_command() -> list[str]:
    command = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--cap-add",
        "ALL",
    ]
    if os.getuid() != 0:
        command.insert(1, "--unshare-user")
    shown = [*jail.LIBRARIES, *jail.standard_library(), *jail.interpreter_files(), str(_PACKAGE)]
    for path in filter(os.path.exists, shown):
        for parent in reversed(Path(path).parents):
            command += ["--dir", str(parent)]  # by itself it makes them for root only
        linked = path in jail.LIBRARIES and os.path.islink(path)
        command += ["--symlink", os.readlink(path), path] if linked else ["--ro-bind", path, path]
    for path in jail.packages_folders():
        command += ["--tmpfs", path]
    command += ["--dir", "/dev"]
    for device in jail.DEVICES:
        command += ["--dev-bind", device, device]
    return [*command, "--proc", "/proc", "--dir", jail.SCRATCH, "--remount-ro", "/", "--chdir", "/", "--"]


# Kept, so that no finaliser of a forked trainer asks after processes that are not its children.
_NOT_OURS: list[Server] = []
POOL = Pool()
atexit.register(POOL.close)
os.register_at_fork(after_in_child=POOL.forget)
