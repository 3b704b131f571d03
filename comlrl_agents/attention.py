"""Attention beside products through oneDNN (``torch.set_float32_matmul_precision("medium")`` on CPUs).

torch's attention on CPUs multiplies many small blocks, and with that setting each of them goes to oneDNN, which sets up
anew every time: two to four times the time at 120 positions, ten times in a decoding step. So attention over few
positions switches to MKL and back, forwards and backwards.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from comlrl_agents.concurrency import side_by_side

_LARGE_BLOCKS = 192
"""From so many query positions on torch multiplies in blocks that oneDNN is faster with."""


def settle_attention() -> None:
    """Let every transformers model of this process that computes with "sdpa" do so by :func:`attention`."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("sdpa", attention)


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls "sdpa", by torch's ``scaled_dot_product_attention``: (B, T, heads, features)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        found: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]
        return found

    few = query.shape[2] < _LARGE_BLOCKS and query.device.type == "cpu" and query.dtype == torch.float32
    if not few or not _switchable():
        return plain(query, key, value), None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
        apply: Callable[..., Tensor] = _ByMKL.apply
        return apply(query, key, value, plain), None
    with by_mkl():
        return plain(query, key, value), None


@contextmanager
def by_mkl() -> Iterator[None]:
    """Within, small float32 products on CPUs are left to MKL, where other threads do not notice."""
    if not _switchable():
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _switchable() -> bool:
    """The switch is the process's: agents at work side by side would change each other's products, and last digits."""
    return torch.get_float32_matmul_precision() != "highest" and not side_by_side()


class _ByMKL(torch.autograd.Function):
    """A function of three tensors, computed with MKL in both directions."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plain: Callable[..., Tensor]) -> Tensor:
        inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in (query, key, value)]
        with torch.enable_grad(), by_mkl():
            output = plain(*inputs)
        ctx.inner = [tensor for tensor in inputs if tensor.requires_grad], output
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, output = ctx.inner
        with by_mkl():
            found = iter(torch.autograd.grad(output, inputs, grad, retain_graph=True))
        return (*(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None)
