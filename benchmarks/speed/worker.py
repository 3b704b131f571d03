"""One side of a measurement as a process: set up, then work whenever the parent says so.

``python -m benchmarks.speed.worker MODULE JOB`` calls ``run(job, turns)`` of the module. The parent writes ``warm-up``
or ``turn`` lines to standard input; answers leave as JSON lines through what was standard output, which libraries find
redirected to standard error. Both our and the peers' Python run this file, so it needs the standard library only.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.speed.job import Job

PACKAGES = ("torch", "transformers", "numpy", "comlrl-kit", "comlrl", "trl")


class Turns:
    """Iterates over the turns that the parent asks for; True is a turn that counts, False a warm-up."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}  # how the process was tuned, and why
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def ready(self, **check: float) -> None:
        """Tell that everything is set up, with numbers that the other side must agree with."""
        threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1
        facts = {"versions": installed(), "threads": threads, "settings": self.settings}
        self._answer({**facts, "peak_mib": peak_mib(), "check": check})

    def __iter__(self) -> Iterator[bool]:
        """Wait for the parent, again and again, until it closes the pipe."""
        while (asked := self.wait()) is not None:
            yield asked

    def wait(self) -> bool | None:
        """The next turn, None when there is none; memory is counted anew from here."""
        line = sys.stdin.readline()
        if not line:
            return None
        restart_peak()
        self._peak = 0.0
        self._cpu = time.process_time()
        return line.strip() == "turn"

    def phase_peak(self) -> float:
        """Peak memory since the turn began or since the last call, in MiB."""
        peak = peak_mib()
        self._peak = max(self._peak, peak)
        restart_peak()
        return peak

    def done(self, seconds: float, /, **phases: float) -> None:
        """Report a turn: its seconds and those of its parts."""
        cpu = time.process_time() - self._cpu
        self._answer(
            {"seconds": seconds, "cpu_seconds": cpu, "phases": phases, "peak_mib": max(self._peak, peak_mib())}
        )

    def _answer(self, facts: dict[str, Any]) -> None:
        self._answers.write(json.dumps(facts) + "\n")
        self._answers.flush()


class Stopwatch:
    """``with Stopwatch() as watch: …`` and then ``watch.seconds``."""

    seconds = 0.0

    def __enter__(self) -> "Stopwatch":
        """Start."""
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop; several uses add up."""
        self.seconds += time.perf_counter() - self._start


def installed() -> dict[str, str]:
    """Versions of the packages that matter, as far as this Python has them."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_mib() -> float:
    """Peak resident memory since ``restart_peak``; without Linux's counters, of the whole process."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 1024


def restart_peak() -> None:
    """Let the kernel's peak counter start again from the present size."""
    counter = Path("/proc/self/clear_refs")
    if counter.exists():
        counter.write_text("5")


if __name__ == "__main__":
    importlib.import_module(sys.argv[1]).run(Job.read(sys.argv[2]), Turns())
