import json
import math
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from comlrl_agents import (
    JointRewardModel,
    MADPOConfig,
    MADPOTrainer,
    MARLHFConfig,
    MARLHFIterConfig,
    MARLHFIterTrainer,
    MARLHFTrainer,
    RLConfig,
    RLTrainer,
    embedding_rows,
)
from comlrl_agents.policy_window import Window
from comlrl_agents.tracking import Tracker
from comlrl_env.errors import CheckpointError, ConfigError, TrainingError
from tests.comlrl_agents.test_policy_learners import groups_of
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_model, word_policy

SMALL = {
    "agent_learning_rate": 2e-2, "max_new_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": None,
    "items_per_round": 4, "report_to": [], "eval_interval": 10_000, "rollout_buffer_size": 4, "num_generations": 8,
    "drift_samples": 0, "eval_batch_size": 64, "checkpoint_interval": 6,
}  # fmt: skip
PREFERENCES = SMALL | {
    "preference_num_candidates": 12, "preference_pairs_per_sample": 8, "reward_learning_rate": 1e-2,
    "reward_train_batch_size": 4, "reward_num_train_epochs": 3, "num_train_epochs": 6, "reward_held_out_share": 0.25,
}  # fmt: skip


def team():
    return [word_policy(seed) for seed in range(2)]


def lines(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def marlhf(folder, base, env=None, policies=None, **fields):
    args = MARLHFConfig(**(PREFERENCES | {"reward_model_name": base} | fields))
    return MARLHFTrainer(env or ColourEnv(), agents=policies or team(), args=args, output_dir=folder)


def iterative(folder, base, env=None, **fields):
    settings = {"reward_model_name": base, "num_iterations": 3, "num_train_epochs": 2, "reward_num_train_epochs": 2}
    args = MARLHFIterConfig(**(PREFERENCES | settings | fields))
    return MARLHFIterTrainer(env or ColourEnv(), agents=team(), args=args, output_dir=folder)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("magrpo", {}),
        ("iac", {"use_separate_critic": False, "drift_samples": 2}),
        ("iac", {"critic_type": "q", "reference_kl_enabled": True}),
        ("maac", {"ppo_epochs": 2, "ppo_clip_range": 0.2}),
    ],
)
def test_a_team_learns_the_toy_from_the_task(tmp_path, base, name, fields):
    critic = base if name in ("iac", "maac") and fields.get("use_separate_critic", True) else None
    args = RLConfig(rl_algorithm=name, critic_model_name=critic, **(SMALL | {"num_train_epochs": 6} | fields))
    trainer = RLTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path)
    before = trainer.evaluate(64)["eval/turn_1/reward_mean"]
    trainer.train()
    after = trainer.evaluate(64)["eval/turn_1/reward_mean"]
    # With "q" what is learned is what the critic did not foresee: less.
    assert after > before + (0.08 if fields.get("critic_type") == "q" else 0.15)
    if critic is not None:
        losses = [line["value/loss"] for line in lines(tmp_path) if "value/loss" in line]
        assert losses[-1] < 0.5 * max(losses)
    assert not (tmp_path / "pairs").exists() or not list((tmp_path / "pairs").iterdir())
    logged = set().union(*lines(tmp_path))
    assert {"loss", "turn_1/reward_mean", "turn_1/expected_return", "rollout/reward_std"} <= logged
    assert ("agent_1/drift" in logged) == ("drift_samples" in fields)
    assert ("kl/reference" in logged) == bool(fields.get("reference_kl_enabled"))
    assert lines(tmp_path)[-1]["env_step"] == args.num_train_epochs * 4 * 8
    assert lines(tmp_path)[-1]["task_step"] == args.num_train_epochs * 4 * 8


def test_the_logged_return_of_buffers_of_different_size_is_the_reward(tmp_path):
    args = RLConfig(**SMALL | {"items_per_round": 3, "rollout_buffer_size": 2, "num_train_epochs": 4})
    RLTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path).train()
    logged = [line for line in lines(tmp_path) if "turn_1/reward_mean" in line]
    assert len(logged) == 4
    for line in logged:  # one turn, no reference term
        assert line["turn_1/expected_return"] == pytest.approx(line["turn_1/reward_mean"], abs=1e-12)


class Numbered(ColourEnv):
    """Every item asks something else, in the same unknown word."""

    def reset(self, seed=None, options=None):
        prompts, infos = super().reset(seed, options)
        return {agent: f"{prompt} {seed}" for agent, prompt in prompts.items()}, infos


def test_items_that_ask_the_same_are_held_out_together(tmp_path, base):
    env = ColourEnv()  # every seed is an item, and all ask the same
    marlhf(tmp_path / "same", base, env, items_per_round=6, reward_held_out_share=0.3).train()
    assert not [line for line in lines(tmp_path / "same") if "reward_model/held_out_pairs" in line]
    marlhf(tmp_path / "apart", base, Numbered(), items_per_round=6, reward_held_out_share=0.3).train()
    assert [line for line in lines(tmp_path / "apart") if "reward_model/held_out_pairs" in line]


def test_marlhf_fits_a_reward_model_and_learns_from_it(tmp_path, base, monkeypatch):
    env, asked = Numbered(), []
    trainer = marlhf(
        tmp_path, base, env, task_reward_samples=3, items_per_round=6, preference_num_candidates=80,
        preference_pairs_per_sample=40, pair_selection="random", reward_learning_rate=5e-3, reward_num_train_epochs=4,
    )  # fmt: skip
    before = trainer.evaluate(64)["eval/turn_1/reward_mean"]
    real = ColourEnv.reward
    monkeypatch.setattr(ColourEnv, "reward", lambda self, joint: asked.append(1) or real(self, joint))
    trainer.train()
    monkeypatch.undo()
    assert trainer.evaluate(64)["eval/turn_1/reward_mean"] > before + 0.15
    logged = lines(tmp_path)
    fits = [line for line in logged if "reward_model/held_out_accuracy" in line]
    assert fits[0]["step"] > 0
    assert fits[-1]["reward_model/held_out_accuracy"] > 0.8
    assert {"reward_model/loss", "reward_model/accuracy", "reward_model/margin", "turn_1/reward_mean"} <= set(fits[0])
    policy = [line for line in logged if "reward_check/task_mean" in line]
    assert len(policy) == 6
    assert policy[-1]["rollout/reward_mean"] > policy[0]["rollout/reward_mean"]
    # Oracle calls: the collection, three joint responses per logged line, evaluations; not the rollouts.
    assert len(asked) == 6 * 80 + 6 * 3 + 4 * sum("eval/num_samples" in line for line in logged)
    assert logged[-1]["env_step"] == 6 * 80 + 6 * 6 * 8
    assert logged[-1]["task_step"] == 6 * 80
    row = next(row for row in lines(tmp_path, "samples.jsonl") if row["phase"] == "policy")
    assert {"learned_reward", "reward", "responses"} <= set(row)
    loaded = JointRewardModel.from_pretrained(tmp_path / "model" / "reward_model")
    (of_nothing,) = [line["reward_model/empty_mean"] for line in logged if "reward_model/empty_mean" in line]
    assert of_nothing == pytest.approx(loaded.score([(("pick 1", "pick 1"), ("", ""))])[0], abs=1e-5)
    asked_for = ("pick 1", "pick 1")
    best, worst = loaded.score([(asked_for, ("red", "green")), (asked_for, ("gold", "gold"))])
    assert best > worst


def test_the_fits_optimizer_is_gone_before_policies_learn(tmp_path, base, monkeypatch):
    trainer = marlhf(tmp_path, base)
    seen = []
    learn_from = trainer.learning.policy.learn_from

    def watch(score, save):
        model = score.model
        seen.append(trainer.learning._fit)
        assert all(p.grad is None and not p.requires_grad for p in model.parameters())
        assert trainer.learning.state_dict()["fit"] is None
        return learn_from(score, save)

    monkeypatch.setattr(trainer.learning.policy, "learn_from", watch)
    trainer.train()
    assert seen == [None]


def test_rounds_fit_a_fresh_model_and_may_label_with_the_last(tmp_path, base, monkeypatch):
    trainer = iterative(tmp_path, base, preference_scoring_reward="reward_model")
    labelled, models = [], []
    score = trainer._score

    def watch():
        labelled.append(score())
        return labelled[-1]

    monkeypatch.setattr(trainer, "_score", watch)
    fresh = trainer.learning._fresh_model

    def fresh_model():
        models.append(fresh())
        assert same_weights(models[-1].backbone, word_model(5, layers=2).model)
        return models[-1]

    monkeypatch.setattr(trainer.learning, "_fresh_model", fresh_model)
    trainer.train()
    assert labelled[0] is None
    assert labelled[1].__self__ is models[0]
    assert labelled[2].__self__ is models[1]
    assert len({id(model) for model in models}) == 3
    pairs = json.loads((tmp_path / "pairs" / "iteration_0002.json").read_text())["pairs"]
    rewards = {p[side] for p in pairs for side in ("winner_reward", "loser_reward")}
    assert not rewards <= {0.0, 0.5, 1.0}
    assert [p.get("by_task", True) for p in pairs] == [False] * len(pairs)
    per_round = [line["task_step"] for line in lines(tmp_path) if "pairs/kept" in line]
    assert len(set(per_round)) == 1 < len(per_round)  # only the first round asked the task


def test_drift_is_measured_once_per_state_of_the_team(tmp_path, base):
    trainer = iterative(tmp_path, base, drift_samples=4)
    trainer.train()
    seen = [(line["round"], "pairs/kept" in line) for line in lines(tmp_path) if "agent_0/drift" in line]
    # The first collection, then the end of each of two epochs in three rounds: what a later collection would say again.
    assert seen == [(1, True), *((number, False) for number in (1, 1, 2, 2, 3, 3))]


def test_the_live_line_says_which_epoch_and_whose_reward(tmp_path, base, monkeypatch):
    said = []

    def watch(self, round, rounds, phase, done, total, **shown):
        if shown:
            said.append((phase, *shown))

    monkeypatch.setattr(Tracker, "progress", watch)
    marlhf(tmp_path / "learned", base, num_train_epochs=2).train()
    fits = [(f"epoch {number}/3  fit", "loss") for number in (1, 2, 3)]  # reward_num_train_epochs
    learned = [("epoch 1/2  policy", "learned reward"), ("epoch 2/2  policy", "learned reward")]
    assert list(dict.fromkeys(said)) == [*fits, *learned]
    said.clear()
    args = RLConfig(**SMALL | {"num_train_epochs": 1})
    RLTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path / "task").train()
    assert set(said) == {("policy", "reward")}
    said.clear()
    fields = {"items_per_round": 2, "preference_num_candidates": 8, "temperature": 1.0, "top_p": 1.0, "report_to": []}
    args = MADPOConfig(**fields, top_k=None, num_train_epochs=2, max_new_tokens=2)
    MADPOTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path / "pairs").train()
    assert list(dict.fromkeys(said)) == [("epoch 1/2  learn", "loss"), ("epoch 2/2  learn", "loss")]


def test_the_live_reward_is_the_mean_of_the_last_buffer():
    window = Window()
    assert math.isnan(window.latest_reward)
    window.add_rollout(groups_of(2, (1.0, 3.0, 2.0)), 0.0, 0.0)
    window.add_rollout(groups_of(1, (4.0, math.nan, 6.0)), 0.0, 0.0)
    assert window.latest_reward == 5.0
    assert window.metrics()["rollout/reward_mean"] == 2.75  # (2 · 6 + 10) / 8
    window.add_rollout(groups_of(1, (math.nan,) * 3), 0.0, 0.0)
    assert math.isnan(window.latest_reward)


def test_a_round_without_pairs_is_passed_over(tmp_path, base):
    class Flat(ColourEnv):
        def reward(self, joint):
            return 0.5

    trainer = iterative(tmp_path, base, Flat(), num_iterations=2)
    trainer.train()
    assert same_weights(trainer.policies[0].model, word_model(0))
    assert trainer.learning.reward_model is None


def test_an_oracle_that_fails_now_and_then_is_counted_and_left_out(tmp_path):
    class Flaky(ColourEnv):
        def reward(self, joint):
            return float("nan") if joint[0] == joint[1] else super().reward(joint)

    args = RLConfig(**SMALL, num_train_epochs=2)
    RLTrainer(Flaky(), agents=team(), args=args, output_dir=tmp_path / "some").train()
    assert any(line.get("oracle/error_rate", 0) > 0 for line in lines(tmp_path / "some"))

    class Broken(ColourEnv):
        def reward(self, joint):
            return float("nan")

    with pytest.raises(TrainingError, match="all 32 joint responses of an epoch failed"):
        RLTrainer(Broken(), agents=team(), args=args, output_dir=tmp_path / "none").train()


def test_one_writer_for_all_roles_learns_by_marlhf(tmp_path, base):
    trainer = marlhf(
        tmp_path, base, policies=[word_policy(0)], collaboration_mode="centralized", num_train_epochs=1,
        max_new_tokens=4, preference_num_candidates=40,
    )  # fmt: skip
    assert trainer.agents == ["actor"]
    trainer.train()


# ------------------------------------------------------------------ resume


PROGRAM = """
    import sys
    from comlrl_agents import MARLHFIterConfig, MARLHFIterTrainer, embedding_rows
    embedding_rows._LARGE = 1  # reward model and critics learn by rows, as large ones do
    from tests.comlrl_agents.toys import ColourEnv, word_policy
    args = MARLHFIterConfig(
        agent_learning_rate=2e-2, preference_num_candidates=8, max_new_tokens=2, temperature=1.0, top_p=1.0,
        top_k=None, rollout_buffer_size=2, items_per_round=3, report_to=[], eval_interval=4, num_iterations=2,
        num_train_epochs=2, reward_num_train_epochs=2, reward_model_name=sys.argv[2], critic_model_name=sys.argv[2],
        rl_algorithm="iac", num_generations=3, reward_learning_rate=1e-2, reward_train_batch_size=4,
        preference_scoring_reward="reward_model", reference_kl_enabled=True, logging_steps=2, drift_samples=0,
    )
    trainer = MARLHFIterTrainer(
        ColourEnv(), agents=[word_policy(0), word_policy(1)], args=args, output_dir=sys.argv[1]
    )
    trainer.train(resume_from_checkpoint=True)
"""

KILLER = """
    import os, signal
    from comlrl_agents.learners import {module}
    real, count = {module}.{name}.learn, 0
    def learn(*arguments, **named):
        global count
        count += 1
        if count == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    {module}.{name}.learn = learn
"""


def run(folder, base, monkeypatch):
    """Runs the program to its end, in this process."""
    monkeypatch.setattr(sys, "argv", ["program", str(folder), base])
    monkeypatch.setattr(embedding_rows, "_LARGE", embedding_rows._LARGE)  # put back what the program sets
    exec(textwrap.dedent(PROGRAM), {})


def run_until_killed(folder, base, module, name, at):
    code = textwrap.dedent(KILLER.format(module=module, name=name, at=at)) + textwrap.dedent(PROGRAM)
    command = [sys.executable, "-c", code, str(folder), base]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == -signal.SIGKILL, done.stderr


def final_files(folder):
    kept = [folder / "metrics.jsonl", folder / "samples.jsonl", *sorted(folder.glob("pairs/*.json"))]
    kept += sorted(folder.glob("model/**/*.safetensors"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.slow
def test_killed_in_either_phase_and_resumed_equals_uninterrupted(tmp_path, base, monkeypatch):
    run(tmp_path / "straight", base, monkeypatch)
    expected = final_files(tmp_path / "straight")
    assert len(expected) == 2 + 2 + 2 + 2 * 2 + 2
    folder = tmp_path / "killed"
    # Inside the second fit, past its first epoch; then in the policy learning behind it.
    run_until_killed(folder, base, "marlhf", "RewardFit", at=9)
    run_until_killed(folder, base, "actor_critic", "ActorCritic", at=3)
    run(folder, base, monkeypatch)
    assert final_files(folder) == expected


def test_a_finished_run_can_grow(tmp_path, base):
    straight = marlhf(tmp_path / "straight", base, num_train_epochs=3)
    straight.train()
    marlhf(tmp_path / "grown", base, num_train_epochs=2).train()
    grown = marlhf(tmp_path / "grown", base, num_train_epochs=3)
    grown.train(resume_from_checkpoint=True)
    for one, two in zip(straight.policies, grown.policies, strict=True):
        assert same_weights(one.model, two.model)


def test_another_back_end_does_not_resume(tmp_path, base):
    marlhf(tmp_path, base, num_train_epochs=1).train()
    with pytest.raises(CheckpointError, match="rl_algorithm was 'magrpo'"):
        marlhf(tmp_path, base, num_train_epochs=1, rl_algorithm="marloo").train(resume_from_checkpoint=True)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"reward_model_name": None}, "reward_model_name: is required when the first agent is an object"),
        ({"reward_model_name": "/nowhere/at/all"}, "^reward_model_name: model '/nowhere/at/all': no such folder"),
        ({"reward_model_device": "cuda:77"}, "^reward_model_device: 'cuda:77' cannot be used here"),
        ({"rl_algorithm": "maac"}, "critic_model_name: is required"),
        ({"reward_max_length": 3}, "reward_max_length: must leave a token for each of 2 responses"),
    ],
)
def test_what_is_missing_is_refused_before_collection(tmp_path, base, fields, text):
    with pytest.raises(ConfigError, match=text):
        marlhf(tmp_path / "run", base, **fields)
    assert not (tmp_path / "run").exists()


def test_a_saved_reward_model_is_asked_before_collection_whether_it_fits(tmp_path, base):
    saved = JointRewardModel.from_base(base)
    saved.agents = ("a", "b", "c")
    saved.save_pretrained(tmp_path / "of_three")
    with pytest.raises(ConfigError, match=r"was fitted to the texts of 3 agents \(a, b, c\), and this team has 2"):
        marlhf(tmp_path / "run", tmp_path.joinpath("of_three").as_posix())
    whole = tmp_path / "whole" / "model" / "reward_model"
    saved.save_pretrained(whole)
    with pytest.raises(ConfigError, match=f"is the folder of a run; give its reward model, {whole}"):
        marlhf(tmp_path / "run", str(tmp_path / "whole"))
    with pytest.raises(ConfigError, match=r"must be a critic or a language model, actually a reward model"):
        marlhf(tmp_path / "run", base, rl_algorithm="iac", critic_model_name=str(whole))
    saved.agents, saved.max_length = ("a", "b"), 4
    saved.save_pretrained(tmp_path / "short")
    with pytest.raises(ConfigError, match="must leave a token for each of 2 responses"):
        marlhf(tmp_path / "run", tmp_path.joinpath("short").as_posix())
    assert not (tmp_path / "run").exists()
