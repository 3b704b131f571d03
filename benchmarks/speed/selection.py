"""Choosing preference pairs among 1 000 scored candidates."""

from statistics import median
from typing import TYPE_CHECKING, cast

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns

if TYPE_CHECKING:
    from comlrl_env.preferences import PairSelection

POOL = ("reward_gap", "random", "all", "diverse")
SIDES = (*POOL, "comparator_reward")
CASES = [f"{mode}, one pool" for mode in POOL] + [f"{mode}, two sides" for mode in SIDES]

BENCH = Bench(
    name="selection",
    unit="selections/s",
    shapes={case: {"candidates": 1000, "limit": 16} for case in CASES},
    targets=dict.fromkeys(CASES, 0.2),
    turns=dict.fromkeys(CASES, 5),
    amount=lambda job: 1,
    value=lambda job, record: median(record.cpu_seconds),
    value_unit="s of processor time per selection",
)


def run(job: Job, turns: Turns) -> None:
    """One selection per turn; rewards lie on a grid, so that there are ties."""
    import numpy as np

    from comlrl_env.preferences import select_comparisons, select_pairs

    name, _, where = job.case.partition(", ")
    mode = cast("PairSelection", name)
    limit = None if mode == "all" else job.shapes["limit"]
    rng = np.random.default_rng(job.seed)
    returns = [float(value) for value in rng.integers(0, 500, job.shapes["candidates"]) / 500]
    half = len(returns) // 2
    turns.ready()
    for _ in turns:
        with Stopwatch() as watch:
            if where == "one pool":
                select_pairs(returns, mode, limit, rng)
            else:
                select_comparisons(returns[:half], returns[half:], mode, limit, rng)
        turns.done(watch.seconds)
