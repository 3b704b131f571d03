"""What the kernel can take away from a process: namespaces, files, network, rights, resources (Linux, by ctypes).

Runs in the fork server and in its children only: standard library, one thread. Functions raise ``OSError`` when the
system says no; the server then reports it and the trusted side starts one with weaker isolation.
"""

import ctypes
import os
import resource
import sys
import sysconfig
from collections.abc import Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNT, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x20000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_READ_ONLY, _NO_SUID, _NO_DEV, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
SCRATCH = "/scratch"


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def standard_library() -> list[str]:
    """The folders of the running interpreter's standard library."""
    return sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(os.__file__)})


def library_files() -> list[str]:
    """What a Python program reads besides its own files, without installed packages."""
    hidden = set(packages_folders())
    inside = [os.path.join(folder, name) for folder in standard_library() for name in os.listdir(folder)]
    return [*LIBRARIES, *[path for path in inside if path not in hidden]]


def packages_folders() -> list[str]:
    """Folders with installed packages, which the jail hides: a data set with its answers may lie there."""
    inside = [
        os.path.join(folder, name) for folder in standard_library() for name in ("site-packages", "dist-packages")
    ]
    return [folder for folder in [*inside, "/usr/lib/python3/dist-packages"] if os.path.isdir(folder)]


def enter_namespaces(folder: str) -> int:
    """Go on in a fork with its own processes, mounts, network, IPC and host name, and little but the standard library.

    ``folder``: an empty folder where the new root is mounted while it is built; it may be removed afterwards. An
    ordinary user gets a user namespace first. The process that called only waits for the fork and ends with it.
    Returns a descriptor of the new PID namespace; raises ``OSError`` when a step is not permitted.
    """
    user, group = os.getuid(), os.getgid()
    flags = _NEW_MOUNT | _NEW_NET | _NEW_IPC | _NEW_UTS | _NEW_PID | (_NEW_USER if user else 0)
    _call("unshare", ctypes.c_int(flags))
    if user:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    process = os.fork()
    if process:
        os.waitpid(process, 0)
        os._exit(0)
    namespace = pid_namespace()
    _build_root(folder)
    return namespace


def pid_namespace() -> int:
    """A descriptor of this process's own PID namespace."""
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def _build_root(folder: str) -> None:
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _NO_SUID | _NO_DEV, "size=1m,mode=755")
    for library in LIBRARIES:
        if os.path.islink(library):
            os.makedirs(os.path.dirname(folder + library), exist_ok=True)
            os.symlink(os.readlink(library), folder + library)
        elif os.path.isdir(library):
            _show(folder, library)
    for path in standard_library():
        if not os.path.isdir(folder + path):
            _show(folder, path)
    for path in packages_folders():
        if os.path.isdir(folder + path):
            _mount("tmpfs", folder + path, "tmpfs", _READ_ONLY | _NO_SUID | _NO_DEV, "size=4k,mode=755")
    for device in DEVICES:
        os.makedirs(os.path.dirname(folder + device), exist_ok=True)
        _write(folder + device, "")
        _mount(device, folder + device, None, _BIND)
    os.mkdir(folder + SCRATCH)
    os.chdir(folder)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", ctypes.c_int(_DETACH))
    os.chdir("/")
    _mount("none", "/", None, _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEV, "size=1m,mode=755")


def _show(root: str, path: str) -> None:
    os.makedirs(root + path, exist_ok=True)
    _mount(path, root + path, None, _BIND)
    _mount("none", root + path, None, _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEV)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def mount_scratch(owner: int, size: int) -> None:
    """An empty file system of ``size`` bytes at ``SCRATCH`` that only ``owner`` can use."""
    options = f"size={size},nr_inodes=1024,mode=700,uid={owner}"
    _mount("tmpfs", SCRATCH, "tmpfs", _NO_SUID | _NO_DEV, options)


def unmount_scratch() -> None:
    """Drop what ``mount_scratch`` made, with everything in it."""
    _call("umount2", SCRATCH.encode(), ctypes.c_int(_DETACH))


def fork_into_fresh_namespaces() -> None:
    """The next fork starts as process 1 of a new PID namespace: when it ends, the kernel ends all that it started."""
    _call("unshare", ctypes.c_int(_NEW_PID | _NEW_IPC))


def fork_normally_again(original: int) -> None:
    """Undo ``fork_into_fresh_namespaces``; ``original``: a descriptor of this process's own ``ns/pid``."""
    _call("setns", ctypes.c_int(original), ctypes.c_int(_NEW_PID))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, also of those that called ``setsid``."""
    _call("prctl", ctypes.c_int(_SET_CHILD_SUBREAPER), 1, 0, 0, 0)


def limit_resources(limits: dict[str, int]) -> None:
    """Set resource limits (soft and hard) by their names in :mod:`resource`, e.g. ``{"RLIMIT_NOFILE": 32}``."""
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (bound, bound))


def drop_rights(user: int) -> None:
    """Become ``user`` (when this process is root), lose every capability and the way to get one back."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", ctypes.c_int(_SET_NO_NEW_PRIVILEGES), 1, 0, 0, 0)


def descendants(process: int) -> Sequence[int]:
    """All processes below ``process``, by ``/proc``; a process that just ended may be missing."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    found: list[int] = []
    level = {process}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found += level
    return found


def interpreter_files() -> list[str]:
    """The running interpreter and its shared library, which a foreign jail must show to start it."""
    files = {os.path.realpath(sys.executable)}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        files |= {line.split()[-1] for line in file if "libpython" in line}
    return sorted(files)
