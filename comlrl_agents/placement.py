"""Where and how a run computes: device, number formats, threads, memory; each choice with its reason."""

import ctypes
import math
import mmap
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from comlrl_agents.attention import settle_attention
from comlrl_env.errors import ConfigError

T = TypeVar("T")

LONGEST_REASON = 80
"""Characters. Torch says in fewer why a device cannot be used, in more which devices and kernels it has heard of."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """A choice and, in words, why it was made."""

    value: T
    reason: str


def pick_device(name: str | None = None, field: str = "device") -> Decision[torch.device]:
    """The named device, or the best one here: CUDA, then Apple's MPS, then CPU.

    Raises ConfigError, naming the ``field``, for an unknown name and for a device that this machine does not have.
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
        reason = text if len(text) <= LONGEST_REASON else "torch finds no such device"
        raise ConfigError(
            f"{field}: {name!r} cannot be used here ({reason}); give 'cpu', 'cuda', 'cuda:1' or 'mps'"
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


def per_agent(value: Any, num_agents: int, name: str = "devices") -> list[Any]:
    """One entry per agent from one for all or a list.

    Raises:
        ConfigError: the list has another length; ``name`` is the field's.

    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return [value] * num_agents
    entries = list(value)
    if len(entries) == 1 and isinstance(entries[0], str):
        return entries * num_agents
    if len(entries) != num_agents:
        raise ConfigError(
            f"{name}: must hold one entry per agent (num_agents={num_agents}), actually {len(entries)}; give one for "
            "all or the right number"
        )
    return entries


def tune(device: torch.device, model: nn.Module) -> dict[str, str]:
    """Settles threads, allocator and float32 products for this process; returns the reasons by topic, for the
    log.

    For programs (the command line, benchmarks), not for libraries: the settings are global to the process.
    """
    threads, allocator, matmul = pick_threads(), tune_allocator(device), pick_float32_matmul(device, model)
    torch.set_num_threads(threads.value)
    torch.set_float32_matmul_precision(matmul.value)
    settle_attention()
    return {
        "threads": f"{threads.value}: {threads.reason}",
        "allocator": allocator.reason,
        "float32 products": f"{matmul.value}: {matmul.reason}",
    }


EXACT = 5e-6
"""The largest error of a float32 product, relative to its largest entry; MKL's is 4e-7, that of bfloat16 3e-3."""

_TURNS, _ENOUGH, _PATIENCE = 30, 0.3, 3.0
"""The search for the faster product takes so many turns at most (three at least), fewer after so many seconds, and ends
without a result after so many."""


def pick_threads() -> Decision[int]:
    """Threads for one process: what the process may really use, which in containers is less than the machine
    has.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return Decision(torch.get_num_threads(), "OMP_NUM_THREADS is set")
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_cpus()
    if quota < torch.get_num_threads():
        return Decision(max(int(quota), 1), f"the container's quota is {quota:g} CPUs")
    return Decision(min(allowed, torch.get_num_threads()), f"the process may run on {allowed} CPUs")


def tune_allocator(device: torch.device) -> Decision[bool]:
    """Makes glibc keep big blocks for reuse (value: whether it was done); fresh memory costs five times
    reused memory.

    Each logits buffer would otherwise be mapped, zeroed page by page and unmapped again.
    """
    if device.type != "cpu":
        return Decision(False, f"left alone: tensors live on {device.type}")
    if platform.libc_ver()[0] != "glibc":
        return Decision(False, "left alone: the C library is not glibc")
    no_mmap, never_trim = (-4, 0), (-1, -1)  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h
    mallopt = ctypes.CDLL(None).mallopt
    if not all([mallopt(*no_mmap), mallopt(*never_trim)]):
        return Decision(False, "glibc refused: mallopt returned 0")
    return Decision(True, "glibc keeps freed memory for reuse (no mmap, no trimming)")


_HUGE_PAGE = 1 << 21


def ask_for_huge_pages(tensor: torch.Tensor) -> None:
    """Let Linux back a large tensor on the CPU, before it is first touched, by pages of 2 MiB: one fault where there
    would be 512. Advice only: nothing is raised, and elsewhere nothing is done.
    """
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or size < 4 * _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    begin = -(-tensor.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
    end = (tensor.data_ptr() + size) // _HUGE_PAGE * _HUGE_PAGE
    ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)


def pick_float32_matmul(device: torch.device, model: nn.Module) -> Decision[str]:
    """The faster exact way to multiply float32 matrices of this model's sizes: "highest" or "medium".

    On CPUs "medium" means oneDNN instead of MKL, which may be twice as fast or slower; where the CPU has
    units for it, oneDNN really rounds to bfloat16. So both speed and accuracy are tried, for less than a
    second.
    """
    if device.type != "cpu":
        return Decision("highest", f"float32 stays exact on {device.type}; bfloat16 is the fast way there")
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it so
        return Decision("highest", "this torch has no oneDNN")
    shapes = {tuple(p.shape) for p in model.parameters() if p.dim() == 2}
    sizes = [(min(rows, 4096), min(columns, 4096)) for rows, columns in sorted(shapes)]
    before, start = torch.get_float32_matmul_precision(), time.perf_counter()
    try:
        torch.set_float32_matmul_precision("medium")
        error = matmul_error()
        speeds = {"highest": math.inf, "medium": math.inf}
        for turn in range(_TURNS):
            for name, best in speeds.items():
                torch.set_float32_matmul_precision(name)
                speeds[name] = min(best, _matmul_seconds(sizes))
            spent = time.perf_counter() - start
            if spent > _PATIENCE:
                return Decision("highest", "not measured: the machine is too busy")
            if turn >= 2 and spent > _ENOUGH:
                break
    finally:
        torch.set_float32_matmul_precision(before)
    gain = speeds["highest"] / speeds["medium"]
    found = f"oneDNN is {gain:.2f} times as fast as MKL at this model's sizes, its error {error:.0e}"
    if error > EXACT:
        return Decision("highest", f"{found}, too inexact")
    return Decision("medium", found) if gain > 1.15 else Decision("highest", f"{found}, not worth it")


def _matmul_seconds(sizes: Sequence[tuple[int, int]]) -> float:
    operands = [(torch.ones(128, columns), torch.ones(rows, columns)) for rows, columns in sizes]
    start = time.perf_counter()
    for inputs, weight in operands:
        nn.functional.linear(inputs, weight)
    return time.perf_counter() - start


def matmul_error() -> float:
    """Largest error of a product relative to its largest entry, against float64."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    return float(((left @ right).double() - exact).abs().max() / exact.abs().max())


def _cgroup_cpus() -> float:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if quota == "max" else int(quota) / int(period)


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
