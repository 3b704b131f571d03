"""The parts of ``make train-real`` that need no download."""

import math

import pytest

from benchmarks.learning import gemma, real
from benchmarks.learning.model_checks import check_model
from benchmarks.learning.real import (
    SETTINGS,
    Answer,
    by_item,
    compare,
    end_at_blank_lines,
    measure,
    train_real,
)
from comlrl_agents import MADPOIterConfig, MARLHFIterConfig
from comlrl_agents.policy import LLMPolicy, ScriptedPolicy
from comlrl_env.errors import ConfigError


def test_a_model_that_knows_no_english_is_refused(capsys):
    with pytest.raises(ConfigError, match=r"tiny.*must not be trained") as refusal:
        check_model(LLMPolicy("tiny"))
    assert "perplexity of plain English" in str(refusal.value)
    assert "ok  BOS once, at the front" in capsys.readouterr().out


def test_missing_packages_are_named_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(gemma.importlib.util, "find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(ConfigError, match=r"packages gguf;.*comlrl-kit\[real\]"):
        gemma.gemma_folder(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_folder_made_before_is_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr(gemma.importlib.util, "find_spec", lambda name: None)
    made = tmp_path / "gemma-3-270m"
    made.mkdir()
    (made / "config.json").write_text("{}")
    assert gemma.gemma_folder(tmp_path) == made


def test_the_cache_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert gemma.user_cache() == tmp_path / "comlrl-kit"


def test_both_rewards_score_the_same_answers(monkeypatch):
    monkeypatch.setattr(real, "LEVEL", 1)
    helper = ScriptedPolicy(lambda prompt, rng: "x):\n    return x\n")
    author = ScriptedPolicy(lambda prompt, rng: "")
    answers = measure([helper, author], 2, seed=0)
    assert {answer.figures["strict"] for answer in answers} == {0.05}
    assert {answer.figures["reference"] for answer in answers} == {0.4}
    items = [answer.item for answer in answers]
    assert items[0::2] == items[1::2]


def test_means_are_by_problem_and_leave_out_what_was_not_judged():
    def answers(*values):
        return [Answer(item, {}, {"strict": value}, "") for item, value in values]

    before = answers(("a", 0.0), ("a", 1.0), ("b", math.nan), ("b", 0.1))
    after = answers(("a", 1.0), ("a", 1.0), ("b", 0.2), ("b", math.nan))
    assert by_item(before, "strict") == {"a": 0.5, "b": 0.1}
    # Means .3 and .6; changes .5 and .1: mean .3, s.e. √(2·.2²/1)/√2 = .2.
    assert compare(before, after)[1].split() == ["strict", "0.300", "0.600", "+0.300", "0.200"]


def test_settings_are_legal_and_a_used_folder_is_refused_before_the_model_is_loaded(tmp_path):
    MADPOIterConfig(**SETTINGS["madpo-iter"])
    MARLHFIterConfig(**SETTINGS["marlhf-iter"])
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(ConfigError, match="output_dir"):
        train_real([f"output_dir={tmp_path}", "agents=no/such/folder"])


def test_two_blank_lines_end_an_answer_of_a_base_model():
    policy = LLMPolicy("tiny")
    before = policy.eos_ids
    policy.tokenizer.add_tokens(["\n\n\n"])
    end_at_blank_lines(policy)
    assert policy.eos_ids - before == {policy.tokenizer.convert_tokens_to_ids("\n\n\n")}
    assert set(policy.model.generation_config.eos_token_id) == policy.eos_ids
