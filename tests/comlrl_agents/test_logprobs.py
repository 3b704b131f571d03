import contextlib
import itertools

import pytest
import torch
from torch import nn
from transformers import FalconConfig, FalconForCausalLM, GPT2Config, GPT2LMHeadModel

from comlrl_agents import embedding_rows, head, scored_states
from comlrl_agents.logprobs import backward_weighted, sequence_logprobs, token_logprobs, without_dropout
from comlrl_agents.placement import checkpoint_gradients
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.families import family

FAMILIES = ("llama", "qwen2", "gpt2", "gemma3", "gemma2")

# Different lengths, an empty completion, one prompt twice, one row twice; beyond the sliding window of 5.
PROMPTS = [[5, 9, 4, 7], [3], [8, 8, 1, 6, 12, 13, 4, 5, 6], [5, 9, 4, 7], [3], [5, 9, 4, 7]]
COMPLETIONS = [[6, 7, 2], [4, 11, 12, 13, 14, 15, 16, 17, 2], [9], [], [9, 10], [6, 7, 2]]


def plain(model, prompts, completions):
    """One row at a time, all logits, log_softmax: the definition."""
    values = []
    for prompt, completion in zip(prompts, completions, strict=True):
        logits = model(torch.tensor([prompt + completion])).logits[0].float()
        scores = logits.log_softmax(-1)[range(len(prompt) - 1, len(prompt) + len(completion) - 1), completion]
        values.append(scores.sum())
    return torch.stack(values)


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same_gradients(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-4, atol=1e-5 * float(value.abs().max() + 1), msg=name)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_all_completions_of_three_tokens_have_probability_one(name):
    model = family(name, 6)
    completions = [list(c) for c in itertools.product(range(6), repeat=3)]
    with torch.no_grad():
        total = sequence_logprobs(model, [[1, 4]] * len(completions), completions).double().exp().sum()
    assert abs(total.item() - 1) < 1e-5


def test_answers_that_end_and_answers_that_are_cut_have_probability_one_together():
    model, eos = family("llama", 6), 2
    open_ = [list(c) for c in itertools.product([t for t in range(6) if t != eos], repeat=3)]
    ended = [[*c, eos] for n in range(3) for c in itertools.product([t for t in range(6) if t != eos], repeat=n)]
    with torch.no_grad():
        total = sequence_logprobs(model, [[1]] * len(open_ + ended), open_ + ended).double().exp().sum()
    assert abs(total.item() - 1) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("budget", [None, 1, 30])
def test_values_and_gradients_equal_the_definition(name, budget):
    model = family(name)
    weights = torch.tensor([0.5, -1.5, 2.0, 1.0, -0.3, 0.7])
    expected = plain(model, PROMPTS, COMPLETIONS)
    (expected * weights).sum().backward()
    wanted = gradients(model)

    actual = sequence_logprobs(model, PROMPTS, COMPLETIONS, micro_batch_tokens=budget)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    (actual * weights).sum().backward()
    assert_same_gradients(gradients(model), wanted)

    # Gradients are added to what is there.
    backward_weighted(model, PROMPTS, COMPLETIONS, weights / 2, micro_batch_tokens=budget)
    again = backward_weighted(model, PROMPTS, COMPLETIONS, weights / 2, micro_batch_tokens=budget)
    torch.testing.assert_close(again, expected.detach(), rtol=0, atol=1e-5)
    assert_same_gradients(gradients(model), wanted)


@pytest.mark.parametrize("name", [*FAMILIES, "mamba"])
def test_a_prompt_of_several_completions_is_read_once_and_nothing_changes(name):
    model = family(name)
    prompts = [[5, 9, 4, 7, 8, 3, 6, 5, 9]] * 4 + [[3, 1, 4, 1, 5, 9]] * 3
    completions = [[6, 7, 2], [4], [9, 9, 8, 7], [], [9, 10], [2], [6, 7, 2, 8, 11]]
    weights = torch.tensor([0.5, -1.5, 2.0, 1.0, -0.3, 0.7, 1.1])
    expected = plain(model, prompts, completions)
    (expected * weights).sum().backward()
    wanted = gradients(model)
    sequence_logprobs(model, prompts, completions)  # the trial of the cache happens here
    seen = []
    hook = model.get_decoder().register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    actual = sequence_logprobs(model, prompts, completions)
    hook.remove()
    assert seen == ([(6, 12)] if name == "mamba" else [(2, 9), (4, 4)])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    (actual * weights).sum().backward()
    assert_same_gradients(gradients(model), wanted)
    backward_weighted(model, prompts, completions, weights)
    assert_same_gradients(gradients(model), wanted)


def test_rows_of_very_different_length_do_not_pad_each_other(monkeypatch):
    monkeypatch.setattr(scored_states, "_FULL_BATCH", 10)
    model, seen = family("llama"), []
    prompts, completions = [[n, 4] for n in range(3, 9)], [[5] * n for n in (2, 30, 2, 29, 2, 31)]
    head.find_head(model)
    hook = model.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    actual = sequence_logprobs(model, prompts, completions)
    hook.remove()
    assert seen == [(3, 32), (3, 3)]
    torch.testing.assert_close(actual, plain(model, prompts, completions), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_company_and_padding_change_nothing(name):
    model = family(name)
    row = ([[7, 3, 9]], [[4, 5, 6, 2]])
    with torch.no_grad():
        alone = sequence_logprobs(model, *row)
        for other in ([[3]], [list(range(1, 20)) * 2]):
            for budget in (None, 50):
                both = sequence_logprobs(model, row[0] + other, row[1] + [[8] * 17], micro_batch_tokens=budget)
                assert abs((both[0] - alone[0]).item()) < 1e-5


def test_an_eos_that_is_also_the_padding_is_trained():
    model = family("llama")
    model.config.pad_token_id = 2
    try:
        logp = sequence_logprobs(model, [[5, 6], [5, 6, 7, 8]], [[7, 2], [9, 2, 3, 4, 2]])
        torch.testing.assert_close(logp, plain(model, [[5, 6], [5, 6, 7, 8]], [[7, 2], [9, 2, 3, 4, 2]]))
        values, _ = token_logprobs(model, [[5, 6]], [[7, 2]])
        values[0, 1].backward()
        assert float(gradients(model)["model.embed_tokens.weight"].abs().sum()) > 0
    finally:
        model.config.pad_token_id = None


def test_token_values_lie_under_the_mask_and_sum_to_the_sequence():
    model = family("qwen2")
    values, mask = token_logprobs(model, PROMPTS, COMPLETIONS)
    assert mask.sum(1).tolist() == [len(c) for c in COMPLETIONS]
    assert not values[~mask].any()
    torch.testing.assert_close(values.sum(1), sequence_logprobs(model, PROMPTS, COMPLETIONS))


def test_the_final_token_can_be_left_out():
    model = family("llama")
    without = sequence_logprobs(model, PROMPTS, COMPLETIONS, score_final_token=False)
    torch.testing.assert_close(without, sequence_logprobs(model, PROMPTS, [c[:-1] for c in COMPLETIONS]))


def test_only_empty_completions_give_zero_and_no_gradient():
    model = family("llama")
    logp = sequence_logprobs(model, [[3], [4, 5]], [[], []])
    assert logp.tolist() == [0.0, 0.0]
    logp.sum().backward()
    assert gradients(model) == {}
    assert backward_weighted(model, [[3]], [[]], torch.ones(1)).tolist() == [0.0]


def test_two_backward_passes_through_one_graph():
    model = family("llama")
    logp = sequence_logprobs(model, PROMPTS, COMPLETIONS)
    parameters = list(model.parameters())
    first = torch.autograd.grad(logp[0], parameters, retain_graph=True)
    second = torch.autograd.grad(logp[1], parameters, retain_graph=True)
    both = torch.autograd.grad(logp[0] + logp[1], parameters)
    for a, b, c in zip(first, second, both, strict=True):
        torch.testing.assert_close(a + b, c, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2", "qwen2"])  # tied to the embedding or not
def test_a_gradient_added_in_place_is_the_same_gradient(name, monkeypatch):
    monkeypatch.setattr(embedding_rows, "_LARGE", 1)
    model = family(name)
    prompts, completions, weights = [[1, 4], [5]], [[6, 7, 2], [8]], torch.tensor([0.5, -2.0])

    def twice(context):
        model.zero_grad()
        for _ in range(2):
            with context():
                values = sequence_logprobs(model, prompts, completions)
            values.backward(weights)
        return gradients(model)

    once_allocated = twice(contextlib.nullcontext)
    assert_same_gradients(twice(head.gradients_in_place), once_allocated)


def test_buffers_serve_again_and_graphs_alive_at_once_have_their_own(monkeypatch):
    monkeypatch.setattr(head, "_spare", [])
    model = family("llama")
    sequence_logprobs(model, PROMPTS, COMPLETIONS).sum().backward()
    assert head._spare == []  # only learners keep them
    once = gradients(model)

    def update(count):
        with head.gradients_in_place():
            rows = [sequence_logprobs(model, PROMPTS, COMPLETIONS) for _ in range(count)]
        for row in rows:
            row.sum().backward()
        return gradients(model), {spare.data_ptr() for spare in head._spare}

    twice, first = update(2)
    assert_same_gradients(twice, {name: 2 * value for name, value in once.items()})
    assert len(first) == 2
    assert update(2)[1] == first
    head._spare[:] = [torch.empty(3), torch.empty(3)]  # too small: two larger ones take their place
    assert_same_gradients(update(2)[0], twice)
    assert len(head._spare) == 2
    assert min(map(len, head._spare)) > 3


def test_gradient_checkpointing_and_dropout_change_nothing():
    config = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=24, bos_token_id=1, eos_token_id=2)
    assert config.resid_pdrop > 0
    model = GPT2LMHeadModel(config)
    model.train()
    expected = sequence_logprobs(model, PROMPTS, COMPLETIONS)
    assert not model.training
    expected.sum().backward()
    wanted = gradients(model)
    checkpoint_gradients(model)
    actual = sequence_logprobs(model, PROMPTS, COMPLETIONS)
    assert model.training
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)
    actual.sum().backward()
    assert_same_gradients(gradients(model), wanted)
    assert config.resid_pdrop > 0
    with torch.no_grad():
        without_dropout(model)
    assert not model.training


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_autocast_computes_low_and_returns_float32(name):
    model = family(name)
    exact = sequence_logprobs(model, PROMPTS, COMPLETIONS)
    exact.sum().backward()
    wanted = gradients(model)
    with torch.autocast("cpu", torch.bfloat16):
        low = sequence_logprobs(model, PROMPTS, COMPLETIONS)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.05, atol=0.5)
    low.sum().backward()
    found = gradients(model)
    with torch.autocast("cpu", torch.bfloat16):
        backward_weighted(model, PROMPTS, COMPLETIONS, torch.ones(len(PROMPTS)))
    for gradient in (found, gradients(model)):
        angle = nn.functional.cosine_similarity(
            torch.cat([g.flatten() for g in gradient.values()]),
            torch.cat([g.flatten() for g in wanted.values()]),
            dim=0,
        )
        assert angle > 0.97


def test_a_head_is_taken_apart_only_where_logits_are_nothing_but_linear():
    assert head.find_head(family("llama")).linear is family("llama").lm_head
    assert head.find_head(family("gemma3")) is not None
    assert head.find_head(family("gemma2")) is None  # soft-capped logits


def test_a_faint_soft_cap_is_still_seen():
    model = family("gemma2", 12)
    with torch.no_grad():
        model.lm_head.weight *= 1e-3
    assert head.find_head(model) is None


def test_head_in_blocks_equals_log_softmax(monkeypatch):
    monkeypatch.setattr(head, "_ELEMENTS_IN_CACHE", 100)
    monkeypatch.setattr(head, "_ELEMENTS_WITHOUT_GRAPH", 150)
    torch.manual_seed(0)
    linear, hidden = nn.Linear(8, 50), torch.randn(11, 8, requires_grad=True)
    targets, weights = torch.randint(50, (11,)), torch.randn(11)
    expected = linear(hidden).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    wanted = torch.autograd.grad((expected * weights).sum(), [hidden, linear.weight, linear.bias])
    actual = head.target_logprobs(linear, hidden, targets)
    found = torch.autograd.grad((actual * weights).sum(), [hidden, linear.weight, linear.bias])
    values, into_hidden = head.accumulate_gradient(linear, hidden.detach(), targets, weights)
    with torch.no_grad():
        bare = head.target_logprobs(linear, hidden, targets)
    for got in (actual, values, bare):
        torch.testing.assert_close(got, expected)
    for a, b, c in zip(found, wanted, (into_hidden, linear.weight.grad, linear.bias.grad), strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(c, b)


def test_extreme_logits_stay_exact():
    linear = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1e4, 0.0], [0.0, 1e4], [-1e4, 0.0]]))
    logp = head.target_logprobs(linear, torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 2]))
    torch.testing.assert_close(logp, torch.tensor([-0.6931472, -2e4]))


@pytest.mark.parametrize(
    ("prompts", "completions", "words"),
    [([[1]], [[2], [3]], "1 prompts and 2 completions"), ([[1], []], [[2], [3]], "row 1 has no prompt token")],
)
def test_rows_that_cannot_be_scored_are_refused(prompts, completions, words):
    with pytest.raises(ValueError, match=words):
        sequence_logprobs(family("llama"), prompts, completions)


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"expected shape \(1,\)"):
        backward_weighted(family("llama"), [[1]], [[2]], torch.ones(2))


def test_a_model_that_draws_random_numbers_while_its_gradients_are_checkpointed_is_refused():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 24}
    for rate in (0.0, 0.3):  # which it reads from its configuration as it runs
        model = FalconForCausalLM(FalconConfig(**sizes, bos_token_id=1, eos_token_id=2, hidden_dropout=rate))
        expected = sequence_logprobs(model, PROMPTS, COMPLETIONS)
        checkpoint_gradients(model)
        if rate == 0:
            torch.testing.assert_close(sequence_logprobs(model, PROMPTS, COMPLETIONS), expected, rtol=0, atol=1e-5)
        else:
            with pytest.raises(ConfigError, match=r"gradient_checkpointing: FalconForCausalLM .* draws random numbers"):
                sequence_logprobs(model, PROMPTS, COMPLETIONS)
