"""From stored pairs to token sequences: what one agent saw and said on both sides, ready for the log-probability."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from comlrl_agents.policy import LLMPolicy
from comlrl_env.types import JointTurn, PreferencePair

TokenRow = Sequence[int]


@dataclass(frozen=True, slots=True)
class AgentSequences:
    """All sequences of one agent in a minibatch of pairs.

    ``slots[s]`` says where sequence s belongs: 2·pair for the winner's side, 2·pair + 1 for the loser's. With H turns
    a side has H sequences, and :meth:`per_side` adds them up.
    """

    prompt_ids: list[TokenRow]
    completion_ids: list[TokenRow]
    slots: Tensor
    num_pairs: int

    def per_side(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum one value per sequence over turns: (winner (pairs,), loser (pairs,)). Differentiable."""
        sums = values.new_zeros(2 * self.num_pairs).index_add(0, self.slots.to(values.device), values)
        return sums[0::2], sums[1::2]

    def lengths(self, score_final_token: bool = True) -> tuple[Tensor, Tensor]:
        """Scored tokens per side, (winner (pairs,), loser (pairs,))."""
        left_out = 0 if score_final_token else 1
        counts = [max(len(row) - left_out, 0) for row in self.completion_ids]
        return self.per_side(torch.tensor(counts, dtype=torch.float32))


def agent_sequences(pairs: Sequence[PreferencePair], agent: int, policy: LLMPolicy) -> AgentSequences:
    """The sequences of agent ``agent`` (its index in the pair's lists) in the order winner, loser of each pair."""
    prompts: list[TokenRow] = []
    completions: list[TokenRow] = []
    slots: list[int] = []
    for index, pair in enumerate(pairs):
        for side, turns in enumerate((pair.winner, pair.loser)):
            for turn in turns:
                prompt, completion = _tokens(turn, agent, policy)
                prompts.append(prompt)
                completions.append(completion)
                slots.append(2 * index + side)
    return AgentSequences(prompts, completions, torch.tensor(slots), len(pairs))


def _tokens(turn: JointTurn, agent: int, policy: LLMPolicy) -> tuple[TokenRow, TokenRow]:
    """Stored tokens where there are any; text from elsewhere is tokenised and taken to have ended by itself."""
    completion = turn.completions[agent]
    prompt = turn.prompt_ids[agent] if turn.prompt_ids is not None else policy.encode(turn.prompts[agent])
    if completion.token_ids is not None:
        return prompt, completion.token_ids
    return prompt, policy.encode_completion(completion.text, finished=completion.finished is not False)
