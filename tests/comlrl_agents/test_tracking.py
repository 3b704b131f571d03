"""The run's memory: what is written, what a resume drops, when an alarm rings."""

import importlib.machinery
import io
import json
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from comlrl_agents.alarms import Alarms
from comlrl_agents.journal import Journal, read_journal, read_numbers
from comlrl_agents.terminal import Terminal
from comlrl_agents.tracking import Tracker, weighted_means
from comlrl_env.errors import CheckpointError, ConfigError, RecordError

QUIET: tuple[str, ...] = ()


def recorded(terminal: bool = False) -> tuple[Terminal, Console]:
    console = Console(record=True, width=60, force_terminal=terminal, highlight=False, file=io.StringIO())
    return Terminal(console), console


# Files


def test_a_line_of_metrics_is_exactly_what_was_logged(tmp_path: Path):
    with Tracker(tmp_path, report_to=QUIET) as tracker:
        tracker.log(3, {"round": 1, "loss": np.float32(0.5), "eval/turn_1/reward_mean": 0.1})
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 3, "round": 1, "loss": 0.5, "eval/turn_1/reward_mean": 0.1}\n'
    )


def test_values_that_json_does_not_know_come_back_as_they_were(tmp_path: Path):
    with Tracker(tmp_path, report_to=QUIET) as tracker:
        tracker.log(1, {"a": math.nan, "b": -math.inf, "c": math.inf})
        tracker.log_samples(1, [{"reward": math.nan, "responses": {"w_0": "naïve \ud800 \n"}}])
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text) == {
        "step": 1,
        "a": "NaN",
        "b": "-Infinity",
        "c": "Infinity",
        "alarms/non_finite": 1,
    }
    (line,) = read_numbers(tmp_path / "metrics.jsonl")
    assert math.isnan(line["a"])
    assert line["b"] == -math.inf
    (sample,) = read_journal(tmp_path / "samples.jsonl")
    assert sample == {"step": 1, "reward": "NaN", "responses": {"w_0": "naïve \ud800 \n"}}
    assert "naïve" in (tmp_path / "samples.jsonl").read_text()


@pytest.mark.parametrize("value", [None, "0.5", True, [1.0]])
def test_a_metric_that_is_no_number_is_a_mistake(tmp_path: Path, value: object):
    with Tracker(tmp_path, report_to=QUIET) as tracker, pytest.raises(TypeError, match="'loss'"):
        tracker.log(1, {"loss": value})  # type: ignore[dict-item]
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_times_stay_out_of_the_metrics(tmp_path: Path):
    with Tracker(tmp_path, report_to=QUIET) as tracker:
        tracker.log_time(2, {"collect": 1.5})
    assert (tmp_path / "metrics.jsonl").read_text() == ""
    assert read_journal(tmp_path / "timings.jsonl") == [{"step": 2, "time/collect": 1.5}]


def test_a_torn_last_line_is_left_out_and_any_other_damage_is_named(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_journal(path) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 1}\n[2]\n')
    with pytest.raises(RecordError, match="line 2"):
        read_journal(path)
    assert read_journal(tmp_path / "missing.jsonl") == []


# Resume


def write_steps(tracker: Tracker, steps: range) -> None:
    for step in steps:
        # The loss sits at ln 2, so that the count of an alarm goes on over the resume.
        tracker.log(step, {"loss": 0.6931, "eval/turn_1/reward_mean": step / 7})
        tracker.log_samples(step, [{"reward": step / 7}])
        tracker.log_time(step, {"train": 0.25})


def test_a_killed_and_resumed_run_writes_the_same_bytes(tmp_path: Path):
    with Tracker(tmp_path / "whole", report_to=QUIET) as whole:
        assert whole.position() == {"metrics.jsonl": 0, "samples.jsonl": 0, "timings.jsonl": 0}
        write_steps(whole, range(1, 9))
    killed = Tracker(tmp_path / "resumed", report_to=QUIET)
    write_steps(killed, range(1, 5))
    position = killed.position()
    write_steps(killed, range(5, 7))
    with (tmp_path / "resumed" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # torn by the kill
    with Tracker(tmp_path / "resumed", report_to=QUIET) as resumed:
        resumed.rewind(position)
        assert resumed.position() == position
        write_steps(resumed, range(5, 9))
    for name in ("metrics.jsonl", "samples.jsonl", "timings.jsonl"):
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert read_numbers(tmp_path / "whole" / "metrics.jsonl")[-1]["alarms/loss"] == 6  # steps 3 to 8


def test_a_position_that_does_not_fit_changes_nothing(tmp_path: Path):
    with Tracker(tmp_path, report_to=QUIET) as tracker:
        write_steps(tracker, range(1, 3))
        position = tracker.position()
        with pytest.raises(CheckpointError, match=r"samples\.jsonl.*has \d+"):
            tracker.rewind({**position, "metrics.jsonl": 0, "samples.jsonl": 10_000})
        with pytest.raises(CheckpointError, match="expected the files"):
            tracker.rewind({"metrics.jsonl": 0})
        assert tracker.position() == position


def test_a_journal_is_not_cut_beyond_its_end(tmp_path: Path):
    journal = Journal(tmp_path / "a.jsonl")
    with pytest.raises(CheckpointError, match="restore it"):
        journal.truncate(1)


# Sinks


class Memory:
    """A sink of a user, named as "module:Class"."""

    made: list["Memory"] = []  # noqa: RUF012

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        self.folder, self.purge_step, self.rows, self.closed = folder, purge_step, [], 0
        Memory.made.append(self)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.rows.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed += 1


def test_a_sink_of_ones_own_gets_everything_and_the_step_to_purge_from(tmp_path: Path):
    Memory.made.clear()
    name = f"{__name__}:Memory"
    with Tracker(tmp_path, report_to=[name]) as tracker:
        tracker.log(1, {"loss": 0.5})
        tracker.log_time(1, {"collect": 2.0})
        position = tracker.position()
        tracker.log(2, {"loss": 0.4})
    with Tracker(tmp_path, report_to=[name]) as tracker:
        tracker.rewind(position)
        tracker.log(2, {"loss": 0.3})
    first, second = Memory.made
    assert first.rows == [(1, {"loss": 0.5}), (1, {"time/collect": 2.0}), (2, {"loss": 0.4})]
    assert (first.purge_step, second.purge_step) == (None, 2)
    assert (first.closed, second.closed) == (1, 1)


def test_tensorboard_hides_the_steps_that_a_resume_logs_again(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Tracker(tmp_path, report_to=["tensorboard"]) as tracker:
        tracker.log(1, {"loss": 0.5})
        position = tracker.position()
        tracker.log(2, {"loss": 9.0})
    with Tracker(tmp_path, report_to=["tensorboard"]) as tracker:
        tracker.rewind(position)
        tracker.log(2, {"loss": 0.25})
        tracker.log_time(2, {"train": 1.5})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
    assert [event.value for event in events.Scalars("time/train")] == [1.5]


def test_wandb_gets_steps_and_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[object] = []
    fake = types.ModuleType("wandb")
    fake.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    fake.init = lambda **settings: calls.append(settings)  # type: ignore[attr-defined]
    fake.log = lambda metrics, step: calls.append((step, metrics))  # type: ignore[attr-defined]
    fake.finish = lambda: calls.append("finish")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with Tracker(tmp_path / "run_7", report_to=["wandb"]) as tracker:
        tracker.log(4, {"loss": 0.5})
    assert calls == [{"project": "comlrl", "name": "run_7"}, (4, {"loss": 0.5}), "finish"]


@pytest.mark.parametrize(
    ("report_to", "words"),
    [
        (["tensorbord"], "console, tensorboard, wandb"),
        (["no_such_module:Sink"], "cannot be imported"),
        ("console", "expected a list"),
    ],
)
def test_a_wrong_name_in_report_to_is_refused_before_anything_is_written(
    tmp_path: Path, report_to: list[str], words: str
):
    with pytest.raises(ConfigError, match=words):
        Tracker(tmp_path / "run", report_to=report_to)
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        Tracker(tmp_path, report_to=["wandb"])


# Console


def test_without_a_terminal_a_phase_ends_with_one_plain_line(tmp_path: Path):
    terminal, console = recorded()
    with Tracker(tmp_path, report_to=["console"], terminal=terminal) as tracker:
        for done in range(1, 101):
            tracker.progress(2, 6, "train", done, 100, loss=0.25)
        tracker.console("[done]")
    lines = console.export_text().splitlines()
    assert len(lines) == 3  # the first sign of life, the end of the phase, the text
    assert lines[1].endswith("round 2/6  train 100/100  loss 0.25")
    assert lines[2] == "[done]"


def test_on_a_terminal_one_line_is_redrawn_and_cleared(tmp_path: Path):
    terminal, console = recorded(terminal=True)
    with Tracker(tmp_path, report_to=["console"], terminal=terminal) as tracker:
        tracker.progress(1, 6, "collect", 4, 8)
        tracker.progress(1, 6, "collect", 8, 8, a_name_far_too_long_for_the_width_of_this_terminal=1)
        tracker.console("next")
    text = console.export_text()
    assert "━" * 8 + "╌" * 8 + " 4/8" in text
    assert text.count("\n") == 1  # nothing but the text of `console` ends a line
    assert "terminal" not in text  # cropped instead of wrapped


def test_show_prints_the_headline_and_silence_is_silence(tmp_path: Path):
    terminal, console = recorded()
    with Tracker(tmp_path / "a", report_to=["console"], terminal=terminal) as tracker:
        tracker.log(1200, {"grad_norm": 3.0, "loss": 0.123456, "round": 2}, show=True)
        tracker.log(1201, {"loss": 0.2})
    assert console.export_text() == "step 1,200  round 2  loss 0.1235\n"
    terminal, console = recorded()
    with Tracker(tmp_path / "b", report_to=QUIET, terminal=terminal) as tracker:
        tracker.log(1, {"loss": 0.2}, show=True)
        tracker.progress(1, 1, "train", 1, 1)
    assert console.export_text() == ""


def test_an_alarm_is_said_once_when_it_begins_and_counted_while_it_holds(tmp_path: Path):
    terminal, console = recorded()
    with Tracker(tmp_path, report_to=["console"], terminal=terminal) as tracker:
        for step, rate in enumerate([0.0, 0.5, 0.25, 0.0, 0.5]):
            tracker.log(step, {"oracle/error_rate": rate})
    counts = [line.get("alarms/oracle/error_rate") for line in read_numbers(tmp_path / "metrics.jsonl")]
    assert counts == [None, 1, 2, None, 3]
    said = [line for line in console.export_text().splitlines() if line.startswith("warning")]
    assert [line.split(":")[0] for line in said] == ["warning at step 1", "warning at step 4"]


# Rules


def rings(name: str, values: list[float], **others: list[float]) -> list[bool]:
    """On which of the lines the alarm called ``name`` rings when the metric has these values."""
    alarms = Alarms()
    found = []
    for row, value in enumerate(values):
        line = {name: value} | {other.replace("__", "/"): column[row] for other, column in others.items()}
        found.append(name in [alarm.name for alarm in alarms.check(line)])
    return found


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        # within 5e-4 of 0.693147, three times in a row
        ("loss", [0.6931, 0.6934, 0.6928, 0.6938, 0.6931], [0, 0, 1, 0, 0]),
        # per-token values: 1.5 nats is the larger step; sums: twice as far from zero is
        ("agent_0/drift", [-0.5, -1.9, -2.0], [0, 0, 1]),
        ("agent_1/drift", [-30.0, -59.0, -60.0], [0, 0, 1]),
        ("completions/mean_length", [40.0, 10.0, 9.9, 20.0], [0, 0, 1, 0]),
        ("agent_0/mean_length", [8.0, 1.0], [0, 1]),
        ("agent_0/repetition", [0.1, 0.5, 0.51], [0, 0, 1]),
        ("agent_0/repetition", [0.6, 0.79, 0.81], [0, 0, 1]),
        ("completions/clipped_ratio", [0.94, 0.95], [0, 1]),
        ("oracle/timeout_rate", [0.0, 0.001], [0, 1]),
        ("turn_1/reward_mean", [1.0, -100.0], [0, 0]),
    ],
)
def test_thresholds(name: str, values: list[float], expected: list[int]):
    assert rings(name, values) == [bool(flag) for flag in expected]


def test_rewards_that_are_all_one_number_ring_where_groups_learn_from_them():
    def rung(spreads: list[float], means: list[float], **others: list[float]) -> list[bool]:
        return rings("rollout/reward_std", spreads, rollout__reward_mean=means, **others)

    # 1.4e-17 is what NumPy finds for the deviation of 0.1, 0.1, 0.1.
    assert rung([0.0, 1.4e-17, 0.0, 0.1, 0.0], [0.1] * 5) == [False, False, True, False, False]
    assert rung([0.0] * 4, [0.1, 0.2, 0.2, 0.2]) == [False, False, False, True]
    assert not any(rung([0.0] * 4, [0.0, 0.5] * 2))
    assert not any(rung([0.0] * 4, [0.0] * 4, value__loss=[0.5] * 4))  # a critic still learns what to expect


def test_falling_log_probabilities_ring_only_when_winners_and_losers_both_fall():
    falling = [-10.0] * 4 + [-11.1] * 4  # four after four, 11 % lower
    steady = [-10.0] * 4 + [-10.9] * 4  # 9 % lower
    assert rings("logps/chosen", falling, logps__rejected=falling) == [False] * 7 + [True]
    assert rings("logps/chosen", steady, logps__rejected=falling) == [False] * 8
    assert rings("logps/chosen", falling, logps__rejected=steady) == [False] * 8
    assert rings("logps/chosen", falling) == [False] * 8


def test_a_deceived_reward_model_rings_and_a_team_that_learns_or_stands_still_does_not():
    task, rising, flat = "reward_check/task_mean", [4.5, 5.0, 6.0, 6.8, 7.4, 8.6], [5.0] * 6
    # halves of three: 0.7 and 0.5, then 0.7 and 0.54
    deceived, hardly = [0.6, 0.7, 0.8, 0.6, 0.5, 0.4], [0.6, 0.7, 0.8, 0.62, 0.5, 0.5]
    assert rings(task, deceived, reward_check__learned_mean=rising) == [False] * 5 + [True]
    assert rings(task, hardly, reward_check__learned_mean=rising) == [False] * 6
    assert rings(task, deceived, reward_check__learned_mean=flat) == [False] * 6
    assert rings(task, deceived[::-1], reward_check__learned_mean=rising) == [False] * 6
    assert rings(task, deceived) == [False] * 6
    assert rings(task, [0.9, 0.8, 0.3, 0.2], reward_check__learned_mean=rising) == [False] * 4  # too few to tell


def test_a_deceived_reward_model_is_found_over_rounds_whose_models_have_no_common_zero():
    def rung(checks: list[tuple[float, float, float]]) -> bool:
        rounds, learned, task = (list(column) for column in zip(*checks, strict=True))
        return rings("reward_check/task_mean", task, reward_check__learned_mean=learned, round=rounds)[-1]

    falling_within = [(1, 0.1, 0.8), (1, 0.0, 0.8), (2, 0.2, 0.8), (2, 0.1, 0.8), (3, 3.2, 0.5), (3, 3.1, 0.5)]
    rising_within = [(1, 5.0, 0.8), (1, 6.0, 0.7), (2, 4.0, 0.7), (2, 5.0, 0.6), (3, 1.0, 0.3), (3, 2.0, 0.2)]
    assert not rung(falling_within)
    assert rung(rising_within)


def test_figures_of_a_window_weigh_updates_by_their_size():
    assert weighted_means([(2, {"a": 1.0, "b": 0.0}), (1, {"a": 4.0, "b": 3.0})]) == {"a": 2.0, "b": 1.0}
    assert weighted_means([]) == {}


def test_a_value_that_is_not_finite_rings_and_moves_no_other_rule():
    alarms = Alarms()
    assert [alarm.name for alarm in alarms.check({"agent_0/mean_length": math.nan})] == ["non_finite"]
    assert alarms.check({"agent_0/mean_length": 4.0}) == []  # this is the first value
    assert alarms.check({"agent_0/mean_length": 1.0}) == []
