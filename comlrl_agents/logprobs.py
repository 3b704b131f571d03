"""The one sequence log-probability: log π(completion | prompt), exact and differentiable."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from comlrl_agents.tokens import pad

TokenIds = Sequence[int]


def sequence_logprobs(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> Tensor:
    """Σ_t log π(token t | prompt, tokens before t) for each row: float32 of shape (B,), with gradient.

    Every completion token counts, a closing EOS included; ``score_final_token=False`` leaves the last one
    out. An empty completion has 0.
    """
    return token_logprobs(
        model,
        prompt_ids,
        completion_ids,
        score_final_token=score_final_token,
        micro_batch_tokens=micro_batch_tokens,
    )[0].sum(dim=1)


def token_logprobs(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of every completion token: float32 (B, T), zero where the bool mask (B, T) is False."""
    model.eval()
    device = next(model.parameters()).device
    targets = completion_ids if score_final_token else [row[:-1] for row in completion_ids]
    rows = [[*p, *c] for p, c in zip(prompt_ids, targets, strict=True)]
    ids, real = (x.to(device) for x in pad(rows, "right"))
    positions = torch.arange(ids.shape[1], device=device).expand_as(ids)
    logits = model(input_ids=ids, attention_mask=real.long(), position_ids=positions).logits.float()
    logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    target_ids, mask = (x.to(device) for x in pad(targets, "right"))
    starts = torch.tensor([len(p) - 1 for p in prompt_ids], device=device)
    columns = starts[:, None] + torch.arange(target_ids.shape[1], device=device)
    values = logp.gather(1, columns.clamp(max=max(logp.shape[1] - 1, 0))) if logp.shape[1] else logp
    return values.masked_fill(~mask, 0.0), mask


def backward_weighted(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    weights: Tensor,
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> None:
    """Adds the gradient of Σ_b weights[b] · logp_b to ``.grad`` of the parameters."""
    logp = sequence_logprobs(
        model,
        prompt_ids,
        completion_ids,
        score_final_token=score_final_token,
        micro_batch_tokens=micro_batch_tokens,
    )
    (logp * weights.to(logp)).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
