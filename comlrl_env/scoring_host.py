"""Scoring in processes that can be killed.

Three kinds of processes: ours; the *host*, forked from ours once; and *workers*, forked from the host when there is
work, and again when one had to be killed. The host has one thread and does nothing but watch its workers, so a fork
from it is safe at any time, while a fork from a process that trains (threads, a big heap) would not be. No signals are
used, so any thread may score. The host ends when our end of its pipe closes, hence also when we are killed, and
takes its workers along.
"""

import contextlib
import os
import pickle
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait

from comlrl_env.errors import TaskError
from comlrl_env.forks import die_with_parent, fork, grow_at_most, lead_group, reap
from comlrl_env.scoring import ScoredResponse, Scorer, failure, score_one
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

Batch = tuple[bytes, list[dict[str, str]]]


class ScoringHost:
    """Our side: sends a batch to the host and waits for its scores.

    ``timeout``: seconds per joint response. ``memory``: bytes a worker may allocate on top of what it starts with.
    """

    def __init__(self, scorer: Scorer, processes: int, timeout: float, memory: int) -> None:
        self._lock = threading.Lock()
        self._serve = _Host(scorer, processes, timeout, memory).serve
        self._owner = os.getpid()
        self._open()

    def _open(self) -> None:
        pid, self._pipe = fork(self._serve)
        self._end: Callable[[], object] = weakref.finalize(self, _end_host, pid, self._pipe, self._owner)

    def is_ours(self) -> bool:
        """Whether this process started the host (False in a fork of ours)."""
        return self._owner == os.getpid()

    def score_many(
        self, item: Item, history: History, joint_responses: Sequence[JointResponse]
    ) -> list[ScoredResponse]:
        """Scores in the order of the responses. If the host itself dies, all of them fail and it is replaced."""
        try:
            context = pickle.dumps((item, history))
        except Exception as error:
            raise TaskError(
                f"item {item.key!r}: expected data that can be pickled, as scoring under a time-out needs, actually "
                f"{type(error).__name__}: {error}"
            ) from error
        batch = (context, [dict(responses) for responses in joint_responses])
        with self._lock:
            try:
                self._pipe.send(batch)
                scored: list[ScoredResponse] = self._pipe.recv()
            except (EOFError, OSError) as error:
                self._reopen()
                failed = Score.failed("error", f"the scoring host died ({type(error).__name__})")
                return [ScoredResponse(failed, 0.0)] * len(joint_responses)
            except BaseException:  # an interrupt leaves an answer in the pipe that belongs to nobody
                self._reopen()
                raise
            return scored

    def close(self) -> None:
        """End the host and its workers, and wait until they are gone."""
        self._end()

    def _reopen(self) -> None:
        self.close()
        self._open()


def _end_host(pid: int, pipe: Connection, owner: int) -> None:
    pipe.close()
    if os.getpid() == owner and reap(pid, patience=2.0) is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        reap(pid, patience=2.0)


class _Host:
    """The host's side: hands responses to workers and kills the late ones."""

    def __init__(self, scorer: Scorer, processes: int, timeout: float, memory: int) -> None:
        self._scorer = scorer
        self._processes = processes
        self._timeout = timeout
        self._memory = memory
        self._parent = os.getpid()
        self._workers: list[_Worker] = []

    def serve(self, pipe: Connection) -> None:
        """Score batches until the parent is gone."""
        self._pipe = pipe
        try:
            while True:
                while not pipe.poll(1.0):
                    self._check_parent()
                batch: Batch = pipe.recv()
                pipe.send(self._score(*batch))
        except (EOFError, OSError):
            pass
        finally:
            for worker in self._workers:
                worker.kill()

    def _score(self, context: bytes, responses: list[dict[str, str]]) -> list[ScoredResponse]:
        todo = deque(enumerate(responses))
        done: dict[int, ScoredResponse] = {}
        while len(done) < len(responses):
            self._hand_out(todo, context)
            busy = [worker for worker in self._workers if worker.number is not None]
            next_deadline = min(worker.deadline for worker in busy)
            patience = max(0.0, min(next_deadline - time.monotonic(), 1.0))
            ready = wait([self._pipe, *(worker.pipe for worker in busy)], patience)
            if self._pipe in ready:  # the parent waits for this batch, so this is the end of the pipe
                raise EOFError
            if not ready:
                self._check_parent()
            for worker in busy:
                number = worker.number
                assert number is not None
                if worker.pipe in ready:
                    done[number] = self._collect(worker)
                elif time.monotonic() >= worker.deadline:
                    self._discard(worker)
                    late = Score.failed("timeout", f"the scorer did not answer within {self._timeout:g} s")
                    done[number] = ScoredResponse(late, self._timeout)
        return [done[number] for number in range(len(responses))]

    def _hand_out(self, todo: "deque[tuple[int, dict[str, str]]]", context: bytes) -> None:
        """Give every idle worker a response; start workers while there are responses left."""
        while todo:
            worker = next((each for each in self._workers if each.number is None), None)
            if worker is None:
                if len(self._workers) == self._processes:
                    return
                worker = _Worker(self._scorer, self._memory)
                self._workers.append(worker)
            number, response = todo.popleft()
            if not worker.give(number, context, response, self._timeout):  # died while idle: not from this response
                self._discard(worker)
                todo.appendleft((number, response))

    def _collect(self, worker: "_Worker") -> ScoredResponse:
        try:
            scored = worker.pipe.recv()
        except Exception:  # noqa: BLE001 - a dying worker may leave half an answer
            code = self._discard(worker)
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            return ScoredResponse(Score.failed("error", f"the scorer's process died ({how})"), worker.age())
        worker.number = None
        return scored if type(scored) is ScoredResponse else ScoredResponse(failure(TypeError(repr(scored))), 0.0)

    def _discard(self, worker: "_Worker") -> int:
        self._workers.remove(worker)
        return worker.kill()

    def _check_parent(self) -> None:
        if os.getppid() != self._parent:
            raise EOFError


class _Worker:
    """One worker as the host sees it; ``number`` is the response it works on, None when idle."""

    def __init__(self, scorer: Scorer, memory: int) -> None:
        self.pid, self.pipe = fork(lambda pipe: _work(pipe, scorer, memory))
        with contextlib.suppress(EOFError, OSError):  # a start that fails shows when the first answer is read
            if self.pipe.poll(30.0):
                self.pipe.recv_bytes()
        self.number: int | None = None
        self.deadline = 0.0
        self._since = 0.0
        self._context: bytes | None = None

    def give(self, number: int, context: bytes, response: dict[str, str], timeout: float) -> bool:
        """Send a response; item and history travel only when they are new.

        False if an idle worker has died; when a new one has, its answer will say so.
        """
        fresh, message = self._context is None, (None if context is self._context else context, response)
        self.number, self._since, self._context = number, time.monotonic(), context
        self.deadline = self._since + timeout
        try:
            self.pipe.send(message)
        except OSError:
            return fresh
        return True

    def age(self) -> float:
        """Seconds since the worker got its response."""
        return time.monotonic() - self._since

    def kill(self) -> int:
        """End the worker and what it started; its exit code, negative for a signal."""
        self.pipe.close()
        code = reap(self.pid, patience=0.0)
        for end in (os.killpg, os.kill):  # its group first: what the scorer started must not stay behind
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        if code is None:
            code = reap(self.pid, patience=5.0)
        return -signal.SIGKILL if code is None else code


def _work(pipe: Connection, scorer: Scorer, memory: int) -> None:
    lead_group()
    die_with_parent()
    grow_at_most(memory)
    pipe.send_bytes(b"ready")  # from here on time counts
    item_and_history: tuple[Item, History] | None = None
    while True:
        context, response = pipe.recv()
        try:
            if context is not None:
                item_and_history = pickle.loads(context)
            assert item_and_history is not None
            scored = score_one(scorer, *item_and_history, response)
            answer = pickle.dumps(scored)
        except Exception as error:  # noqa: BLE001 - an item or a score that cannot travel is this response's failure
            answer = pickle.dumps(ScoredResponse(failure(error), 0.0))
        pipe.send_bytes(answer)
