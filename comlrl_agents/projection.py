"""Products of decoding: few rows times a large matrix, step after step.

For the vocabulary head MKL does this product at a fifth of its speed for square matrices. Multiplied the other way
round it is up to twice as fast, and with the weights once laid out anew for oneDNN up to four times (16 rows, 262 144
tokens, 640 features, two Zen 3 cores: 7 GFLOP/s as it is, 14 transposed, 26 laid out anew). Where only the largest
logits are wanted, :mod:`comlrl_agents.screen` reads half as much.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from comlrl_agents.screen import Screen, can_screen

_WIDE = 1 << 14
_LARGE = 1 << 19
_FEW = 128
_MANY_STEPS = 16

Projected = tuple[Tensor, Tensor | None]
"""Logits (R, C), and which token each stands for (R, C); None where column v is token v."""


class Product(Protocol):
    """A product of rows with weights."""

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """The outputs (R, features out) of ``x`` (R, features in), on top of ``plus`` if that is given."""
        ...


def projection(linear: nn.Linear, rows: int, steps: int, top_k: int | None) -> Callable[[Tensor], Projected]:
    """The fastest way to ``linear``'s logits for about so many rows at a time and so many calls.

    With ``top_k`` only logits that may be among the k largest of a row need to be there; -inf fills rows up. May hold
    a second copy of the weights for as long as it lives; it does not follow changes of the weights.
    """
    weight, bias = linear.weight, cast("Tensor | None", linear.bias)
    if not exact_on_cpu(weight) or linear.out_features < _WIDE or rows > _FEW:
        return lambda hidden: (linear(hidden), None)
    if top_k is not None and bias is None and steps >= _MANY_STEPS and can_screen(weight, top_k):
        return Screen(weight, top_k)
    laid_out = packed(weight, None, rows) if pays(rows, steps) else None

    def project(hidden: Tensor) -> Projected:
        logits = (weight @ hidden.T).T.contiguous() if laid_out is None else laid_out(hidden)
        return logits if bias is None else logits.add_(bias), None

    return project


class PackedLayers:
    """Within ``with``, the large linear layers of a backbone multiply with weights laid out anew for oneDNN.

    Those of a 100 M backbone take 38 ms a step instead of 47 (16 rows, two Sapphire Rapids cores). As long as the
    object lives it holds a second copy of those weights, and does not follow their changes.
    """

    def __init__(self, backbone: nn.Module, rows: int, steps: int) -> None:
        self._forward: dict[nn.Linear, Callable[[Tensor], Tensor]] = {}
        for layer in backbone.modules() if pays(rows, steps) else ():
            if isinstance(layer, nn.Linear) and _is_large_and_plain(layer):
                product = packed(layer.weight, None, rows)
                if product is not None:
                    self._forward[layer] = product

    def __enter__(self) -> None:
        for layer, forward in self._forward.items():
            vars(layer)["forward"] = forward

    def __exit__(self, *_: object) -> None:
        for layer in self._forward:
            del vars(layer)["forward"]


def _is_large_and_plain(layer: nn.Linear) -> bool:
    plain = type(layer) is nn.Linear and getattr(layer, "bias", None) is None and "forward" not in vars(layer)
    return plain and layer.weight.numel() >= _LARGE and exact_on_cpu(layer.weight)


def exact_on_cpu(weight: Tensor) -> bool:
    """Whether products with these weights are float32 on a CPU, where oneDNN's own layout helps."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def pays(rows: int, steps: int) -> bool:
    """Whether laying weights out anew is worth it; by the shapes alone, so that a run that is repeated rounds alike."""
    return 4 <= rows <= _FEW and steps >= _MANY_STEPS


def packed(weight: Tensor, bias: Tensor | None, rows: int) -> Product | None:
    """The product with the weights in oneDNN's own layout; None where this torch or machine does not have it."""
    # Operators of torch's own compiler, without a public name.
    operators: Any = torch.ops.mkldnn
    if not (hasattr(operators, "_reorder_linear_weight") and hasattr(operators, "_linear_pointwise")):
        return None
    try:
        laid_out = operators._reorder_linear_weight(weight.detach(), rows)
    except RuntimeError:
        return None

    def product(x: Tensor, plus: Tensor | None = None) -> Tensor:
        outputs: Tensor = operators._linear_pointwise(x.contiguous(), laid_out, bias, "none", [], "")
        return outputs if plus is None else outputs.add_(plus)

    return product
