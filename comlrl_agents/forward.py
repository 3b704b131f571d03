"""One call for all causal models: what differs between their forward methods, and between library versions,
is here; and the mode in which they are called.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor, nn


def forward(
    module: nn.Module, ids: Tensor, real: Tensor, positions: Tensor, past: Any = None, *, last_only: bool = False
) -> Any:
    """Outputs of a model or backbone for ``ids`` (B, T) at explicit ``positions`` (B, T).

    ``real``: int64 mask over cached and new positions. ``past``: a transformers cache, extended in place.
    ``last_only``: logits of the last position only, where the model can restrict itself to them.
    """
    takes = _parameters(type(module).forward)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": real, "use_cache": past is not None}
    if past is not None:
        inputs["cache" if "cache" in takes else "past_key_values"] = past
    if "position_ids" in takes:
        inputs["position_ids"] = positions
    if last_only and "logits_to_keep" in takes:
        inputs["logits_to_keep"] = 1
    return module(**inputs)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode; afterwards, also after an error, every module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:  # outer ones first, which take the inner ones with them
            if module.training != mode:
                module.train(mode)


def is_as_defined(module: nn.Module) -> bool:
    """Whether calling the module does what its class in torch or transformers does: no hook, no forward of its own."""
    changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return not changed and type(module).__module__.partition(".")[0] in ("torch", "transformers")


@cache
def _parameters(method: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters)
