"""``make train-real``: two pretrained agents learn HumanEval together, with everything from PyPI.

Iterative MADPO of two Gemma 3 270M base models on ``comlrl/HumanEval-v0`` (strict reward), for two CPU cores and 24 GB;
``algorithm=marlhf-iter`` fits a third one as the reward model of a round and learns from it by ``magrpo``. The model is
checked first. Before and after training each answer to the held-out problems is scored by the strict and by the
reference reward. ``python -m benchmarks.learning.real num_iterations=1 output_dir=runs/trial`` changes settings;
``eval_answers`` is the number of answers per held-out problem.
"""

import json
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import comlrl_env
from benchmarks.learning.gemma import gemma_folder
from benchmarks.learning.model_checks import check_model, greedy
from comlrl_agents import MADPOIterTrainer, MARLHFIterTrainer
from comlrl_agents.config import from_mapping
from comlrl_agents.journal import read_numbers
from comlrl_agents.placement import tune
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.run_folder import RunFolder
from comlrl_agents.run_keys import read_keys
from comlrl_agents.terminal import quiet_loading
from comlrl_agents.tokens import eos_ids
from comlrl_agents.types import Policy
from comlrl_env.errors import ComlrlError, ConfigError
from comlrl_env.tasks.code.human_eval import HumanEval

SHARED: dict[str, Any] = {
    "num_iterations": 2,
    "items_per_round": 3,
    "preference_num_candidates": 8,
    "preference_pairs_per_sample": 4,
    "pair_selection": "reward_gap",
    "max_new_tokens": 96,
    # A base model needs warmth to give candidates that differ, and a cut tail to give code.
    "temperature": 0.8,
    "top_p": 0.95,
    "train_batch_size": 2,
    # At 2e-5 and a winner term of 0.1 the helper wrote comments without end after twelve updates.
    "agent_learning_rate": 1e-5,
    "lr_scheduler_type": "linear",
    # The trainer's own evaluations only watch; the figures come from `measure`.
    "eval_interval": 1_000_000,
    "eval_num_samples": 1,
    "drift_samples": 8,
    "checkpoint_total_limit": 1,
    "logging_steps": 2,
    "seed": 0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    # Means over tokens: among pairs won by chance, sums favour the side that goes on longer (results/real.md).
    "madpo-iter": SHARED | {"winner_term_weight": 0.5, "length_normalization": True, "dpo_beta": 2.0},
    # The eleven pairs with the largest gaps teach a reward model that short answers win (results/real.md): every
    # comparison of all rounds, and a firmer hold.
    "marlhf-iter": SHARED
    | {
        "preference_pairs_per_sample": 8,
        "pair_selection": "random",
        "preference_replay_mode": "all_history",
        "reference_kl_coef": 0.5,
        "num_train_epochs": 1,
        "num_generations": 8,
        "reward_learning_rate": 2e-5,
        "reward_train_batch_size": 4,
        "reward_held_out_share": 0.0,  # three problems are too few to spare one
        "reward_max_length": 1024,
        "reference_kl_enabled": True,
        "micro_batch_tokens": 1536,  # not the activations of four pairs of joint texts at once
    },
}
LEVEL = 2
"""The two thirds of the problems with the shortest solutions: the longest do not fit in ``max_new_tokens``."""
EVAL_ANSWERS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """One joint answer to a held-out problem, scored by both rewards."""

    item: str
    responses: dict[str, str]
    figures: dict[str, float]
    reason: str


def end_at_blank_lines(policy: LLMPolicy) -> None:
    """Let two blank lines, which stand between functions, end an answer, also in the model that is saved.

    A base model knows no end of an answer: it would go on with more functions until it is cut, and be trained on them.
    """
    gaps = [policy.tokenizer("\n" * count, add_special_tokens=False)["input_ids"] for count in range(3, 32)]
    ends = sorted({ids[0] for ids in gaps if len(ids) == 1})
    settings: Any = policy.model.generation_config
    settings.eos_token_id = [policy.tokenizer.eos_token_id, *ends]
    policy.eos_ids = eos_ids(policy.model, policy.tokenizer)


def measure(policies: Sequence[Policy], answers: int, seed: int) -> list[Answer]:
    """``answers`` joint answers to every held-out problem. The same seed draws with the same random numbers."""
    task, reference = HumanEval("strict", level=LEVEL), HumanEval("reference", level=LEVEL)
    items = task.items("eval")
    prompts = [task.prompts(item, ()) for item in items]
    texts = {
        agent: policy.generate([p[agent] for p in prompts], answers, np.random.default_rng([seed, index]))
        for index, (agent, policy) in enumerate(zip(task.agents, policies, strict=True))
    }
    rows = []
    for place, item in enumerate(items):
        joint = [{agent: texts[agent][place][k].text for agent in task.agents} for k in range(answers)]
        strict_scores = task.score_many(item, (), joint)
        for responses, strict, published in zip(
            joint, strict_scores, reference.score_many(item, (), joint), strict=True
        ):
            figures = {"strict": strict.reward, "reference": published.reward, **strict.parts}
            rows.append(Answer(item.key, responses, figures, strict.reason or published.reason))
    return rows


def compare(before: Sequence[Answer], after: Sequence[Answer]) -> list[str]:
    """A table of two measurements: means over problems, and the mean change by problem with its standard error."""
    lines = [f"{'':<14}{'before':>9}{'after':>9}{'change':>9}{'± s.e.':>9}"]
    for name in dict.fromkeys(name for answer in before for name in answer.figures):
        old, new = by_item(before, name), by_item(after, name)
        changes = np.array([new[key] - old[key] for key in old if key in new])
        error = float(changes.std(ddof=1)) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
        means = f"{np.mean(list(old.values())):>9.3f}{np.mean(list(new.values())):>9.3f}"
        lines.append(f"{name:<14}{means}{changes.mean():>+9.3f}{error:>9.3f}")
    return lines


def by_item(answers: Sequence[Answer], name: str) -> dict[str, float]:
    """The mean of one figure by problem; an answer that could not be judged is in no mean."""
    values: dict[str, list[float]] = {}
    for answer in answers:
        if math.isfinite(answer.figures.get(name, math.nan)):
            values.setdefault(answer.item, []).append(answer.figures[name])
    return {key: float(np.mean(found)) for key, found in values.items()}


def write_answers(answers: Sequence[Answer], path: Path) -> None:
    """One answer per line, best first."""
    ordered = sorted(answers, key=lambda answer: -answer.figures["strict"])
    path.write_text("".join(json.dumps(asdict(answer)) + "\n" for answer in ordered), encoding="utf-8")


def show_round_rewards(folder: Path) -> None:
    """The training problems: what each round's candidates earned, how many pairs they gave."""
    for line in read_numbers(folder / "metrics.jsonl"):
        if "collect/reward_mean" in line:
            cut = ", ".join(f"{line[f'agent_{i}/clipped_ratio']:.2f}" for i in range(2))
            print(
                f"round {line['round']:.0f}: mean reward {line['collect/reward_mean']:.3f}, "
                f"{line['pairs/kept']:.0f} pairs with a mean gap of {line['pairs/gap_mean']:.3f}, cut answers {cut}"
            )


def train_real(assignments: Sequence[str]) -> None:
    """The whole run; ``assignments`` are ``key=value`` as for ``comlrl train``."""
    start = time.perf_counter()
    quiet_loading()
    keys = read_keys(assignments)
    answers = int(keys.fields.get("eval_answers", EVAL_ANSWERS))
    fields = {name: value for name, value in keys.fields.items() if name != "eval_answers"}
    algorithm = keys.algorithm or "madpo-iter"
    if algorithm not in SETTINGS:
        raise ConfigError(f"algorithm: must be one of {', '.join(SETTINGS)}, actually {algorithm!r}")
    trainer_class = MADPOIterTrainer if algorithm == "madpo-iter" else MARLHFIterTrainer
    config = from_mapping(trainer_class.config_class, SETTINGS[algorithm] | fields)
    output = Path(keys.output_dir or "runs/real")
    RunFolder(output).refuse_if_used()
    envs = {split: comlrl_env.make("comlrl/HumanEval-v0", split=split, level=LEVEL) for split in ("train", "eval")}
    trainer = trainer_class(
        env=envs["train"],
        eval_env=envs["eval"],
        agents=str(keys.agents or gemma_folder()),
        args=config,
        output_dir=output,
    )
    policies = trainer.policies
    for topic, reason in tune(policies[0].device, policies[0].model).items():
        print(f"{topic}: {reason}")
    print(f"checks of the model ({policies[0].name}):")
    check_model(policies[0])
    for policy in policies:
        end_at_blank_lines(policy)
    prompts, _ = envs["eval"].reset(options={"item": 0})
    for agent, policy in zip(envs["eval"].possible_agents, policies, strict=True):
        print(f"most likely answer of {agent} to the first held-out problem:\n{greedy(policy, prompts[agent], 48)}\n")

    before = measure(policies, answers, config.seed)
    trainer.train()
    after = measure(policies, answers, config.seed)
    write_answers(before, output / "answers_before.jsonl")
    write_answers(after, output / "answers_after.jsonl")
    print(f"\n{len({answer.item for answer in after})} held-out problems, {answers} answers to each:")
    print("\n".join(compare(before, after)))
    print()
    show_round_rewards(output)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{(time.perf_counter() - start) / 60:.1f} minutes on {os.cpu_count()} cores, peak memory {peak:.1f} GiB")


if __name__ == "__main__":
    try:
        train_real(sys.argv[1:])
    except ComlrlError as error:
        sys.exit(f"train-real: {error}")
