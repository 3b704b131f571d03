"""Both sides of a measurement in turn: two processes that wait for each other."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
QUIET = {
    "WANDB_MODE": "disabled",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class SideFailedError(RuntimeError):
    """A worker process ended before it answered."""


@dataclass
class Record:
    """What one side reported: facts at its start, then one entry per counted turn."""

    versions: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    check: dict[str, float] = field(default_factory=dict)
    load_mib: float = 0.0
    work_mib: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    phases: list[dict[str, float]] = field(default_factory=list)


class Side:
    """A worker process, started on entry and ended on exit."""

    def __init__(self, python: str, module: str, job: Path, record: Record) -> None:
        self.command = [python, "-m", "benchmarks.speed.worker", module, str(job)]
        self.record = record

    def __enter__(self) -> Self:
        """Start and wait until it is set up."""
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=os.environ | QUIET,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            facts = self._answer()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        self.record.versions, self.record.threads = facts["versions"], facts["threads"]
        self.record.check, self.record.settings = facts["check"], facts["settings"]
        self.record.load_mib = max(self.record.load_mib, facts["peak_mib"])
        return self

    def __exit__(self, *error: object) -> None:
        """Close the pipe, which ends the worker."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if any(error):
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def warm_up(self) -> None:
        """Work once without counting."""
        self._ask("warm-up")

    def turn(self) -> None:
        """Work once and count it."""
        facts = self._ask("turn")
        self.record.seconds.append(facts["seconds"])
        self.record.cpu_seconds.append(facts["cpu_seconds"])
        self.record.phases.append(facts["phases"])
        self.record.work_mib = max(self.record.work_mib, facts["peak_mib"])

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer tells why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            tail = "".join(self._log.readlines()[-40:])
            raise SideFailedError(f"{' '.join(self.command)} ended with status {code} before it answered:\n{tail}")
        facts: dict[str, Any] = json.loads(line)
        return facts


def alternate(
    sides: Sequence[Side], turns: int, *, resident: bool, agree: Callable[[], None], between: Callable[[], None]
) -> None:
    """Let every side work ``turns`` times, one after the other, with a call of ``between`` before each round of turns.

    ``resident``: the processes live through all turns. Otherwise only one lives at a time, for models of which no two
    teams fit into memory; each turn then pays for its own start and warm-up, uncounted. ``agree`` is called when all
    sides have told what they are about to do.
    """
    with ExitStack() as started:
        if resident:
            for side in sides:
                started.enter_context(side)
            agree()
            for side in sides:
                side.warm_up()
        for _ in range(turns):
            between()
            for side in sides:
                if resident:
                    side.turn()
                else:
                    with side:
                        side.warm_up()
                        side.turn()
            agree()
