"""Learning curves of the embedded model over seeds: ``python -m benchmarks.learning.curves [NAME …] [--seeds 0 1 2]``.

Every experiment is a command of ``comlrl train``, run once per seed, two at a time with one thread each. Into
benchmarks/results/ go ``learning.md`` (commands, machine, a table), ``learning.json`` (every evaluation) and a picture
per experiment: mean over seeds, with the range between the lowest and the highest seed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import comlrl_env
from benchmarks.learning.good_comparator import good_server
from benchmarks.speed.machine import describe
from comlrl_agents.journal import read_numbers

RESULTS = Path(__file__).parents[1] / "results"
REWARD = "eval/turn_1/reward_mean"

SHARED = (
    "temperature=0.8 top_p=0.95 top_k=null train_batch_size=8 agent_learning_rate=5e-4 winner_term_weight=0.5 "
    "eval_interval=16 eval_num_samples=64 eval_batch_size=64 report_to=[]"
)
POLICY = (
    "temperature=0.8 top_p=0.95 top_k=null rollout_buffer_size=8 num_generations=8 items_per_round=32 "
    "eval_interval=128 eval_num_samples=64 eval_batch_size=64 report_to=[]"
)
# Held to its initial policy by a KL term: without one the team finds what deceives the reward model within 32 updates.
LEARNED = (
    f"{POLICY} agent_learning_rate=2e-4 reference_kl_enabled=true reward_learning_rate=5e-4 reward_train_batch_size=8 "
    "reward_num_train_epochs=2 preference_num_candidates=16 preference_pairs_per_sample=24 pair_selection=random"
)
# Four things: a reward model of this size judges six right in 0.75 of held-out pairs and is deceived within 16 updates
# ("pen, box, box"). Of four it must be sure in 0.99, which 64 pairs of an item do not give and 256 of the same
# candidates do, and the team must be held: with a coefficient of 0.3 it still finds a way in the end.
LEARNED_PARTITION = (
    f"{POLICY} env.num_things=4 agent_learning_rate=1e-4 reference_kl_enabled=true reference_kl_coef=1.0 "
    "reward_learning_rate=5e-4 reward_train_batch_size=8 reward_num_train_epochs=3 preference_num_candidates=96 "
    "preference_pairs_per_sample=256 pair_selection=random"
).replace("items_per_round=32", "items_per_round=24")
RANDOM_OF_FOUR = 1 / 6  # exact, see the task's page; its figures are those of six things
BACK_ENDS = ("magrpo", "mareinforce", "marloo", "maremax", "iac", "maac")
# The best of the others as the baseline makes nearly every advantage negative: as it is, a team loses its language.
OWN = {"maremax": " advantage_normalization=true"}
# Learned rewards spread over ten and more here: as they are, they throw two seeds of three to 0.
OWN_LEARNED = {("partition", "mareinforce"): " advantage_normalization=true"}
# Advantages normalised over a buffer push on when there is nothing left to gain: at 5e-4 the language goes, and some
# seeds fall back.
RATE = dict.fromkeys(("iac", "maac"), "2e-4 critic_learning_rate=5e-4")
ROUNDS = f"{SHARED} items_per_round=8 preference_num_candidates=16 preference_pairs_per_sample=8"
EXPERIMENTS = {
    "length-madpo-iter": (
        f"madpo-iter env=comlrl/LengthRatio-v0 {ROUNDS} num_iterations=12 pair_selection=reward_gap max_new_tokens=64"
    ),
    "partition-madpo-iter": f"madpo-iter env=comlrl/Partition-v0 {ROUNDS} num_iterations=32 max_new_tokens=32",
    # The same against other comparators; GOOD_SERVER answers as the task's gold does.
    "partition-history": (
        f"madpo-iter env=comlrl/Partition-v0 {ROUNDS} num_iterations=32 max_new_tokens=32 comparator_policy=history"
    ),
    "partition-good-api": (
        f"madpo-iter env=comlrl/Partition-v0 {ROUNDS} num_iterations=32 max_new_tokens=32 comparator_policy=api "
        "comparator_api_url=GOOD_SERVER"
    ),
    "length-madpo": (
        f"madpo env=comlrl/LengthRatio-v0 {SHARED} items_per_round=32 preference_num_candidates=48 num_train_epochs=2 "
        "max_new_tokens=64"
    ),
    # One item: a convention (who takes which half) is a choice between equals. Winners of many items split evenly
    # between the conventions, so that no agent's own margin points anywhere; rounds break the tie, one collection must
    # be lopsided from the start.
    "partition-madpo": (
        f"madpo env=comlrl/Partition-v0 {SHARED} items_per_round=1 preference_num_candidates=200 "
        "preference_pairs_per_sample=64 num_train_epochs=6 max_new_tokens=32"
    ),
    "length-madpo-iter-no-winner-term": (
        f"madpo-iter env=comlrl/LengthRatio-v0 {ROUNDS} num_iterations=12 pair_selection=reward_gap max_new_tokens=64 "
        "winner_term_weight=0"
    ).replace("winner_term_weight=0.5 ", ""),
    **{
        f"{task}-{name}": (
            f"{name} env=comlrl/{env} {POLICY} agent_learning_rate={RATE.get(name, '5e-4')} num_train_epochs={epochs} "
            f"max_new_tokens={tokens}{OWN.get(name, '')}"
        )
        for task, env, tokens, epochs in (("length", "LengthRatio-v0", 64, 16), ("partition", "Partition-v0", 32, 32))
        for name in BACK_ENDS
    },
    **{
        f"{task}-marlhf-{name}": (
            f"marlhf env=comlrl/{env} {settings} rl_algorithm={name} num_train_epochs={epochs} "
            f"max_new_tokens={tokens}{OWN_LEARNED.get((task, name), OWN.get(name, ''))}"
        )
        for task, env, settings, tokens, epochs in (
            ("length", "LengthRatio-v0", LEARNED, 64, 8),
            ("partition", "Partition-v0", LEARNED_PARTITION, 32, 24),
        )
        for name in BACK_ENDS
    },
    # A reward model that has seen what the last one was deceived by: rounds, with the pairs of all of them. What comes
    # out depends on how a processor rounds, with these settings as with the firmer ones above (LOG.md, 2026-12-01).
    "partition-marlhf-iter": (
        f"marlhf-iter env=comlrl/Partition-v0 {LEARNED_PARTITION} rl_algorithm=magrpo num_iterations=4 "
        "num_train_epochs=6 preference_replay_mode=all_history preference_replay_sample_size=2048 max_new_tokens=32"
    )
    .replace("reference_kl_coef=1.0", "reference_kl_coef=0.3")
    .replace("reward_num_train_epochs=3", "reward_num_train_epochs=4")
    .replace("preference_pairs_per_sample=256", "preference_pairs_per_sample=64"),
    # benchmarks/learning/marlhf.yaml
    "length-marlhf-iter": (
        f"marlhf-iter env=comlrl/LengthRatio-v0 {LEARNED} rl_algorithm=magrpo num_iterations=8 num_train_epochs=1 "
        "max_new_tokens=64"
    )
    .replace("agent_learning_rate=2e-4", "agent_learning_rate=3e-4")
    .replace("eval_interval=128", "eval_interval=64"),
}


def run(name: str, seed: int, folder: Path) -> list[dict[str, float]]:
    """The logged lines of one experiment with one seed."""
    output = folder / f"{name}-{seed}"
    env_id = EXPERIMENTS[name].split("env=")[1].split()[0]
    with good_server(env_id) as url:
        arguments = EXPERIMENTS[name].replace("GOOD_SERVER", url).split()
        done = subprocess.run(
            [sys.executable, "-m", "comlrl_agents", "train", *arguments, f"seed={seed}", f"output_dir={output}"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{name}, seed {seed}: {done.stderr or done.stdout}")
    return list(read_numbers(output / "metrics.jsonl"))


def evaluations(lines: list[dict[str, float]]) -> list[tuple[float, float]]:
    """(env_step or update, reward) of every evaluation, by update."""
    return [(line["step"], line[REWARD]) for line in lines if REWARD in line]


def outcome(name: str, runs: dict[int, list[dict[str, float]]], made: str) -> dict[str, Any]:
    """What an experiment came to, over its seeds; ``made``: with what, see :func:`made_with`."""
    curves = {str(seed): evaluations(lines) for seed, lines in runs.items()}
    drifts = [[line for line in lines if "agent_0/drift" in line] for lines in runs.values()]
    # One collection is sampled before any training: its drift says nothing about the outcome.
    drift = [lines[-1] for lines in drifts if len(lines) > 1]
    return {
        "experiment": name,
        "command": f"comlrl train {EXPERIMENTS[name]} seed=SEED",
        "made": made,
        "before": [curve[0][1] for curve in curves.values()],
        "after": [curve[-1][1] for curve in curves.values()],
        "best": [max(value for _, value in curve) for curve in curves.values()],
        "drift": [min(line[f"agent_{i}/drift"] for i in range(2)) for line in drift],
        "env_steps": [lines[-1]["env_step"] for lines in runs.values()],
        "curves": curves,
    }


def made_with() -> str:
    """Commit and machine of a measurement."""
    asked = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(
        asked, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    ).stdout.strip()
    machine = describe()
    return f"{commit or 'no commit'}, {machine['cpu']}, {machine['cores']} cores"


def draw(result: dict[str, Any], baseline: float, path: Path) -> None:
    """Mean over seeds and the range between them, beside the random baseline."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    curves = [np.array(curve) for curve in result["curves"].values()]
    grid = np.unique(np.concatenate([curve[:, 0] for curve in curves]))
    # A run that had no pair left to learn from stays at its last evaluation.
    values = np.stack([np.interp(grid, curve[:, 0], curve[:, 1]) for curve in curves])
    axes.fill_between(grid, values.min(0), values.max(0), alpha=0.2, color="tab:blue", label="lowest to highest seed")
    axes.plot(grid, values.mean(0), "o-", color="tab:blue", label=f"mean of {len(curves)} seeds")
    axes.axhline(baseline, color="tab:gray", linestyle="--", label="random answers")
    axes.set(xlabel="updates", ylabel="evaluation reward", title=result["experiment"], ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path)


def spread(values: list[float]) -> str:
    """Median and range."""
    if not values:
        return "not measured"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def write_page(results: list[dict[str, Any]]) -> None:
    """``learning.md``: the table, and how each row was made."""
    rows = [
        f"| {r['experiment']} | {spread(r['before'])} | {spread(r['after'])} | {spread(r['drift'])} | "
        f"{int(statistics.median(r['env_steps'])):,} | {', '.join(r['curves'])} | {r['made']} |"
        for r in results
    ]
    commands = [f"- `{r['experiment']}`: `{r['command']}`" for r in results]
    pictures = [f"![{r['experiment']}](learning-{r['experiment']}.png)" for r in results]
    page = [
        "# What the embedded team learns",
        "",
        "Made by `python -m benchmarks.learning.curves`, one thread a run; median and range over seeds. Reward: "
        "mean of 64 evaluation items, one joint answer each. Drift: mean log-probability per token of "
        "the agents' own late samples under their initial weights, the worse of the two agents (about -0.8 at the "
        "start; far below means that the language is gone). `env_step`: joint responses scored in training. "
        "Why a seed stays behind, and what was tried: [LOG.md](../LOG.md).",
        "",
        "| experiment | before | after | drift at the end | env_step | seeds | made at, on |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        *pictures,
        "",
        "Commands:",
        "",
        *commands,
        "",
    ]
    (RESULTS / "learning.md").write_text("\n".join(page), encoding="utf-8")


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="; ".join(EXPERIMENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    names = options.names or list(EXPERIMENTS)
    if unknown := set(names) - set(EXPERIMENTS):
        parser.error(f"unknown experiment {unknown.pop()!r}; there are {', '.join(EXPERIMENTS)}")
    made = made_with()  # before the runs: the tree may change meanwhile
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        jobs = {(name, seed): pool.submit(run, name, seed, Path(folder)) for name in names for seed in options.seeds}
        results = [outcome(name, {s: jobs[name, s].result() for s in options.seeds}, made) for name in names]
    RESULTS.mkdir(exist_ok=True)
    for result in results:
        env_id = result["command"].split("env=")[1].split()[0]
        measured = comlrl_env.load_task(env_id).figures["random"]
        baseline = RANDOM_OF_FOUR if "env.num_things=4 " in result["command"] else measured
        draw(result, baseline, RESULTS / f"learning-{result['experiment']}.png")
        print(result["experiment"], "before", spread(result["before"]), "after", spread(result["after"]), flush=True)
    kept = RESULTS / "learning.json"
    known = {r["experiment"]: r for r in json.loads(kept.read_text())} if kept.exists() else {}
    known |= {r["experiment"]: r for r in results}
    ordered = [known[name] for name in EXPERIMENTS if name in known]
    kept.write_text(json.dumps(ordered, indent=1) + "\n")
    write_page(ordered)


if __name__ == "__main__":
    main()
