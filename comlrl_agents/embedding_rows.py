"""Learning a wide embedding by the rows that texts use: no work and no memory for the others.

A row that never had a gradient has moments of 0, so that AdamW without weight decay leaves it exactly where it is.
Of 262 144 rows of Gemma 3 a reward model's pairs use some hundreds; what dense AdamW keeps beside a weight (gradient
and two moments) and reads in every step is three fifths of the model's.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_LARGE = 1 << 22
"""Numbers in an embedding from which on its gradient is worth keeping small."""


def is_large_lookup(embedding: Any) -> bool:
    """Whether an embedding gives sparse gradients that add up in a fixed order (on CPUs), and is worth it."""
    return (
        isinstance(embedding, nn.Embedding)
        and not embedding.scale_grad_by_freq
        and embedding.weight.device.type == "cpu"
        and embedding.weight.numel() >= _LARGE
    )


class EmbeddingRows:
    """Those rows of ``embedding.weight`` that have had a gradient, as ``rows``: a parameter that grows.

    Its gradients must be sparse. Before an optimizer's step :meth:`take_gradient`, after it :meth:`write_back`.
    """

    def __init__(self, embedding: nn.Embedding) -> None:
        self.weight = embedding.weight
        self.rows = nn.Parameter(self.weight.new_empty(0, self.weight.shape[1]))
        self.ids = torch.empty(0, dtype=torch.long)
        self._place = torch.full((len(self.weight),), -1)

    @torch.no_grad()
    def take_gradient(self, state: dict[str, Any]) -> None:
        """Move the embedding's gradient to that of ``rows``; new rows get moments of 0 in AdamW's ``state``."""
        grad, self.weight.grad = self.weight.grad, None
        if grad is not None:
            self._admit(torch.unique(grad._indices()[0]))
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = nn.functional.pad(state[name], (0, 0, 0, len(self.ids) - len(state[name])))
        self.rows.data = self.weight[self.ids]
        self.rows.grad = torch.zeros_like(self.rows)
        if grad is not None:
            self.rows.grad.index_add_(0, self._place[grad._indices()[0]], grad._values())

    @torch.no_grad()
    def write_back(self) -> None:
        """Put the rows where they belong."""
        self.weight[self.ids] = self.rows

    def load(self, ids: Tensor | None) -> None:
        """Begin with the rows of a run that is continued; None: it learned all of them, on another device."""
        ids = torch.arange(len(self.weight)) if ids is None else ids
        self.ids, self._place = ids.new_empty(0), torch.full_like(self._place, -1)
        self._admit(ids)

    def _admit(self, ids: Tensor) -> None:
        fresh = ids[self._place[ids] < 0]
        self._place[fresh] = torch.arange(len(self.ids), len(self.ids) + len(fresh))
        self.ids = torch.cat([self.ids, fresh])


def all_rows(saved: dict[str, Any], ids: Tensor, parameters: Sequence[nn.Parameter]) -> dict[str, Any]:
    """The saved state of an AdamW that learned the rows ``ids`` for one that learns all of them, on another device."""
    whole = {}
    for index, state in saved["state"].items():
        shape, whole[index] = parameters[int(index)].shape, dict(state)
        for name in ("exp_avg", "exp_avg_sq"):
            if state[name].shape != shape:
                whole[index][name] = state[name].new_zeros(shape).index_copy(0, ids, state[name])
    return saved | {"state": whole}
