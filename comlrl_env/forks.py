"""Forking a process that does one job and never comes back into the code of its parent (POSIX)."""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def fork(job: Callable[[Connection], None]) -> tuple[int, Connection]:
    """Run ``job`` in a child with one end of a pipe; its process id and the other end.

    The child ignores Ctrl-C (the parent decides what ends), reads nothing from the terminal, and drops the pipes
    and sockets that it inherited, because others wait for these to close.
    """
    ours, theirs = Pipe()
    with contextlib.suppress(Exception):  # what is buffered now would be written by both
        sys.stdout.flush()
        sys.stderr.flush()
    with warnings.catch_warnings():
        # Python ≥ 3.12 warns of forks beside threads; the child takes no lock that another thread may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    try:
        _settle(theirs)
        job(theirs)
    except EOFError:
        pass
    except BaseException:  # noqa: BLE001 - nothing may unwind into the parent's frames
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def reap(pid: int, patience: float) -> int | None:
    """Wait for a child: its exit code (negative: the signal that killed it), None if it lives on.

    A child that somebody else has waited for counts as ended with code 0.
    """
    deadline = time.monotonic() + patience
    pause = 0.0005
    while True:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def lead_group() -> None:
    """Make this process the leader of a group, so that it can be killed with everything it starts."""
    os.setsid()


def grow_at_most(memory: int) -> None:
    """Let this process allocate ``memory`` more bytes; where the system does not tell its size, as many as it likes."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))


def die_with_parent() -> None:
    """Have Linux kill this process when its parent dies; only sound where the parent has one thread."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _settle(keep: Connection) -> None:
    """Make a fresh fork a process of its own."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # the parent's objects are not looked at again, which would copy their pages
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        number = int(name)
        with contextlib.suppress(OSError):
            mode = os.fstat(number).st_mode
            stream = number > 2 and number != keep.fileno() and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
            if number == 0 or stream:  # overwritten, not closed: a free number would be given to another file
                os.dup2(nothing, number, inheritable=number == 0)
    os.close(nothing)
