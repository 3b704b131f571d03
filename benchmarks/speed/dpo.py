"""One agent against TRL: DPO steps on 8 pairs with a frozen reference model, the loss of both sides."""

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job, batches, pairs
from benchmarks.speed.worker import Stopwatch, Turns

BENCH = Bench(
    name="dpo",
    unit="pairs/s",
    peer="trl",
    shapes={"S": {"pairs": 8, "updates": 8}, "G": {"pairs": 8, "updates": 1}},
    targets={"S": 1.0, "G": 3.0},
    turns={"S": 9, "G": 2},
    amount=lambda job: job.shapes["pairs"] * job.shapes["updates"],
    # The reference model's pass costs a third of the training pass.
    flop=lambda job: job.about.update_flop(2 * job.shapes["pairs"] * job.shapes["updates"]) * 4 / 3,
    agents=1,
    notes={"peer": "defaults of DPOConfig with bf16=False: float32, gradient checkpointing"},
)


def run(job: Job, turns: Turns) -> None:
    """Our side: ``MADPO.learn`` with one agent, anchored to a reference."""
    from benchmarks.speed.team import MADPOConfig, load, stored_pairs
    from comlrl_agents.learners.madpo import MADPO

    config = MADPOConfig(num_agents=1, dtype="float32", reference_anchored=True)
    policies, reference = load(job, 1, config, turns), load(job, 1, config, turns)
    for parameter in reference[0].parameters():
        parameter.requires_grad_(False)
    learner = MADPO(policies, config.loss, config.optimisation, reference)
    minibatches = batches(job, stored_pairs(job, 1, closed=True))
    (first,) = pairs(job, 1, closed=True)[0]
    chosen, rejected = (
        reference[0].sequence_logprobs([first.prompt, first.prompt], [first.winner, first.loser]).tolist()
    )
    turns.ready(chosen=chosen, rejected=rejected)
    for _ in turns:
        with Stopwatch() as watch:
            for minibatch in minibatches:
                learner.learn(minibatch)
        turns.done(watch.seconds)
