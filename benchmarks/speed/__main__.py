"""``python -m benchmarks.speed``; see :mod:`benchmarks.speed`."""

import argparse
import importlib
import json
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.speed.bench import Bench, in_words, report
from benchmarks.speed.job import Job
from benchmarks.speed.machine import available_gib, roof
from benchmarks.speed.models import MODELS, save_agents
from benchmarks.speed.peer_environment import peer_python
from benchmarks.speed.turns import Record, Side, alternate

NAMES = (
    "collection", "update", "round", "dpo", "reward_fit", "policy_update", "marlhf",
    "environment", "selection", "replay",
)  # fmt: skip
AGENTS = 2
AGREEMENT = 1e-3  # how far log-probabilities of two implementations in float32 may lie apart


def main() -> None:
    """Measure what the command line asks for, a JSON line for each measurement."""
    options = _options()
    # Ended from outside, still end the workers and delete what may be gigabytes of weights.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    benches: list[Bench] = [importlib.import_module(f"benchmarks.speed.{name}").BENCH for name in options.only]
    with ExitStack() as stack:
        out = stack.enter_context(options.out.open("a")) if options.out else None
        with_models = [bench for bench in benches if bench.peer]
        for name in options.models if with_models else ():
            _refuse_too_little_memory(name)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speed-")))
            save_agents(MODELS[name], folder, AGENTS, options.seed)
            for bench in with_models:
                shapes = _with_reward_batch(bench.shapes[name], options.reward_batch)
                job = Job(bench.name, name, str(folder), options.seed, shapes, short_warm_up=not MODELS[name].resident)
                _print(_measure(bench, job, options, peer_python(options.peers)), out)
        for bench in benches:
            for case, shapes in bench.shapes.items() if not bench.peer else ():
                _print(_measure(bench, Job(bench.name, "", "", options.seed, shapes, case), options, None), out)


def _with_reward_batch(shapes: dict[str, int], batch: int | None) -> dict[str, int]:
    if batch is None or "reward_batch" not in shapes:
        return shapes
    return shapes | {"reward_batch": batch, "peer_reward_batch": shapes["reward_batch"]}


def _measure(bench: Bench, job: Job, options: argparse.Namespace, python: str | None) -> dict[str, Any]:
    key = job.case or job.model
    roofs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        stored = job.write(Path(folder) / "job.json")
        ours, peer = Record(), Record() if python else None
        sides = [Side(sys.executable, bench.module, stored, ours)]
        if python and peer:
            sides.append(Side(python, bench.peer_module, stored, peer))
        resident = not job.model or MODELS[job.model].resident

        def agree() -> None:
            if peer:
                _refuse_disagreement(bench, ours, peer)

        def between() -> None:
            if bench.flop:
                roofs.append(roof())

        turns = options.turns or bench.turns[key]
        alternate(sides, turns, resident=resident, agree=agree, between=between)
    return report(bench, job, ours, peer, roofs)


def _refuse_too_little_memory(name: str) -> None:
    free, needed = available_gib(), MODELS[name].needs_gib
    if free is not None and free < needed:
        raise SystemExit(f"model {name}: needs {needed} GiB of free memory, actually {free:.1f}; end other programs")


def _refuse_disagreement(bench: Bench, ours: Record, peer: Record) -> None:
    for package in ("torch", "transformers"):
        if ours.versions[package] != peer.versions[package]:
            raise SystemExit(
                f"{package}: both sides must have the same version, actually {ours.versions[package]} here and "
                f"{peer.versions[package]} in the peers' environment; delete that environment and run again"
            )
    here, there = ours.check, peer.check
    if here.keys() != there.keys() or any(abs(here[name] - there[name]) > AGREEMENT for name in here):
        raise SystemExit(f"{bench.name}: both sides must do the same work, actually {here} here and {there} there")


def _print(line: dict[str, Any], out: Any) -> None:
    text = json.dumps(line, ensure_ascii=False)
    print(text, flush=True)
    print(in_words(line), file=sys.stderr, flush=True)
    if out:
        print(text, file=out, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description="Speed and memory beside the peers."
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["S"], help="S (default) and G")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="BENCH", help=", ".join(NAMES))
    parser.add_argument("--turns", type=int, help="counted turns of each side, instead of each bench's own number")
    parser.add_argument("--peers", type=Path, help="virtual environment with comlrl and trl, instead of .bench-peers")
    parser.add_argument("--reward-batch", type=int, help="pairs per step of our reward model; the peer keeps its one")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--out", type=Path, help="file to append the JSON lines to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
