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


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd="/", check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed_and_keeps_the_rules(installed: dict[str, str]):
    code = (
        "import comlrl_env, sys\n"
        "from comlrl_agents import cli_envs\n"
        "assert 'acme/Staircase-v0' in comlrl_env.list_envs()\n"
        "print(cli_envs.page('acme/Staircase'))\n"
        "comlrl_env.testing.check_env('acme/Staircase-v0')\n"
        "env = comlrl_env.make('acme/Staircase-v0', num_agents=3, level=1, split='eval')\n"
        "env.reset(seed=0)\n"
        "print(set(env.step(env.task.gold(env.item))[1].values()))\n"
    )
    shown = run(installed, "-c", code)
    assert shown.startswith("``acme/Staircase-v0``: numbers that must rise")
    assert shown.endswith("{1.0}\n")


def test_its_figures_are_true(installed: dict[str, str]):
    for level, random in ((0, 0.61), (1, 0.58)):
        shown = run(installed, "-m", "comlrl_env.figures", "acme/Staircase-v0", f"level={level}", "num_items=256")
        gold, solo, measured = map(float, shown.split()[1::2])
        assert (gold, solo) == (1, 0)
        assert measured == pytest.approx(random, abs=0.03)
