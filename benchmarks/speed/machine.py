"""The machine: what it is, and the fastest that its float32 products get."""

import os
import platform
import time
from pathlib import Path
from statistics import median

SIZE = 2048  # 2048³ products: 17 GFLOP each, far out of the caches


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory, and how busy all of it is."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gib": _memory_gib(),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 1),
    }


def roof(repeats: int = 3) -> dict[str, float]:
    """GFLOP/s of a product of two 2048² matrices, for those settings of torch that are exact; the best of a few."""
    import torch

    from comlrl_agents.placement import EXACT, matmul_error

    left, right = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    before = torch.get_float32_matmul_precision()
    found = {}
    try:
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision(precision)
            if matmul_error() > EXACT:  # bfloat16 under another name
                continue
            left @ right
            found[precision] = 2e-9 * SIZE**3 / min(_seconds(left, right) for _ in range(repeats))
    finally:
        torch.set_float32_matmul_precision(before)
    return found


def available_gib() -> float | None:
    """Memory that programs may still take; None where the system does not tell."""
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) / 2**20


def typical(roofs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each setting over the run."""
    names = roofs[0] if roofs else {}
    return {name: median(each[name] for each in roofs) for name in names}


def _seconds(left: "torch.Tensor", right: "torch.Tensor") -> float:  # type: ignore[name-defined]  # noqa: F821
    start = time.perf_counter()
    left @ right
    return time.perf_counter() - start


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
