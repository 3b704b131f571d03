"""Scoring one joint response so that whatever the scorer does becomes a Score."""

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

Scorer = Callable[[Item, History, JointResponse], Score]


class ScoredResponse(msgspec.Struct, frozen=True):
    """A score and the seconds it took; 0 for an answer from a cache."""

    score: Score
    latency: float


def score_one(scorer: Scorer, item: Item, history: History, responses: JointResponse) -> ScoredResponse:
    """Ask the scorer; an exception (also ``SystemExit``) or a result that is no Score is a failed score."""
    start = time.perf_counter()
    try:
        score = scorer(item, history, responses)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken scorer costs one status, not the training
        score = failure(error)
    else:
        if type(score) is not Score:
            score = Score.failed("error", f"expected a Score from the scorer, actually {score!r:.200}")
    return ScoredResponse(score, time.perf_counter() - start)


def failure(error: BaseException, what: str = "") -> Score:
    """The failed score of a scorer that raised; its reason begins with ``what``."""
    status: Literal["timeout", "error"] = "timeout" if isinstance(error, TimeoutError) else "error"
    return Score.failed(status, f"{what}{type(error).__name__}: {error}"[:2000])
