"""The command line's algorithms that learn from rewards, and its learned oracle."""

import pytest
from typer.testing import CliRunner

from comlrl_agents import JointRewardModel
from comlrl_agents.cli import app

ENV = "comlrl/LengthRatio-v0"


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("name", ["magrpo", "mareinforce", "marloo", "maremax", "iac", "maac"])
def test_a_back_end_is_an_algorithm_of_its_own(name):
    keys = run("train", name, "--keys").output.splitlines()
    assert "pairs=" not in keys  # it would be refused
    assert "num_generations=4" in keys
    keys.remove("reward_rule=")
    assert not [key for key in keys if key.startswith(("rl_algorithm=", "preference_", "reward_"))]
    other = "magrpo" if name == "iac" else "iac"
    refused = run("train", name, f"env={ENV}", f"rl_algorithm={other}")
    assert refused.exit_code == 2
    assert "unknown key 'rl_algorithm', which is a key of marlhf and marlhf-iter" in refused.output


def test_marlhf_takes_a_back_end_and_the_keys_of_both_halves():
    keys = run("train", "marlhf-iter", "--keys").output
    assert "\npairs=\n" in keys
    for key in (
        "rl_algorithm=magrpo",
        "reward_num_train_epochs=2",
        "preference_scoring_reward=task",
        "num_iterations=6",
    ):
        assert key in keys
    refused = run("train", "marlhf", f"env={ENV}", "rl_algorithm=marloo", "train_batch_size=9")
    assert refused.exit_code == 2
    assert "train_batch_size: must not exceed the 2 items of rollout_buffer_size" in refused.output


def test_a_run_learns_and_its_reward_model_judges_an_evaluation(tmp_path):
    few = ["max_new_tokens=6", "items_per_round=1", "eval_num_samples=1", "report_to=[]", "drift_samples=0"]
    done = run(
        "train", "marlhf", f"env={ENV}", f"output_dir={tmp_path}/run", *few, "preference_num_candidates=12",
        "num_train_epochs=1", "num_generations=2", "temperature=1.0", "top_p=1.0",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    folder = tmp_path / "run" / "model" / "reward_model"
    if not folder.exists():  # all candidates tied
        JointRewardModel.from_base("tiny", device="cpu").save_pretrained(folder)
    agents = f"agents={tmp_path}/run/model"
    judged = run("eval", f"env={ENV}", agents, f"oracle={folder}", "num_eval_samples=2", "max_new_tokens=6")
    assert judged.exit_code == 0, judged.output
    assert "eval/parts/task_reward" in judged.output
    for oracle in (tmp_path / "run", tmp_path / "run" / "model"):
        refused = run("eval", f"env={ENV}", agents, f"oracle={oracle}")
        assert refused.exit_code == 2
        assert f"give oracle={folder}\n" in refused.output
    refused = run("eval", f"env={ENV}", agents, f"oracle={tmp_path}")
    assert refused.exit_code == 2
    assert "error: oracle: reward model" in refused.output
    assert "expected a folder with reward_model.json" in refused.output


def test_a_centralised_team_is_evaluated_as_it_was_trained_and_by_its_own_reward_model(tmp_path):
    small = "items_per_round=2 num_train_epochs=1 num_generations=2 max_new_tokens=8 eval_num_samples=1 report_to=none"
    trained = run(
        "train", "magrpo", f"env={ENV}", *small.split(), "collaboration_mode=centralized", f"output_dir={tmp_path}"
    )
    assert trained.exit_code == 0, trained.output
    result = run("eval", f"env={ENV}", f"agents={tmp_path / 'model'}", "num_eval_samples=2")
    assert result.exit_code == 0, result.output
    assert "eval/num_samples" in result.output
    judge = JointRewardModel.from_base("tiny")
    judge.agents = ("left", "right")
    judge.save_pretrained(tmp_path / "judge")
    result = run(
        "eval", f"env={ENV}", "agents=tiny", "num_eval_samples=1", "max_new_tokens=4", f"oracle={tmp_path / 'judge'}"
    )
    assert f"scored by the reward model {tmp_path / 'judge'}" in result.output
    assert "it was fitted to the agents left, right, and this environment's are author_0, author_1" in result.output
