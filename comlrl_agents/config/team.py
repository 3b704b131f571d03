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
    """What every trainer needs to know."""

    num_agents: int = 2
    """Agents in the team."""
    num_train_epochs: int = 20
    """Passes of a round over its pairs (madpo), or over its items (marlhf and the back ends)."""
    agent_learning_rate: float = 5e-6
    """AdamW's learning rate for the agents."""
    max_new_tokens: int = 256
    """Most tokens of an answer; one that is cut there is marked as such."""
    temperature: float = 0.6
    """Of the team's sampling; 0 is greedy."""
    top_p: float = 0.6
    """Draw from the likeliest tokens that together have this probability; 1 is all."""
    top_k: int | None = 50
    """Draw from so many of the likeliest tokens; none is all."""
    train_batch_size: int | None = None
    """Pairs per update (madpo), or items per update (marlhf and the back ends); none takes rollout_buffer_size."""
    rollout_buffer_size: int = 2
    """Items whose answers are sampled and scored before policies learn from them."""
    num_turns: int = 1
    """Turns of an episode that are trained on; 1 so far."""
    joint_mode: Literal["aligned"] = "aligned"
    """Candidate k of every agent forms joint response k."""
    collaboration_mode: Literal["decentralized", "centralized"] = "decentralized"
    """Every agent answers for itself, or one model writes the answers of all roles in one text."""
    parallel_training: Literal["none", "mp"] = "none"
    """mp: agents work at the same time, each on its device in agent_devices."""
    agent_devices: str | list[str] | None = None
    """A device for all agents, or one each; none picks one."""
    eval_interval: int = 16
    """Evaluate after so many updates (madpo), or so many training items (marlhf and the back ends)."""
    eval_num_samples: int = 4
    """Items of an evaluation, the same ones each time."""
    eval_batch_size: int = 1
    """Items that are evaluated at a time."""
    logging_steps: int = 50
    """Updates whose mean makes one logged line; the end of an epoch makes one too."""
    # Ours
    seed: int = 0
    """Of all randomness of the run."""
    items_per_round: int | None = None
    """Items of a round; none takes all of the environment's."""
    max_grad_norm: float | None = 1.0
    """Clip each model's gradient to this norm; none does not."""
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = "constant"
    """How the agents' learning rate falls over the run."""
    warmup_steps: int = 0
    """Updates over which the agents' learning rate rises at the start."""
    gradient_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory, more time."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """What models compute in; weights in training stay float32. None: bfloat16 on GPUs that have it, else float32."""
    micro_batch_tokens: int | None = None
    """Most tokens of one forward and backward pass: less memory, the same gradient."""
    score_final_token: bool = True
    """Whether the last token of an answer, its EOS mostly, counts in log-probabilities."""
    use_chat_template: bool | None = None
    """Whether prompts go through the tokenizer's chat template; none: where it has one."""
    drift_samples: int = 16
    """Answers of each agent whose log-probability under the initial weights is logged as its drift; 0 is none."""
    checkpoint_interval: int = 1
    """Write a checkpoint after so many epochs or rounds."""
    checkpoint_total_limit: int | None = 2
    """Checkpoints that stay; none keeps all."""
    report_to: list[str] = field(default_factory=lambda: ["tensorboard", "console"])
    """Where figures go while training: tensorboard, console; none is nowhere but the run folder."""

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
