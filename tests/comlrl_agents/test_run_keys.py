"""The key=value language of the command line and of its files."""

from pathlib import Path

import pytest

from comlrl_agents.run_keys import read_keys
from comlrl_env.errors import ConfigError


def test_keys_are_yaml_and_sorted_by_whose_they_are():
    keys = read_keys(
        [
            "env=comlrl/Partition-v0",
            "env.num_items=64",
            "eval_env.level=2",
            "agents=tiny,runs/a",
            "agent_learning_rate=1e-6",
            "top_k=null",
            "env.scale=2e3",
            "output_dir=2026-11-29",
            "report_to=console",
        ]
    )
    assert keys.env == "comlrl/Partition-v0"
    assert keys.env_arguments == {"num_items": 64, "scale": 2000.0}
    assert keys.eval_arguments == {"level": 2}
    assert keys.agents == ["tiny", "runs/a"]
    assert keys.output_dir == "2026-11-29"  # YAML would make a date of it
    assert keys.fields == {"agent_learning_rate": 1e-6, "top_k": None, "report_to": ["console"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "env: {id: x/Y-v0, level: 1}\nseed: 3\ndpo_beta: 5e-2\neval_env: {level: 2}\n"),
        ("a.yaml", "env: x/Y-v0\nenv.level: 1\nseed: 3\ndpo_beta: 0.05\neval_env.level: 2\n"),
        ("a.toml", 'seed = 3\ndpo_beta = 5e-2\n[env]\nid = "x/Y-v0"\nlevel = 1\n[eval_env]\nlevel = 2\n'),
    ],
)
def test_a_file_holds_the_same_keys_and_the_command_line_wins(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    keys = read_keys(["seed=4"], tmp_path / name)
    assert (keys.env, keys.env_arguments, keys.eval_arguments) == ("x/Y-v0", {"level": 1}, {"level": 2})
    assert keys.fields == {"seed": 4, "dpo_beta": 0.05}


@pytest.mark.parametrize(("text", "value"), [("none", "none"), ("null", None), ("[]", []), ("a,b", ["a", "b"])])
def test_report_to_names_sinks_or_none_at_all(text: str, value: object):
    assert read_keys([f"report_to={text}"]).fields == {"report_to": value}


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["seed"], "expected key=value, actually 'seed'"),
        (["=3"], "expected key=value"),
        (["seed=1", "seed=2"], "seed: is given twice"),
        (["agents=[a, b"], "agents: expected a YAML value"),
    ],
)
def test_a_malformed_assignment_is_refused(assignments: list[str], words: str):
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        read_keys(assignments)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("a.toml", "seed = ", "no valid TOML"), ("a.yaml", "[", "no valid YAML"), ("a.yaml", "- 1", "actually list")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, words: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_keys([], tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys([], tmp_path / "missing.yaml")
