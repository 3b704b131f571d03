"""CoMLRL's policy update."""

from benchmarks.speed.job import Job, group_tokens
from benchmarks.speed.peers.comlrl_team import AGENTS, trainer
from benchmarks.speed.worker import Stopwatch, Turns


def run(job: Job, turns: Turns) -> None:
    """Time ``MAGRPOTrainer``'s update on ready-made groups."""
    import torch
    from comlrl.trainers.reinforce.magrpo import MAGRPOConfig, MAGRPOTrainer, NodeSample  # type: ignore[import-not-found]  # lives in the peers' environment

    config = MAGRPOConfig(num_turns=1, num_generations=job.shapes["generations"], eval_interval=0)
    peer = trainer(MAGRPOTrainer, config, job)

    def sample(agent: int, own: object) -> object:
        data = {
            "prompt_input_ids": torch.tensor([own.prompt]),
            "completion_input_ids": [[torch.tensor(c) for c in own.completions]],
            "reference_kls": [],
        }
        return NodeSample(agent, 0, data, list(own.rewards), 0.0, 0.0, 0)

    buffers = [
        [[sample(agent, own) for own in group_tokens(job, update, agent)] for agent in range(AGENTS)]
        for update in range(job.shapes["updates"])
    ]
    turns.ready(
        **{f"logp_{agent}": _logprob(peer.agents[agent], group_tokens(job, 0, agent)[0]) for agent in range(AGENTS)}
    )
    for counts in turns:
        short = job.short_warm_up and not counts
        with Stopwatch() as watch:
            for buffer in buffers[:1] if short else buffers:
                for agent in range(AGENTS):
                    peer._update_from_samples(agent, list(buffer[agent])[: 1 if short else None])
        turns.done(watch.seconds)


def _logprob(model: object, own: object) -> float:
    """Of the first completion: CoMLRL has no function for it that counts every token."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([[*own.prompt, *own.completions[0]]])
        logps = model(input_ids=ids).logits[0].log_softmax(-1)
    start = len(own.prompt) - 1
    return float(sum(logps[start + t, token] for t, token in enumerate(own.completions[0])))
