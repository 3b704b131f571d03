"""What one sample may use, what is to run, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from comlrl_env.sandbox.values import encode

Kind = Literal["ok", "raised", "hung", "died", "alien"]


@dataclass(frozen=True)
class Limits:
    """What one sample may use.

    ``cpu_seconds``: processor time of one request (loading, or one call), the limit that decides for code that
    computes; ``wall_seconds``: real time of one request, far larger, for code that sleeps, so that a busy machine
    does not change scores; ``total_cpu_seconds``: processor time of all requests of one process. ``max_hangs``,
    ``max_deaths``: after so many calls that hung or ended the process, the rest is not tried.
    """

    cpu_seconds: float = 1.0
    wall_seconds: float = 10.0
    total_cpu_seconds: float = 60.0
    memory_bytes: int = 512 << 20
    file_bytes: int = 1 << 20
    scratch_bytes: int = 16 << 20
    open_files: int = 32
    processes: int = 16
    frame_bytes: int = 1 << 20
    max_hangs: int = 2
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

    ``kind``: ``"ok"``; ``"raised"`` (an exception, ``SystemExit`` included); ``"hung"`` (out of time); ``"died"``
    (the process ended or broke the protocol); ``"alien"`` (the value is not plain data, or too large). ``reason``
    says more in words. ``watched``: what watched functions returned, as outcomes of kind ``"ok"`` or ``"alien"``.
    """

    kind: Kind
    value: Any = None
    reason: str = ""
    watched: tuple["Outcome", ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.kind == "ok"
