"""One sample in its sandbox: read answers, load a program, call it, survive it."""

from collections.abc import Sequence
from typing import Any

from comlrl_env.sandbox.pool import POOL, Pool
from comlrl_env.sandbox.process import Process
from comlrl_env.sandbox.program import Call, Limits, Module, Outcome, Program
from comlrl_env.sandbox.values import encode


class Box:
    """A sandbox for one sample: a fresh process, replaced when it hangs or dies. Use it as a context manager.

    Not for several threads at once; any number of boxes may be open in any threads. Every method raises
    :class:`~comlrl_env.sandbox.pool.SandboxError` when the sandbox itself is broken.
    """

    def __init__(self, limits: Limits | None = None, pool: Pool | None = None) -> None:
        self.limits = limits or Limits()
        self._pool = pool or POOL
        self._process: Process | None = None
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
        if self._process is not None:
            process, self._process = self._process, None
            process.end()

    def read(self, text: str, name: str, opening: str = "") -> dict[str, Any] | None:
        """What an answer defines, see :func:`comlrl_env.sandbox.answers.read`; ``None`` if it cannot be read.

        Only sound before model-written code has run in this process, that is before ``load``.
        """
        (outcome,) = self._exchange([{"do": "read", "text": text, "name": name, "opening": opening}])
        return outcome.value if outcome.ok else None

    def load(self, program: Program) -> Outcome:
        """Run the modules of ``program``, in place of one that was loaded before, and count hangs and deaths anew."""
        self._program = program
        self._hangs = self._deaths = 0
        return self._load(program)

    def run(self, calls: Sequence[Call]) -> list[Outcome]:
        """Call the program's entry with each of ``calls`` in order; one outcome for each.

        When a call hangs or ends the process, the program is loaded afresh for the next call. Raises
        :class:`~comlrl_env.sandbox.values.NotPlainError` for an argument that is not plain data.
        """
        if self._program is None:
            raise ValueError("Box.run: expected a loaded program, actually there is none; call Box.load first")
        requests = [{"do": "call", "call": [encode(call.arguments), encode(dict(call.keywords))]} for call in calls]
        outcomes: list[Outcome] = []
        while len(outcomes) < len(requests):
            if self._process is None and self._refusal() is None:
                self._load(self._program)
            refusal = self._refusal()
            if refusal is not None:
                return outcomes + [refusal] * (len(requests) - len(outcomes))
            outcomes += self._exchange(requests[len(outcomes) :])
        return outcomes

    def _refusal(self) -> Outcome | None:
        """Why another call is pointless."""
        if self._load_failure is not None:
            return self._load_failure
        if self._hangs >= self.limits.max_hangs:
            return Outcome("hung", reason=f"not tried after {self._hangs} calls that ran out of time")
        if self._deaths >= self.limits.max_deaths:
            return Outcome("died", reason=f"not tried after {self._deaths} calls that ended the process")
        return None

    def _load(self, program: Program) -> Outcome:
        (outcome,) = self._exchange([program.request()])
        self._load_failure = None if outcome.ok else outcome
        return outcome

    def _exchange(self, requests: Sequence[dict[str, Any]]) -> list[Outcome]:
        if self._process is None:
            self._process = Process(self._pool, self.limits)
        outcomes, alive = self._process.exchange(requests)
        if not alive:
            self._process = None
            self._hangs += outcomes[-1].kind == "hung"
            self._deaths += outcomes[-1].kind == "died"
        return outcomes


def run_calls(source: str, name: str, calls: Sequence[Call], limits: Limits | None = None) -> list[Outcome]:
    """Run ``source`` in a fresh sandbox and call its function ``name`` with each of ``calls``.

    Raises :class:`~comlrl_env.sandbox.pool.SandboxError` when the sandbox is broken; whatever the code does is an
    :class:`~comlrl_env.sandbox.program.Outcome`.
    """
    with Box(limits) as box:
        box.load(Program((Module("program", source),), ("program", name)))
        return box.run(calls)
