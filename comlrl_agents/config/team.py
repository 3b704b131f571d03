"""What every configuration of a trainer holds, whatever the algorithm."""

import sys
import typing
from dataclasses import dataclass, field
from typing import Literal

from comlrl_agents.config.fields import CheckedFields
from comlrl_agents.sinks import find_sinks
from comlrl_env.errors import ConfigError

if typing.TYPE_CHECKING:
    from comlrl_agents.optimisation import Optimisation
    from comlrl_agents.types import Sampling


@dataclass(kw_only=True, frozen=True)
class TeamConfig(CheckedFields):
    """What every trainer needs to know; see ALGORITHMS 14 for each field."""

    num_agents: int = 2
    num_train_epochs: int = 20
    agent_learning_rate: float = 5e-6
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

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        most = sys.float_info.max
        counts = (
            "num_agents num_train_epochs max_new_tokens top_k train_batch_size "
            "items_per_round rollout_buffer_size num_turns eval_interval eval_num_samples eval_batch_size "
            "logging_steps micro_batch_tokens checkpoint_interval checkpoint_total_limit"
        )
        return dict.fromkeys(counts.split(), (1, most)) | {
            "agent_learning_rate": (0, most),
            "temperature": (0, most),
            "top_p": (1e-6, 1),
            "seed": (0, 2**63 - 1),
            "max_grad_norm": (1e-12, most),
            "warmup_steps": (0, most),
            "drift_samples": (0, most),
        }

    def check_combinations(self) -> None:
        """Refuse fields that do not go together."""
        if self.num_turns > 1:
            raise ConfigError(f"num_turns: training covers one turn so far, actually {self.num_turns}")
        find_sinks(self.report_to)
        devices = self.agent_devices
        if self.parallel_training == "mp" and devices is None:
            raise ConfigError(
                "parallel_training: 'mp' lets agents work at the same time, each on its device, and needs "
                "agent_devices; e.g. ['cuda:0', 'cuda:1'], actually None"
            )
        if isinstance(devices, list) and len(devices) not in (1, self.num_actors):
            raise ConfigError(
                f"agent_devices: must name one device or one per agent ({self.num_actors}), actually {devices!r}"
            )

    @property
    def num_actors(self) -> int:
        """Models that answer: one per agent, or one that writes all roles."""
        return 1 if self.collaboration_mode == "centralized" else self.num_agents

    @property
    def batch_size(self) -> int:
        """Pairs per preference update, or items per policy update."""
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
            concurrent=self.parallel_training == "mp",
        )
