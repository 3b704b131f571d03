"""CoMLRL's reward model."""

from benchmarks.speed.job import Job, pairs
from benchmarks.speed.models import text
from benchmarks.speed.peers.comlrl_team import AGENTS, trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MARLHFTrainer``'s fit on ready-made pairs."""
    from comlrl.trainers.preference import MARLHFConfig, MARLHFTrainer  # type: ignore[import-not-found]  # lives in the peers' environment
    from comlrl.trainers.preference.madpo import PreferencePair  # type: ignore[import-not-found]  # lives in the peers' environment

    config = MARLHFConfig(
        reward_model_name=job.agent(0),
        reward_model_device="cpu",
        reward_train_batch_size=job.shapes.get("peer_reward_batch", job.shapes["reward_batch"]),
        eval_interval=0,
    )
    peer = trainer(MARLHFTrainer, config, job)
    stored = [
        PreferencePair(
            prompts=[text(own.prompt) for own in pair],
            winner_completions=[text(own.winner) for own in pair],
            loser_completions=[text(own.loser) for own in pair],
            agent_tensors=[],
            winner_reward=1.0,
            loser_reward=0.0,
            candidate_reward_mean=0.5,
        )
        for pair in pairs(job, AGENTS)
    ]
    peer._init_reward_model()
    encoded = peer.reward_tokenizer(
        peer._format_joint_reward_text(stored[0], use_winner=True), add_special_tokens=False
    )
    turns.ready(tokens=len(encoded["input_ids"]))
    for counts in turns:
        short = job.short_warm_up and not counts
        with Stopwatch() as watch:
            peer._train_reward_model(stored[:1] if short else stored)
        turns.done(watch.seconds)
