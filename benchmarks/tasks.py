"""What every task gives to scripted players and to the embedded model before training.

``python -m benchmarks.tasks`` writes ``benchmarks/results/tasks.md``; ``python -m benchmarks.tasks ID …`` prints the
rows of some tasks only.
"""

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from comlrl_agents.evaluate import evaluate
from comlrl_agents.policy import LLMPolicy, load_policy
from comlrl_agents.types import Sampling
from comlrl_env import TextEnv, registry
from comlrl_env.errors import ComlrlError
from comlrl_env.figures import KINDS, measure

RESULT = Path(__file__).parent / "results" / "tasks.md"
ITEMS, DRAWS = 32, 4
HEADINGS = ("task", "gold", "solo", "random", "untrained tiny team (95 %)", "seconds")
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_new_tokens=48)
HEAD = """\
# Every task, scripted and untrained

`python -m benchmarks.tasks`, {machine}. Means over the first {items} evaluation items; random: {draws} draws of each;
tiny: two (or more) copies of the embedded model as it ships, sampled at temperature {temperature:g} with at most
{tokens} tokens. Solo: one agent answers well, the others say nothing. Default arguments everywhere.
"""


def figures(name: str, tiny: LLMPolicy) -> tuple[str, ...]:
    """One task as a row under :data:`HEADINGS`; one that cannot be made says why."""
    start = time.perf_counter()
    try:
        env = registry.make(name, split="eval")
    except ComlrlError as error:
        return (name, *[""] * (len(HEADINGS) - 3), f"not usable here: {error}", "")
    assert isinstance(env, TextEnv)
    measured = measure(env.task, "eval", num_items=ITEMS, draws=DRAWS)
    team = dict.fromkeys(env.possible_agents, tiny)
    seeds = np.random.SeedSequence(0).spawn(len(team))
    rngs = {agent: np.random.default_rng(seed) for agent, seed in zip(team, seeds, strict=True)}
    returns = np.array(evaluate(team, env, ITEMS, rngs).returns)
    half = 1.96 * returns.std(ddof=1) / np.sqrt(len(returns))
    shown = [f"{measured[kind]:.2f}" for kind in KINDS]
    return (name, *shown, f"{returns.mean():.2f} ± {half:.2f}", f"{time.perf_counter() - start:.1f}")


def main(names: Sequence[str]) -> None:
    """Measure all registered tasks, or the named ones."""
    tiny = load_policy("tiny", sampling=SAMPLING)
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for name in names or sorted(registry.BUILT_IN):
        lines.append(f"| {' | '.join(figures(name, tiny))} |")
        print(lines[-1], flush=True)
    if not names:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        head = HEAD.format(
            machine=machine, items=ITEMS, draws=DRAWS, temperature=SAMPLING.temperature, tokens=SAMPLING.max_new_tokens
        )
        RESULT.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
