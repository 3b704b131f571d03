"""CoMLRL's round of iterative MADPO."""

import tempfile

from benchmarks.speed.job import Job
from benchmarks.speed.peers.comlrl_team import trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MADPOIterTrainer.train`` with one iteration."""
    from comlrl.trainers.preference import MADPOIterConfig, MADPOIterTrainer  # type: ignore[import-not-found]  # lives in the peers' environment

    with tempfile.TemporaryDirectory() as folder:
        config = MADPOIterConfig(
            num_iterations=1,
            preference_num_candidates=job.shapes["candidates"],
            preference_pairs_per_sample=job.shapes["pairs_per_item"],
            preference_replay_dir=folder,
            train_batch_size=job.shapes["batch"],
            max_new_tokens=job.about.completion_tokens,
            eval_interval=0,
        )
        peer = trainer(MADPOIterTrainer, config, job)
        turns.ready(pairs=job.shapes["items"] * job.shapes["pairs_per_item"])
        learn, dataset, trained = peer._train_preference_pairs, peer.train_dataset, 0
        learning = Stopwatch()

        def timed(pairs: list[object], **keywords: object) -> object:
            nonlocal trained
            trained = len(pairs)
            with learning:
                return learn(pairs, **keywords)

        peer._train_preference_pairs = timed
        for counts in turns:
            short = job.short_warm_up and not counts
            peer.train_dataset = dataset[:1] if short else dataset
            config.preference_num_candidates = 2 if short else job.shapes["candidates"]
            learning.seconds = 0.0
            with Stopwatch() as watch:
                peer.train()
            expected = job.shapes["items"] * job.shapes["pairs_per_item"]
            assert short or trained == expected, f"{trained} pairs instead of {expected}"
            turns.done(watch.seconds, collect=watch.seconds - learning.seconds, learn=learning.seconds)
