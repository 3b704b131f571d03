"""One round of iterative training: both sides answer, pairs are stored, and every pair is trained on once."""

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns

AGENTS = 2
NEVER = 10**9


def _flop(job: Job) -> float:
    shapes = job.shapes
    sampling = job.about.sampling_flop(shapes["items"], 2 * shapes["candidates"])
    return AGENTS * (sampling + job.about.update_flop(2 * shapes["items"] * shapes["pairs_per_item"]))


BENCH = Bench(
    name="round",
    unit="rounds/s",
    peer="comlrl",
    shapes={
        "S": {"items": 8, "candidates": 16, "pairs_per_item": 8, "batch": 8},
        "G": {"items": 2, "candidates": 4, "pairs_per_item": 4, "batch": 8},
    },
    targets={"S": 2.5, "G": 6.0},
    turns={"S": 5, "G": 1},
    amount=lambda job: 1,
    flop=_flop,
    notes={"ours": "with logging, TensorBoard and the drift figure, as shipped; without checkpoint and evaluation"},
)


def run(job: Job, turns: Turns) -> None:
    """Our side: the collecting and the learning half of ``MADPOIterTrainer``'s round."""
    import tempfile

    from benchmarks.speed.team import environment, settle
    from comlrl_agents.config import MADPOIterConfig
    from comlrl_agents.progress import RunState
    from comlrl_agents.tracking import Tracker
    from comlrl_agents.trainers import MADPOIterTrainer

    config = MADPOIterConfig(
        num_iterations=NEVER,
        preference_num_candidates=job.shapes["candidates"],
        preference_pairs_per_sample=job.shapes["pairs_per_item"],
        train_batch_size=job.shapes["batch"],
        max_new_tokens=job.about.completion_tokens,
        eval_interval=NEVER,
        dtype="float32",
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = MADPOIterTrainer(
            env=environment(job), agents=[job.agent(index) for index in range(AGENTS)], args=config, output_dir=folder
        )
        settle(trainer.policies, turns)
        trainer.history.save(0)
        state = RunState(trainer)
        with Tracker(trainer.folder.path, report_to=config.report_to) as trainer.tracker:
            turns.ready(pairs=job.shapes["items"] * job.shapes["pairs_per_item"])
            for _ in turns:
                collecting, learning = Stopwatch(), Stopwatch()
                with collecting:
                    trainer._collect_round()
                with learning:
                    trainer._learn_round(state)
                assert len(trainer.progress.sample) == job.shapes["items"] * job.shapes["pairs_per_item"]
                trainer.progress.round, trainer.progress.phase = trainer.progress.round + 1, "collect"
                turns.done(collecting.seconds + learning.seconds, collect=collecting.seconds, learn=learning.seconds)
