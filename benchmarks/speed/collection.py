"""Pair collection: 16 (S) or 4 (G) candidates of two agents for each item, scored, pairs selected."""

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.worker import Stopwatch, Turns

AGENTS = 2

BENCH = Bench(
    name="collection",
    unit="tokens/s",
    peer="comlrl",
    shapes={"S": {"items": 8, "candidates": 16}, "G": {"items": 4, "candidates": 4}},
    targets={"S": 2.5, "G": 7.0},
    turns={"S": 9, "G": 3},
    amount=lambda job: AGENTS * job.shapes["items"] * job.shapes["candidates"] * job.about.completion_tokens,
    flop=lambda job: AGENTS * job.about.sampling_flop(job.shapes["items"], job.shapes["candidates"]),
)


def run(job: Job, turns: Turns) -> None:
    """Our side: ``collect`` as the trainers call it."""
    import numpy as np

    from benchmarks.speed.team import MADPOConfig, environment, load
    from comlrl_agents.collect import collect
    from comlrl_agents.items import ItemSchedule
    from comlrl_agents.sides import Side
    from comlrl_env.preferences import PreferenceWrapper

    config = MADPOConfig(
        preference_num_candidates=job.shapes["candidates"], max_new_tokens=job.about.completion_tokens, dtype="float32"
    )
    policies = load(job, AGENTS, config, turns)
    env = environment(job)
    wrapper = PreferenceWrapper(env, config.pair_selection, config.preference_pairs_per_sample)
    selection, *rngs = np.random.default_rng(job.seed).spawn(1 + AGENTS)
    team = Side(policies, rngs, config.preference_num_candidates)
    resets = ItemSchedule(env, None).draw(selection)
    turns.ready(tokens=BENCH.amount(job))
    for _ in turns:
        with Stopwatch() as watch:
            collection = collect(wrapper, resets, team, None, selection)
        drawn = sum(len(generation.token_ids) for own in collection.samples for generation in own)
        assert drawn == BENCH.amount(job), f"{drawn} tokens instead of {BENCH.amount(job)}"
        turns.done(watch.seconds)
