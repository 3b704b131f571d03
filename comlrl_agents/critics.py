"""Critics: how much return a prompt, or a prompt and its answer, promises.

A critic reads tokens and gives the number of its last one: the last prompt token for type "v", the last response token
for type "q".
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from comlrl_agents.model_source import UNREADABLE
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.reward_text import encode_plan
from comlrl_agents.rollouts import Group
from comlrl_agents.scalar_model import HEAD, ScalarModel, backbone_of, load_body, load_head
from comlrl_agents.scored_states import Row
from comlrl_agents.tokens import encode_prompt
from comlrl_env.errors import ConfigError

CriticType = Literal["v", "q"]


class Critic:
    """A scalar model with its tokenizer; ``kind`` says which position it reads."""

    def __init__(self, model: ScalarModel, tokenizer: Any, kind: CriticType) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.kind = kind

    def agent_rows(self, groups: Sequence[Group], agent: int, policy: LLMPolicy) -> list[Row]:
        """What one agent saw (and, for "q", said), response after response.

        Sampled token ids where critic and agent share a vocabulary, the texts otherwise.
        """
        answers = [(group.prompts[agent], answer) for group in groups for answer in group.answers[agent]]
        if self._shares_vocabulary(policy):
            return [(a.prompt_ids, a.token_ids if self.kind == "q" else ()) for _, a in answers]
        rows: list[Row] = []
        for prompt, answer in answers:
            said = self.tokenizer.encode(answer.text, add_special_tokens=False) if self.kind == "q" else ()
            rows.append((tuple(encode_prompt(self.tokenizer, prompt, False)), tuple(said)))
        return rows

    def joint_rows(self, groups: Sequence[Group]) -> list[Row]:
        """What all agents saw together (and, for "q", said)."""
        return encode_plan(
            self.tokenizer,
            [(group.prompts, joint if self.kind == "q" else ()) for group in groups for joint in group.joint_texts],
        )

    def _shares_vocabulary(self, policy: LLMPolicy) -> bool:
        if self.tokenizer is policy.tokenizer:
            return True
        same: bool = self.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
        return same


def own_head(policy: LLMPolicy, kind: CriticType, seed: int) -> Critic:
    """A value head on the actor's own body."""
    model = ScalarModel(backbone_of(policy.model), seed)
    model.compute_dtype = policy.compute_dtype
    return Critic(model, policy.tokenizer, kind)


def separate_critic(model: nn.Module, tokenizer: Any, kind: CriticType, seed: int) -> Critic:
    """A critic on the body of a causal language model of its own."""
    return Critic(ScalarModel(backbone_of(model), seed), tokenizer, kind)


def saved_critic(folder: Path, kind: CriticType) -> Critic:
    """A critic that a run has saved (``model/critic_0``, …), head and all, to go on with.

    Raises ConfigError when a file is missing or damaged.
    """
    try:
        backbone, tokenizer = load_body(folder)
        model = ScalarModel(backbone)
        load_head(model, folder / HEAD)
    except UNREADABLE as error:
        raise ConfigError(
            f"critic {str(folder)!r}: must hold whole files as a run saved them, actually loading ends with "
            f"{type(error).__name__}: {error}; copy the folder again, or begin with a fresh critic"
        ) from error
    return Critic(model, tokenizer, kind)


@torch.no_grad()
def expected(critic: Critic, rows: Sequence[Row], micro_batch_tokens: int | None) -> Tensor:
    """The critic's values without gradient, on the CPU; equal rows are read once."""
    return critic.model.values(rows, micro_batch_tokens).cpu()
