"""One kind of work: what a turn of it is, what is asked of it, and how a measurement of it is written down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.speed.job import Job
from benchmarks.speed.machine import describe, typical
from benchmarks.speed.turns import Record


@dataclass(frozen=True)
class Bench:
    """How to measure one kind of work.

    ``shapes``: per model (or per case for a bench without models) the numbers that fix the work; ``targets``: what is
    asked of the ratio, or of ``value`` where there is no peer. ``amount``: units of work in one turn; ``flop``: useful
    operations in one turn, None where sharing them out makes no sense. ``turns``: how often, unless told otherwise.
    """

    name: str
    unit: str
    shapes: Mapping[str, dict[str, int]]
    targets: Mapping[str, float]
    turns: Mapping[str, int]
    amount: Callable[[Job], float]
    flop: Callable[[Job], float] | None = None
    peer: str | None = None
    agents: int = 2
    value: Callable[[Job, Record], float] | None = None
    value_unit: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module whose ``run`` is our side."""
        return f"benchmarks.speed.{self.name}"

    @property
    def peer_module(self) -> str:
        """The module whose ``run`` is the peer's side."""
        return f"benchmarks.speed.peers.{self.name}"


def report(bench: Bench, job: Job, ours: Record, peer: Record | None, roofs: list[dict[str, float]]) -> dict[str, Any]:
    """The JSON object of a measurement; :mod:`benchmarks.speed` explains its fields."""
    roof = typical(roofs)
    flop = bench.flop(job) if bench.flop else None
    key = job.case or job.model
    line: dict[str, Any] = {"bench": bench.name, "case": job.case or None, "model": job.model or None}
    line |= {"unit": bench.unit, "ours": _side(bench, job, ours), "peer": None}
    line |= {"ratio": None, "ratio_range": None, "cpu_ratio": None}
    if peer is not None:
        ratios = [theirs / own for own, theirs in zip(ours.seconds, peer.seconds, strict=True)]
        line["peer"] = {"name": f"{bench.peer} {peer.versions[str(bench.peer)]}", **_side(bench, job, peer)}
        line |= {"ratio": _short(median(ratios)), "ratio_range": [_short(min(ratios)), _short(max(ratios))]}
        line["cpu_ratio"] = _short(median(peer.cpu_seconds) / median(ours.cpu_seconds))
    target = bench.targets.get(key)
    if bench.value is not None:
        line |= {"value": _short(bench.value(job, ours)), "value_unit": bench.value_unit}
        line |= {"target": target, "met": None if target is None else bool(line["value"] <= target)}
    else:
        met = None if target is None or peer is None else bool(line["ratio"] >= target)
        line |= {"target": target, "met": met}
    line |= {
        "roof": {name: _short(value) for name, value in roof.items()},
        "share_of_roof": _share(flop, ours, roof),
        "peer_share_of_roof": None if peer is None else _share(flop, peer, roof),
        "useful_gflop": None if flop is None else _short(flop / 1e9),
        "peak_memory_mib": {"ours": _memory(ours), "peer": None if peer is None else _memory(peer)},
        "memory_ratio": None if peer is None else _short(ours.work_mib / peer.work_mib),
        "shapes": job.shapes | _lengths(job),
        "seeds": {
            "inputs": job.seed,
            "weights": [job.seed + agent for agent in range(bench.agents if job.model else 0)],
        },
        "machine": describe() | {"threads": ours.threads},
        "versions": {"ours": ours.versions, "peer": None if peer is None else peer.versions},
        "settings": ours.settings,
        "check": ours.check,
        "notes": dict(bench.notes),
    }
    return line


def in_words(line: Mapping[str, Any]) -> str:
    """One line for a person who watches."""
    name = " ".join(str(line[key]) for key in ("bench", "case", "model") if line[key])
    words = f"{name}: {line['ours']['rate']:,.4g} {line['unit']}"
    if line["peer"]:
        words += f", {line['peer']['name']} {line['peer']['rate']:,.4g}, ratio {line['ratio']:.2f}"
        words += f" [{line['ratio_range'][0]:.2f}, {line['ratio_range'][1]:.2f}], asked at least {line['target']}"
        words += f", memory {line['memory_ratio']:.2f} of the peer's"
    elif "value" in line:
        words += f", {line['value']:,.4g} {line['value_unit']}, asked at most {line['target']}"
    if line["share_of_roof"] is not None:
        words += f", {100 * line['share_of_roof']:.1f} % of the roof"
    return words + {True: " ✓", False: " ✗", None: ""}[line["met"]]


def _side(bench: Bench, job: Job, record: Record) -> dict[str, Any]:
    names = record.phases[0] if record.phases else {}
    return {
        "rate": _short(bench.amount(job) / median(record.seconds)),
        "seconds": {
            "median": _short(median(record.seconds)),
            "min": _short(min(record.seconds)),
            "max": _short(max(record.seconds)),
            "turns": len(record.seconds),
        },
        "cpu_seconds": _short(median(record.cpu_seconds)),
        "phases": {name: _short(median(each[name] for each in record.phases)) for name in names},
    }


def _memory(record: Record) -> dict[str, float]:
    return {"load": round(record.load_mib, 1), "work": round(record.work_mib, 1)}


def _share(flop: float | None, record: Record, roof: Mapping[str, float]) -> float | None:
    return None if flop is None else _short(flop / 1e9 / median(record.seconds) / max(roof.values()))


def _lengths(job: Job) -> dict[str, int]:
    if not job.model:
        return {}
    return {"prompt_tokens": job.about.prompt_tokens, "completion_tokens": job.about.completion_tokens}


def _short(value: float) -> float:
    return float(f"{value:.4g}")
