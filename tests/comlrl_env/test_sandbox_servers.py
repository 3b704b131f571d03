"""The life of the fork servers: no zombie, no orphan, no process that talks to the wrong parent."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from comlrl_env.sandbox import (
    POOL,
    Box,
    Call,
    Isolation,
    Module,
    Pool,
    Program,
    SandboxError,
    jail,
    run_calls,
)
from tests.comlrl_env.sandboxes import QUICK, next_sample_is_fine


def test_no_zombie_no_process_and_no_folder_is_left() -> None:
    script = """
        import os, glob, tempfile
        from comlrl_env.sandbox import Call, Pool, run_calls, jail, POOL
        source = "import os, time\\ndef f():\\n  if os.fork() == 0:\\n    os.setsid(); time.sleep(1000)\\n  os._exit(0)"
        for _ in range(3):
            run_calls(source, "f", [Call()])
        POOL.close()
        print(jail.descendants(os.getpid()), glob.glob(os.path.join(tempfile.gettempdir(), "comlrl-sandbox-*")))
        """
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            env=os.environ | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.stdout.strip() == "[] []", result
    assert result.stderr == ""


@pytest.mark.parametrize("isolation", ["namespaces", "limits"])
def test_when_the_trainer_is_killed_the_sample_and_the_server_end(isolation: Isolation) -> None:
    script = f"""
        import glob, os, sys
        from comlrl_env.sandbox import *
        with Box(Limits(wall_seconds=60), Pool({isolation!r})) as box:
            box.load(Program((Module("m", "import time\\ndef f():\\n    time.sleep(1000)"),), ("m", "f")))
            print("ready", flush=True)
            box.run([Call()])
        """
    with tempfile.TemporaryDirectory() as folder:
        trainer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], env=os.environ | {"TMPDIR": folder}, stdout=subprocess.PIPE
        )
        assert trainer.stdout is not None
        if trainer.stdout.readline() != b"ready\n":
            pytest.skip("not offered here")
        time.sleep(0.2)
        family = jail.descendants(trainer.pid)
        assert len(family) >= 2
        trainer.send_signal(signal.SIGKILL)
        trainer.communicate()
        deadline = time.monotonic() + 10
        while (left := [pid for pid in family if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert left == []
        assert os.listdir(folder) == []


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def kill_all_below() -> None:
    """This file starts no processes but servers and samples. Returns when they are dead: a signal takes its time."""
    doomed = jail.descendants(os.getpid())
    for process in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(is_running(process) for process in doomed) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_killed_server_is_replaced_or_reported() -> None:
    pool = Pool()
    assert next_sample_is_fine(pool)
    kill_all_below()
    assert next_sample_is_fine(pool)
    box = Box(QUICK, pool)
    box.load(Program((Module("m", "def f():\n    return 1"),), ("m", "f")))
    kill_all_below()
    with pytest.raises(SandboxError):
        box.run([Call()])
    box.close()
    assert next_sample_is_fine(pool)
    pool.close()


def test_a_forked_trainer_does_not_talk_to_its_parents_servers() -> None:
    def mine(value: int) -> bool:
        source = f"def f():\n    return {value}"
        return all(run_calls(source, "f", [Call()])[0].value == value for _ in range(20))

    assert mine(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if mine(2) else 1
        finally:
            POOL.close()
            os._exit(code)
    assert mine(3)  # at the same time
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
