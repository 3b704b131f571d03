"""Scoring many joint responses at once: pools, time-outs, an answer cache. A broken scorer costs one status."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from comlrl_env.errors import ConfigError
from comlrl_env.scoring import ScoredResponse, score_one
from comlrl_env.task import History, JointResponse, Task
from comlrl_env.types import Item, Score

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from comlrl_env.scoring_host import ScoringHost

__all__ = ["Oracle", "ScoredResponse"]


class Oracle:
    """A task's scorer for many joint responses; what it raises becomes a failed score.

    - ``workers=0`` and no ``timeout``: in the calling thread, by ``task.score_many`` where the task has it.
    - ``workers=n`` and no ``timeout``: in n threads, for scorers that wait for processes or servers.
    - ``timeout`` (seconds per joint response): by ``task.score`` in up to n processes (with ``workers=0`` one per
      processor, at most 8). A scorer that hangs, crashes, or allocates more than ``memory`` bytes costs one failed
      score; its process is killed and replaced. Processes come from a fork that is made together with the oracle, so
      the task may hold closures, but changes to it after that are not seen there; make environments before loading
      models, since the fork keeps the memory of that moment. Items must be picklable.

    ``cache_size``: how many scores to remember, for scorers that are pure and slow; failed ones are not remembered.

    Usable from several threads. A deep or pickled copy starts processes of its own when it first scores. Raises
    ConfigError for illegal values.
    """

    def __init__(
        self,
        task: Task,
        *,
        workers: int = 0,
        timeout: float | None = None,
        memory: int = 2 << 30,
        cache_size: int = 0,
    ) -> None:
        for name, value in (("workers", workers), ("cache_size", cache_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"oracle {name}: expected an integer ≥ 0, actually {value!r}")
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (number and 0 < timeout < 1e9):
            raise ConfigError(f"oracle timeout: expected None or a number of seconds above 0, actually {timeout!r}")
        if timeout is not None and not hasattr(os, "fork"):
            raise ConfigError("oracle timeout: expected a system with fork (Linux, macOS); pass timeout=None here")
        if isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0:
            raise ConfigError(f"oracle memory: expected a number of bytes above 0, actually {memory!r}")
        self.task = task
        self.workers = workers
        self.timeout = timeout
        self.memory = memory
        self.cache_size = cache_size
        self._begin()
        if timeout is not None:
            self._hosted(timeout)

    def _begin(self) -> None:
        self._many: Callable[..., Sequence[Score]] | None = getattr(self.task, "score_many", None)
        self._cache: OrderedDict[Any, Score] = OrderedDict()
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._host: ScoringHost | None = None

    def score_many(
        self, item: Item, history: History, joint_responses: Sequence[JointResponse]
    ) -> list[ScoredResponse]:
        """Score joint responses to one item at one point of an episode; results in the order of the responses.

        Raises TaskError when a time-out is set and the item cannot be pickled.
        """
        if self.cache_size == 0:
            return self._score(item, history, joint_responses)
        past = tuple(tuple(turn.responses.items()) for turn in history)
        keys = [(item.key, past, tuple(sorted(responses.items()))) for responses in joint_responses]
        with self._lock:
            found = {key: ScoredResponse(self._cache[key], 0.0) for key in keys if key in self._cache}
        new = {key: responses for key, responses in zip(keys, joint_responses, strict=True) if key not in found}
        found |= zip(new, self._score(item, history, list(new.values())), strict=True)
        with self._lock:
            for key in found:
                if found[key].score.status == "ok":
                    self._cache[key] = found[key].score
                    self._cache.move_to_end(key)
            while len(self._cache) > self.cache_size:
                self._cache.popitem(last=False)
        return [found[key] for key in keys]

    def close(self) -> None:
        """Stop threads and processes; they come back when something is scored again."""
        with self._lock:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
            if self._host is not None:
                self._host.close()
            self._threads, self._host = None, None

    def _score(self, item: Item, history: History, joint_responses: Sequence[JointResponse]) -> list[ScoredResponse]:
        if not joint_responses:
            return []
        if self.timeout is not None:
            return self._hosted(self.timeout).score_many(item, history, joint_responses)
        if self.workers == 0:
            return self._score_here(item, history, joint_responses)
        share = -(-len(joint_responses) // self.workers) if self._many else 1
        shares = [joint_responses[start : start + share] for start in range(0, len(joint_responses), share)]
        done = self._pool().map(lambda part: self._score_here(item, history, part), shares)
        return [scored for part in done for scored in part]

    def _score_here(
        self, item: Item, history: History, joint_responses: Sequence[JointResponse]
    ) -> list[ScoredResponse]:
        if self._many is not None:
            start = time.perf_counter()
            try:
                scores = list(self._many(item, history, joint_responses))
            except (Exception, SystemExit):  # noqa: BLE001 - one response may be to blame: they are asked one by one
                scores = []
            if len(scores) == len(joint_responses) and all(type(score) is Score for score in scores):
                each = (time.perf_counter() - start) / len(scores)
                return [ScoredResponse(score, each) for score in scores]
        score = self.task.score
        return [score_one(score, item, history, responses) for responses in joint_responses]

    def _pool(self) -> "ThreadPoolExecutor":
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.workers, "oracle")
            return self._threads

    def _hosted(self, timeout: float) -> "ScoringHost":
        from comlrl_env.scoring_host import ScoringHost

        with self._lock:
            if self._host is None or not self._host.is_ours():
                processes = self.workers or min(8, _processors())
                self._host = ScoringHost(self.task.score, processes, timeout, self.memory)
            return self._host

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
