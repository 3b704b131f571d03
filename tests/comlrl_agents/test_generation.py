import copy
import itertools

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from comlrl_agents import decoders, generation, lean, lean_layer, sampler, screen
from comlrl_agents import projection as projection_module
from comlrl_agents.decoders import CachedDecoder, find_decoder
from comlrl_agents.generation import generate
from comlrl_agents.head import find_head, inherit_head
from comlrl_agents.lean import LeanDecoder
from comlrl_agents.projection import projection
from comlrl_agents.types import Sampling
from comlrl_env.errors import TrainingError
from tests.comlrl_agents.families import family

# Different lengths, one prompt twice, longer and shorter than the sliding window of 5.
PROMPTS = [[5, 9, 4, 7], [3], [8, 8, 1, 6, 12, 13, 4, 5, 6], [5, 9, 4, 7]]
EOS = frozenset({2, 11, 17})
GREEDY = Sampling(20, temperature=0.0, top_p=1.0, top_k=None)
FREE = Sampling(20, temperature=1.3, top_p=0.95, top_k=15)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def reference_probs(logits, sampling):
    scores = TemperatureLogitsWarper(sampling.temperature)(None, logits[None].float())
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    return scores.softmax(-1)[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", LeanDecoder),
        ("qwen2", LeanDecoder),
        ("qwen3", LeanDecoder),
        ("mistral", LeanDecoder),
        ("gemma3", LeanDecoder),
        ("gpt2", CachedDecoder),
        ("gemma2", CachedDecoder),
        ("mamba", None),
    ],
)
def test_greedy_equals_the_models_own_generate(name, kind):
    model = family(name)
    assert find_decoder(model) is kind
    samples = generate(model, PROMPTS, 2, GREEDY, EOS, seeded())
    for prompt, pair in zip(PROMPTS, samples, strict=True):
        ids = torch.tensor([prompt])
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=20,
            eos_token_id=sorted(EOS),
            pad_token_id=0,
        )
        expected = whole[0, len(prompt) :].tolist()
        assert pair == [(expected, expected[-1] in EOS)] * 2


@torch.no_grad()
@pytest.mark.parametrize("most", [0, 30_000_000])
@pytest.mark.parametrize(("copies", "steps"), [(1, 12), (4, 20)])  # few rows, and enough to lay weights out anew
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral", "gemma3", "gemma3 with one key head"])
def test_lean_logits_are_the_models_own(name, copies, steps, most, monkeypatch):
    """Over the whole window and beyond it, with prompts of several lengths, while rows end until few are left."""
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", most)
    model, source = family(name), seeded(2)
    texts = [list(prompt) for prompt in PROMPTS[:3] for _ in range(copies)]
    decoder = LeanDecoder(model, PROMPTS[:3], [at for at in range(3) for _ in range(copies)], steps)
    for step in range(steps):
        expected = torch.stack([model(torch.tensor([text])).logits[0, -1] for text in texts])
        assert decoder.tokens is None
        torch.testing.assert_close(decoder.logits, expected, rtol=1e-4, atol=1e-4)
        if step % 3 == 2 and len(texts) > 1:
            alive = torch.ones(len(texts), dtype=torch.bool)
            alive[torch.randperm(len(texts), generator=source)[: max(1, len(texts) // 3)]] = False
            texts = [texts[row] for row in decoder.keep(alive).tolist()]
        tokens = torch.randint(3, 24, (len(texts),), generator=source)
        texts = [[*text, int(token)] for text, token in zip(texts, tokens, strict=True)]
        if step + 1 < steps:
            decoder.step(tokens)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2"])
@pytest.mark.parametrize(
    "sampling", [Sampling(2, 1.0, 1.0, None), Sampling(2, 0.7, 0.8, None), Sampling(2, 1.5, 0.9, 4)]
)
@torch.no_grad()
def test_samples_follow_the_distribution_of_generate(name, sampling):
    model, prompts, draws = family(name, 6), [[4, 5, 1], [3]], 3000
    samples = generate(model, prompts, draws, sampling, {2}, seeded())
    for prompt, drawn in zip(prompts, samples, strict=True):
        first = reference_probs(model(torch.tensor([prompt])).logits[0, -1], sampling)
        expected = {(2,): float(first[2])}
        for a, b in itertools.product([t for t in range(6) if t != 2], range(6)):
            second = reference_probs(model(torch.tensor([[*prompt, a]])).logits[0, -1], sampling)
            expected[(a, b)] = float(first[a] * second[b])
        counts = dict.fromkeys(expected, 0)
        for ids, _ in drawn:
            counts[tuple(ids)] += 1
        assert all(expected[answer] > 0 for answer, count in counts.items() if count)
        # Rare answers together in one cell; χ² has mean f and variance 2f.
        cells = [(counts[a], draws * p) for a, p in expected.items() if draws * p >= 5]
        rare = [(counts[a], draws * p) for a, p in expected.items() if 0 < draws * p < 5]
        cells += [(sum(c for c, _ in rare), sum(p for _, p in rare))] if sum(p for _, p in rare) >= 5 else []
        chi = sum((count - mean) ** 2 / mean for count, mean in cells)
        freedom = max(len(cells) - 1, 1)
        assert chi < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("short_rows_only", [True, False])
@pytest.mark.parametrize("size", [64, 67])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1, 0.6, 0.6, 50),
        Sampling(1, 1.0, 1.0, 5),
        Sampling(1, 0.7, 0.9, None),
        Sampling(1, 1.3, 1.0, None),
        Sampling(1, 1.0, 0.01, None),
        Sampling(1, 2.0, 0.97, None),
        Sampling(1, 1.0, 0.8, 1),
        Sampling(1, 1.0, 0.5, 1000),
    ],
)
def test_every_draw_has_the_reference_probability(sampling, size, short_rows_only, monkeypatch):
    """With evenly spread uniforms the frequencies are the probabilities, on every path through the
    sampler.
    """
    if not short_rows_only:
        monkeypatch.setattr(sampler, "_SMALL_VOCABULARY", 8)
        monkeypatch.setattr(sampler, "_BLOCK", 4)
        monkeypatch.setattr(sampler, "_FIRST_CANDIDATES", 6)
    logits = 2 * torch.randn(size, generator=seeded(1))
    draws = 5000
    drawing = sampler.Sampler(sampling, [(draws, seeded())])
    drawing._uniforms = ((torch.arange(draws) + 0.5) / draws)[None]
    tokens = drawing.draw(logits.expand(draws, size).contiguous(), 0, torch.arange(draws))
    shares = torch.bincount(tokens, minlength=size) / draws
    torch.testing.assert_close(shares, reference_probs(logits, sampling), rtol=0, atol=5e-4)


@pytest.mark.parametrize("size", [4097, 20_000, 20_037])
def test_candidates_are_the_largest(size):
    values = torch.randn(5, size, generator=seeded())
    for k in (1, 50):
        found, at = sampler.largest(values, k)
        expected = values.topk(k)
        assert torch.equal(found, expected.values)
        assert torch.equal(at, expected.indices)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "steps", "width"), [(3, 99, 1 << 14), (20, 1, 1 << 14), (4, 99, 1 << 14), (20, 99, 1 << 14), (3, 3, 40)]
)
def test_every_way_to_project_gives_the_same_logits(bias, rows, steps, width):
    linear = torch.nn.Linear(16, width, bias=bias)
    project = projection(linear, rows, steps, None)
    for count in (rows, 1):  # rows end
        hidden = torch.randn(count, 16, generator=seeded())
        logits, tokens = project(hidden)
        torch.testing.assert_close(logits, linear(hidden))
        assert tokens is None


@pytest.mark.parametrize("name", ["gemma2", "gpt2"])  # without and with a head that can be taken apart
def test_layers_laid_out_anew_change_nothing_and_leave_nothing_behind(name, monkeypatch):
    model = family(name)
    expected = generate(model, PROMPTS, 4, GREEDY, EOS, seeded())
    made = count_laid_out(monkeypatch, projection_module)
    monkeypatch.setattr(projection_module, "_LARGE", 1)
    assert generate(model, PROMPTS, 4, GREEDY, EOS, seeded()) == expected
    assert bool(made) == (name == "gemma2")  # GPT-2 has no linear layers, but convolutions
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize(("copies", "laid_out"), [(1, False), (4, True)])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral", "gemma3"])
def test_lean_decoding_of_large_models_multiplies_otherwise_and_gives_the_same(name, copies, laid_out, monkeypatch):
    model, prompts = family(name), PROMPTS[:3]
    expected = generate(model, prompts, copies, GREEDY, EOS, seeded())
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", 0)
    made = count_laid_out(monkeypatch, lean_layer)
    assert generate(model, prompts, copies, GREEDY, EOS, seeded()) == expected
    assert bool(made) == laid_out


def count_laid_out(monkeypatch, module):
    made = []
    packed = module.packed
    monkeypatch.setattr(module, "packed", lambda *given: made.append(1) or packed(*given))
    return made


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2", "mamba"])
def test_the_generator_is_all_the_randomness(name):
    model = family(name)
    torch.manual_seed(1)
    first = generate(model, PROMPTS, 3, FREE, EOS, seeded(3))
    torch.manual_seed(2)
    assert generate(model, PROMPTS, 3, FREE, EOS, seeded(3)) == first
    assert generate(model, PROMPTS, 3, FREE, EOS, seeded(4)) != first
    assert first[0] != first[3]  # the same prompt twice, other random numbers


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2"])
def test_a_sample_does_not_depend_on_rows_that_end(name):
    """Without EOS the same random numbers must give answers that begin as the ended ones did."""
    model = family(name)
    ended = generate(model, PROMPTS, 8, FREE, EOS, seeded(5))
    open_ = generate(model, PROMPTS, 8, FREE, (), seeded(5))
    lengths = set()
    for short, long in zip(itertools.chain(*ended), itertools.chain(*open_), strict=True):
        ids, finished = short
        assert long == (long[0], False)
        assert len(long[0]) == 20
        assert ids == long[0][: len(ids)]
        assert finished == (ids[-1] in EOS)
        assert not EOS & set(ids[:-1])
        assert finished or len(ids) == 20
        lengths.add(len(ids))
    assert len(lengths) > 5


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2"])
def test_little_memory_means_several_batches_and_the_same_samples(name, monkeypatch):
    expected = generate(family(name), PROMPTS, 3, FREE, EOS, seeded(6))
    monkeypatch.setattr(generation, "CACHE_BYTES", 1)
    assert generate(family(name), PROMPTS, 3, FREE, EOS, seeded(6)) == expected


@pytest.mark.parametrize(
    ("name", "kind", "reads"), [("gemma2", decoders, [(3, 9), (24, 1), (24, 1)]), ("gemma3", lean, [(3, 9)])]
)
def test_each_distinct_prompt_is_read_once(name, kind, reads, monkeypatch):
    model, read, forward = family(name), [], kind.forward
    find_decoder(model)
    monkeypatch.setattr(
        kind, "forward", lambda *given, **named: read.append(given[1].shape) or forward(*given, **named)
    )
    generate(model, PROMPTS, 6, Sampling(3, 1.0, 1.0, None), (), seeded())
    assert read == reads


@pytest.mark.parametrize(
    ("repeat", "copies", "copy_of"),
    [
        ([0, 0, 1, 1], [0, 1], [0, 0, 1, 1]),
        ([0, 1, 1, 2], [0, 1, 2], [0, 1, 1, 2]),
        ([0, 1, 2, 2, 2, 2, 2, 2, 2], [0, 1, 2, 2, 2], [0, 1, 2, 2, 2, 3, 3, 3, 4]),
        ([1, 0, 1, 1, 1], [1, 0, 1], [0, 1, 0, 0, 2]),
    ],
)
def test_a_frequent_prompt_stands_in_the_caches_several_times(repeat, copies, copy_of):
    assert lean._spread(repeat, max(repeat) + 1) == (copies, copy_of)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gemma2"])
def test_caches_do_not_grow_with_the_most_frequent_prompt(name):
    """What the rows say does not depend on how many of a prompt there are, and places are at most twice the rows."""
    model, prompts = family(name), [[5, 9, 4, 7], [3], *[[8, 8, 1]] * 30]
    expected = [generate(model, [prompt], 1, GREEDY, EOS, seeded())[0] for prompt in prompts[:3]]
    found = generate(model, prompts, 1, GREEDY, EOS, seeded())
    assert found == [*expected, *[expected[2]] * 29]
    if name != "gemma2":
        decoder = LeanDecoder(model, prompts[:3], [0, 1, *[2] * 30], 20)
        assert decoder._places.count <= 2 * 32 + 3


def test_the_fall_back_takes_nothing_from_the_checkpoint(monkeypatch):
    model = family("llama")
    expected = generate(model, PROMPTS, 2, GREEDY, EOS, seeded())
    monkeypatch.setattr(decoders, "_agrees", lambda *_: False)
    monkeypatch.setitem(decoders._known, model, {})
    settings = model.generation_config
    monkeypatch.setattr(settings, "repetition_penalty", 9.0)
    monkeypatch.setattr(settings, "suppress_tokens", [expected[0][0][0][0]])
    assert generate(model, PROMPTS, 2, GREEDY, EOS, seeded()) == expected
    assert model.generation_config is settings
    sampled = generate(model, PROMPTS, 3, FREE, EOS, seeded(1))
    assert [len(group) for group in sampled] == [3] * 4
    assert all(end == (ids[-1] in EOS) for group in sampled for ids, end in group)


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("width", [24, 1 << 14])
def test_diverged_weights_stop_the_run(width, value, monkeypatch):
    monkeypatch.setattr(screen, "_is_fast_here", lambda: True)
    model = type(family("llama"))(family("llama", width).config)
    with torch.no_grad():
        model.lm_head.weight[3] = float(value)
    with pytest.raises(TrainingError, match=r"actually (nan|inf) at token 1"):
        generate(model, [[1, 2]], 2, FREE, EOS, seeded())


@pytest.mark.parametrize("change", [lambda model: model.bfloat16(), lambda model: model.to("meta")])
def test_large_models_are_decoded_lean_in_float32_on_a_cpu_only(change, monkeypatch):
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", 0)
    model = family("llama")
    find_head(model)
    other = copy.deepcopy(model)
    inherit_head(model, other)
    with pytest.raises(TypeError, match="does not know"):
        LeanDecoder(change(other), [[1, 2]], [0], 4)


class Adapted(torch.nn.Module):
    """An adapter beside a linear layer that does nothing until its scale is set."""

    def __init__(self, base):
        super().__init__()
        self.base, self.scale = base, 0.0

    def forward(self, x):
        return self.base(x) - self.scale * self.base(x)


def hook(module, scale):
    module.register_forward_hook(lambda _module, _args, output: output - scale[0] * output)


def patch(module, scale):
    plain = module.forward
    module.forward = lambda x: plain(x) - scale[0] * plain(x)


def subclass(module, scale):
    kind = type(module)
    module.__class__ = type("Own", (kind,), {"forward": lambda own, x: (1 - scale[0]) * kind.forward(own, x)})


@pytest.mark.parametrize("most", [0, 30_000_000])
@pytest.mark.parametrize("where", ["model.layers.0.mlp", "model.layers.0.mlp.down_proj", "lm_head"])
@pytest.mark.parametrize("change", [hook, patch, subclass])
def test_changes_of_a_module_are_felt_even_if_they_begin_with_none(change, where, most, monkeypatch):
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", most)
    model, scale = copy.deepcopy(family("gemma3")), [0.0]
    plain = generate(model, PROMPTS, 4, FREE, EOS, seeded())
    change(model.get_submodule(where), scale)
    assert find_decoder(model) is not LeanDecoder
    assert (find_head(model) is None) == (where == "lm_head")  # else log-probabilities would read its weights
    assert generate(model, PROMPTS, 4, FREE, EOS, seeded()) == plain
    scale[0] = 2.0
    assert generate(model, PROMPTS, 4, FREE, EOS, seeded()) != plain


def test_a_head_of_zeros_says_nothing_of_what_comes_behind_it():
    """The cap of 0 is 0, so a capped model with a fresh head would pass for one without a cap."""
    model = copy.deepcopy(family("gemma2"))
    assert model.config.final_logit_softcapping is not None
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    assert find_head(model) is None


def test_parts_that_are_replaced_are_felt():
    model = copy.deepcopy(family("llama"))
    plain = generate(model, PROMPTS, 4, FREE, EOS, seeded())
    mlp = model.model.layers[0].mlp
    mlp.down_proj = Adapted(mlp.down_proj)
    mlp.down_proj.scale = 2.0
    assert find_decoder(model) is CachedDecoder
    assert generate(model, PROMPTS, 4, FREE, EOS, seeded()) != plain
    mlp.down_proj = mlp.down_proj.base
    assert generate(model, PROMPTS, 4, FREE, EOS, seeded()) == plain
    model.model.layers = model.model.layers[:1]
    assert generate(model, PROMPTS, 4, FREE, EOS, seeded()) != plain


def test_a_model_that_computes_otherwise_later_is_tried_out_anew(monkeypatch):
    model = family("gemma3")
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", 0)
    assert find_decoder(model) is LeanDecoder
    with torch.autocast("cpu", torch.bfloat16):
        assert find_decoder(model) is not LeanDecoder
        assert len(generate(model, PROMPTS, 2, FREE, EOS, seeded())) == len(PROMPTS)
    assert find_decoder(model) is LeanDecoder


def test_nothing_asked_nothing_given():
    model = family("llama")
    assert generate(model, [], 2, FREE, EOS, seeded()) == []
    assert generate(model, [[1]], 0, FREE, EOS, seeded()) == [[]]
