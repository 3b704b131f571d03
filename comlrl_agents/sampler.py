"""Drawing tokens from logits: temperature, then top-k, then top-p, by the inverse of the cumulative
distribution.

The same distribution as transformers' ``generate`` (of logits that tie at the edge of the nucleus all stay, there the
first ones), without sorting the vocabulary where candidates can be cut first.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from comlrl_agents.types import Sampling

_BLOCK = 64
_SMALL_VOCABULARY = 4096
_FIRST_CANDIDATES = 256


class Sampler:
    """Draws one token per row and step.

    All random numbers of a call are drawn up front, one per row and step, so that what a row gets does not
    depend on when the other rows end. ``sources``: so many rows, one after the other, and their generator.
    """

    def __init__(self, sampling: Sampling, sources: Sequence[tuple[int, torch.Generator]]) -> None:
        self.sampling = sampling
        self.greedy = sampling.temperature == 0
        if not self.greedy:
            # In (0, 1], so that the first token whose cumulative mass reaches u · total has a mass itself.
            drawn = [
                torch.rand((sampling.max_new_tokens, rows), generator=source, device=source.device)
                for rows, source in sources
            ]
            self._uniforms = 1.0 - torch.cat(drawn, dim=1)

    @property
    def top_k(self) -> int | None:
        """How many of the largest logits can be drawn; None: all."""
        return 1 if self.greedy else self.sampling.top_k

    def draw(self, logits: Tensor, step: int, rows: Tensor) -> Tensor:
        """Columns (R,) of the float32 ``logits`` (R, C) of the rows with these numbers."""
        if self.greedy:
            return logits.argmax(dim=-1)
        uniforms = self._uniforms[step, rows, None]
        temperature, top_p, top_k = self.sampling.temperature, self.sampling.top_p, self.sampling.top_k
        if logits.shape[1] <= _SMALL_VOCABULARY:
            return _pick(_weights(logits, temperature), top_k, top_p, uniforms)
        if top_k:
            values, tokens = largest(logits, top_k)
            # In the order of the columns, so that the same random number draws the same token on every path.
            tokens, order = tokens.sort(dim=1)
            values = values.gather(1, order)
            return tokens.gather(1, _pick(_weights(values, temperature), top_k, top_p, uniforms)[:, None])[:, 0]
        weights = _weights(logits, temperature)
        return _pick_nucleus(weights, top_p, uniforms) if top_p < 1.0 else _pick_from_all(weights, uniforms)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest entries of each row, in descending order, and where they are.

    In long rows they are looked for in the k blocks with the largest maxima: no other block can hold one.
    """
    rows, size = values.shape
    blocks = size // _BLOCK
    if size <= _SMALL_VOCABULARY or k >= blocks:
        return values.topk(min(k, size), dim=-1)
    table = values[:, : blocks * _BLOCK].view(rows, blocks, _BLOCK)
    best = table.amax(dim=2).topk(k, dim=-1, sorted=False).indices
    inside = table.gather(1, best[:, :, None].expand(rows, k, _BLOCK)).flatten(1)
    top, at = torch.cat([inside, values[:, blocks * _BLOCK :]], dim=1).topk(k, dim=-1)
    behind_table = at + (blocks - k) * _BLOCK
    in_table = best.gather(1, (at // _BLOCK).clamp(max=k - 1)) * _BLOCK + at % _BLOCK
    return top, torch.where(at < k * _BLOCK, in_table, behind_table)


def _weights(logits: Tensor, temperature: float) -> Tensor:
    """Probabilities up to a factor per row; the largest is 1."""
    return logits.sub(logits.amax(dim=-1, keepdim=True)).div_(temperature).exp_()


def _pick(weights: Tensor, top_k: int | None, top_p: float, uniforms: Tensor) -> Tensor:
    """Columns (R,) drawn after both cuts, by the inverse of the cumulative mass in the order of the
    columns.
    """
    top_k = min(top_k or weights.shape[1], weights.shape[1])
    if top_k < weights.shape[1] or top_p < 1.0:
        ordered = _descending(weights, top_k)
        mass = ordered.cumsum(dim=-1)
        # A token stays while the mass before it is below top_p; the first one always does.
        last = (mass - ordered < top_p * mass[:, -1:])[:, 1:].sum(dim=-1, keepdim=True)
        weights = weights * (weights >= ordered.gather(1, last)).to(weights.dtype)
    mass = weights.cumsum(dim=-1)
    return torch.searchsorted(mass, uniforms * mass[:, -1:])[:, 0]


def _descending(values: Tensor, k: int) -> Tensor:
    if values.device.type != "cpu":
        return values.topk(k, dim=-1).values
    # NumPy's sort is several times faster here than torch's top-k or sort.
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)[:, -k:]).flip(-1)


def _pick_nucleus(weights: Tensor, top_p: float, uniforms: Tensor) -> Tensor:
    """Top-p without top-k: the nucleus mostly lies within a few hundred candidates; rows where not are
    sorted.
    """
    values, tokens = largest(weights, _FIRST_CANDIDATES)
    before = values.cumsum(dim=-1) - values
    enough = top_p * weights.sum(dim=-1, keepdim=True)
    inside = values.masked_fill(before >= enough, 0.0)
    drawn = tokens.gather(1, _pick(inside, None, 1.0, uniforms)[:, None])[:, 0]
    wide = (before[:, -1:] + values[:, -1:] < enough).nonzero()[:, 0]
    if len(wide):
        drawn[wide] = _pick(weights[wide], None, top_p, uniforms[wide])
    return drawn


def _pick_from_all(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw from a large vocabulary in two steps, a block and then a token of it, so that rare tokens keep
    their share.
    """
    rows, size = weights.shape
    blocks = torch.nn.functional.pad(weights, (0, -size % _BLOCK)).view(rows, -1, _BLOCK)
    mass = blocks.sum(dim=-1).cumsum(dim=-1)
    target = uniforms * mass[:, -1:]
    block = torch.searchsorted(mass, target)
    before = torch.cat([torch.zeros_like(target), mass], dim=-1).gather(1, block)
    inside = blocks.gather(1, block[:, :, None].expand(rows, 1, _BLOCK))[:, 0].cumsum(dim=-1)
    # Rounding between the two sums may leave a rest beyond the block's own mass, or none.
    rest = (target - before).clamp(min=torch.finfo(inside.dtype).tiny).minimum(inside[:, -1:])
    return (block * _BLOCK + torch.searchsorted(inside, rest))[:, 0]
