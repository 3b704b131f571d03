"""Stored pairs read back: 100 000 of them may take time in proportion, but no more memory than 10 000."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns, peak_mib, restart_peak

if TYPE_CHECKING:
    import numpy as np

    from comlrl_agents.replay import ReplayBuffer
    from comlrl_env.types import PreferencePair

FEW = 10  # the memory of a tenth of the rounds is subtracted
TOKENS = 32  # per completion

CASE = "100 000 pairs"

BENCH = Bench(
    name="replay",
    unit="pairs/s",
    shapes={CASE: {"rounds": 100, "pairs_per_round": 1000}},
    targets={CASE: 0.1},
    turns={CASE: 3},
    amount=lambda job: job.shapes["rounds"] * job.shapes["pairs_per_round"],
    value=lambda job, record: max(each["growth_mib"] / each["stored_mib"] for each in record.phases),
    value_unit="MiB of memory for each MiB stored, beyond a tenth of the pairs",
    notes={"phases": "draw and read are seconds; growth_mib, few_mib and stored_mib are sizes"},
)


def run(job: Job, turns: Turns) -> None:
    """Draw as many pairs as are stored, from all rounds alike, and read each in the drawn order."""
    import tempfile
    from pathlib import Path

    import numpy as np

    from comlrl_agents.replay import ReplayBuffer, ReplayRule

    rounds, size = job.shapes["rounds"], job.shapes["pairs_per_round"]
    with tempfile.TemporaryDirectory() as folder:
        few = ReplayBuffer(Path(folder), ReplayRule("all_history", sample_size=rounds * size // FEW))
        many = ReplayBuffer(Path(folder), ReplayRule("all_history", sample_size=rounds * size))
        for iteration in range(1, rounds + 1):
            many.add(iteration, list(_pairs(iteration, size)))
        few.load_state_dict({"iterations": many.iterations[: rounds // FEW]})
        stored = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
        turns.ready()
        for _ in turns:
            _read(few, rounds // FEW, np.random.default_rng(job.seed))
            before = peak_mib()
            restart_peak()
            drawing, reading = Stopwatch(), Stopwatch()
            with drawing:
                sample = many.draw(rounds, np.random.default_rng(job.seed))
            with reading:
                read = sum(1 for _ in sample)
            assert read == rounds * size, f"{read} pairs instead of {rounds * size}"
            turns.done(
                drawing.seconds + reading.seconds,
                draw=drawing.seconds,
                read=reading.seconds,
                growth_mib=peak_mib() - before,
                few_mib=before,
                stored_mib=stored,
            )


def _read(buffer: "ReplayBuffer", iteration: int, rng: "np.random.Generator") -> None:
    for _ in buffer.draw(iteration, rng):
        pass


def _pairs(iteration: int, count: int) -> Iterator["PreferencePair"]:
    from comlrl_env.types import Completion, JointTurn, PreferencePair

    answer = tuple(range(TOKENS))
    for index in range(count):
        sides = [
            JointTurn(
                prompts=(f"prompt of item {index}",) * 2,
                completions=(Completion(f"{word} answer of round {iteration} to item {index}", answer, True),) * 2,
                prompt_ids=(answer,) * 2,
            )
            for word in ("better", "worse")
        ]
        yield PreferencePair(
            winner=(sides[0],),
            loser=(sides[1],),
            winner_reward=1.0,
            loser_reward=0.0,
            candidate_reward_mean=0.5,
            item_key=f"train/{index}",
        )
