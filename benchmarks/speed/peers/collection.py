"""CoMLRL's pair collection."""

from benchmarks.speed.job import Job
from benchmarks.speed.peers.comlrl_team import AGENTS, trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MADPOTrainer``'s pass over its dataset: sampling, reward, pair selection."""
    from comlrl.trainers.preference import MADPOConfig, MADPOTrainer  # type: ignore[import-not-found]  # lives in the peers' environment

    config = MADPOConfig(
        preference_num_candidates=job.shapes["candidates"], max_new_tokens=job.about.completion_tokens, eval_interval=0
    )
    peer = trainer(MADPOTrainer, config, job)
    expected = AGENTS * job.shapes["items"] * job.shapes["candidates"] * job.about.completion_tokens
    turns.ready(tokens=expected)
    drawn = 0
    generate = peer._generate_completions

    def counting(*args: object, **keywords: object) -> dict[str, object]:
        nonlocal drawn
        made: dict[str, object] = generate(*args, **keywords)
        drawn += sum(made["response_lens"])  # type: ignore[call-overload]
        return made

    peer._generate_completions = counting
    dataset = peer.train_dataset
    for counts in turns:
        short = job.short_warm_up and not counts
        peer.train_dataset = dataset[:1] if short else dataset
        drawn = 0
        with Stopwatch() as watch:
            peer._build_preference_dataset()
        assert short or drawn == expected, f"{drawn} tokens instead of {expected}"
        turns.done(watch.seconds)
