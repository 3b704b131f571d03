"""Attention beside products through oneDNN (``torch.set_float32_matmul_precision("medium")`` on CPUs).

torch's attention on CPUs multiplies many small blocks, and with that setting each of them goes to oneDNN, which sets up
anew every time: three to four times the time at 120 positions, ten times in a decoding step. So attention over few
positions switches to MKL and back, forwards and backwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from comlrl_agents.concurrency import side_by_side

_LARGE_BLOCKS = 192
"""From so many query positions on torch multiplies in blocks that oneDNN is faster with."""

_RESHAPES = 5
"""At most so many operations lie between torch's attention and what transformers gives back."""


def settle_attention() -> None:
    """Let every transformers model of this process that computes with "sdpa" do so by :func:`attention`."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("sdpa", attention)


def attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls "sdpa", by torch's ``scaled_dot_product_attention``: (B, T, heads, features)."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    few = query.shape[2] < _LARGE_BLOCKS and query.device.type == "cpu" and query.dtype == torch.float32
    switched = few and _switchable()
    with by_mkl() if switched else nullcontext():
        output: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]
    if switched:
        _go_back_by_mkl(output)
    return output, None


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


def _go_back_by_mkl(output: Tensor) -> None:
    """Switch for the backward pass of the attention that ``output`` comes from, a few reshapes ago."""
    node = output.grad_fn
    for _ in range(_RESHAPES):
        if node is None or node.name().startswith("ScaledDotProduct"):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    if node is None or not node.name().startswith("ScaledDotProduct"):
        return
    before: list[str] = []

    def enter(_: Any) -> None:
        before.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")

    def leave(_: Any, __: Any) -> None:
        torch.set_float32_matmul_precision(before.pop())

    node.register_prehook(enter)
    node.register_hook(leave)
