"""A person in the team: what is asked, what counts as an answer, and how one leaves."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pettingzoo import ParallelEnv
from typer.testing import CliRunner

from comlrl_agents.cli import app
from comlrl_agents.play import Game, Left, read_answer, verdict
from comlrl_env import UnicodeText, make
from comlrl_env.errors import ConfigError
from comlrl_env.types import Item, Score

ROOT = Path(__file__).parents[2]


class Sum:
    """Two turns; both write a number, and 10 in all scores 1. Item ``n`` asks ``left_0`` for nothing special."""

    agents = ("left_0", "right_0")
    num_turns = 2

    def items(self, split: str) -> list[Item]:
        return [Item(f"{split}-{number}", {"goal": number}) for number in range(50)]

    def prompts(self, item: Item, history: tuple) -> dict[str, str]:
        return {agent: f"{agent}: reach {item.data['goal']} in turn {len(history)}" for agent in self.agents}

    def score(self, item: Item, history: tuple, responses: dict[str, str]) -> Score:
        if responses["left_0"] == "crash":
            return Score.failed("error", "the adder broke")
        right = responses["left_0"] == "three\n\nlines"
        return Score(reward=0.25 + right / 2, parts={"right": float(right)}, reason="so it is", is_success=right)

    def sample_answers(self, item: Item, rng: np.random.Generator, history: tuple = ()) -> dict[str, str]:
        return {"left_0": "SCRIPTED LEFT", "right_0": "SCRIPTED RIGHT"}


class Foreign(ParallelEnv):
    """A text environment that knows nothing of this kit and pays each agent its own reward."""

    metadata: dict[str, Any] = {"name": "foreign"}  # noqa: RUF012
    possible_agents = ["x", "y"]  # noqa: RUF012

    def __init__(self, observation: Any = "hello") -> None:
        self.observation = observation
        self.spaces = {agent: UnicodeText(max_length=5) for agent in self.possible_agents}

    def action_space(self, agent: str) -> UnicodeText:
        return self.spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, self.observation), {}

    def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
        self.agents = []
        done = dict.fromkeys(self.possible_agents, True)
        return dict.fromkeys(actions, ""), {"x": 1.0, "y": 2.0}, done, done, {}


SUM = f"{__name__}:Sum"


def typed(*lines: str) -> Callable[[str], str]:
    """A reader that types these lines and then closes the input."""
    left: Iterator[str] = iter(lines)

    def read(prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return read


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["one", ""], "one"),
        (["one", "two", "", "not this"], "one\ntwo"),
        ([""], ""),
        (['"""', "a", "", "  b", '"""', "not this"], "a\n\n  b"),
        (['"""', '"""'], ""),
        (["code", '"""', ""], 'code\n"""'),  # quotes inside an answer are part of it
        (["the input ends here"], "the input ends here"),
        (['"""', "a", ""], "a\n"),
    ],
)
def test_an_answer_ends_at_an_empty_line_or_at_three_quotes(lines: list[str], answer: str):
    assert read_answer(typed(*lines)) == answer


def test_the_end_of_the_input_before_an_answer_is_leaving():
    with pytest.raises(Left):
        read_answer(typed())


def test_a_person_and_a_script_play_two_turns_and_leave():
    said: list[str] = []
    lines = typed('"""', "three", "", "lines", '"""', "crash", "", "q")
    Game(make(SUM), seed=1, read=lines, say=said.append).run()
    text = "\n".join(said)
    assert text.count("you are left_0") == 2
    assert "you are right_0" not in text
    assert "left_0: reach" in text
    assert "in turn 1" in text
    assert text.count("right_0 answers") == 2
    assert text.count("SCRIPTED RIGHT") == 2
    assert "SCRIPTED LEFT" not in text
    assert "reward 0.75" in text
    assert "  right: 1\n  so it is\n  solved" in text
    assert "no score (error)" in text
    assert "the adder broke" in text
    assert text.endswith("Thank you for playing.")


def test_one_person_can_be_all_agents_and_the_seed_chooses_the_items():
    def items(seed: int) -> list[str]:
        said: list[str] = []
        answers = ["a", ""] * 4
        Game(make(SUM), person="all", seed=seed, read=typed(*answers, "", *answers), say=said.append).run()
        assert "SCRIPTED" not in "".join(said)
        assert "".join(said).count("you are right_0") == 4  # two items of two turns
        return [line for text in said for line in text.splitlines() if "── item" in line]

    assert items(3) == items(3)
    assert len(set(items(3))) == 2
    assert items(3) != items(4)


def test_ctrl_c_is_leaving():
    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    said: list[str] = []
    Game(make(SUM), read=interrupt, say=said.append).run()
    assert said[-1] == "Thank you for playing."


def test_a_foreign_environment_can_be_played():
    said: list[str] = []
    Game(Foreign(), person="y", read=typed("hi", "", "q"), say=said.append).run()
    text = "\n".join(said)
    assert "x answers" in text
    assert "rewards x 1, y 2" in text


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        (Foreign(), {"person": "z"}, "--as: expected one of x, y or all, actually 'z'"),
        (Foreign(), {"others": "clever"}, "--others: expected scripted or tiny"),
        (Foreign(observation=3), {}, "TextAdapter"),
    ],
)
def test_what_cannot_be_played_is_refused(env: Any, settings: dict[str, str], words: str):
    with pytest.raises(ConfigError, match=words):
        Game(env, read=typed("a", ""), say=lambda text: None, **settings).run()


def test_a_task_without_scripted_answers_offers_the_ways_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(Sum, "sample_answers")
    with pytest.raises(ConfigError, match="--others tiny, or --as all"):
        Game(make(SUM), say=lambda text: None)
    Game(make(SUM), person="all", say=lambda text: None)


def test_a_verdict_on_an_environment_without_details():
    assert "reward 0.5" in verdict("a", {"a": 0.5, "b": 0.5}, {})


def test_the_command_reads_standard_input():
    result = CliRunner().invoke(app, ["play", SUM, "--as", "left_0", "--seed", "2"], input="five\n\nsix\n\nq\n")
    assert result.exit_code == 0, result.output
    assert result.output.count("reward 0.25") == 2
    assert CliRunner().invoke(app, ["play", "comlrl/Nothing-v0"]).exit_code == 2


def test_a_real_terminal_echoes_the_game_and_control_d_leaves():
    master, slave = pty.openpty()
    program = "from comlrl_agents.cli import main; main()"
    command = [sys.executable, "-c", program, "play", "comlrl/Partition-v0"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT)
    os.close(slave)
    os.write(master, b"nothing\n\n\x04")  # an answer, then Ctrl-D at "Enter for another item"
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(timeout=20) == 0, shown.decode()
    assert b"reward" in shown
    assert b"Thank you for playing." in shown
    assert b"Traceback" not in shown
