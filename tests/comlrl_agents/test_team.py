"""From what is passed as ``agents`` to a team that samples as its configuration says."""

import pytest
import torch

from comlrl_agents import team
from comlrl_agents.config import MADPOConfig
from comlrl_agents.reward_model import JointRewardModel
from comlrl_agents.team import load_frozen, load_team
from comlrl_agents.types import Sampling
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.toys import same_weights, word_policy

CONFIG = MADPOConfig(max_new_tokens=7, temperature=0.9, top_p=0.8, top_k=None, use_chat_template=False)


def test_a_policy_lends_its_model_and_the_configuration_says_how_it_samples():
    own = word_policy(sampling=Sampling(3, temperature=0.1))
    first, second = load_team([own, own], None, CONFIG)
    assert first.sampling == second.sampling == Sampling(7, 0.9, 0.8, None)
    assert first.chat is False
    assert first.model is second.model is own.model
    assert own.sampling == Sampling(3, temperature=0.1)  # and the policy itself stays what it was
    assert own.chat is None


def test_a_policy_in_low_precision_is_trained_in_float32():
    own = word_policy()
    own.model.bfloat16()
    (policy, _) = load_team([own, word_policy(1)], None, CONFIG)
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}


def test_a_policy_goes_to_the_device_of_its_agent():
    config = MADPOConfig(agent_devices=["cpu", "meta"])
    devices = [policy.device.type for policy in load_team([word_policy(), word_policy(1)], None, config)]
    assert devices == ["cpu", "meta"]


def test_a_configuration_that_leaves_the_chat_open_takes_that_of_the_policy():
    own = word_policy()
    own.chat = False
    assert [one.chat for one in load_team([own, word_policy(1)], None, MADPOConfig())] == [False, None]


@pytest.mark.parametrize("devices", ["gpu", ["cpu", "cuda:77"]])
def test_a_device_is_refused_by_its_field_before_anything_is_loaded(devices, monkeypatch):
    monkeypatch.setattr(team, "load_policy", None)
    with pytest.raises(ConfigError, match=r"^agent_devices: .* cannot be used here"):
        load_team("tiny", None, MADPOConfig(agent_devices=devices))
    with pytest.raises(ConfigError, match=r"^comparator_devices: .* cannot be used here"):
        load_frozen("tiny", devices, MADPOConfig())


def test_a_model_that_is_missing_is_told_with_the_key_that_named_it():
    missing = "model '/nowhere/at/all': no such folder"
    with pytest.raises(ConfigError, match=f"^agents: {missing}"):
        load_team("/nowhere/at/all", None, MADPOConfig())
    with pytest.raises(ConfigError, match=f"^comparator_model_name: {missing}"):
        load_frozen("/nowhere/at/all", None, MADPOConfig(), "comparator_model_name")


def test_a_tokenizer_may_be_named(tmp_path):
    own = word_policy()
    own.save(tmp_path / "other")
    both = load_team([own, word_policy(1)], str(tmp_path / "other"), MADPOConfig())
    assert both[0].tokenizer is own.tokenizer  # a policy brings its own
    (loaded, _) = load_team("tiny", str(tmp_path / "other"), MADPOConfig())
    assert loaded.tokenizer.get_vocab() == own.tokenizer.get_vocab()
    with pytest.raises(ConfigError, match=r"^tokenizer: model '/nowhere/at/all'"):
        load_team("tiny", "/nowhere/at/all", MADPOConfig())


def test_what_writes_no_text_is_no_agent(tmp_path, monkeypatch):
    judge = tmp_path / "run" / "model" / "reward_model"
    policy = word_policy()
    JointRewardModel(policy.model, policy.tokenizer).save_pretrained(judge)
    (judge.parent / "agent_0").mkdir()
    monkeypatch.setattr(team, "load_policy", None)
    for given, rule in (
        ("player:gold", "agents: player:gold is a scripted player, which cannot learn"),
        (str(tmp_path / "run"), f"agents: {tmp_path / 'run'} is the folder of a run; give .*{judge.parent}$"),
        (str(judge), f"agents: {judge} holds a reward model or a critic"),
    ):
        with pytest.raises(ConfigError, match=rule):
            load_team(given, None, MADPOConfig())
    with pytest.raises(ConfigError, match=f"^comparator_agents: {judge} holds a reward model"):
        load_frozen([str(judge)] * 2, None, MADPOConfig())


def test_a_team_that_is_too_large_is_refused(tmp_path):
    for index in range(3):
        (tmp_path / f"agent_{index}").mkdir()
    with pytest.raises(ConfigError, match="must hold a team of 2, actually it holds agent_2 too"):
        load_team(tmp_path, None, MADPOConfig())


def test_a_model_is_a_model_whatever_else_lies_there(tmp_path, monkeypatch):
    own = word_policy()
    own.save(tmp_path / "whole")
    (tmp_path / "whole" / "model" / "agent_0").mkdir(parents=True)  # a run with this output_dir
    (tmp_path / "whole" / "agent_template.jinja").touch()
    assert same_weights(load_team(str(tmp_path / "whole"), None, MADPOConfig())[1].model, own.model)
    (tmp_path / "tiny" / "model" / "agent_0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert load_team("tiny", None, MADPOConfig())[0].name == "tiny"


def test_a_team_that_is_too_small_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    for index in range(2):
        word_policy(index).save(tmp_path / f"agent_{index}")
    config = MADPOConfig(num_agents=3)
    monkeypatch.setattr(team, "load_policy", None)
    match = r"must hold a folder agent_2 for agent number 2, actually it holds agent_0, agent_1"
    for agents in (tmp_path, [str(tmp_path)] * 3):
        with pytest.raises(ConfigError, match=match):
            load_team(agents, None, config)
    monkeypatch.undo()
    assert [one.name for one in load_team(tmp_path, None, MADPOConfig())] == [
        str(tmp_path / "agent_0"),
        str(tmp_path / "agent_1"),
    ]


def test_two_objects_that_learn_the_same_weights_are_refused():
    one, other = word_policy(), word_policy(1)
    other.model.model = one.model.model  # a body in common, heads apart
    with pytest.raises(ConfigError, match=r"agents: different model objects must not share .* of agents 0 and 1 do"):
        load_team([one, other], None, CONFIG)
    one.model.model.requires_grad_(False)  # a frozen body is nobody's to step
    assert len(load_team([one, other], None, CONFIG)) == 2
