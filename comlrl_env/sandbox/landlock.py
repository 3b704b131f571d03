"""Landlock: a Linux process gives up files, TCP and signals to others without any privilege (kernel 5.13, 6.7, 6.12).

Used where namespaces are not permitted, in many containers for example. System calls by number, because no C library
wraps them; they have the same numbers on every machine (include/uapi/linux/landlock.h).
"""

import ctypes
import os
import stat
from collections.abc import Iterable

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ_FILES = 0b101  # execute (load a shared library), read
_READ_FOLDERS = 0b1000
_DEVICE = 0b110  # write, read
_FILE_RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FILE_RIGHTS = 16
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


class _Attributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """The version of Landlock that this kernel offers, 0 for none."""
    return max(0, int(_LIBC.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


def ruleset(readable: Iterable[str], devices: Iterable[str], writable: str) -> int:
    """A descriptor of rules that leave ``readable`` paths to read, ``devices`` to use and all of ``writable``.

    Raises ``OSError`` when the kernel has no Landlock.
    """
    offered = version()
    if offered == 0:
        raise OSError("this kernel has no Landlock")
    everything = (1 << _FILE_RIGHTS_BY_VERSION.get(offered, _NEWEST_FILE_RIGHTS)) - 1
    attributes = _Attributes(everything, _TCP if offered >= 4 else 0, _SCOPES if offered >= 6 else 0)
    size = 24 if offered >= 6 else 16 if offered >= 4 else 8
    rules = _checked(_LIBC.syscall(_CREATE, ctypes.byref(attributes), ctypes.c_size_t(size), 0))
    for path in readable:
        _allow(rules, path, _READ_FILES | _READ_FOLDERS)
    for path in devices:
        _allow(rules, path, _DEVICE)
    _allow(rules, writable, everything)
    return rules


def _allow(rules: int, path: str, allowed: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that is not there needs no right
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            allowed &= _READ_FILES | _DEVICE
        rule = _Rule(allowed, descriptor)
        _checked(_LIBC.syscall(_ADD_RULE, rules, 1, ctypes.byref(rule), 0))
    finally:
        os.close(descriptor)


def restrict(rules: int) -> None:
    """Bind this process and all that it starts to ``rules``, for ever; it must have given up new privileges."""
    _checked(_LIBC.syscall(_RESTRICT_SELF, rules, 0))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
