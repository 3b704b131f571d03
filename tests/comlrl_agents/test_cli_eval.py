"""``comlrl eval``: what it plays, how it samples, what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from comlrl_agents.config import MADPOConfig
from comlrl_env.types import Item, Score
from tests.comlrl_agents.test_cli import ENV, TASK, TwoWords, run


@pytest.fixture
def scripted_team(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Agents of scripts: the left one says the word, the right one says it on every second call."""
    asked: dict[str, Any] = {"calls": 0}

    def word(prompt: Any, rng: Any) -> str:
        return prompt.partition("say ")[2]

    def every_second(prompt: Any, rng: Any) -> str:
        asked["calls"] += 1
        return word(prompt, rng) if asked["calls"] % 2 else ""

    def load_team(agents: Any, tokenizer: Any, config: MADPOConfig) -> list[Any]:
        from comlrl_agents.policy import ScriptedPolicy

        asked.update(agents=agents, tokenizer=tokenizer, config=config)
        return [ScriptedPolicy(word), ScriptedPolicy(every_second)]

    monkeypatch.setattr("comlrl_agents.team.load_team", load_team)
    return asked


def test_eval_plays_the_evaluation_split_and_shows_what_it_was_worth(scripted_team: dict[str, Any]):
    result = run("eval", f"env={TASK}", "agents=runs/a/model", "num_eval_samples=8", "temperature=0.9", "top_k=null")
    assert result.exit_code == 0, result.output
    config = scripted_team["config"]
    assert (scripted_team["agents"], config.temperature, config.top_k) == ("runs/a/model", 0.9, None)
    rows = dict(line.split() for line in result.stdout.splitlines() if line.startswith("eval/"))
    # four times 1, four times 1/2: mean .75, variance 8 · .25² / 7, half width 1.96 · √(variance / 8)
    assert rows["eval/turn_1/reward_mean"] == "0.75"
    assert rows["eval/success_rate"] == "0.5"
    assert "return 0.75 ± 0.19 (95 % of 8 episodes)" in result.stdout
    assert "statuses: ok 8" in result.stdout


def test_eval_samples_as_the_run_did_and_says_so(scripted_team: dict[str, Any], tmp_path: Path):
    (tmp_path / "model" / "agent_0").mkdir(parents=True)
    kept = tmp_path / "config.yaml"
    kept.write_text("algorithm: madpo\nseed: 7\ntemperature: 0.8\ntop_p: 0.95\ntop_k: null\nmax_new_tokens: 64\n")

    def sampled(agents: str, *given: str) -> tuple[tuple[Any, ...], str]:
        result = run("eval", f"env={TASK}", f"agents={agents}", "num_eval_samples=1", *given)
        assert result.exit_code == 0, result.output
        used = scripted_team["config"]
        assert used.seed == 0
        (line,) = [line for line in result.stdout.splitlines() if line.startswith("sampling: ")]
        return (used.temperature, used.top_p, used.top_k, used.max_new_tokens), line

    model = str(tmp_path / "model")
    assert sampled(model) == (
        (0.8, 0.95, None, 64),
        f"sampling: temperature=0.8, top_p=0.95, top_k=none, max_new_tokens=64 from {kept}",
    )
    assert sampled(model, "temperature=0.1", "top_k=5") == (
        (0.1, 0.95, 5, 64),
        f"sampling: temperature=0.1, top_k=5 as given; top_p=0.95, max_new_tokens=64 from {kept}",
    )
    kept.write_text("algorithm: madpo\nuse_chat_template: false\n")
    assert sampled(model)[1].endswith(f"; use_chat_template=false from {kept}")
    assert scripted_team["config"].use_chat_template is False
    defaults = "temperature=0.6, top_p=0.6, top_k=50, max_new_tokens=256 by default"
    assert sampled("tiny") == ((0.6, 0.6, 50, 256), f"sampling: {defaults}")
    kept.unlink()
    assert sampled(model, "top_p=0.5")[0] == (0.6, 0.5, 50, 256)


def test_eval_of_players_says_nothing_of_sampling():
    result = run("eval", f"env={ENV}", "agents=player:gold", "num_eval_samples=1")
    assert result.exit_code == 0, result.output
    assert "sampling" not in result.stdout


def test_eval_says_when_there_are_fewer_items_than_asked_for(scripted_team: dict[str, Any]):
    told = {count: run("eval", f"env={TASK}", "agents=tiny", f"num_eval_samples={count}").stdout for count in (10, 11)}
    assert "items:" not in told[10]
    assert "items: 10, all that there are (num_eval_samples is 11)" in told[11]


def test_eval_can_take_another_split(scripted_team: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    played: list[str] = []
    score = TwoWords.score

    def watched(self: TwoWords, item: Item, *rest: Any) -> Score:
        played.append(item.key)
        return score(self, item, *rest)

    monkeypatch.setattr(TwoWords, "score", watched)
    assert run("eval", f"env={TASK}", "agents=tiny", "num_eval_samples=2").exit_code == 0
    assert run("eval", f"env={TASK}", "agents=tiny", "num_eval_samples=2", "split=train").exit_code == 0
    assert played == ["eval-0", "eval-1", "train-0", "train-1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([f"env={TASK}"], "agents: is missing"),
        (["agents=tiny"], "env: is missing"),
        ([f"env={TASK}", "agents=tiny", "temperatures=1"], "did you mean 'temperature'"),
        ([f"env={TASK}", "agents=tiny", "dpo_beta=1"], "unknown key"),
        ([f"env={TASK}", "agents=tiny", "eval_env.shout=true"], "env.ARGUMENT"),
        ([f"env={TASK}", "agents=tiny", "num_eval_samples=0"], "error: num_eval_samples: must be at least 1"),
        ([f"env={TASK}", "agents=tiny", "split=test"], "split"),
        ([f"env={TASK}", "agents=tiny", "oracle="], "oracle: must name the folder of a reward model, actually nothing"),
    ],
)
def test_eval_refuses_what_it_does_not_know(scripted_team: dict[str, Any], arguments: list[str], words: str):
    result = run("eval", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_eval_of_a_team_that_is_not_there():
    result = run("eval", f"env={TASK}", "agents=[tiny, tiny, tiny]")
    assert result.exit_code == 2
    assert "agents" in result.stderr


def test_a_player_is_named_as_one():
    result = run("eval", f"env={TASK}", "agents=random")
    assert result.exit_code != 0
    assert "agents: a scripted player is written player:NAME" in result.stderr
    assert "write agents=player:random" in result.stderr.replace("\n", " ")
