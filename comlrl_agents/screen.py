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

_ROUNDED = 2.0**-9
"""What rounding a number to bfloat16 does to it at most, relative to it."""

_RESULT = _ROUNDED / (1 - _ROUNDED)
"""The same, relative to the rounded number."""

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
        self._weight, self._top_k = weight, top_k
        self._rough = torch.empty((-(-size // _BLOCK) * _BLOCK, features), dtype=torch.bfloat16)
        self._rough[:size] = weight
        self._rough[size:] = 0.0
        # Two roundings, by Cauchy and Schwarz, what they have in common, and a rounding per sum in float32.
        factors = 2 * _ROUNDED + _ROUNDED**2 + 1.01 * features * 2.0**-24
        self._error = factors * torch.linalg.vector_norm(weight, dim=1).max()

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (R, C), filled up with -inf, and their tokens in ascending order (R, C); or all of them, and None."""
        rows, size = len(hidden), len(self._weight)
        rough = self._rough @ hidden.to(torch.bfloat16).T  # this way round no weights have to be laid out
        rough[size:] = float("-inf")
        blocks = rough.view(-1, _BLOCK, rows)
        maxima = blocks.amax(dim=1).T.float()
        least = self._least(maxima, hidden)
        row, block = (maxima >= least[:, None]).nonzero(as_tuple=True)
        if len(row) > rows * _MOST_BLOCKS or bool(maxima.sum().isnan()):
            return functional.linear(hidden, self._weight), None
        at, place = (blocks[block, :, row].float() >= least[row, None]).nonzero(as_tuple=True)
        counts = torch.bincount(row[at], minlength=rows).tolist()
        logits = hidden.new_full((rows, max(counts)), float("-inf"))
        tokens = torch.zeros_like(logits, dtype=torch.long)
        for here, own in enumerate(torch.split(block[at] * _BLOCK + place, counts)):
            logits[here, : len(own)], tokens[here, : len(own)] = self._weight[own] @ hidden[here], own
        return logits, tokens

    def _least(self, maxima: Tensor, hidden: Tensor) -> Tensor:
        """The rough logit (R,) below which no token can be among the k largest.

        A rough logit a stands for one within |a|·u + e of it: u for its own rounding, e for that of the factors. Where
        m is the k-th largest maximum of a block, k logits are m − |m|·u − e or more, so for one of the largest
        a + |a|·u + e must reach that.
        """
        error = self._error * torch.linalg.vector_norm(hidden, dim=1)
        kth = maxima.topk(self._top_k, dim=1).values[:, -1]
        reach = kth - kth.abs() * _RESULT - 2 * error
        return torch.where(reach >= 0, reach / (1 + _RESULT), reach / (1 - _RESULT))
