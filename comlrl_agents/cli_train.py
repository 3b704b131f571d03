"""``comlrl train``: from keys to a trainer, and what it came to."""

import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from comlrl_agents import config
from comlrl_agents.cli_envs import make_env
from comlrl_agents.run_keys import RUN_KEYS, RunKeys, read_keys, shown
from comlrl_env import registry
from comlrl_env.errors import ConfigError
from comlrl_env.shared_reward import check_rule


@dataclass(frozen=True)
class Algorithm:
    """The names of an algorithm's configuration and trainer, imported when they are needed, and what it sets."""

    config_name: str
    trainer_name: str
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def config_class(self) -> type[config.TeamConfig]:
        """The configuration; costs no torch."""
        found: type[config.TeamConfig] = getattr(config, self.config_name)
        return found

    def trainer_class(self) -> Any:
        """The trainer; imports torch and transformers."""
        from comlrl_agents.terminal import quiet_loading

        quiet_loading()
        return getattr(import_module("comlrl_agents.trainers"), self.trainer_name)


ALGORITHMS = {
    "madpo": Algorithm("MADPOConfig", "MADPOTrainer"),
    "madpo-iter": Algorithm("MADPOIterConfig", "MADPOIterTrainer"),
    "marlhf": Algorithm("MARLHFConfig", "MARLHFTrainer"),
    "marlhf-iter": Algorithm("MARLHFIterConfig", "MARLHFIterTrainer"),
    # The back ends of MARLHF, directly on the task reward.
    **{
        name: Algorithm("RLConfig", "RLTrainer", {"rl_algorithm": name})
        for name in ("magrpo", "mareinforce", "marloo", "maremax", "iac", "maac")
    },
}


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Raises ConfigError for an unknown one."""
    if name not in ALGORITHMS:
        raise ConfigError(config.unknown_name("ALGO: unknown algorithm", name, list(ALGORITHMS)))
    return ALGORITHMS[name]


def describe_keys(name: str) -> str:
    """Every key of an algorithm with its default, and below it what it does."""
    chosen = find_algorithm(name)
    defaults = config.to_mapping(chosen.config_class()(**chosen.fixed))
    takes_pairs = issubclass(chosen.config_class(), config.PreferenceConfig)
    shown = {f"{key}=": text for key, text in RUN_KEYS.items() if key != "pairs" or takes_pairs}
    texts = config.descriptions(chosen.config_class())
    shown |= {f"{key}={config_text(value)}": texts[key] for key, value in defaults.items() if key not in chosen.fixed}
    blank = " " * 4
    return "\n".join(
        f"{key}\n{textwrap.fill(text, 100, initial_indent=blank, subsequent_indent=blank)}"
        for key, text in shown.items()
    )


def config_text(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def read_command(algorithm: str, assignments: Sequence[str], file: Path | None, *, resume: bool) -> RunKeys:
    """The keys of a command; a resume that names no file takes the ``config.yaml`` of its own run as one."""
    keys = read_keys(assignments, file)
    if not resume or file is not None:
        return keys
    kept = run_folder(algorithm, keys) / "config.yaml"
    if keys.env is None and not kept.is_file():
        raise ConfigError(
            f"output_dir: {kept.parent} holds no run to go on with; name its folder, or start one with env="
        )
    return read_keys(assignments, kept) if kept.is_file() else keys


def train(algorithm: str, keys: RunKeys, *, resume: bool, say: Callable[[str], object]) -> None:
    """Train as the keys say, then say how the evaluation changed and where everything lies.

    Raises ConfigError, before torch is imported, for every key, value or environment that is wrong.
    """
    chosen = find_algorithm(algorithm)
    config_class = chosen.config_class()
    if keys.algorithm not in (None, algorithm, chosen.trainer_name):
        raise ConfigError(
            f"algorithm: the settings are those of {keys.algorithm!r}, actually the command is `comlrl train "
            f"{algorithm}`; name the same algorithm in both"
        )
    # The config.yaml of a run on the task's reward names its back end, as the command does.
    told = {name: value for name, value in keys.fields.items() if (name, value) not in chosen.fixed.items()}
    keys = replace(keys, fields=told)
    known = [name for name in config_class.__dataclass_fields__ if name not in chosen.fixed]
    refuse_keys_of_others(keys, known, algorithm)
    keys.check_fields(known, f"comlrl train {algorithm}")
    env_id = keys.need_env()
    env = make_env(env_id, keys.env_arguments)
    eval_env, no_split = make_eval_env(keys)
    check_rule(keys.reward_rule)
    args = config.from_mapping(config_class, {"num_agents": len(env.possible_agents), **keys.fields, **chosen.fixed})
    if no_split:
        say(f"evaluation: {no_split}")
    if keys.agents is None:
        say("agents: none are named; the embedded model of this kit, agents=tiny, is taken")
        keys = replace(keys, agents="tiny")
    if keys.pairs is not None and not issubclass(config_class, config.PreferenceConfig):
        raise ConfigError(f"pairs: {algorithm} learns from rewards, not from pairs; leave it out")
    given = {} if keys.pairs is None else {"pairs": keys.pairs}
    folder = run_folder(algorithm, keys)
    trainer = chosen.trainer_class()(
        env=env,
        eval_env=eval_env,
        agents=keys.agents,
        tokenizer=keys.tokenizer,
        args=args,
        output_dir=folder,
        reward_rule=keys.reward_rule,
        **given,
    )
    trainer.description = keys.describe(algorithm)
    trainer.command = command_line()
    settle_computation(trainer, folder, resume=resume)
    trainer.train(resume_from_checkpoint=True if resume else None)
    say(summary(folder))


def refuse_keys_of_others(keys: RunKeys, known: Sequence[str], algorithm: str) -> None:
    """Raise ConfigError for a key that another algorithm has."""
    for name in keys.fields:
        owners = [
            other
            for other, one in ALGORITHMS.items()
            if name in one.config_class().__dataclass_fields__ and name not in one.fixed
        ]
        if name not in known and owners:
            nearest = f"{algorithm}-iter"
            shown_owners = nearest if nearest in owners else " and ".join(owners)
            raise ConfigError(
                f"comlrl train {algorithm}: unknown key {name!r}, which is a key of {shown_owners}; leave it out, or "
                "train with that"
            )


def make_eval_env(keys: RunKeys) -> tuple[Any, str]:
    """The environment of the evaluation: the same one, on its evaluation split where it has one; or why not."""
    shared = {name: value for name, value in keys.env_arguments.items() if name != "split"}
    return registry.make_evaluation(keys.need_env(), **{**shared, **keys.eval_arguments})


def run_folder(algorithm: str, keys: RunKeys) -> Path:
    """``output_dir``; without one ``runs/<algorithm>-<environment>``."""
    name = "" if keys.output_dir else keys.need_env().rsplit("/", 1)[-1].replace(":", "-")
    return Path(keys.output_dir or f"runs/{algorithm}-{name}")


def stopped(algorithm: str, keys: RunKeys | None) -> str:
    """What to do after an interruption."""
    folder = None if keys is None else run_folder(algorithm, keys)
    if folder is None or not (folder / "config.yaml").exists():
        return "stopped before the run began; nothing was written, and the same command begins it"
    if not any((folder / "checkpoints").glob("step_*")):
        return "stopped before the first checkpoint; the same command with --resume begins anew"
    return "stopped; the same command with --resume goes on from the last checkpoint"


def command_line() -> str:
    """The command as it was typed, without secrets."""
    return shlex.join([Path(sys.argv[0]).name, *map(shown, sys.argv[1:])])


def settle_computation(trainer: Any, folder: Path, *, resume: bool) -> None:
    """Choose threads, allocator and float32 products for this process, and keep the choice in ``computation.json``.

    The choice is measured, and it rounds differently: a resume takes the one that its run began with.
    """
    import torch

    from comlrl_agents.placement import tune

    kept = folder / "computation.json"
    policy = trainer.policies[0]
    reasons = tune(policy.device, policy.model)
    if resume and kept.exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        torch.set_num_threads(before["threads"])
        torch.set_float32_matmul_precision(before["float32_products"])
    elif not (folder / "config.yaml").exists():
        chosen = {
            "threads": torch.get_num_threads(),
            "float32_products": torch.get_float32_matmul_precision(),
            "reasons": reasons,
        }
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(chosen, indent=1) + "\n", encoding="utf-8")


def summary(folder: Path) -> str:
    """The evaluation before and after, and where to look."""
    from comlrl_agents.columns import columns
    from comlrl_agents.journal import read_numbers
    from comlrl_agents.report import CURVE, evaluation_rows

    evaluations = evaluation_rows(read_numbers(folder / "metrics.jsonl"))
    picture = folder / CURVE
    where = str(picture) if picture.exists() else "none: pip install 'comlrl-kit[plot]', then `comlrl report`"
    return "\n".join(["", columns(evaluations), "", f"run folder      {folder}", f"learning curve  {where}"])
