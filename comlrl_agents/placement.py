"""Where and how a run computes: device, number formats, threads, memory; each choice with its reason."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import nn

from comlrl_env.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """A choice and, in words, why it was made."""

    value: T
    reason: str


def pick_device(name: str | None = None) -> Decision[torch.device]:
    """The named device, or the best one here: CUDA, then Apple's MPS, then CPU.

    Raises ConfigError for an unknown name and for a device that this machine does not have.
    """
    if name is None:
        if torch.cuda.is_available():
            return Decision(torch.device("cuda"), f"GPU {torch.cuda.get_device_name()} is available")
        if torch.backends.mps.is_available():
            return Decision(torch.device("mps"), "Apple GPU is available")
        return Decision(torch.device("cpu"), "no GPU is available")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).splitlines()[0]
        raise ConfigError(
            f"device: {name!r} cannot be used here ({text}); give 'cpu', 'cuda', 'cuda:1' or 'mps'"
        ) from error
    return Decision(device, "asked for by name")


def pick_dtype(name: str | None, device: torch.device) -> Decision[torch.dtype]:
    """Number format of the *computation* (autocast); weights are float32 in any case.

    None: bfloat16 on a GPU that computes in it, float32 elsewhere. Raises ConfigError for other names than
    "float32" and "bfloat16".
    """
    if name == "float32":
        return Decision(torch.float32, "asked for by name")
    if name == "bfloat16":
        return Decision(torch.bfloat16, "asked for by name; master weights stay float32")
    if name is not None:
        raise ConfigError(f"dtype: expected 'float32', 'bfloat16' or None, actually {name!r}")
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        return Decision(torch.bfloat16, "the GPU computes in bfloat16; master weights stay float32")
    return Decision(torch.float32, f"exact float32 is the default on {device.type}")


def float32_weights(model: nn.Module) -> Decision[bool]:
    """Turns the model's weights into float32 in place where needed (value: whether anything changed).

    Small AdamW updates vanish in bfloat16 weights: at learning rate 5e-6 ten steps changed 13 % of them.
    """
    low = {str(p.dtype) for p in model.parameters() if p.is_floating_point() and p.dtype != torch.float32}
    if not low:
        return Decision(False, "weights are float32 already")
    model.float()
    return Decision(True, f"weights were {', '.join(sorted(low))}; small updates would vanish in them")


def checkpoint_gradients(model: nn.Module) -> None:
    """Trade time for memory: activations are computed again in the backward pass (transformers models
    only).
    """
    # Renamed within version 5 of transformers.
    enable = getattr(model, "activation_checkpointing_enable", None) or getattr(
        model, "gradient_checkpointing_enable", None
    )
    if enable is None:
        raise ConfigError(f"gradient_checkpointing: {type(model).__name__} cannot do it; set it to False")
    enable()
