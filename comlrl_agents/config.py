"""The public configurations: flat names and defaults of ALGORITHMS 14, checked at construction.

Below this file nothing sees a flat configuration: ``sampling``, ``loss``, ``optimisation``, ``replay`` and
``comparator`` hand out the small typed parts.
"""

import difflib
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import msgspec

from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.comparators import ComparatorRule
    from comlrl_agents.losses import PreferenceLoss
    from comlrl_agents.optimisation import Optimisation
    from comlrl_agents.replay import ReplayRule
    from comlrl_agents.types import Sampling

ConfigT = TypeVar("ConfigT", bound="TeamConfig")

PairSelection = Literal["reward_gap", "random", "all", "diverse", "comparator_reward"]


@dataclass(kw_only=True, frozen=True)
class TeamConfig:
    """What every trainer needs to know; see ALGORITHMS 14 for each field."""

    num_agents: int = 2
    num_train_epochs: int = 20
    agent_learning_rate: float = 5e-6
    preference_num_candidates: int = 80
    preference_pairs_per_sample: int | None = 16
    pair_selection: PairSelection = "reward_gap"
    max_new_tokens: int = 256
    temperature: float = 0.6
    top_p: float = 0.6
    top_k: int | None = 50
    train_batch_size: int | None = None
    rollout_buffer_size: int = 2
    num_turns: int = 1
    joint_mode: Literal["aligned"] = "aligned"
    collaboration_mode: Literal["decentralized", "centralized"] = "decentralized"
    parallel_training: Literal["none", "mp"] = "none"
    agent_devices: str | list[str] | None = None
    eval_interval: int = 16
    eval_num_samples: int = 4
    eval_batch_size: int = 1
    logging_steps: int = 50
    environment_steps_per_pair: int = 2
    # Ours
    seed: int = 0
    items_per_round: int | None = None
    max_grad_norm: float | None = 1.0
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    gradient_checkpointing: bool = False
    dtype: Literal["float32", "bfloat16"] | None = None
    micro_batch_tokens: int | None = None
    score_final_token: bool = True
    use_chat_template: bool | None = None
    drift_samples: int = 16
    checkpoint_interval: int = 1
    checkpoint_total_limit: int | None = 2
    report_to: list[str] = field(default_factory=lambda: ["tensorboard", "console"])

    def __new__(cls, **values: Any) -> Self:
        """Refuse unknown names with the nearest known one, which a plain dataclass would not name."""
        for name in values:
            if name not in cls.__dataclass_fields__:
                raise ConfigError(unknown_name(f"{cls.__name__}: unknown field", name, list(cls.__dataclass_fields__)))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self)).items():
            _check_type(name, getattr(self, name), hint)
        for name, (low, high) in self.ranges().items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name}: must lie in [{low:g}, {high:g}], actually {value!r}")
        self.check_combinations()

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        counts = (
            "num_agents num_train_epochs preference_pairs_per_sample max_new_tokens top_k train_batch_size "
            "items_per_round rollout_buffer_size num_turns eval_interval eval_num_samples eval_batch_size "
            "logging_steps environment_steps_per_pair micro_batch_tokens checkpoint_interval checkpoint_total_limit"
        )
        return dict.fromkeys(counts.split(), (1, most)) | {
            "preference_num_candidates": (2, most),
            "agent_learning_rate": (0, most),
            "temperature": (0, most),
            "top_p": (1e-6, 1),
            "seed": (0, 2**63 - 1),
            "max_grad_norm": (1e-12, most),
            "warmup_steps": (0, most),
            "drift_samples": (0, most),
        }

    def check_combinations(self) -> None:
        """Refuse fields that do not go together.

        Raises:
            ConfigError: naming the field, the rule and the value.

        """
        if self.pair_selection == "all" and self.preference_pairs_per_sample is not None:
            raise ConfigError(
                "preference_pairs_per_sample: must be None with pair_selection='all' (every pair is kept), actually "
                f"{self.preference_pairs_per_sample!r}; set it to None or choose another pair_selection"
            )
        if self.pair_selection == "comparator_reward" and not isinstance(self, IterConfig):
            raise ConfigError(
                "pair_selection: 'comparator_reward' compares with a comparator, which only the iterative trainers "
                "have; use 'reward_gap', 'random', 'all' or 'diverse'"
            )
        if self.num_turns > 1:
            raise ConfigError(f"num_turns: training covers one turn so far, actually {self.num_turns}")
        if self.collaboration_mode == "centralized":
            raise ConfigError("collaboration_mode: 'centralized' is not trained yet; use 'decentralized'")
        if self.parallel_training == "mp":
            raise ConfigError("parallel_training: 'mp' is not built yet; use 'none' (agent_devices works with it)")
        devices = self.agent_devices
        if isinstance(devices, list) and len(devices) not in (1, self.num_agents):
            raise ConfigError(
                f"agent_devices: must name one device or one per agent ({self.num_agents}), actually {devices!r}"
            )

    @property
    def batch_size(self) -> int:
        """Pairs per preference update."""
        return self.train_batch_size or self.rollout_buffer_size

    @property
    def rounds(self) -> int:
        """Rounds of collection; the base trainers have one."""
        return 1

    @property
    def sampling(self) -> "Sampling":
        """How the team's answers are drawn."""
        from comlrl_agents.types import Sampling

        return Sampling(self.max_new_tokens, self.temperature, self.top_p, self.top_k)

    @property
    def optimisation(self) -> "Optimisation":
        """How the agents' weights are updated."""
        from comlrl_agents.optimisation import Optimisation

        return Optimisation(
            learning_rate=self.agent_learning_rate,
            max_grad_norm=self.max_grad_norm,
            lr_scheduler_type=self.lr_scheduler_type,
            warmup_steps=self.warmup_steps,
            micro_batch_tokens=self.micro_batch_tokens,
            score_final_token=self.score_final_token,
        )

    @property
    def replay(self) -> "ReplayRule":
        """Which stored pairs are trained on."""
        from comlrl_agents.replay import ReplayRule

        return ReplayRule()

    @property
    def comparator(self) -> "ComparatorRule | None":
        """The other side of each comparison; None compares the team's candidates with each other."""
        return None


@dataclass(kw_only=True, frozen=True)
class MADPOConfig(TeamConfig):
    """Direct preference optimisation of a team; one collection, then ``num_train_epochs`` over its pairs."""

    dpo_beta: float = 0.1
    # Ours: variants of the loss, all off by default
    loss_type: Literal["sigmoid", "ipo"] = "sigmoid"
    label_smoothing: float = 0.0
    target_margin: float = 0.0
    length_normalization: bool = False
    winner_term_weight: float = 0.0
    reference_anchored: bool = False

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        return TeamConfig.ranges() | {
            "dpo_beta": (1e-12, sys.float_info.max),
            "label_smoothing": (0, 0.4999),
            "target_margin": (0, sys.float_info.max),
            "winner_term_weight": (0, sys.float_info.max),
        }

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        for name in ("label_smoothing", "target_margin"):
            if self.loss_type == "ipo" and getattr(self, name):
                raise ConfigError(
                    f"{name}: belongs to loss_type='sigmoid'; with 'ipo' it must be 0, actually {getattr(self, name)}"
                )

    @property
    def loss(self) -> "PreferenceLoss":
        """The preference loss."""
        from comlrl_agents.losses import PreferenceLoss

        return PreferenceLoss(
            beta=self.dpo_beta,
            loss_type=self.loss_type,
            label_smoothing=self.label_smoothing,
            target_margin=self.target_margin,
            length_normalization=self.length_normalization,
            winner_term_weight=self.winner_term_weight,
            reference_anchored=self.reference_anchored,
        )


@dataclass(kw_only=True, frozen=True)
class IterConfig(TeamConfig):
    """What the iterative trainers add: rounds, a comparator, a replay buffer (ALGORITHMS 5 to 7)."""

    num_iterations: int = 6
    num_train_epochs: int = 1
    preference_num_candidates: int = 20
    preference_pairs_per_sample: int | None = 4
    pair_selection: PairSelection = "comparator_reward"
    preference_replay_mode: Literal["current", "nearest_k", "all_history", "lambda_decay"] = "current"
    preference_replay_k: int | None = None
    preference_replay_lambda: float | None = None
    preference_replay_sample_size: int | None = None
    preference_replay_dir: str | None = None
    policy_checkpoint_dir: str | None = None
    comparator_policy: Literal["current", "history"] = "current"
    comparator_num_candidates: int | None = None
    comparator_history_k: int = 1

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        counts = (
            "num_iterations preference_replay_k preference_replay_sample_size comparator_num_candidates "
            "comparator_history_k"
        )
        return (
            super().ranges()
            | dict.fromkeys(counts.split(), (1, sys.float_info.max))
            | {
                "preference_replay_lambda": (0, 1),
            }
        )

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        super().check_combinations()
        mode, k = self.preference_replay_mode, self.preference_replay_k
        needs: dict[str, dict[str, bool]] = {
            "current": {"preference_replay_lambda": False, "preference_replay_sample_size": False},
            "nearest_k": {"preference_replay_k": True, "preference_replay_lambda": False},
            "all_history": {"preference_replay_k": False, "preference_replay_lambda": False},
            "lambda_decay": {"preference_replay_lambda": True, "preference_replay_k": False},
        }
        for name, needed in needs[mode].items():
            value = getattr(self, name)
            if needed and value is None:
                raise ConfigError(f"{name}: is required by preference_replay_mode={mode!r}, actually None")
            if not needed and value is not None:
                raise ConfigError(
                    f"{name}: has no meaning with preference_replay_mode={mode!r}, actually {value!r}; leave it out"
                )
        if mode == "current" and k not in (None, 1):
            raise ConfigError(
                f"preference_replay_k: must be None or 1 with preference_replay_mode='current', actually {k!r}"
            )

    @property
    def rounds(self) -> int:
        """Rounds of comparison and training."""
        return self.num_iterations

    @property
    def replay(self) -> "ReplayRule":
        """Which stored pairs of which rounds are trained on."""
        from comlrl_agents.replay import ReplayRule

        return ReplayRule(
            mode=self.preference_replay_mode,
            k=self.preference_replay_k,
            decay=self.preference_replay_lambda,
            sample_size=self.preference_replay_sample_size,
        )

    @property
    def comparator(self) -> "ComparatorRule":
        """Who answers on the other side of each comparison."""
        from comlrl_agents.comparators import ComparatorRule

        return ComparatorRule(
            policy=self.comparator_policy,
            num_candidates=self.comparator_num_candidates or self.preference_num_candidates,
            history_k=self.comparator_history_k,
        )


@dataclass(kw_only=True, frozen=True)
class MADPOIterConfig(IterConfig, MADPOConfig):
    """MADPO in rounds against a comparator."""


def from_mapping(cls: type[ConfigT], values: Mapping[str, Any]) -> ConfigT:
    """A configuration from text-like values (command line, YAML, TOML): ``"1e-6"`` becomes a float, ``"none"`` None.

    Raises:
        ConfigError: an unknown name (with the nearest known one), a value of the wrong type, an illegal combination.

    """
    hints = typing.get_type_hints(cls)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if (
            isinstance(value, str)
            and value.lower() in ("none", "null")
            and value not in typing.get_args(hints.get(name))
        ):
            value = None  # noqa: PLW2901 - both spellings people type; parallel_training has a value of that name
        converted[name] = _convert(name, value, hints[name]) if name in hints else value
    return cls(**converted)


def to_mapping(config: TeamConfig) -> dict[str, Any]:
    """The fields as plain data, in the order of their definition."""
    return {f.name: getattr(config, f.name) for f in fields(config)}


def unknown_name(what: str, name: str, known: list[str]) -> str:
    """The text of an error about a name that nobody knows, with the nearest known one."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
    return f"{what} {name!r}{hint}"


def _convert(name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_expected(hint)}, actually {value!r} ({error})") from error


def _check_type(name: str, value: Any, hint: Any) -> None:
    try:
        msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_expected(hint)}, actually {value!r}") from error
    if isinstance(value, bool) and hint in (int, float):
        raise ConfigError(f"{name}: {_expected(hint)}, actually {value!r}")


def _expected(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "must be one of " + ", ".join(map(repr, typing.get_args(hint)))
    if origin in (typing.Union, types.UnionType):
        return "must be " + " or ".join(_expected(part).removeprefix("must be ") for part in typing.get_args(hint))
    return f"must be {getattr(hint, '__name__', str(hint))}"


def output_folder(output_dir: str | Path) -> Path:
    """The run folder as an absolute path."""
    return Path(output_dir).expanduser().resolve()
