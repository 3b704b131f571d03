"""MADPO updates: optimizer steps of two agents on minibatches of 8 pairs whose sequences are all distinct."""

from typing import TYPE_CHECKING

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job, batches, pairs
from benchmarks.speed.worker import Stopwatch, Turns

if TYPE_CHECKING:
    from comlrl_agents.policy import LLMPolicy

AGENTS = 2

BENCH = Bench(
    name="update",
    unit="pairs/s",
    peer="comlrl",
    shapes={"S": {"pairs": 8, "updates": 4}, "G": {"pairs": 8, "updates": 1}},
    targets={"S": 2.5, "G": 7.0},
    turns={"S": 9, "G": 2},
    amount=lambda job: job.shapes["pairs"] * job.shapes["updates"],
    flop=lambda job: AGENTS * job.about.update_flop(2 * job.shapes["pairs"] * job.shapes["updates"]),
)


def run(job: Job, turns: Turns) -> None:
    """Our side: ``MADPO.learn``."""
    from benchmarks.speed.team import MADPOConfig, load, stored_pairs
    from comlrl_agents.learners.madpo import MADPO

    config = MADPOConfig(dtype="float32")
    policies = load(job, AGENTS, config, turns)
    learner = MADPO(policies, config.loss, config.optimisation)
    minibatches = batches(job, stored_pairs(job, AGENTS))
    turns.ready(**{f"margin_{agent}": margin for agent, margin in enumerate(_margins(job, policies))})
    for _ in turns:
        with Stopwatch() as watch:
            for minibatch in minibatches:
                learner.learn(minibatch)
        turns.done(watch.seconds)


def _margins(job: Job, policies: "list[LLMPolicy]") -> list[float]:
    """Log-ratio of the first pair's winner and loser for each agent, under the weights that both sides start from.

    Without the last token, which CoMLRL leaves out of its sums; in the turns we count it.
    """
    import torch

    first = pairs(job, AGENTS)[0]
    with torch.no_grad():
        rows = [
            policy.sequence_logprobs([own.prompt, own.prompt], [own.winner, own.loser], score_final_token=False)
            for policy, own in zip(policies, first, strict=True)
        ]
    return [float(winner - loser) for winner, loser in rows]
