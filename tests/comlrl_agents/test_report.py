"""The report of a run: what a person finds in the folder afterwards."""

import json
import math
from pathlib import Path

import pytest

from comlrl_agents import report
from comlrl_agents.curve import EVALUATION, LEARNED, TASK, TRAINING, checks, curves, draw_curve
from comlrl_agents.report import before_and_after, write_report
from comlrl_agents.tracking import Tracker


def evaluation_row(item: str | None, texts: tuple[str, str], reward: float | None, reason: str = "") -> dict:
    turn = {
        "prompts": {"a_0": "Write | briefly.", "a_1": "Write\n\nmore <now>."},
        "responses": dict(zip(("a_0", "a_1"), texts, strict=True)),
        "reward": reward,
        "status": "ok" if reward is not None else "timeout",
        "reason": reason,
    }
    return {"phase": "eval", "item": item, "turns": [turn], "return": reward}


def made_up_run(folder: Path) -> Path:
    """Three rounds whose evaluation goes 0.25, 0.5, 0.875."""
    with Tracker(folder, report_to=()) as tracker:
        tracker.log(0, {"round": 1, "env_step": 0, EVALUATION: 0.25, "eval/num_samples": 2.0})
        tracker.log_samples(
            0, [evaluation_row("i1", ("x", "y"), 0.5), evaluation_row("i2", ("p", "q"), None, "too slow")]
        )
        for number in (1, 2, 3):
            step, scored = 4 * number, 64 * number
            found = {"pairs/kept": 8.0, "pairs/ties": 2.0, "oracle/error_rate": 0.0 if number == 1 else 0.5}
            tracker.log(
                step - 4,
                {"round": number, "env_step": scored, **found, "agent_0/drift": -1.0 - number, "agent_1/drift": -1.0},
            )
            tracker.log_samples(step - 4, [{"phase": "collect", "item": "t7", "responses": ["u", "v"]}])
            tracker.log(step - 1, {"round": number, "env_step": scored, TRAINING: 0.25 * number, "loss": 0.5})
            tracker.log(step, {"round": number, "env_step": scored, TRAINING: 0.25 * number + 0.1, "loss": 0.5})
            for value in {1: (), 2: (0.5,), 3: (0.75, 0.875)}[number]:
                values = {EVALUATION: value, "eval/num_samples": 2.0}
                tracker.log(step, {"round": number, "env_step": scored, **values})
        tracker.log_samples(
            12,
            [evaluation_row("i1", ("long\n\n<b>", "z" * 1000), 0.75), evaluation_row("i2", ("r", "s"), 1.0)],
        )
    return folder


def test_the_report_tells_the_whole_run(tmp_path: Path):
    folder = made_up_run(tmp_path / "first")
    (folder / "command.txt").write_text("comlrl train madpo-iter env=x\n")
    (folder / "versions.json").write_text('{"torch": "2.13.0"}')
    text = write_report(folder).read_text(encoding="utf-8")
    assert text.startswith("# first\n")
    assert "```sh\ncomlrl train madpo-iter env=x\n```" in text
    assert "Made with torch 2.13.0." in text
    assert f"| `{EVALUATION}` | 0.25 | 0.875 | +0.625 |" in text
    assert "before (step 0) | after (step 12)" in text
    # per round: joint responses, training reward (a mean), evaluation, pairs, ties
    assert "| 1 | 64 | 0.3 |  | 8 | 2 |" in text
    assert "| 0 | 0 |  | 0.25 |" in text
    assert "| 3 | 192 | 0.8 | 0.875 | 8 | 2 |" in text
    assert "| `agent_0/drift` | -2 | 0 | -4 | 8 |" in text
    assert "| `alarms/oracle/error_rate` | 4 | 8 | 2 |" in text


def test_a_learned_reward_stands_beside_the_tasks(tmp_path: Path):
    check = "reward_check/"
    with Tracker(tmp_path, report_to=()) as tracker:
        for step, metrics in enumerate(
            [
                {"round": 1, "reward_model/loss": 0.7, "reward_model/held_out_accuracy": 0.5},
                {"round": 1, "reward_model/held_out_accuracy": 0.875},
                {"round": 1, check + "learned_mean": 0.5, check + "task_mean": 0.25, check + "correlation": 0.75},
                {"round": 1, check + "learned_mean": 1.5, check + "task_mean": 0.125, "kl/reference": 0.0625},
                {"round": 2, "reward_model/held_out_accuracy": 0.75},
                {"round": 2, check + "learned_mean": 2.5, check + "task_mean": 0.5, check + "correlation": -0.25},
                {"round": 3, "pairs/kept": 0},
            ]
        ):
            tracker.log(step, metrics)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    section = text.split("## The reward model\n")[1].split("\n## ")[0]
    header, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert header == (
        "| round | held-out accuracy | learned reward | task reward | correlation | KL to the initial team |"
    )
    # The last check of the first round had no correlation: an older one is not passed off as its own.
    assert rows == ["| 1 | 0.875 | 1.5 | 0.125 |  | 0.0625 |", "| 2 | 0.75 | 2.5 | 0.5 | -0.25 |  |"]


def test_how_the_two_rewards_went_within_the_last_round_is_shown(tmp_path: Path):
    check = "reward_check/"
    with Tracker(tmp_path, report_to=()) as tracker:
        tracker.log(5, {"round": 1, check + "learned_mean": 9.0, check + "task_mean": 9.0})
        for step in range(12):
            values = {check + "learned_mean": 4.0 + step, check + "task_mean": 0.5 - step / 32}
            tracker.log(10 + step, {"round": 2, **values})
    section = write_report(tmp_path).read_text(encoding="utf-8").split("Checks of round 2:\n")[1].split("\n## ")[0]
    header, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert header == "| step | learned reward | task reward |"
    assert len(rows) == 10
    assert rows[0] == "| 10 | 4 | 0.5 |"
    assert rows[-1] == "| 21 | 15 | 0.1562 |"
    assert len(set(rows)) == 10


@pytest.mark.parametrize("metrics", [{"loss": 0.5}, {"kl/reference": 0.5, "rollout/reward_mean": 1.0}])
def test_a_run_that_learned_no_reward_has_no_such_table(tmp_path: Path, metrics: dict[str, float]):
    with Tracker(tmp_path, report_to=()) as tracker:
        tracker.log(0, {"round": 1, **metrics})
    assert "The reward model" not in write_report(tmp_path).read_text(encoding="utf-8")


def test_samples_stand_side_by_side_and_survive_markdown(tmp_path: Path):
    text = write_report(made_up_run(tmp_path)).read_text(encoding="utf-8")
    best, worst = (
        text.index("Best of 2 stored at the end: item i2"),
        text.index("Worst of 2 stored at the end: item i1"),
    )
    assert best < worst
    assert "<td>a_0 says</td><td><pre>x</pre></td><td><pre>long&#10;&#10;&lt;b&gt;</pre></td>" in text
    assert "<td>reward</td><td>timeout: too slow</td><td>1</td>" in text
    assert "… (200 more characters)" in text
    assert "First item" not in text  # it is the worst one, shown already
    for block in text.split("<table>")[1:]:
        assert "\n\n" not in block.split("</table>")[0]  # a blank line would end the HTML block


def test_items_without_names_are_compared_by_place(tmp_path: Path):
    with Tracker(tmp_path, report_to=()) as tracker:
        tracker.log_samples(0, [evaluation_row(None, ("a", "b"), 0.0), evaluation_row(None, ("c", "d"), 1.0)])
        tracker.log_samples(5, [evaluation_row(None, ("e", "f"), 0.0), evaluation_row(None, ("g", "h"), 1.0)])
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<td><pre>c</pre></td><td><pre>g</pre></td>" in text
    assert "<td><pre>a</pre></td><td><pre>e</pre></td>" in text


def test_a_run_that_logged_nothing_still_has_a_report(tmp_path: Path):
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "No evaluation was logged." in text
    assert "No samples were logged." in text


def test_one_evaluation_is_shown_without_a_change():
    shown = before_and_after([{"step": 0, "eval/x": math.nan, "loss": 1.0}])
    assert shown.splitlines() == ["| metric | step 0 |", "| --- | ---: |", "| `eval/x` | nan |"]


def test_the_curve_has_one_value_per_place(tmp_path: Path):
    lines = report.read_numbers(made_up_run(tmp_path) / "metrics.jsonl")
    axis, found = curves(lines)
    assert axis == "env_step"
    assert found[EVALUATION] == {0: 0.25, 128: 0.5, 192: 0.875}
    assert found[TRAINING] == pytest.approx({64: 0.3, 128: 0.55, 192: 0.8})


def test_one_collection_is_drawn_over_updates():
    lines = [{"step": 0, "env_step": 0, EVALUATION: 0.1}]
    lines += [{"step": step, "env_step": 100, EVALUATION: step / 10} for step in (2, 4)]
    axis, found = curves(lines)
    assert (axis, found[EVALUATION]) == ("step", {0: 0.1, 2: 0.2, 4: 0.4})


def test_the_picture_shows_both_rewards_of_the_same_samples_round_by_round(monkeypatch: pytest.MonkeyPatch):
    lines = [{"step": 0, "env_step": 0, "round": 1, EVALUATION: 0.1}]
    for step, one, learned, task in ((1, 1, 0.5, 0.25), (2, 1, 1.5, 0.125), (3, 2, -4.0, 0.5)):
        lines.append({"step": step, "env_step": 8 * step, "round": one, LEARNED: learned, TASK: task})
    lines.append({"step": 4, "env_step": 40, "round": 2, LEARNED: 9.0})  # the task could judge none
    assert checks(lines, "env_step") == [[(8, 0.5, 0.25), (16, 1.5, 0.125)], [(24, -4.0, 0.5)]]
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    for some in (lines, lines[:1]):
        draw_curve(some, Path("nowhere.png"), "a run")
    rewards, tasks, learned = drawn[0].axes
    assert [list(line.get_ydata()) for line in rewards.lines] == [[0.1]]
    assert [list(line.get_ydata()) for line in tasks.lines] == [[0.25, 0.125, 0.5]]
    assert [list(line.get_ydata()) for line in learned.lines] == [[0.5, 1.5], [-4.0]]  # two models: no line between
    assert len(drawn[1].axes) == 1


def test_the_picture_is_a_png_and_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    folder = made_up_run(tmp_path)
    text = write_report(folder).read_text(encoding="utf-8")
    assert "](learning_curve.png)" in text
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    (folder / "learning_curve.png").unlink()
    monkeypatch.setattr(report, "can_draw", lambda: False)
    text = write_report(folder).read_text(encoding="utf-8")
    assert "pip install 'comlrl-kit[plot]'" in text
    assert not (folder / "learning_curve.png").exists()


def test_language_that_was_measured_once_is_no_change(tmp_path: Path):
    lines = [{"step": 0, "agent_0/drift": -2.0, "agent_0/mean_length": 9.0}, {"step": 7, "loss": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "Answers were sampled before anything was learned" in text
    assert "| `agent_0/drift` | -2 | 0 |  |  |" in text
    lines.append({"step": 7, "agent_0/drift": -3.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "| `agent_0/drift` | -2 | 0 | -3 | 7 |" in text
    assert "| `agent_0/mean_length` | 9 | 0 |  |  |" in text
    assert "Answers were sampled before" not in text


def test_the_report_says_what_may_be_chance():
    rows = [{"step": step, "eval/standard_error": error} for step, error in ((0, 0.03), (5, 0.01), (9, 0.04))]
    assert before_and_after(rows).endswith("a change of the mean return below about 0.1 may be chance.")
