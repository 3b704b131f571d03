"""The run folder of ``comlrl train`` holds what starts the run again."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from comlrl_agents import cli_train
from comlrl_agents.cli import app
from tests.comlrl_agents.test_cli import TASK
from tests.comlrl_agents.toys import word_policy


def train(algorithm: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["train", algorithm, *arguments])


def test_the_configuration_of_a_run_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cli_train, "settle_computation", lambda *_, **__: None)  # measured, so no run repeats it
    for index in range(2):
        word_policy(index).save(tmp_path / "team" / f"agent_{index}")
    told = [f"env={TASK}", "env.shout=true", "eval_env.split=train", f"agents={tmp_path / 'team'}", "report_to=none"]
    small = ["items_per_round=2", "preference_num_candidates=2", "max_new_tokens=2", "num_iterations=1"]
    first, second = tmp_path / "first", tmp_path / "second"
    done = train("madpo-iter", *told, *small, "seed=3", "agent_learning_rate=1e-3", f"output_dir={first}")
    assert done.exit_code == 0, done.output
    kept = yaml.safe_load((first / "config.yaml").read_text())
    assert kept["env"] == {"id": TASK, "shout": True}
    assert {"algorithm": "madpo-iter", "agents": str(tmp_path / "team"), "eval_env": {"split": "train"}}.items() <= (
        kept.items()
    )
    again = train("madpo-iter", "--config", str(first / "config.yaml"), f"output_dir={second}")
    assert again.exit_code == 0, again.output
    for name in ("config.yaml", "metrics.jsonl", "samples.jsonl", "model/agent_0/model.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_a_run_is_resumed_with_its_own_settings_and_only_what_starts_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cli_train, "settle_computation", lambda *_, **__: None)

    def told(number: int, *arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["/somewhere/comlrl", "train", f"number {number}"])
        return train("magrpo", f"output_dir={tmp_path / 'run'}", *arguments)

    for index in range(2):
        word_policy(index).save(tmp_path / "team" / f"agent_{index}")
    small = ["items_per_round=1", "num_generations=2", "max_new_tokens=2", "num_train_epochs=1", "report_to=none"]
    done = told(1, f"env={TASK}", "env.shout=true", f"agents={tmp_path / 'team'}", *small)
    assert done.exit_code == 0, done.output
    for number, refused, words in [
        (2, [f"env={TASK}"], "already holds a run"),
        (3, ["--resume", "num_generations=3"], "num_generations"),
        (4, ["--resume", "num_generation=3"], "did you mean 'num_generations'"),
    ]:
        result = told(number, *refused)
        assert result.exit_code == 2
        assert words in result.stderr
    longer = told(5, "--resume", "num_train_epochs=2")
    assert longer.exit_code == 0, longer.output
    assert (tmp_path / "run" / "command.txt").read_text() == "comlrl train 'number 1'\ncomlrl train 'number 5'\n"
    nowhere = train("magrpo", f"output_dir={tmp_path / 'other'}", "--resume")
    assert "holds no run to go on with" in nowhere.stderr


@pytest.mark.parametrize("name", ["madpo-iter", "MADPOIterTrainer"])
def test_settings_of_another_algorithm_are_refused(tmp_path: Path, name: str):
    (tmp_path / "config.yaml").write_text(f"algorithm: {name}\nenv: {TASK}\n")
    result = train("madpo", "--config", str(tmp_path / "config.yaml"))
    assert result.exit_code == 2
    assert f"algorithm: the settings are those of '{name}', actually the command is `comlrl train madpo`" in (
        result.stderr
    )
