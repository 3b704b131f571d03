"""The largest logits of a wide head, exactly, from a copy of its weights in bfloat16.

A step of decoding reads the whole head, 0.67 GB in float32 for 262 144 tokens and 640 features, to keep fifty logits.
Read in bfloat16 it is half of that, and what rounding can have done to a logit is bounded: those that may belong to
the largest are computed once more in float32, the others cannot.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

_BLOCK = 64

_CHUNK = 512
"""Weights that are copied at a time, so that their rounding errors are taken from the cache."""

_RESULT = 2.0**-8 / (1 - 2.0**-8)
"""What rounding a number to bfloat16, with 8 significant bits, does to it at most, relative to the rounded one."""

_MOST_BLOCKS = 256
"""From so many blocks per row on that may hold one of the largest, all logits are computed in float32 instead."""


def can_screen(weight: Tensor, top_k: int) -> bool:
    """Whether this CPU is fast at products in bfloat16, and ``top_k`` is few enough to look for."""
    return 1 <= top_k <= min(_MOST_BLOCKS // 2, len(weight) // _BLOCK) and _is_fast_here()


@cache
def _is_fast_here() -> bool:
    """Whether there are instructions for it: made up of others it takes thrice the time of float32."""
    by_library = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    by_processor = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return all(asked is not None and bool(asked()) for asked in (by_library, by_processor))


class Screen:
    """Those logits that may be among the ``top_k`` largest of their row, for hidden states (R, D) in float32.

    Holds its copy of the weights (V, D) for as long as it lives, and does not follow their changes.
    """

    def __init__(self, weight: Tensor, top_k: int) -> None:
        size, features = weight.shape
        self._weight, self._top_k = weight.detach(), top_k
        self._rough = torch.empty((-(-size // _BLOCK) * _BLOCK, features), dtype=torch.bfloat16)
        self._rough[size:] = 0.0
        norms, spare = [], torch.empty((_CHUNK, features))
        for chunk, copy in zip(torch.split(self._weight, _CHUNK), torch.split(self._rough[:size], _CHUNK), strict=True):
            copy.copy_(chunk)
            error = spare[: len(chunk)].copy_(copy).sub_(chunk)
            norms.append(torch.stack([_norms(chunk), _norms(error)]).amax(dim=1))
        largest: Tensor = torch.stack(norms).amax(dim=0)
        self._largest, self._largest_error = largest[0], largest[1]

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (R, C), filled up with -inf, and their tokens in ascending order (R, C); or all of them, and None."""
        rows, size = len(hidden), len(self._weight)
        rounded = hidden.to(torch.bfloat16)
        rough = self._rough @ rounded.T  # this way round no weights have to be laid out
        rough[size:] = float("-inf")
        blocks = rough.view(-1, _BLOCK, rows)
        maxima = blocks.amax(dim=1).T.float()
        least = self._least(maxima, self._error(hidden, rounded.float()))
        row, block = (maxima >= least[:, None]).nonzero(as_tuple=True)
        if len(row) > rows * _MOST_BLOCKS or not bool(torch.isfinite(maxima.sum() + least.sum())):
            return functional.linear(hidden, self._weight), None
        at, place = (blocks[block, :, row].float() >= least[row, None]).nonzero(as_tuple=True)
        counts = torch.bincount(row[at], minlength=rows).tolist()
        logits = hidden.new_full((rows, max(counts)), float("-inf"))
        tokens = torch.zeros_like(logits, dtype=torch.long)
        for here, own in enumerate(torch.split(block[at] * _BLOCK + place, counts)):
            logits[here, : len(own)], tokens[here, : len(own)] = self._weight[own] @ hidden[here], own
        return logits, tokens

    def _error(self, hidden: Tensor, rounded: Tensor) -> Tensor:
        """How far rounding the factors can put a row's logits off (R,): Cauchy and Schwarz, and a rounding per sum."""
        sums = 1.01 * hidden.shape[1] * 2.0**-24 * self._largest
        return _norms(hidden - rounded) * self._largest + _norms(rounded) * (self._largest_error + sums)

    def _least(self, maxima: Tensor, error: Tensor) -> Tensor:
        """The rough logit (R,) below which no token can be among the k largest.

        Where m is the k-th largest maximum of a block, k logits are m − |m|·u − error or more, with u for the rounding
        of the result. For a token with the rough logit a to be one of the largest, a + |a|·u + error must reach that.
        """
        kth = maxima.topk(self._top_k, dim=1).values[:, -1]
        reach = kth - kth.abs() * _RESULT - 2 * error
        return torch.where(reach >= 0, reach / (1 + _RESULT), reach / (1 - _RESULT))


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms
