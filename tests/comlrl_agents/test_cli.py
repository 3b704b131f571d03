"""The command line: what it hands to the trainer, what it refuses, and how it says so."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from comlrl_agents import cli, cli_train
from comlrl_agents.cli import app
from comlrl_agents.columns import columns
from comlrl_agents.config import MADPOConfig, MADPOIterConfig
from comlrl_agents.tracking import Tracker
from comlrl_env import registry
from comlrl_env.errors import CheckpointError
from comlrl_env.types import Item, Score

ROOT = Path(__file__).parents[2]
ENV = "comlrl/LengthRatio-v0"


class TwoWords:
    """A task of a user: both must say the word that they are told. Ten items in each split."""

    agents = ("left_0", "right_0")
    num_turns = 1

    def __init__(self, shout: bool = False) -> None:
        self.shout = shout

    def items(self, split: str) -> list[Item]:
        return [Item(f"{split}-{number}", {"word": f"{split} {number}"}) for number in range(10)]

    def prompts(self, item: Item, history: tuple) -> dict[str, str]:
        return {agent: f"{agent}: say {item.data['word']}" for agent in self.agents}

    def score(self, item: Item, history: tuple, responses: dict[str, str]) -> Score:
        right = [responses[agent] == item.data["word"] for agent in self.agents]
        return Score(reward=sum(right) / 2, parts={"right": float(sum(right))}, is_success=all(right))

    def sample_answers(self, item: Item, rng: Any, history: tuple = ()) -> dict[str, str]:
        return dict.fromkeys(self.agents, item.data["word"])


class Impure(TwoWords):
    """Its score counts the calls."""

    calls = 0

    def score(self, item: Item, history: tuple, responses: dict[str, str]) -> Score:
        Impure.calls += 1
        return Score(reward=float(Impure.calls))


TASK, IMPURE = f"{__name__}:TwoWords", f"{__name__}:Impure"


def run(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=typed)


# Train


class StubTrainer:
    """Keeps what it was made with and logs two evaluations."""

    made: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        StubTrainer.made = arguments
        self.policies = [SimpleNamespace(device=torch.device("cpu"), model=torch.nn.Linear(4, 4))]

    def train(self, resume_from_checkpoint: bool | None) -> None:
        StubTrainer.made["resume"] = resume_from_checkpoint
        folder = Path(StubTrainer.made["output_dir"])
        if (folder / "config.yaml").exists() and not resume_from_checkpoint:
            raise CheckpointError("output_dir: holds a run")
        (folder / "config.yaml").write_text("seed: 3\n")
        with Tracker(folder, report_to=()) as tracker:
            tracker.log(0, {"eval/turn_1/reward_mean": 0.25})
            tracker.log(12, {"eval/turn_1/reward_mean": 0.875})


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> type[StubTrainer]:
    monkeypatch.setattr(cli_train.Algorithm, "trainer_class", lambda self: StubTrainer)
    return StubTrainer


def test_train_makes_the_trainer_that_the_keys_describe(stub: type[StubTrainer], tmp_path: Path):
    folder = tmp_path / "run"
    result = run("train", "madpo-iter", f"env={TASK}", "env.shout=true", "num_iterations=2", f"output_dir={folder}")
    assert result.exit_code == 0, result.output
    made = stub.made
    assert made["args"] == MADPOIterConfig(num_iterations=2)
    assert (made["agents"], made["tokenizer"], made["resume"]) == ("tiny", None, None)
    assert (made["env"].split, made["eval_env"].split) == ("train", "eval")
    assert made["env"].task.shout
    assert made["eval_env"].task.shout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["eval/turn_1/reward_mean", "0.25", "0.875", "+0.625"] in lines
    assert ["run", "folder", str(folder)] in lines


def test_the_evaluation_environment_differs_where_it_is_told_to(stub: type[StubTrainer], tmp_path: Path):
    result = run(
        "train", "madpo", f"env={TASK}", "eval_env.split=train", "eval_env.shout=true", f"output_dir={tmp_path}"
    )
    assert result.exit_code == 0, result.output
    assert isinstance(stub.made["args"], MADPOConfig)
    assert stub.made["eval_env"].split == "train"
    assert (stub.made["env"].task.shout, stub.made["eval_env"].task.shout) == (False, True)


def test_a_used_folder_is_refused_and_resume_goes_on(stub: type[StubTrainer], tmp_path: Path):
    def again(*options: str) -> Result:
        return run("train", "madpo", f"env={TASK}", f"output_dir={tmp_path}", *options)

    assert again().exit_code == 0
    refused = again()
    assert (refused.exit_code, refused.stderr) == (2, "error: output_dir: holds a run\n")
    assert stub.made["args"].seed == 0
    assert again("--resume").exit_code == 0
    assert stub.made["resume"] is True
    assert stub.made["args"].seed == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["madpoiter", f"env={ENV}"], "did you mean 'madpo-iter'"),
        (["madpo", f"env={ENV}", "num_agent=2"], "did you mean 'num_agents'"),
        (["madpo", f"env={ENV}", "outputdir=x"], "did you mean 'output_dir'"),
        (["madpo", f"env={ENV}", "num_iterations=2"], "unknown key 'num_iterations', which is a key of madpo-iter;"),
        (["marlhf", f"env={ENV}", "num_iterations=2"], "unknown key 'num_iterations', which is a key of marlhf-iter;"),
        (["magrpo", f"env={ENV}", "dpo_beta=1"], "which is a key of madpo and madpo-iter; leave it out"),
        (["madpo"], "env: is missing"),
        (["madpo", "env=comlrl/LenghtRatio-v0"], "did you mean 'comlrl/LengthRatio-v0'"),
        (["madpo", f"env={ENV}", "env.leevel=1"], "level"),
        (["madpo", f"env={ENV}", "dpo_beta=big"], "dpo_beta"),
        (["madpo", f"env={ENV}", "dpo_beta=-1"], "dpo_beta"),
        (["madpo", f"env={ENV}", "pair_selection=all"], "preference_pairs_per_sample"),
    ],
)
def test_bad_input_is_one_clear_message(stub: type[StubTrainer], arguments: list[str], words: str):
    stub.made = {}
    result = run("train", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert stub.made == {}


def test_an_interrupted_run_says_how_to_go_on(stub: type[StubTrainer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_train, "make_env", lambda *_: interrupted())
    result = run("train", "madpo", f"env={TASK}")
    assert result.exit_code == 130
    assert "stopped before the run began; nothing was written" in result.stderr
    (tmp_path / "config.yaml").touch()
    assert "with --resume begins anew" in run("train", "madpo", f"env={TASK}", f"output_dir={tmp_path}").stderr
    (tmp_path / "checkpoints" / "step_00000001").mkdir(parents=True)
    told = run("train", "madpo", f"env={TASK}", f"output_dir={tmp_path}").stderr
    assert "with --resume goes on from the last checkpoint" in told


def test_keys_lists_what_can_be_set():
    lines = run("train", "madpo-iter", "--keys").stdout.splitlines()
    assert "num_iterations=6" in lines
    assert "report_to=tensorboard,console" in lines
    assert "preference_replay_k=none" in lines
    assert lines[lines.index("num_iterations=6") + 1] == "    Rounds of collection and training."
    assert "One of sigmoid, ipo." in lines[lines.index("loss_type=sigmoid") + 1]


# Envs and check


def test_envs_lists_figures_and_shows_pages():
    rows = [line.split() for line in run("envs").stdout.splitlines()]
    assert rows[0][:8] == ["id", "agents", "turns", "levels", "gold", "solo", "random", "data"]
    (row,) = [row for row in rows if row[0] == ENV]
    assert row[1:6] == ["2", "1", "0–2", "1.00", "0.00"]
    assert row[7] == "procedural"
    page = run("envs", ENV).stdout
    assert "Reward" in page
    assert "Roles" in page
    unknown = run("envs", "comlrl/Nothing-v0")
    assert unknown.exit_code == 2
    assert "unknown environment" in unknown.stderr


def test_check_passes_a_good_task_and_explains_a_bad_one():
    good = run("check", TASK)
    assert good.exit_code == 0, good.output
    assert "no finding" in good.stdout
    bad = run("check", IMPURE)
    assert bad.exit_code == 1
    assert "score" in bad.stderr
    assert run("check", TASK, "seed=1").exit_code == 2


def test_check_all_names_every_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "list_envs", lambda: [ENV, "comlrl/Nothing-v0"])
    result = run("check", "--all")
    assert result.exit_code == 1
    assert f"{ENV}: no finding" in result.stdout
    assert "comlrl/Nothing-v0: unknown environment" in result.stderr
    assert run("check").exit_code == 2
    assert run("check", ENV, "--all").exit_code == 2


def test_a_new_task_works_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    result = run("new-task", "RhymePair", "--folder", str(tmp_path / "mine"))
    assert result.exit_code == 0
    assert "comlrl check rhyme_pair:RhymePair" in result.stdout
    again = run("new-task", "RhymePair", "--folder", str(tmp_path / "mine"))
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert run("new-task", "rhyme pair").exit_code == 2
    assert len((tmp_path / "mine" / "rhyme_pair.py").read_text(encoding="utf-8").splitlines()) <= 65
    monkeypatch.syspath_prepend(tmp_path / "mine")
    assert run("check", "rhyme_pair:RhymePair").stdout == "rhyme_pair:RhymePair: no finding\n"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "mine")]
    tested = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout
    script = [str(Path(sys.executable).parent / "comlrl"), "check", "rhyme_pair:RhymePair"]
    checked = subprocess.run(script, cwd=tmp_path / "mine", capture_output=True, text=True, check=False)
    assert checked.stdout == "rhyme_pair:RhymePair: no finding\n", checked.stderr


def test_public_names_are_listed_before_they_are_imported():
    program = "import comlrl_agents, sys; print(*dir(comlrl_agents), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert {"MADPOIterTrainer", "JointRewardModel", "load_policy", "False"} <= set(done.stdout.split())


def test_columns_align_words_left_and_numbers_right():
    assert columns([["id", "n"], ["abc", "7"], ["d", "1,000"]]) == "id       n\nabc      7\nd    1,000"
    assert columns([]) == ""


# Imports


def seconds_of_work(program: str, arguments: Sequence[str] = (), code: int = 0) -> float:
    """The processor time of a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["envs"], 0),
        (["train", "madpo", f"env={ENV}", "sede=1"], 2),
        (["train", "madpo", f"env={ENV}", "env.level=9"], 2),
    ],
)
def test_quick_answers_are_quick_and_bad_input_needs_no_torch(arguments: list[str], code: int):
    """Under a second; where the machine is so busy that the libraries alone take half of that, twice theirs."""
    program = (
        "import sys\n"
        "from comlrl_agents.cli import app\n"
        "try:\n"
        "    app(sys.argv[1:])\n"
        "finally:\n"
        "    assert not {'torch', 'transformers'} & set(sys.modules), 'heavy import'\n"
    )
    libraries = "import pettingzoo, msgspec, typer, yaml"
    assert any(seconds_of_work(program, arguments, code) < max(1.0, 2 * seconds_of_work(libraries)) for _ in range(8))


def test_a_resume_computes_as_its_run_began(tmp_path: Path) -> None:
    trainer = SimpleNamespace(policies=[SimpleNamespace(device=torch.device("cpu"), model=torch.nn.Linear(4, 4))])
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        cli_train.settle_computation(trainer, tmp_path, resume=False)
        kept = json.loads((tmp_path / "computation.json").read_text())
        assert kept["threads"] == torch.get_num_threads()
        assert set(kept["reasons"]) == {"threads", "allocator", "float32 products"}
        (tmp_path / "computation.json").write_text('{"threads": 1, "float32_products": "medium"}')
        cli_train.settle_computation(trainer, tmp_path, resume=True)
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (1, "medium")
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("said", [None, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_threads_wait_briefly_unless_told_otherwise(said, monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    if said is not None:
        monkeypatch.setenv(said, "ACTIVE" if said == "OMP_WAIT_POLICY" else "7")
    before = dict(os.environ)
    cli.wait_briefly()
    assert dict(os.environ) == (before if said else before | {"GOMP_SPINCOUNT": "10000"})
