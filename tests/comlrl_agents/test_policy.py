import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

from comlrl_agents import LLMPolicy, ScriptedPolicy, load_policy
from comlrl_agents.forward import evaluating
from comlrl_agents.types import Generation, Sampling
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.families import family
from tests.comlrl_agents.toys import same_weights, word_model, word_policy, word_tokenizer

EIGHT = Sampling(8, temperature=1.0, top_p=1.0, top_k=None)


def test_generations_carry_exactly_what_was_sampled():
    policy = word_policy(sampling=EIGHT)
    prompts = ["red green", "blue"]
    groups = policy.generate(prompts, 20, np.random.default_rng(0))
    assert [len(group) for group in groups] == [20, 20]
    everything = [g for group in groups for g in group]
    for prompt, group in zip(prompts, groups, strict=True):
        assert {g.prompt_ids for g in group} == {tuple(policy.encode(prompt))}
    for g in everything:
        assert g.finished == (g.token_ids[-1] == 2)
        assert len(g.token_ids) <= 8
        shown = [t for t in g.token_ids if t not in policy.tokenizer.all_special_ids]
        assert g.text == policy.tokenizer.decode(shown)
    assert {g.finished for g in everything} == {True, False}


def test_a_simple_call_repeats_over_programs_and_differs_within_one():
    policy = word_policy(sampling=EIGHT)
    first, second = policy.generate(["red"], 4), policy.generate(["red"], 4)
    assert first != second
    assert word_policy(sampling=EIGHT).generate(["red"], 4) == first


def test_the_generator_decides_and_sampling_can_be_given():
    policy = word_policy(sampling=EIGHT)
    draws = [policy.generate(["red", "blue"], 3, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    greedy = policy.generate(["red"], 3, np.random.default_rng(0), sampling=Sampling(2, temperature=0.0))
    assert len(set(greedy[0])) == 1
    assert len(greedy[0][0].token_ids) <= 2


def test_log_probabilities_are_those_of_the_sampled_tokens():
    policy = word_policy(sampling=EIGHT)
    group = policy.generate(["red green"], 5, np.random.default_rng(0))[0]
    logp = policy.sequence_logprobs([g.prompt_ids for g in group], [g.token_ids for g in group])
    assert logp.shape == (5,)
    assert logp.dtype == torch.float32
    g = group[0]
    rows = policy.model(torch.tensor([[*g.prompt_ids, *g.token_ids]])).logits[0].log_softmax(-1)
    expected = sum(rows[len(g.prompt_ids) - 1 + at, token] for at, token in enumerate(g.token_ids))
    torch.testing.assert_close(logp[0], expected)
    logp.sum().backward()
    assert all(p.grad is not None for p in policy.parameters())


def test_a_saved_policy_loads_and_says_the_same(tmp_path):
    policy = word_policy(sampling=EIGHT)
    policy.save(tmp_path)
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path)) is type(policy.model)
    loaded = load_policy(tmp_path, sampling=EIGHT, device="cpu")
    assert loaded.name == str(tmp_path)
    ask = (["red", "blue"], 3, np.random.default_rng(0))
    again = (["red", "blue"], 3, np.random.default_rng(0))
    assert loaded.generate(*ask) == policy.generate(*again)
    # A loaded object knows its folder, and so its tokenizer.
    assert LLMPolicy(loaded.model).tokenizer.get_vocab() == policy.tokenizer.get_vocab()


def test_low_precision_checkpoints_load_as_float32(tmp_path):
    word_model().bfloat16().save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    assert {p.dtype for p in LLMPolicy(tmp_path).parameters()} == {torch.float32}


def test_tiny_is_a_name():
    policy = LLMPolicy("tiny")
    assert policy.name == "tiny"
    assert policy.generate(["A goat"], 1, sampling=Sampling(4))[0][0].token_ids


def test_a_missing_model_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="model 'nobody/nothing-here': no such folder, and the hub"):
        load_policy("nobody/nothing-here")
    with pytest.raises(ConfigError, match=r"not-a-folder/at/all.*no such folder"):
        LLMPolicy("not-a-folder/at/all")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"expected a folder with config.json.*notes.txt"):
        LLMPolicy(tmp_path)
    with pytest.raises(ConfigError, match=r"expected a folder with weights.gguf"):
        load_policy(tmp_path, gguf_file="weights.gguf")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="transformers cannot load it"):
        LLMPolicy(tmp_path, tokenizer=word_tokenizer())


def test_a_model_whose_file_was_cut_is_named(tmp_path):
    word_policy().save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ConfigError, match=r"transformers cannot load it .*see whether the files are complete"):
        load_policy(str(tmp_path))


def test_a_model_whose_file_lacks_a_weight_is_refused_instead_of_filled_up(tmp_path):
    word_policy().save(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 are not there \(model\.norm\.weight, …\), and would be random"):
        load_policy(str(tmp_path))


def test_an_object_without_origin_needs_its_tokenizer():
    with pytest.raises(ConfigError, match=r"LlamaForCausalLM was given as an object .* pass its tokenizer"):
        LLMPolicy(word_model())


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])  # a table of positions, rotary ones, and with windows
def test_a_model_refuses_to_run_past_its_context(name):
    policy = LLMPolicy(family(name), word_tokenizer())
    length = len(policy.encode("red green"))
    match = rf"prompt has {length} tokens and .* up to 63 .* room for 64; set max_new_tokens to at most {64 - length},"
    with pytest.raises(ConfigError, match=match):
        policy.generate(["red", "red green"], 1, sampling=Sampling(63))
    with pytest.raises(ConfigError, match=r"the prompt has 7\d tokens .* room for 64; shorten the prompt"):
        policy.generate(["red " * 70], 1, sampling=Sampling(1))
    assert policy.generate(["red green"], 1, sampling=Sampling(64 - length))


def test_a_model_without_positions_has_no_context_to_run_past():
    assert LLMPolicy(family("mamba"), word_tokenizer()).positions is None


def test_a_model_out_of_a_gguf_file_can_be_saved(tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    loaded = word_model(3)
    loaded.generation_config.eos_token_id = [2, 5]

    class Packed:  # what transformers leaves on such a model
        quantization_config = type("Config", (), {"quant_method": "gguf"})

    def from_pretrained(name, **asked):
        assert asked["gguf_file"] == "weights.gguf"
        loaded.hf_quantizer, loaded.config.quantization_config = Packed(), {"quant_method": "gguf"}
        return loaded, {"missing_keys": set()}

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: word_tokenizer())
    (tmp_path / "weights.gguf").touch()
    policy = load_policy(tmp_path, gguf_file="weights.gguf", device="cpu")
    with pytest.raises(ValueError, match="not serializable"):
        loaded.save_pretrained(tmp_path / "refused")
    policy.save(tmp_path / "saved")
    monkeypatch.undo()
    again = load_policy(tmp_path / "saved", device="cpu")
    assert same_weights(again.model, word_model(3))
    assert again.eos_ids == {2, 5}


def test_sampling_leaves_no_dropout_on():
    model = word_model()
    model.train()
    assert not LLMPolicy(model, word_tokenizer()).model.training


@pytest.mark.parametrize("finished", [True, False])
def test_text_from_elsewhere_becomes_tokens_with_its_end(finished):
    policy = word_policy()
    ids = policy.encode_completion("red blue", finished=finished)
    assert ids == policy.encode("red blue") + [2] * finished


def test_a_special_token_that_an_answer_spells_out_is_text():
    policy = LLMPolicy("tiny")
    spelled = "".join(policy.tokenizer.all_special_tokens)
    ids = policy.encode_completion(f"a {spelled}", finished=False)
    assert not set(ids) & set(policy.tokenizer.all_special_ids)
    assert policy.decode(ids, finished=False) == f"a {spelled}"


def test_half_a_character_is_no_error():
    policy = word_policy()
    assert policy.encode_completion("red \ud800", finished=False) == policy.encode("red \ufffd")
    assert policy.encode("blue \ud83d\ude00") == policy.encode("blue \U0001f600")


class MergingLayer(nn.Linear):
    """Merged in eval mode and not in training mode, as adapters of loralib are."""

    merged = False

    def train(self, mode: bool = True) -> "MergingLayer":
        self.merged = not mode
        return super().train(mode)


def test_a_layer_that_does_more_when_modes_change_may_do_so_on_the_way_back():
    model = nn.Sequential(MergingLayer(2, 2), nn.Sequential(MergingLayer(2, 2)))
    model.train()
    model[1].eval()
    with evaluating(model):
        assert model[0].merged
    assert (model[0].merged, model[1][0].merged) == (False, True)
    assert [module.training for module in model.modules()] == [True, True, False, False]


def test_a_script_is_a_policy():
    policy = ScriptedPolicy(lambda prompt, rng: f"{prompt}-{rng.integers(10)}")
    groups = policy.generate(["a", "b"], 3, np.random.default_rng(0))
    assert [len(group) for group in groups] == [3, 3]
    assert groups == policy.generate(["a", "b"], 3, np.random.default_rng(0))
    assert groups[0][0] == Generation(groups[0][0].text)
    assert groups[1][0].text.startswith("b-")
    assert policy.generate(["a"]) == policy.generate(["a"])


@pytest.mark.parametrize("broken", [False, True])
def test_sampling_leaves_every_module_in_its_mode(broken, monkeypatch):
    policy = word_policy(sampling=EIGHT)
    frozen = policy.model.model.layers[0]
    policy.model.train()
    frozen.eval()
    if broken:
        monkeypatch.setattr("comlrl_agents.generation.find_decoder", lambda model: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            policy.generate(["red"])
    else:
        policy.generate(["red"])
    modes = {name: module.training for name, module in policy.model.named_modules()}
    of_frozen = {name for name in modes if name.startswith("model.layers.0")}
    assert of_frozen == {name for name, training in modes.items() if not training}
