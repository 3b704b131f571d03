"""Policy updates by magrpo: one optimizer step of two agents on a buffer of groups of joint responses."""

from typing import TYPE_CHECKING

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job, group_tokens
from benchmarks.speed.worker import Stopwatch, Turns

if TYPE_CHECKING:
    from comlrl_agents.rollouts import Group

AGENTS = 2

BENCH = Bench(
    name="policy_update",
    unit="responses/s",
    peer="comlrl",
    shapes={"S": {"groups": 2, "generations": 4, "updates": 4}, "G": {"groups": 2, "generations": 4, "updates": 1}},
    targets={"S": 2.5, "G": 6.0},
    turns={"S": 9, "G": 2},
    amount=lambda job: job.shapes["groups"] * job.shapes["generations"] * job.shapes["updates"],
    flop=lambda job: (
        AGENTS * job.about.update_flop(job.shapes["groups"] * job.shapes["generations"] * job.shapes["updates"])
    ),
)


def run(job: Job, turns: Turns) -> None:
    """Our side: ``Reinforce.assess`` and ``learn``."""
    import torch

    from benchmarks.speed.team import load
    from comlrl_agents.config import RLConfig
    from comlrl_agents.learners.reinforce import Reinforce

    config = RLConfig(dtype="float32")
    policies = load(job, AGENTS, config, turns)
    learner = Reinforce(policies, "magrpo", config.policy_rule, config.optimisation)
    buffers = [_groups(job, update) for update in range(job.shapes["updates"])]
    first = [group_tokens(job, 0, agent)[0] for agent in range(AGENTS)]
    with torch.no_grad():
        logps = [
            float(p.sequence_logprobs([own.prompt], [own.completions[0]]))
            for p, own in zip(policies, first, strict=True)
        ]
    turns.ready(**{f"logp_{agent}": value for agent, value in enumerate(logps)})
    for _ in turns:
        with Stopwatch() as watch:
            for buffer in buffers:
                learner.learn(learner.assess(buffer))
        turns.done(watch.seconds)


def _groups(job: Job, update: int) -> "list[Group]":
    from comlrl_agents.items import Reset
    from comlrl_agents.rollouts import Group
    from comlrl_agents.types import Generation

    tokens = [group_tokens(job, update, agent) for agent in range(AGENTS)]
    return [
        Group(
            item=f"train/{number}",
            reset=Reset(number),
            prompts=("",) * AGENTS,
            answers=tuple(
                tuple(Generation("", tuple(c), False, tuple(own[number].prompt)) for c in own[number].completions)
                for own in tokens
            ),
            rewards=tuple(tokens[0][number].rewards),
        )
        for number in range(job.shapes["groups"])
    ]
