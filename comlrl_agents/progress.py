"""Where a run stands, and how that is written to a checkpoint and read back."""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from comlrl_agents.checkpoint import (
    is_complete,
    latest_checkpoint,
    load_tensors,
    mirror,
    read_state,
    refuse_misfit,
    save_tensors,
    write_checkpoint,
)
from comlrl_agents.config import to_mapping
from comlrl_agents.items import Reset, item_reset
from comlrl_agents.optimisation import distinct_modules
from comlrl_agents.policy_history import load_weights, weights
from comlrl_env.errors import CheckpointError
from comlrl_env.parallel import begin

if TYPE_CHECKING:
    from comlrl_agents.trainer import Trainer

# Fields that may change on resume: the run may grow, and how it is watched, stored and placed changes no number of it.
FREE_FIELDS = frozenset(
    [
        "num_iterations",
        "num_train_epochs",
        "eval_interval",
        "eval_num_samples",
        "eval_batch_size",
        "logging_steps",
        "drift_samples",
        "checkpoint_interval",
        "checkpoint_total_limit",
        "report_to",
        "task_reward_samples",
        "reward_model_device",
        "critic_devices",
        "reference_devices",
        "agent_devices",
        "parallel_training",
        "comparator_devices",
        "comparator_api_url",
        "comparator_api_key_env",
        "comparator_api_key_header",
        "comparator_api_key_prefix",
        "comparator_api_timeout",
        "comparator_api_max_concurrency",
        "comparator_api_max_retries",
        "comparator_api_cache_dir",
        "preference_replay_dir",
        "policy_checkpoint_dir",
    ]
)


@dataclass
class Progress:
    """The counters of a run. ``round`` is 1-based; ``sample``: where the pairs lie that the round trains on.

    ``env_steps``: joint responses that were scored; ``task_steps``: those of them that the task itself scored.
    ``items``: seeds of the round's items, each with whether the item is asked for by index. ``fit_epoch``: epochs of
    the round's reward model that are done; ``items_seen``: items that policy learning has sampled for, in all rounds.
    """

    round: int = 1
    phase: str = "collect"
    epoch: int = 0
    updates: int = 0
    env_steps: int = 0
    task_steps: int = 0
    reference_env_steps: int = 0
    checkpoints: int = 0
    evaluated_at: int = -1
    last_evaluation: dict[str, float] = field(default_factory=dict)
    sample: list[tuple[int, int]] = field(default_factory=list)
    items: list[tuple[int, bool]] = field(default_factory=list)
    fit_epoch: int = 0
    items_seen: int = 0

    def begin_learning(self, resets: Sequence[Reset]) -> None:
        """Note the round's items; its learning begins."""
        self.items = [(reset.seed, reset.options is not None) for reset in resets]
        self.phase, self.epoch, self.fit_epoch = "learn", 0, 0

    def resets(self) -> list[Reset]:
        """The round's items."""
        return [item_reset(seed) if by_index else Reset(seed) for seed, by_index in self.items]


def phase_shown(name: str, done: int, epochs: int) -> str:
    """A phase as the live line names it, of whose epochs ``done`` are over: with the epoch where there are several."""
    return name if epochs == 1 else f"epoch {done + 1}/{epochs}  {name}"


class RunState:
    """Gathers and restores the state of a trainer; the only code that knows all of its parts."""

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer = trainer
        self.folder = trainer.folder.checkpoints
        options = None if trainer.items.num_items is None else {"item": 0}
        self._first_prompts = dict(begin(trainer.env, seed=0, options=options)[0])

    def find(self, wanted: bool | str | Path | None) -> Path | None:
        """The checkpoint to go on from, or None for a start from round 0.

        Raises:
            ConfigError: the folder holds a run and ``wanted`` does not ask to continue it.
            CheckpointError: there are checkpoints, but all of them are damaged.

        """
        if isinstance(wanted, str | Path):
            return Path(wanted)
        if not wanted:
            self.trainer.folder.refuse_if_used()
            return None
        newest = latest_checkpoint(self.folder)
        if newest is None and any(self.folder.glob("step_*")):
            raise CheckpointError(
                f"{self.folder}: holds checkpoints, but none is whole; nothing was changed: restore one from a copy, "
                "or start a new run in another output_dir"
            )
        return newest

    def save(self) -> Path:
        """Write a checkpoint of the run as it stands. Raises CheckpointError when it cannot be written."""
        progress = self.trainer.progress
        progress.checkpoints += 1
        name = f"step_{progress.checkpoints:08d}"
        try:
            return write_checkpoint(self.folder, name, self._fill, self.trainer.args.checkpoint_total_limit)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{self.folder}: {name} cannot be written: {error}; earlier ones are as they were: make room, and "
                "resume from them"
            ) from error

    def restore(self, path: Path) -> None:
        """Bring the trainer to the state of a checkpoint.

        Raises:
            CheckpointError: it is not whole or does not fit; nothing has changed then.

        """
        run = self.trainer
        state = read_state(path)
        refuse_misfit(state["fingerprint"], self._fingerprint(), FREE_FIELDS, path)
        self._refuse_other_shapes(path)
        self._refuse_shorter_run(state["progress"], path)
        learner = load_tensors(path / "learner.pt")
        run.tracker.rewind(state["tracker"])
        for index, module in distinct_modules(run.policies).items():
            load_weights(module, path / "weights" / f"agent_{index}.safetensors")
        mirror(path / "pairs", run.replay.folder)
        mirror(path / "policies", run.history.folder, linked=True)
        run.replay.load_state_dict(state["replay"])
        run.items.load_state_dict(state["items"])
        run.streams.load_state_dict(state["streams"])
        run.learning.load_state_dict(learner)
        run.progress = Progress(**state["progress"])
        run.progress.sample = [(int(i), int(p)) for i, p in run.progress.sample]
        # Going back leaves the checkpoints of another future behind; the next resume must not take one of them.
        for later in self.folder.glob("step_*") if path.parent == self.folder else ():
            if later.name <= path.name:
                continue
            if is_complete(later):
                shutil.rmtree(later)
            else:
                kept = f"damaged-{len(list(self.folder.glob('damaged-*'))) + 1}-{later.name}"
                later.rename(later.with_name(kept))
                run.tracker.console(f"{later.name} is damaged and was passed over; it is kept as {kept}")
        if run.progress.round > run.args.rounds and run.progress.epoch < run.args.num_train_epochs:
            # The run had ended and num_train_epochs has grown: go on with the last round's pairs.
            run.progress.round, run.progress.phase = run.args.rounds, "learn"

    def _refuse_shorter_run(self, progress: Mapping[str, Any], path: Path) -> None:
        begun = progress["round"] - (progress["phase"] == "collect")
        args = self.trainer.args
        for name, what, done, wanted in (
            ("num_iterations", "rounds that the run has begun", begun, args.rounds),
            ("num_train_epochs", "epochs that its latest round has had", progress["epoch"], args.num_train_epochs),
        ):
            if done > wanted:
                raise CheckpointError(
                    f"{path}: {name} must not be less than the {done} {what}, actually {wanted}; nothing was changed: "
                    f"raise {name}"
                )

    def _fill(self, staged: Path) -> None:
        run = self.trainer
        (staged / "weights").mkdir()
        for index, module in distinct_modules(run.policies).items():
            save_file(weights(module), staged / "weights" / f"agent_{index}.safetensors")
        save_tensors(run.learning.state_dict(), staged / "learner.pt")
        mirror(run.replay.folder, staged / "pairs", names="iteration_*.json")
        mirror(run.history.folder, staged / "policies", linked=True)
        state = {
            "fingerprint": self._fingerprint(),
            "progress": dataclasses.asdict(run.progress),
            "streams": run.streams.state_dict(),
            "items": run.items.state_dict(),
            "replay": run.replay.state_dict(),
            "tracker": run.tracker.position(),
        }
        (staged / "state.json").write_text(json.dumps(state))

    def _fingerprint(self) -> dict[str, Any]:
        run = self.trainer
        described = {
            "Trainer": type(run).__name__,  # first in order: fields that only one of two trainers has say less
            "env": str(run.env),
            "agents": run.agents,
            "num_items": run.items.num_items,
            "reward_rule": run.reward_rule,
            "first prompts": self._first_prompts,
            "given pairs": None if run.given is None else run.given.sizes,
            **run.learning.fingerprint(),
        }
        fields: dict[str, Any] = json.loads(json.dumps({**described, **to_mapping(run.args)}))
        return fields

    def _refuse_other_shapes(self, path: Path) -> None:
        for index, module in distinct_modules(self.trainer.policies).items():
            file = path / "weights" / f"agent_{index}.safetensors"
            if not file.is_file():
                raise CheckpointError(
                    f"{path}: has no weights of its own for agent {index}; the checkpoint was written by a team that "
                    "shares its models in another way"
                )
            now = weights(module)
            with safe_open(file, "pt") as stored:
                saved = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
            for name in sorted(set(saved) | set(now)):
                shape = tuple(now[name].shape) if name in now else None
                if saved.get(name) != shape:
                    raise CheckpointError(
                        f"{path}: tensor {name} of agent {index} was {saved.get(name)} when the checkpoint was written "
                        f"and is {shape} now; give the agents that the run was started with"
                    )
