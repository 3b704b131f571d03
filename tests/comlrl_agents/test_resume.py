"""Stopped inside a checkpoint and gone on with, in more ways of training than the one that is really killed.

``test_trainer`` kills a process; here an exception that nobody catches takes its place, at a tenth of the time.
"""

import os

import pytest

import comlrl_env
from comlrl_agents import trainer
from comlrl_env.errors import CheckpointError
from tests.comlrl_agents.test_trainer import final_files, iterative
from tests.comlrl_agents.toys import ColourEnv


class Killed(BaseException):
    """What SIGKILL is to a process."""


def rows():
    """A dataset of five items, so that passes of two and two do not come out even."""
    return comlrl_env.from_functions(
        [{"colour": colour} for colour in ("red", "green", "blue", "gold", "pick")],
        reward_func=lambda ones, twos, batch_items: [
            float(one == item["colour"]) + float(two != one)
            for one, two, item in zip(ones, twos, batch_items, strict=True)
        ],
        formatters=lambda row: f"pick {row['colour']}",
        num_agents=2,
    )


WAYS = {
    "nearest rounds, random pairs": (
        ColourEnv,
        {"preference_replay_mode": "nearest_k", "preference_replay_k": 2, "pair_selection": "random"},
    ),
    "a dataset in parts": (rows, {"items_per_round": 2, "num_iterations": 3}),
    "few checkpoints, anchored": (
        ColourEnv,
        {
            "checkpoint_interval": 3,
            "reference_anchored": True,
            "train_batch_size": 2,
            "preference_num_candidates": 12,
            "num_train_epochs": 4,
            "num_iterations": 1,
        },
    ),
}


def run(way, folder, monkeypatch, stop_after=0):
    """Train, stopped at the ``stop_after``-th flush to the disk; whether the run came to its end."""
    env, fields = WAYS[way]
    flush, flushed = os.fsync, 0

    def fsync(handle):
        nonlocal flushed
        flushed += 1
        if flushed == stop_after:
            raise Killed
        flush(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(trainer, "write_report", lambda folder: None)
        try:
            small = {"preference_num_candidates": 4, "eval_num_samples": 1, "drift_samples": 0, "eval_interval": 100}
            iterative(folder, env(), **small | fields).train(resume_from_checkpoint=True)
        except Killed:
            return False
    return True


@pytest.mark.parametrize("way", WAYS)
def test_a_stopped_run_ends_as_if_it_had_not_been_stopped(way, tmp_path, monkeypatch):
    assert run(way, tmp_path / "straight", monkeypatch)
    assert not run(way, tmp_path / "stopped", monkeypatch, stop_after=50)  # in a later checkpoint than the first two
    assert run(way, tmp_path / "stopped", monkeypatch)
    assert final_files(tmp_path / "stopped") == final_files(tmp_path / "straight")


def test_a_run_does_not_shrink_below_the_epochs_it_has_had(tmp_path):
    iterative(tmp_path, num_iterations=1, num_train_epochs=2).train()
    before = (tmp_path / "config.yaml").read_text()
    with pytest.raises(CheckpointError, match=r"num_train_epochs must not be less than the 2 epochs .* actually 1"):
        iterative(tmp_path, num_iterations=1, num_train_epochs=1).train(resume_from_checkpoint=True)
    assert (tmp_path / "config.yaml").read_text() == before


@pytest.mark.parametrize(("wanted", "begun"), [(3, 4), (1, 4)])
def test_a_run_does_not_shrink_below_the_rounds_it_has_begun(tmp_path, wanted, begun, monkeypatch, capsys):
    """Killed in the fourth round, it must not go on as the second or third of a shorter run."""
    run = iterative(tmp_path, num_iterations=6)
    learn = run.learning.learn

    def until_the_fourth(sample, save):
        if run.progress.round == 4:
            raise KeyboardInterrupt
        learn(sample, save)

    monkeypatch.setattr(run.learning, "learn", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(CheckpointError, match=f"not be less than the {begun} rounds .* actually {wanted}"):
        iterative(tmp_path, num_iterations=wanted).train(resume_from_checkpoint=True)
    assert {path: path.read_bytes() for path in before} == before
    capsys.readouterr()
    for ended in (False, True):
        iterative(tmp_path, num_iterations=4, report_to=["console"]).train(resume_from_checkpoint=True)
        assert ("the run had ended, and nothing is left to do" in capsys.readouterr().out.replace("\n", " ")) == ended


def test_a_round_file_that_somebody_edits_leaves_the_checkpoints_whole(tmp_path):
    iterative(tmp_path, num_iterations=2).train()
    with (tmp_path / "pairs" / "iteration_0001.json").open("a") as file:
        file.write("\n")  # in place
    grown = iterative(tmp_path, num_iterations=3)
    grown.train(resume_from_checkpoint=True)
    assert grown.progress.round == 4
    assert not (tmp_path / "pairs" / "iteration_0001.json").read_text().endswith("\n\n")


def test_a_damaged_checkpoint_is_kept_and_named_when_an_earlier_one_is_taken(tmp_path, capsys):
    iterative(tmp_path, num_iterations=2, checkpoint_total_limit=None).train()
    newest = sorted((tmp_path / "checkpoints").glob("step_*"))[-1]
    (newest / "learner.pt").write_bytes(b"")
    iterative(tmp_path, num_iterations=2, report_to=["console"]).train(resume_from_checkpoint=True)
    told = f"{newest.name} is damaged and was passed over; it is kept as damaged-1-{newest.name}"
    assert told in capsys.readouterr().out.replace("\n", " ")
    assert (newest.with_name(f"damaged-1-{newest.name}") / "learner.pt").read_bytes() == b""


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("comlrl_agents.progress.save_file", OSError(28, "No space left on device")),
        ("comlrl_agents.checkpoint.torch.save", RuntimeError("[enforce fail] unexpected pos 1 vs 0")),
        ("comlrl_agents.policy_history.save_file", OSError(28, "No space left on device")),
    ],
)
def test_a_full_disk_is_said_and_leaves_what_there_was(tmp_path, monkeypatch, writer, error):
    run = iterative(tmp_path, num_iterations=2)

    def full(*_):
        raise error

    monkeypatch.setattr(writer, full)
    with pytest.raises(CheckpointError, match=r"cannot be written: .*(No space|unexpected).*make room"):
        run.train()
    assert not list(tmp_path.rglob(".staged-*"))


def test_how_rewards_become_one_does_not_change_on_resume(tmp_path):
    iterative(tmp_path, num_iterations=1).train()
    grown = iterative(tmp_path, num_iterations=2)
    grown.reward_rule = "max"
    with pytest.raises(CheckpointError, match="reward_rule was None when the checkpoint was written and is 'max' now"):
        grown.train(resume_from_checkpoint=True)
