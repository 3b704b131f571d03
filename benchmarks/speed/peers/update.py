"""CoMLRL's MADPO update."""

from benchmarks.speed.job import Job, batches, pairs
from benchmarks.speed.peers.comlrl_team import AGENTS, trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MADPOTrainer``'s update on ready-made pairs."""
    import torch
    from comlrl.trainers.preference import MADPOConfig, MADPOTrainer  # type: ignore[import-not-found]  # lives in the peers' environment
    from comlrl.trainers.preference.madpo import AgentPreferenceTensors, PreferencePair  # type: ignore[import-not-found]  # lives in the peers' environment

    peer = trainer(MADPOTrainer, MADPOConfig(train_batch_size=job.shapes["pairs"], eval_interval=0), job)
    stored = [
        PreferencePair(
            prompts=[""] * AGENTS,
            winner_completions=[""] * AGENTS,
            loser_completions=[""] * AGENTS,
            agent_tensors=[
                AgentPreferenceTensors(torch.tensor(own.prompt), torch.tensor(own.winner), torch.tensor(own.loser))
                for own in pair
            ],
            winner_reward=1.0,
            loser_reward=0.0,
            candidate_reward_mean=0.5,
        )
        for pair in pairs(job, AGENTS)
    ]
    minibatches = batches(job, stored)
    with torch.no_grad():
        margins = {f"margin_{agent}": float(peer._agent_logprob_delta(agent, stored[0])) for agent in range(AGENTS)}
    turns.ready(**margins)
    for counts in turns:
        short = job.short_warm_up and not counts
        with Stopwatch() as watch:
            for minibatch in [stored[:1]] if short else minibatches:
                peer._update_from_preference_batch(minibatch)
        turns.done(watch.seconds)
