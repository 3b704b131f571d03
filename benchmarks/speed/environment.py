"""What the environment costs beside the task: a task whose prompts and scores cost nothing."""

from statistics import median

from benchmarks.speed.bench import Bench
from benchmarks.speed.job import Job
from benchmarks.speed.turns import Record
from benchmarks.speed.worker import Stopwatch, Turns


def _microseconds(job: Job, record: Record) -> float:
    return 1e6 * median(record.cpu_seconds) / (job.shapes["episodes"] * job.shapes["candidates"])


BENCH = Bench(
    name="environment",
    unit="responses/s",
    shapes={
        "one joint response": {"episodes": 2000, "candidates": 1, "wrapped": 0},
        "16 candidates, wrapped": {"episodes": 300, "candidates": 16, "wrapped": 1},
    },
    targets={"one joint response": 50.0, "16 candidates, wrapped": 50.0},
    turns={"one joint response": 9, "16 candidates, wrapped": 9},
    amount=lambda job: job.shapes["episodes"] * job.shapes["candidates"],
    value=_microseconds,
    value_unit="µs of processor time per joint response",
)


def run(job: Job, turns: Turns) -> None:
    """Reset and step, many times; wrapped: with the selection of preference pairs."""
    from comlrl_env.functions import from_functions
    from comlrl_env.preferences import PreferenceWrapper

    count = job.shapes["candidates"]
    rows = [{"prompt": f"prompt {index}"} for index in range(64)]
    env = from_functions(rows, lambda first, second: list(map(float, map(len, first))), lambda row: str(row["prompt"]))
    wrapper = PreferenceWrapper(env)
    actions = {agent: [f"answer {'x' * k}" for k in range(count)] for agent in env.possible_agents}
    action = {agent: texts[0] for agent, texts in actions.items()}
    turns.ready()
    for _ in turns:
        with Stopwatch() as watch:
            for episode in range(job.shapes["episodes"]):
                options = {"item": episode % len(rows)}
                if job.shapes["wrapped"]:
                    wrapper.reset(seed=episode, options=options)
                    wrapper.step(actions)
                else:
                    env.reset(seed=episode, options=options)
                    env.step(action)
        turns.done(watch.seconds)
