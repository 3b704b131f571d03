"""What the page of learning curves says of itself."""

import json

import pytest

from benchmarks.learning.curves import EXPERIMENTS, RESULTS, made_with, outcome


@pytest.mark.parametrize("result", json.loads((RESULTS / "learning.json").read_text()), ids=lambda r: r["experiment"])
def test_every_row_was_made_with_the_settings_that_stand_in_the_code(result):
    assert set(result["command"].split()) == {
        "comlrl", "train", *EXPERIMENTS[result["experiment"]].split(), "seed=SEED"
    }  # fmt: skip
    assert len(result["curves"]) == len(result["after"]) == 3
    assert result["made"]
    assert f"| {result['experiment']} |" in (RESULTS / "learning.md").read_text()


def test_a_row_says_where_it_comes_from():
    name = next(iter(EXPERIMENTS))
    lines = [{"step": at, "env_step": 8 * at, "eval/turn_1/reward_mean": 0.25 * at} for at in (0, 1, 3)]
    result = outcome(name, {5: lines}, made_with())
    assert (result["before"], result["after"], result["best"]) == ([0.0], [0.75], [0.75])
    assert result["curves"] == {"5": [(0, 0.0), (1, 0.25), (3, 0.75)]}
    assert result["env_steps"] == [24]
    assert result["drift"] == []  # it was never measured
    assert "cores" in result["made"]
