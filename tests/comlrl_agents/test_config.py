import math
import pickle
import subprocess
import sys

import numpy as np
import pytest

from comlrl_agents.config import (
    MADPOConfig,
    MADPOIterConfig,
    MARLHFConfig,
    MARLHFIterConfig,
    RLConfig,
    descriptions,
    from_mapping,
    to_mapping,
)
from comlrl_env.errors import ConfigError


def test_defaults_are_those_of_the_specification():
    madpo = to_mapping(MADPOConfig())
    expected = {
        "num_agents": 2, "num_train_epochs": 20, "agent_learning_rate": 5e-6, "dpo_beta": 0.1,
        "preference_num_candidates": 80, "preference_pairs_per_sample": 16, "pair_selection": "reward_gap",
        "max_new_tokens": 256, "temperature": 0.6, "top_p": 0.6, "top_k": 50, "train_batch_size": None,
        "rollout_buffer_size": 2, "num_turns": 1, "joint_mode": "aligned", "collaboration_mode": "decentralized",
        "parallel_training": "none", "agent_devices": None, "eval_interval": 16, "eval_num_samples": 4,
        "eval_batch_size": 1, "logging_steps": 50, "environment_steps_per_pair": 2,
    }  # fmt: skip
    assert {name: madpo[name] for name in expected} == expected
    iterative = to_mapping(MADPOIterConfig())
    changed = {
        "num_iterations": 6, "num_train_epochs": 1, "preference_num_candidates": 20,
        "preference_pairs_per_sample": 4, "pair_selection": "comparator_reward",
        "preference_replay_mode": "current", "comparator_policy": "current", "comparator_history_k": 1,
        "preference_replay_k": None, "preference_replay_lambda": None, "preference_replay_sample_size": None,
        "preference_replay_dir": None, "policy_checkpoint_dir": None, "comparator_num_candidates": None,
        "comparator_model_name": None, "comparator_agents": None, "comparator_devices": None,
        "comparator_generation_mode": "decentralized", "comparator_centralized_agent_index": 0,
        "comparator_api_url": None, "comparator_api_format": "generic", "comparator_api_model": None,
        "comparator_api_key_env": None, "comparator_api_key": None, "comparator_api_headers": None,
        "comparator_api_key_header": "Authorization", "comparator_api_key_prefix": "Bearer",
        "comparator_api_timeout": 120, "comparator_api_max_n_per_request": None,
        "comparator_api_response_field": "completions", "comparator_api_extra_body": None,
    }  # fmt: skip
    assert {name: iterative[name] for name in changed} == changed
    assert {name: iterative[name] for name in expected if name not in changed} == {
        name: expected[name] for name in expected if name not in changed
    }


def test_defaults_of_marlhf_are_those_of_the_specification():
    own = {
        "rl_algorithm": "magrpo", "num_generations": 4, "reward_model_name": None, "reward_model_device": None,
        "reward_learning_rate": 1e-5, "reward_num_train_epochs": 1, "reward_train_batch_size": 1,
        "reward_max_length": None, "reward_freeze_backbone": False, "critic_model_name": None,
        "critic_learning_rate": None, "critic_devices": None, "use_separate_critic": True, "critic_type": "v",
        "value_loss_coef": 0.6, "value_clip_range": 0.2, "reference_kl_enabled": False, "reference_kl_coef": 0.1,
        "reference_devices": None,
    }  # fmt: skip
    once, madpo = to_mapping(MARLHFConfig()), to_mapping(MADPOConfig())
    assert {name: once[name] for name in own} == own
    shared = set(once) & set(madpo)
    assert {name: once[name] for name in shared} == {name: madpo[name] for name in shared}
    assert "dpo_beta" not in once
    rounds, madpo_rounds = to_mapping(MARLHFIterConfig()), to_mapping(MADPOIterConfig())
    changed = {"num_train_epochs": 2, "reward_num_train_epochs": 2, "preference_scoring_reward": "task"}
    assert {name: rounds[name] for name in changed} == changed
    assert {name: rounds[name] for name in own if name not in changed} == {
        name: own[name] for name in own if name not in changed
    }
    shared = (set(rounds) & set(madpo_rounds)) - set(changed)
    assert {name: rounds[name] for name in shared} == {name: madpo_rounds[name] for name in shared}
    assert {"num_iterations", "preference_replay_mode", "comparator_policy", "comparator_api_format"} <= shared


def test_the_batch_defaults_to_the_rollout_buffer():
    assert MADPOConfig(rollout_buffer_size=3).batch_size == 3
    assert MADPOConfig(train_batch_size=8).batch_size == 8


API = {"comparator_policy": "api", "comparator_api_url": "http://h"}
CODEX = {"comparator_api_format": "codex", "comparator_api_model": "m"}
ILLEGAL = [
    (MADPOConfig, {"temperatura": 1.0}, "did you mean 'temperature'?"),
    (RLConfig, {"kl_coef": 1.0}, "did you mean 'reference_kl_coef'?"),
    (RLConfig, {"devices": "cpu"}, "did you mean 'agent_devices' or 'critic_devices' or 'reference_devices'?"),
    (MADPOConfig, {"temperature": -1.0}, "temperature: must be at least 0, actually -1.0"),
    (MADPOConfig, {"temperature": math.nan}, "temperature: "),
    (MADPOConfig, {"temperature": math.inf}, "temperature: "),
    (MADPOConfig, {"temperature": "warm"}, "temperature: must be float, actually 'warm'"),
    (MADPOConfig, {"num_agents": 1.5}, "num_agents: must be int, actually 1.5"),
    (MADPOConfig, {"num_agents": True}, "num_agents: must be int, actually True"),
    (MADPOConfig, {"num_agents": np.float64(1.5)}, "num_agents: must be int, actually 1.5"),
    (MADPOConfig, {"num_agents": np.bool_(True)}, "num_agents: must be int, actually True"),
    (MADPOConfig, {"top_k": np.bool_(True)}, "top_k: must be int or NoneType, actually True"),
    (MADPOConfig, {"gradient_checkpointing": np.int64(2)}, "gradient_checkpointing: must be bool, actually 2"),
    (MADPOConfig, {"top_p": 2.0}, "top_p: must lie in [1e-06, 1], actually 2.0"),
    (MADPOConfig, {"report_to": ["tensorbord"]}, "report_to: expected names from console, tensorboard, wandb"),
    (MADPOConfig, {"report_to": ["no_such_module:Sink"]}, "report_to: 'no_such_module:Sink' cannot be imported"),
    (MADPOIterConfig, {"preference_replay_dir": ""}, "preference_replay_dir: must name a folder, actually ''; None"),
    (MADPOIterConfig, {"policy_checkpoint_dir": ""}, "policy_checkpoint_dir: must name a folder, actually ''; None"),
    (MADPOConfig, {"preference_num_candidates": 1}, "preference_num_candidates: must be at least 2, actually 1"),
    (MADPOConfig, {"preference_pairs_per_sample": 0}, "preference_pairs_per_sample: "),
    (MADPOConfig, {"pair_selection": "gap"}, "pair_selection: must be one of 'reward_gap', 'random', 'all'"),
    (MADPOConfig, {"pair_selection": "all"}, "preference_pairs_per_sample: must be None with pair_selection='all'"),
    (MADPOConfig, {"pair_selection": "comparator_reward"}, "which only the iterative trainers have"),
    (MADPOConfig, {"dpo_beta": 0.0}, "dpo_beta: "),
    (MADPOConfig, {"num_turns": 2}, "num_turns: "),
    (MADPOConfig, {"loss_type": "ipo", "label_smoothing": 0.1}, "label_smoothing: belongs to loss_type='sigmoid'"),
    (MADPOConfig, {"agent_devices": ["cpu", "cpu", "cpu"]}, "agent_devices: must name one device or one per agent"),
    (MADPOConfig, {"collaboration_mode": "centralized", "agent_devices": ["cpu", "cpu"]}, "agent_devices: must"),
    (MADPOIterConfig, {"comparator_model_name": "x"}, "comparator_model_name: belongs to comparator_policy='model'"),
    (MADPOIterConfig, {"comparator_agents": ["x", "y"]}, "comparator_agents: belongs to comparator_policy='model'"),
    (MADPOIterConfig, {"comparator_history_k": 2}, "comparator_history_k: belongs to comparator_policy='history'"),
    (MADPOIterConfig, {"comparator_devices": "cpu"}, "belongs to comparator_policy='current_copy' or 'model'"),
    (MADPOIterConfig, {"comparator_policy": "historical"}, "comparator_policy: must be one of 'current'"),
    (
        MADPOIterConfig,
        {"comparator_policy": "model", "comparator_model_name": "x", "comparator_agents": ["y", "z"]},
        "give one of the two",
    ),
    (
        MADPOIterConfig,
        {"comparator_policy": "model", "comparator_agents": ["y"]},
        "comparator_agents: must hold one entry per agent (2)",
    ),
    (MADPOIterConfig, {"comparator_api_url": "http://h"}, "comparator_api_url: belongs to comparator_policy='api'"),
    (MADPOIterConfig, {"comparator_policy": "api"}, "comparator_api_url: is required by comparator_policy='api'"),
    (MADPOIterConfig, API | {"comparator_api_url": "h:80"}, "comparator_api_url: must be http:// or https://"),
    (MADPOIterConfig, API | {"comparator_api_format": "gpt"}, "comparator_api_format: must be one of 'generic'"),
    (MADPOIterConfig, API | {"comparator_api_format": "openai"}, "comparator_api_model: is required"),
    (MADPOIterConfig, API | {"comparator_api_max_n_per_request": 2}, "belongs to comparator_api_format='openai'"),
    (
        MADPOIterConfig,
        API | {"comparator_api_format": "codex", "comparator_api_model": "m", "comparator_api_response_field": "x"},
        "belongs to comparator_api_format='generic'",
    ),
    (MADPOIterConfig, API | {"comparator_api_timeout": 0.0}, "comparator_api_timeout: must be at least"),
    (MADPOIterConfig, API | {"comparator_devices": "cpu"}, "has no meaning with 'api'"),
    (MADPOIterConfig, API | {"comparator_api_key": 123}, "must be str or NoneType, actually a value that is not shown"),
    (MADPOIterConfig, {"comparator_api_key": "sk-1"}, "leave it out, actually a value that is not shown"),
    (MADPOConfig, {"parallel_training": "mp"}, "parallel_training: 'mp' lets agents work at the same time"),
    (MADPOIterConfig, {"comparator_centralized_agent_index": 1}, "belongs to comparator_generation_mode='centralized'"),
    (
        MADPOIterConfig,
        {"comparator_generation_mode": "centralized", "comparator_centralized_agent_index": 2},
        "must be the index of an agent, below 2, actually 2",
    ),
    (MADPOIterConfig, {"preference_replay_mode": "nearest_k"}, "preference_replay_k: is required"),
    (MADPOIterConfig, {"preference_replay_mode": "lambda_decay"}, "preference_replay_lambda: is required"),
    (MADPOIterConfig, {"preference_replay_sample_size": 4}, "preference_replay_sample_size: has no meaning"),
    (MADPOIterConfig, {"preference_replay_lambda": 0.5}, "preference_replay_lambda: has no meaning"),
    (MADPOIterConfig, {"preference_replay_k": 2}, "preference_replay_k: must be None or 1"),
    (MADPOIterConfig, {"preference_replay_mode": "lambda_decay", "preference_replay_lambda": 1.5}, "[0, 1]"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "fields", "text"), ILLEGAL)
@pytest.mark.parametrize("build", [lambda c, f: c(**f), from_mapping], ids=["constructor", "mapping"])
def test_illegal_values_are_refused_with_field_rule_and_value(config, fields, text, build):
    with pytest.raises(ConfigError) as error:
        build(config, fields)
    assert text in str(error.value)


def test_a_list_that_was_meant_to_be_empty_is_told_how():
    with pytest.raises(ConfigError, match=r"^report_to: must be list, actually 'none'; write \[\] for none at all$"):
        MADPOConfig(report_to="none")


def test_text_values_are_read_from_a_mapping():
    config = from_mapping(
        MADPOIterConfig,
        {"agent_learning_rate": "1e-3", "top_k": "none", "num_iterations": "4", "report_to": ["console"]},
    )
    assert (config.agent_learning_rate, config.top_k, config.num_iterations) == (1e-3, None, 4)


def test_legal_corner_cases():
    assert MADPOIterConfig(preference_replay_k=1).preference_replay_k == 1
    assert MADPOConfig(temperature=1).temperature == 1
    assert pickle.loads(pickle.dumps(MADPOConfig(seed=3))) == MADPOConfig(seed=3)


def test_aliases_and_secrets():
    config = MADPOIterConfig(
        **API, comparator_api_format="codex", comparator_api_model="m", comparator_api_key="sk-abc"
    )
    endpoint = config.comparator.endpoint
    assert (endpoint.format, endpoint.key, endpoint.timeout) == ("openai_responses", "sk-abc", 120.0)
    assert "sk-abc" not in f"{config!r} {endpoint!r} {config.comparator!r} {to_mapping(config)}"


def test_typed_parts():
    config = MADPOIterConfig(
        preference_replay_mode="lambda_decay",
        preference_replay_lambda=0.8,
        preference_num_candidates=5,
        dpo_beta=0.3,
    )
    assert (config.replay.mode, config.replay.decay, config.loss.beta) == ("lambda_decay", 0.8, 0.3)
    assert config.comparator.num_candidates == 5
    assert config.rounds == 6
    assert MADPOConfig().rounds == 1
    assert MADPOConfig().comparator is None


def test_a_configuration_is_checked_without_torch():
    code = "import sys; from comlrl_agents.config import MADPOIterConfig as C; C(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numbers_of_numpy_become_plain_ones():
    config = MADPOIterConfig(
        temperature=np.float64(0.5),
        seed=np.int64(7),
        top_k=np.int32(3),
        agent_learning_rate=np.float32(0.25),
        gradient_checkpointing=np.bool_(True),
        max_grad_norm=np.int64(1),
    )
    plain = {"temperature": 0.5, "seed": 7, "top_k": 3, "agent_learning_rate": 0.25, "gradient_checkpointing": True}
    assert {name: to_mapping(config)[name] for name in plain} == plain
    assert [type(to_mapping(config)[name]) for name in plain] == [float, int, int, float, bool]
    assert config == from_mapping(MADPOIterConfig, to_mapping(config))
    assert from_mapping(MADPOConfig, {"temperature": np.float64(0.5)}).temperature == 0.5


def test_no_sinks_at_all_has_two_spellings():
    for nothing in ("none", "None", None, []):
        assert from_mapping(MADPOConfig, {"report_to": nothing}).report_to == []


@pytest.mark.parametrize("kind", [MADPOIterConfig, MARLHFIterConfig, RLConfig])
def test_every_field_says_what_it_does(kind):
    texts = descriptions(kind)
    assert set(texts) == set(kind.__dataclass_fields__)
    assert all(text[0].isupper() or text.startswith(("mp:", "sigmoid", "iac")) for text in texts.values())
    assert all(text.endswith(".") and text.isascii() for text in texts.values())  # terminals know that everywhere
