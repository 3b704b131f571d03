import json

import pytest
from msgspec import structs
from typer.testing import CliRunner

from comlrl_agents import cli_train
from comlrl_agents.cli import app
from comlrl_agents.run_keys import shown
from comlrl_env.records import write_round
from tests.comlrl_agents.test_given_pairs import RECORDED, colour_pair


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def folder(tmp_path):
    first = colour_pair(("red", "green"), ("blue", "gold"))
    write_round(tmp_path / "run" / "pairs", 1, [first, first])
    learned = structs.replace(colour_pair(("gold", "green"), ("blue", "gold")), by_task=False)
    write_round(tmp_path / "run" / "pairs", 2, [learned])
    return tmp_path / "run"


def test_pairs_are_summarised_and_shown(folder):
    result = run("pairs", folder, "--show", 1)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["1", "2", "1", "task", "1", "0", "1", "1"] in rows
    assert ["2", "1", "1", "reward", "model", "1", "0", "1", "1"] in rows
    assert result.stdout.count("winner  ") == 3  # the column, and two agents of one pair


def test_pairs_are_chosen_and_converted(folder, tmp_path):
    target = tmp_path / "rows.jsonl"
    result = run("pairs", folder, "--round", 1, "--contains", "red", "--to", target)
    assert "4 rows" in result.stdout
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(r["agent"], r["prompt"], r["chosen"], r["rejected"]) for r in rows[:2]] == [
        ("agent_0", "pick", "red", "blue"),
        ("agent_1", "pick", "green", "gold"),
    ]
    assert run("pairs", folder, "--to", target).exit_code == 2
    joint = tmp_path / "joint.jsonl"
    run("pairs", folder, "--round", 2, "--to", joint, "--kind", "joint")
    assert "<agent_1>\ngreen" in json.loads(joint.read_text())["chosen"]
    assert run("pairs", folder, "--min-gap", 2).stdout == "no pair\n"
    assert run("pairs", folder, "--to", tmp_path / "x.jsonl", "--kind", "odd").exit_code == 2
    assert run("pairs", folder, "--kind", "joint").exit_code == 2  # nothing is written that could be of a kind
    assert run("pairs", folder, "--round", 0).exit_code == 2
    assert "no pair; " in run("pairs", folder, "--round", 9, "--to", tmp_path / "y.jsonl").stdout


def test_a_datasets_folder(folder, tmp_path):
    datasets = pytest.importorskip("datasets")
    assert run("pairs", folder, "--to", tmp_path / "rows").exit_code == 0
    loaded = datasets.load_from_disk(str(tmp_path / "rows"))
    assert loaded["chosen"][:2] == ["red", "green"]


def test_files_are_checked(folder):
    assert run("pairs", folder, "--check").stdout == "2 files: no finding\n"
    assert run("pairs", RECORDED, "--check").exit_code == 0
    pairs = folder / "pairs"
    good = json.loads((pairs / "iteration_0001.json").read_text())
    good["pairs"][0]["winner_reward"] = -1
    good["pairs"][1]["loser_completions"] = good["pairs"][1]["winner_completions"]
    good["iteration"] = 7
    (pairs / "iteration_0001.json").write_text(json.dumps(good))
    (pairs / "iteration_0003.json").write_text("{")
    result = run("pairs", folder, "--check")
    assert result.exit_code == 1
    for words in (
        "name says round 1, its content round 7",
        "expected winner_reward above",
        "the same text",
        "0003.json",
    ):
        assert words in result.stderr


def test_a_key_never_reaches_the_command_file(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["comlrl", "train", "comparator_api_key=sk-123", "comparator_api_key_env=NAME"])
    assert cli_train.command_line() == "comlrl train 'comparator_api_key=***' comparator_api_key_env=NAME"
    assert shown("comparator_api_headers={Authorization: sk-1}") == "comparator_api_headers=***"
    for argument in ("comparator_api_key:sk-123", "comparator_api_key={sk-123"):
        result = run("train", "madpo-iter", argument)
        assert result.exit_code == 2
        assert "sk-123" not in result.output
    (tmp_path / "c.yaml").write_text("comparator_api_key: {sk-123\n")
    result = run("train", "madpo-iter", "--config", tmp_path / "c.yaml")
    assert result.exit_code == 2
    assert "sk-123" not in result.output


def test_a_remote_agent_is_evaluated():
    from tests.comlrl_agents.remote.servers import openai_reply, serving

    with serving(lambda n, body: (400, {}, "no") if n == 0 else openai_reply("A story.")) as server:
        common = ["env=comlrl/LengthRatio-v0", "num_eval_samples=3", "seed=1"]
        api = [f"api_url={server.url}", "api_format=openai", "api_model=m", "api_max_concurrency=1"]
        result = run("eval", *common, "agents=api", *api)
        assert result.exit_code == 0, result.output
        assert "statuses: error 1, ok 2" in result.stdout
        assert len(server.bodies) == 6
        assert run("eval", *common, "agents=tiny", api[0]).exit_code == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["agents=api"], "error: api_url: is required by agents=api, actually None"),
        (["agents=api", "api_url=http://localhost:9", "api_key_env=NOT_SET_1"], "error: api_key_env: the environment"),
        (["agents=tiny", "num_eval_samples=0"], "error: num_eval_samples: must be at least 1, actually 0"),
    ],
)
def test_what_eval_refuses_is_named_by_its_own_keys(keys, message):
    result = run("eval", "env=comlrl/LengthRatio-v0", *keys)
    assert result.exit_code == 2
    assert message in result.stderr
