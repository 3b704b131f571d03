"""Critics: how much return a prompt, or a prompt and its answer, promises.

A critic reads tokens and gives the number of its last one: the last prompt token for type "v", the last response token
for type "q".
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from comlrl_agents.model_source import UNREADABLE, context_length
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.reward_model import SETTINGS as REWARD_MODEL
from comlrl_agents.reward_text import encode_plan
from comlrl_agents.rollouts import Group
from comlrl_agents.scalar_model import HEAD, ScalarModel, backbone_of, load_body, load_head, save_scalar
from comlrl_agents.scored_states import Row
from comlrl_agents.tokens import encode_prompt, text_ids
from comlrl_env.errors import ConfigError

CriticType = Literal["v", "q"]

SETTINGS = "critic.json"


class Critic:
    """A scalar model with its tokenizer; ``kind`` says which position it reads, ``central`` whose texts."""

    def __init__(self, model: ScalarModel, tokenizer: Any, kind: CriticType, *, central: bool = False) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.kind = kind
        self.central = central
        config: Any = model.backbone.config
        self.context = context_length(config)

    def agent_rows(self, groups: Sequence[Group], agent: int, policy: LLMPolicy) -> list[Row]:
        """What one agent saw (and, for "q", said), response after response.

        Sampled token ids where critic and agent share a vocabulary, the texts otherwise.
        """
        answers = [(group.prompts[agent], answer) for group in groups for answer in group.answers[agent]]
        if self._shares_vocabulary(policy):
            return self._fitting([(a.prompt_ids, a.token_ids if self.kind == "q" else ()) for _, a in answers])
        rows: list[Row] = []
        for prompt, answer in answers:
            said = text_ids(self.tokenizer, answer.text) if self.kind == "q" else ()
            rows.append((tuple(encode_prompt(self.tokenizer, prompt, False)), tuple(said)))
        return self._fitting(rows)

    def joint_rows(self, groups: Sequence[Group]) -> list[Row]:
        """What all agents saw together (and, for "q", said)."""
        joint = [(group.prompts, said if self.kind == "q" else ()) for group in groups for said in group.joint_texts]
        return self._fitting(encode_plan(self.tokenizer, joint))

    def _fitting(self, rows: list[Row]) -> list[Row]:
        """The rows. Raises ConfigError for one that the critic's context has no room for."""
        longest = max((len(beginning) + len(rest) for beginning, rest in rows), default=0)
        if self.context is not None and longest > self.context:
            raise ConfigError(
                f"critic_model_name: what a critic reads must fit into its context of {self.context} tokens, actually "
                f"{longest}; shorten the prompts, or name a model with a longer context"
            )
        return rows

    def _shares_vocabulary(self, policy: LLMPolicy) -> bool:
        if self.tokenizer is policy.tokenizer:
            return True
        same: bool = self.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
        return same


def save_critic(critic: Critic, folder: Path) -> None:
    """Body, head, tokenizer and what it reads, for :func:`saved_critic`."""
    save_scalar(critic.model, critic.tokenizer, folder)
    (folder / SETTINGS).write_text(json.dumps(_reads(critic.kind, critic.central)) + "\n", encoding="utf-8")


def _reads(kind: CriticType, central: bool) -> dict[str, Any]:
    return {"critic_type": kind, "reads": "all agents" if central else "one agent"}


def own_head(policy: LLMPolicy, kind: CriticType, seed: int) -> Critic:
    """A value head on the actor's own body."""
    model = ScalarModel(backbone_of(policy.model), seed)
    model.compute_dtype = policy.compute_dtype
    return Critic(model, policy.tokenizer, kind)


def separate_critic(model: nn.Module, tokenizer: Any, kind: CriticType, seed: int, *, central: bool = False) -> Critic:
    """A critic on the body of a causal language model of its own."""
    return Critic(ScalarModel(backbone_of(model), seed), tokenizer, kind, central=central)


def saved_critic(folder: Path, kind: CriticType, *, central: bool = False) -> Critic:
    """A critic that a run has saved (``model/critic_0``, …), head and all, to go on with.

    Raises ConfigError when a file is missing or damaged, or the critic has learned to read something else.
    """
    if (folder / REWARD_MODEL).is_file():
        raise ConfigError(
            f"critic {str(folder)!r}: must be a critic or a language model, actually a reward model, which has learned "
            "to read something else; name the folder of a critic, or of a language model for a fresh one"
        )
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        if settings != (wanted := _reads(kind, central)):
            raise ConfigError(
                f"critic {str(folder)!r}: must have learned what it is to go on with, {wanted}, actually {settings}; "
                "set critic_type and rl_algorithm as in its run, or begin with a fresh critic"
            )
        backbone, tokenizer = load_body(folder)
        model = ScalarModel(backbone)
        load_head(model, folder / HEAD)
    except UNREADABLE as error:
        raise ConfigError(
            f"critic {str(folder)!r}: must hold whole files as a run saved them, actually loading ends with "
            f"{type(error).__name__}: {error}; copy the folder again, or begin with a fresh critic"
        ) from error
    return Critic(model, tokenizer, kind, central=central)


@torch.no_grad()
def expected(critic: Critic, rows: Sequence[Row], micro_batch_tokens: int | None) -> Tensor:
    """The critic's values without gradient, on the CPU; equal rows are read once."""
    return critic.model.values(rows, micro_batch_tokens).cpu()
