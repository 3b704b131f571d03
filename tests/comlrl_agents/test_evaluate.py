"""Evaluation: every item has random numbers of its own."""

import json
from functools import partial

import numpy as np
import pytest

from comlrl_agents import LLMPolicy, MADPOConfig, MADPOTrainer, ScriptedPolicy
from comlrl_agents.collect import collect
from comlrl_agents.evaluate import evaluate
from comlrl_agents.items import Reset
from comlrl_agents.player_policy import PlayerPolicy
from comlrl_agents.rollouts import Group, TaskReward
from comlrl_agents.sides import Side
from comlrl_agents.types import Generation
from comlrl_env import ConfigError, PreferenceWrapper, from_functions, make
from tests.comlrl_agents.test_cli import run
from tests.comlrl_agents.toys import ColourEnv, word_policy


def outcome(team, env, count, batch_size, seed=0):
    rngs = {agent: np.random.default_rng([seed, number]) for number, agent in enumerate(env.possible_agents)}
    found = evaluate(dict(zip(env.possible_agents, team, strict=True)), env, count, rngs, batch_size=batch_size)
    return [[turn["responses"] for turn in row["turns"]] for row in found.samples]


def teams():
    colours = ["red", "green", "gold"]
    env = make("comlrl/Schedule-v0", num_items=8)
    return {
        "models": (ColourEnv(), [word_policy(0), word_policy(1)]),
        "functions": (ColourEnv(), [ScriptedPolicy(lambda prompt, rng: colours[rng.integers(3)])] * 2),
        "players of two turns": (env, [PlayerPolicy(env.task, agent, "random") for agent in env.possible_agents]),
    }


@pytest.mark.parametrize("kind", ["models", "functions", "players of two turns"])
def test_answers_depend_neither_on_the_batch_nor_on_how_many_items_there_are(kind):
    env, team = teams()[kind]
    alone = outcome(team, env, 8, 1)
    assert outcome(team, env, 8, 3) == outcome(team, env, 8, 64) == alone
    assert outcome(team, env, 5, 2) == alone[:5]
    assert outcome(team, env, 8, 1, seed=1) != alone
    assert len({str(turns) for turns in alone}) > 2  # items do not share their numbers


def test_a_policy_that_samples_in_a_way_of_its_own_is_asked_in_that_way():
    asked = []

    class Own(ScriptedPolicy):
        def generate(self, prompts, n=1, rng=None):
            asked.append(len(prompts))
            return super().generate(prompts, n, rng)

    outcome([Own(lambda prompt, rng: "red"), ScriptedPolicy(lambda prompt, rng: "red")], ColourEnv(), 6, 4)
    assert asked == [4, 2]

    class Draws(LLMPolicy):
        def generate_draws(self, prompts, draws, sampling=None):
            asked.append(-len(prompts))
            return super().generate_draws(prompts, draws, sampling)

    patched = word_policy(1)
    patched.generate = lambda prompts, n, rng, **_: asked.append(100) or [[Generation("red")]] * len(prompts)
    own = word_policy(0)
    drawn = Draws(own.model, own.tokenizer, sampling=own.sampling)
    outcome([drawn, patched], ColourEnv(), 2, 2)
    assert asked == [4, 2, -2, 100]


def test_the_command_line_repeats_the_last_evaluation_of_a_run(tmp_path):
    small = ["items_per_round=2", "num_generations=2", "num_train_epochs=1", "eval_num_samples=6", "drift_samples=0"]
    sampling = ["max_new_tokens=16", "temperature=1.0", "top_p=1.0", "top_k=null"]
    where = ["env=comlrl/LengthRatio-v0", "seed=3"]
    assert run("train", "magrpo", *where, *sampling, *small, "agents=tiny", f"output_dir={tmp_path}").exit_code == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    (last,) = [line["eval/turn_1/reward_mean"] for line in lines if "eval/turn_1/reward_mean" in line][-1:]
    again = run("eval", *where, f"agents={tmp_path / 'model'}", "num_eval_samples=6")
    assert again.exit_code == 0, again.output
    shown = dict(line.split() for line in again.stdout.splitlines() if line.startswith("eval/"))
    assert 0 < last < 1
    assert float(shown["eval/turn_1/reward_mean"]) == pytest.approx(last, abs=1e-4)


def rows(**more):
    return from_functions(
        [{"n": 1}, {"n": 2}], lambda one, two: [1.0] * len(one), lambda row: f"pick {row['n']}", num_agents=2, **more
    )


@pytest.mark.parametrize(
    ("env", "eval_env", "first"),
    [
        (rows(eval_dataset=[{"n": 3}]), None, "pick 3"),
        (rows(), None, "pick 1"),
        (rows(eval_dataset=[{"n": 3}]), rows(), "pick 1"),
    ],
)
def test_an_environment_with_held_out_items_is_evaluated_on_them(env, eval_env, first, tmp_path, capsys):
    args = MADPOConfig(
        preference_num_candidates=2, eval_num_samples=1, max_new_tokens=1, num_train_epochs=1, drift_samples=0
    )
    run = MADPOTrainer(env, eval_env, agents=[word_policy(0), word_policy(1)], args=args, output_dir=tmp_path)
    run.train()
    assert run.eval_env.reset(seed=0, options={"item": 0})[0]["agent_0"] == first
    assert env.reset(seed=0, options={"item": 0})[0]["agent_0"] == "pick 1"
    learned_from = eval_env is None and first == "pick 1"
    said = capsys.readouterr().out.replace("\n", " ")
    assert ("evaluation: there is no split 'eval'" in said) == learned_from


class Staggered(ColourEnv):
    """Agent b ends after the first turn, agent a after the second; every turn is worth what its texts are long."""

    def reset(self, seed=None, options=None):
        self.turn = 0
        return super().reset(seed, options)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        agents, self.turn = self.agents, self.turn + 1
        self.agents = ["a"] if self.turn == 1 else []
        ended = {agent: agent not in self.agents for agent in agents}
        value = float(sum(map(len, actions.values())))
        told = {agent: {} for agent in agents}
        return dict.fromkeys(agents, "pick"), dict.fromkeys(agents, value), ended, dict.fromkeys(agents, False), told


def test_agents_may_end_at_different_turns():
    team = {"a": ScriptedPolicy(lambda prompt, rng: "aa"), "b": ScriptedPolicy(lambda prompt, rng: "bbb")}
    found = evaluate(team, Staggered(), 2, {agent: np.random.default_rng(0) for agent in team})
    assert found.metrics["eval/turn_1/reward_mean"] == 5
    assert found.metrics["eval/turn_2/reward_mean"] == 2
    assert found.returns == [7, 7]


@pytest.mark.parametrize("kind", ["evaluated", "rewarded", "collected"])
def test_an_episode_that_goes_on_is_not_trained_on(kind, tmp_path):
    if kind == "evaluated":
        args = MADPOConfig(eval_num_samples=1, max_new_tokens=1, items_per_round=1)
        run = MADPOTrainer(Staggered(), agents=[word_policy(0), word_policy(1)], args=args, output_dir=tmp_path)
        played = run.train
    elif kind == "rewarded":
        answers = ((Generation("red"),), (Generation("green"),))
        group = Group("item", Reset(0), ("pick", "pick"), answers)
        reward = TaskReward(Staggered())
        played = partial(reward, [group])
    else:
        side = Side([ScriptedPolicy(lambda prompt, rng: "red")] * 2, [np.random.default_rng(0)] * 2, 2)
        wrapper, rng = PreferenceWrapper(Staggered()), np.random.default_rng(0)
        played = partial(collect, wrapper, [Reset(0)], side, None, rng)
    with pytest.raises(ConfigError, match="env: training covers environments of one turn so far"):
        played()
    assert not (tmp_path / "config.yaml").exists()  # so that the folder holds no run


def test_the_standard_error_by_hand():
    class Says(ColourEnv):
        def reset(self, seed=None, options=None):
            self.seed = seed
            return super().reset(seed, options)

        def reward(self, joint):
            return float([1.0, 2.0, 6.0][self.seed])

    team = {agent: ScriptedPolicy(lambda prompt, rng: "red") for agent in ("a", "b")}
    rngs = {agent: np.random.default_rng(0) for agent in team}
    found = evaluate(team, Says(), 3, rngs).metrics
    # mean 3, deviations −2, −1, 3: variance (4 + 1 + 9) / 2 = 7, of the mean 7 / 3
    assert found["eval/turn_1/expected_return"] == 3
    assert found["eval/standard_error"] == pytest.approx((7 / 3) ** 0.5)
    assert "eval/standard_error" not in evaluate(team, Says(), 1, rngs).metrics
