"""CoMLRL's run of MARLHF."""

from collections.abc import Callable

from benchmarks.speed.job import Job
from benchmarks.speed.peers.comlrl_team import trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MARLHFTrainer.train``."""
    from comlrl.trainers.preference import MARLHFConfig, MARLHFTrainer  # type: ignore[import-not-found]  # lives in the peers' environment

    config = MARLHFConfig(
        num_train_epochs=1,
        preference_num_candidates=job.shapes["candidates"],
        preference_pairs_per_sample=job.shapes["pairs_per_item"],
        num_generations=job.shapes["generations"],
        reward_train_batch_size=job.shapes.get("peer_reward_batch", job.shapes["reward_batch"]),
        reward_model_name=job.agent(0),
        reward_model_device="cpu",
        max_new_tokens=job.about.completion_tokens,
        eval_interval=0,
    )
    peer = trainer(MARLHFTrainer, config, job)
    turns.ready(pairs=job.shapes["items"] * job.shapes["pairs_per_item"])
    phases: dict[str, float] = {}

    def timed(name: str, method: Callable[..., object]) -> Callable[..., object]:
        def run_phase(*arguments: object, **named: object) -> object:
            turns.phase_peak()
            with Stopwatch() as watch:
                result = method(*arguments, **named)
            phases.update({name: watch.seconds, f"{name}_mib": turns.phase_peak()})
            return result

        return run_phase

    for name, method in (
        ("collect", "_build_preference_dataset"),
        ("fit", "_train_reward_model"),
        ("policy", "_train_online_rl"),
    ):
        setattr(peer, method, timed(name, getattr(peer, method)))
    dataset = peer.train_dataset
    for counts in turns:
        short = job.short_warm_up and not counts
        peer.train_dataset = dataset[:1] if short else dataset
        with Stopwatch() as whole:
            peer.train()
        turns.done(whole.seconds, **phases)
