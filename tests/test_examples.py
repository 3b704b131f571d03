"""The example of a package of one's own: installed as a newcomer would, found and used from outside."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment of processes in which the example package is installed."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(ROOT / "examples" / "staircase_tasks", folder / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command += ["--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return os.environ | {"PYTHONPATH": f"{folder / 'site'}{os.pathsep}{ROOT}"}


def test_it_is_listed_and_keeps_what_it_promises(installed: dict[str, str]):
    code = (
        "import comlrl_env\n"
        "from comlrl_agents import cli_envs\n"
        "from comlrl_env.figures import measure\n"
        "assert 'acme/Staircase-v0' in comlrl_env.list_envs()\n"
        "print(cli_envs.page('acme/Staircase'))\n"
        "comlrl_env.testing.check_env('acme/Staircase-v0')\n"
        "env = comlrl_env.make('acme/Staircase-v0', num_agents=3, level=1, split='eval')\n"
        "env.reset(seed=0)\n"
        "print(set(env.step(env.task.gold(env.item))[1].values()))\n"
        "for level in (0, 1):\n"
        "    task = comlrl_env.make('acme/Staircase-v0', level=level, num_items=256).task\n"
        "    print(*measure(task).values())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=installed, cwd="/", check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("``acme/Staircase-v0``: numbers that must rise")
    played, *measured = done.stdout.splitlines()[-3:]
    assert played == "{1.0}"
    for shown, random in zip(measured, (0.61, 0.58), strict=True):
        assert list(map(float, shown.split())) == pytest.approx([1, 0, random], abs=0.03)
