import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import comlrl_env
from comlrl_agents import MADPOIterConfig, MADPOIterTrainer
from comlrl_agents.cli import app
from comlrl_agents.evaluate import evaluate
from comlrl_agents.player_policy import with_players
from comlrl_agents.questions import start_of
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.toys import ColourEnv

SMALL = {
    "preference_num_candidates": 2, "max_new_tokens": 4, "items_per_round": 2, "num_iterations": 1, "report_to": [],
    "drift_samples": 0, "eval_num_samples": 1, "seed": 0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "reward"), [("gold", 1.0), ("garbage", 0.0)])
def test_players_earn_on_an_environment_of_two_turns_what_they_are_known_for(name, reward):
    env = comlrl_env.make("comlrl/Schedule-v0", split="eval")
    team = with_players(f"player:{name}", env, "agents")
    rngs = {agent: np.random.default_rng(1) for agent in env.possible_agents}
    outcome = evaluate(dict(zip(env.possible_agents, team, strict=True)), env, 8, rngs)
    assert outcome.metrics["eval/turn_1/expected_return"] == reward


def test_a_player_with_chance_gives_candidates_that_differ_and_repeat_with_the_stream():
    env = comlrl_env.make("comlrl/SplitSum-v0")
    player = with_players("player:random", env, "agents")[0]
    starts = [start_of(env, *env.reset(seed=seed)) for seed in (0, 1)]

    def texts():
        groups = player.generate(["", ""], 8, np.random.default_rng(3), starts=starts)
        return [[g.text for g in group] for group in groups]

    assert texts() == texts()
    assert all(len(set(group)) > 1 for group in texts())


def test_gold_as_a_comparator_wins_every_pair(tmp_path):
    args = MADPOIterConfig(**SMALL, comparator_policy="model", comparator_model_name="player:gold")
    trainer = MADPOIterTrainer(comlrl_env.make("comlrl/Partition-v0"), args=args, output_dir=tmp_path)
    trainer.train()
    pairs = json.loads((tmp_path / "pairs" / "iteration_0001.json").read_text())["pairs"]
    assert pairs
    assert all(pair["winner_reward"] == 1.0 for pair in pairs)


def test_what_no_player_can_play_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("comlrl_agents.trainer.load_team", None)
    with pytest.raises(ConfigError, match=r"player:silver must be a player of Partition: gold, solo, random, garbage"):
        with_players("player:silver", comlrl_env.make("comlrl/Partition-v0"), "agents")
    with pytest.raises(ConfigError, match="plays a task of comlrl_env"):
        with_players(["tiny", "player:gold"], ColourEnv(), "agents")
    args = MADPOIterConfig(
        **SMALL, comparator_policy="model", comparator_model_name="player:gold",
        comparator_generation_mode="centralized",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="must be 'decentralized'"):
        MADPOIterTrainer(comlrl_env.make("comlrl/Partition-v0"), args=args, output_dir=tmp_path)
    for field, value in (("comparator_model_name", "player:gild"), ("comparator_agents", ["tiny", "player:gild"])):
        args = MADPOIterConfig(**SMALL, comparator_policy="model", **{field: value})
        with pytest.raises(ConfigError, match=f"{field}: player:gild must be a player"):
            MADPOIterTrainer(comlrl_env.make("comlrl/Partition-v0"), args=args, output_dir=tmp_path)


def test_the_command_line_evaluates_players():
    keys = ["env=comlrl/Partition-v0", "agents=[player:gold, player:gold]", "num_eval_samples=4"]
    result = CliRunner().invoke(app, ["eval", *keys])
    assert result.exit_code == 0
    assert re.search(r"eval/turn_1/reward_mean +1\n", result.output)
