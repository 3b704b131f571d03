"""How far an agent has moved from its initial weights, seen through its own samples."""

from collections.abc import Sequence

import torch

from comlrl_agents.policy import LLMPolicy
from comlrl_agents.types import Generation


@torch.no_grad()
def mean_logprob(initial: LLMPolicy, samples: Sequence[Generation]) -> float:
    """Mean log-probability per token of ``samples`` under the initial weights, in nats.

    Near the entropy of the initial policy at first; a fall means that the agent now says what its initial weights
    would hardly say, which is where language falls apart.
    """
    total = initial.sequence_logprobs([g.prompt_ids for g in samples], [g.token_ids for g in samples]).sum()
    return float(total) / max(1, sum(len(g.token_ids) for g in samples))
