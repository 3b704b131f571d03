"""Tasks with a message turn: played by environments, slates, preferences and evaluation, refused by trainers."""

import numpy as np
import pytest

import comlrl_env
from comlrl_agents import MADPOConfig, MADPOTrainer
from comlrl_agents.evaluate import evaluate
from comlrl_agents.policy import ScriptedPolicy
from comlrl_env import ConfigError
from comlrl_env.players import players
from comlrl_env.slate import Slate

NAMES = {
    "comlrl/EvidencePool-v0": {"talk": True},
    "comlrl/HintPlay-v0": {},
    "comlrl/Reference-v0": {},
    "comlrl/Schedule-v0": {},
}
both = pytest.mark.parametrize("name", NAMES)


def columns(joint):
    """Candidates by agent from a list of joint responses."""
    return {agent: [answers[agent] for answers in joint] for agent in joint[0]}


@both
def test_an_episode_shows_both_turns(name):
    env = comlrl_env.make(name, render_mode="ansi", **NAMES[name])
    env.reset(options={"item": 0})
    _, rewards, *_ = env.step(env.task.gold(env.item, env.history))
    assert set(rewards.values()) == {0.0}
    assert len(env.agents) == 2
    _, rewards, _, _, infos = env.step(env.task.gold(env.item, env.history))
    assert set(rewards.values()) == {1.0}
    assert env.agents == []
    assert infos[env.possible_agents[0]]["is_success"]
    shown = env.render()
    assert "-- turn 2 --" in shown
    assert "a message turn earns nothing" in shown


@both
def test_a_slate_carries_each_candidates_own_note(name):
    env = comlrl_env.make(name, **NAMES[name])
    slate = Slate(env)
    slate.reset(seed=0, options={"item": 1})
    item = env.item
    every = [players(env.task)["gold"], players(env.task, 1)["random"], players(env.task, 3)["garbage"]]
    first = slate.step(columns([player(item, ()) for player in every]))
    assert [score.reward for score in first.scores] == [0, 0, 0]
    assert not first.finished
    assert len({repr(prompts) for prompts in first.prompts}) == 3
    second = slate.step(
        columns([env.task.gold(item, (None,)), env.task.gold(item, (None,)), dict.fromkeys(env.agents, "")])
    )
    assert second.finished
    assert [score.reward for score in second.scores] == [1, 1, 0]


@both
def test_preferences_span_both_turns(name):
    env = comlrl_env.make(name, **NAMES[name])
    wrapped = comlrl_env.PreferenceWrapper(env)
    wrapped.reset(seed=0, options={"item": 2})
    item = env.item
    silent = dict.fromkeys(env.possible_agents, "")
    prompts, rewards, *_ = wrapped.step(columns([env.task.gold(item, ()), silent]))
    assert set(rewards.values()) == {0}
    assert any(told != untold for told, untold in prompts.values())
    infos = wrapped.step(columns([env.task.gold(item, (None,)), silent]))[4]
    info = infos[env.possible_agents[0]]
    assert (info["candidate_rewards"], info["preferences"]) == ([1, 0], [(0, 1)])


def test_evaluation_plays_both_turns():
    env = comlrl_env.make("comlrl/Schedule-v0", split="eval")
    team = {agent: ScriptedPolicy(lambda prompt, rng: "mon9") for agent in env.possible_agents}
    found = evaluate(team, env, 64, {agent: np.random.default_rng(0) for agent in team})
    assert found.metrics["eval/turn_1/reward_mean"] == 0
    rate = found.metrics["eval/success_rate"]
    assert found.metrics["eval/turn_2/reward_mean"] == pytest.approx(rate + 0.2 * (1 - rate))
    assert rate == pytest.approx(1 / 6, abs=0.1)


def test_training_refuses_them():
    env = comlrl_env.make("comlrl/Schedule-v0")
    with pytest.raises(ConfigError, match=r"env: training covers environments of one turn so far, actually 2 turns"):
        MADPOTrainer(env=env, agents="tiny", args=MADPOConfig(num_agents=2))
