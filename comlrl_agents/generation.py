"""Batched sampling over prompts × n: an own decode loop over the model's forward and cache."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from comlrl_agents.tokens import pad
from comlrl_agents.types import Sampling

Sampled = tuple[list[int], bool]


@torch.inference_mode()
def generate(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    eos_ids: Collection[int],
    generator: torch.Generator,
) -> list[list[Sampled]]:
    """``n`` samples per prompt: their token ids (a closing EOS included) and whether they ended by
    themselves.
    """
    model.eval()
    device = next(model.parameters()).device
    rows = [list(p) for p in prompt_ids for _ in range(n)]
    ids, mask = (x.to(device) for x in pad(rows, "left"))
    out: list[list[int]] = [[] for _ in rows]
    finished = [False] * len(rows)
    cache: Any = None
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    for _ in range(sampling.max_new_tokens):
        outputs = model(
            input_ids=ids, attention_mask=mask.long(), position_ids=positions, cache=cache, use_cache=True
        )
        cache = outputs.cache
        token = draw(outputs.logits[:, -1].float(), sampling, generator)
        for row, t in enumerate(token.tolist()):
            if not finished[row]:
                out[row].append(t)
                finished[row] = t in eos_ids
        if all(finished):
            break
        ids = token[:, None]
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
    return [[(out[row], finished[row]) for row in range(p * n, (p + 1) * n)] for p in range(len(prompt_ids))]


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """One token per row of ``logits`` (B, V)."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    logits = logits / sampling.temperature
    values, indices = logits.topk(min(sampling.top_k or logits.shape[-1], logits.shape[-1]), dim=-1)
    probs = values.softmax(-1)
    mass_before = probs.cumsum(-1) - probs
    probs = probs.masked_fill(mass_before >= sampling.top_p, 0.0)
    return indices.gather(1, torch.multinomial(probs, 1, generator=generator))[:, 0]
