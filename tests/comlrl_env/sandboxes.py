"""What the tests of the sandbox share: every isolation that this machine offers, and a short way to run code."""

import glob
import os
import textwrap
from collections.abc import Iterator

import pytest

from comlrl_env.sandbox import (
    Box,
    Call,
    Isolation,
    Limits,
    Module,
    Outcome,
    Pool,
    Program,
    SandboxError,
    jail,
)

QUICK = Limits(cpu_seconds=0.3, wall_seconds=3.0)


@pytest.fixture(scope="module", params=["bubblewrap", "namespaces", "limits"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    isolation: Isolation = request.param
    offered = Pool(isolation)
    try:
        assert offered.isolation == isolation
    except SandboxError as error:
        pytest.skip(f"not offered here: {error}")
    yield offered
    offered.close()


def run(pool: Pool, source: str, *calls: Call, limits: Limits = QUICK) -> list[Outcome]:
    with Box(limits, pool) as box:
        box.load(Program((Module("m", textwrap.dedent(source)),), ("m", "f")))
        return box.run(calls or [Call()])


def next_sample_is_fine(pool: Pool) -> bool:
    (outcome,) = run(pool, "def f(x):\n    return sorted(x), len(x), str(sum(x)), isinstance(x, list)", Call(([3, 1],)))
    return outcome.value == ([1, 3], 2, "4", True)


def processes_of(pool: Pool) -> int:
    """How many processes live below this one; the idle servers are among them, samples are not."""
    return len(jail.descendants(os.getpid()))


def open_descriptors() -> list[str]:
    return [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.islink(path)]
