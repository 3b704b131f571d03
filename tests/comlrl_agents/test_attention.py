"""Attention by MKL beside oneDNN's products: where it switches, that it switches back, that nothing else changes."""

import copy
import threading

import pytest
import torch

from comlrl_agents import attention as module
from comlrl_agents import lean
from comlrl_agents.attention import attention, by_mkl, settle_attention
from comlrl_agents.concurrency import for_each_agent, side_by_side
from comlrl_agents.placement import EXACT, matmul_error
from comlrl_agents.policy_history import frozen_copies
from tests.comlrl_agents.families import family
from tests.comlrl_agents.toys import word_policy


@pytest.fixture
def one_dnn():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def seen(monkeypatch):
    """The setting of each call of torch's attention."""
    found, plain = [], torch.nn.functional.scaled_dot_product_attention

    def spy(*args, **kwargs):
        found.append(torch.get_float32_matmul_precision())
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return found


class Layer(torch.nn.Module):
    is_causal = True
    num_key_value_groups = 1


def inputs(length=7, **kwargs):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, length, 8, generator=generator, **kwargs).requires_grad_() for _ in range(3)]


def by_hand(query, key, value):
    scores = query.double() @ key.double().transpose(-1, -2) / query.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -torch.inf).softmax(-1) @ value.double()).transpose(1, 2)


def test_values_and_gradients_are_those_of_causal_attention(one_dnn, seen):
    given = inputs()
    output, _ = attention(Layer(), *given, None)
    assert torch.allclose(output.double(), by_hand(*given), atol=1e-5)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(output, given, weights)
    expected = torch.autograd.grad(by_hand(*given), given, weights.double())
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert seen == ["highest"]
    assert torch.get_float32_matmul_precision() == "medium"


def attention_node(output):
    node = output.grad_fn
    while not node.name().startswith("ScaledDotProduct"):
        node = node.next_functions[0][0]
    return node


def test_the_backward_pass_is_by_mkl_too_and_can_be_repeated(one_dnn):
    inside = []
    given = inputs()
    output, _ = attention(Layer(), *given, None)
    attention_node(output).register_prehook(lambda grads: inside.append(torch.get_float32_matmul_precision()))
    output.sum().backward(retain_graph=True)
    first = given[0].grad.clone()
    assert torch.get_float32_matmul_precision() == "medium"
    output.sum().backward()
    assert torch.allclose(given[0].grad, 2 * first)
    assert inside == ["highest", "highest"]
    assert torch.get_float32_matmul_precision() == "medium"


def test_attention_of_another_kind_is_left_alone_going_back(one_dnn):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given = inputs()
    earlier, _ = attention(Layer(), *given, None)
    with sdpa_kernel(SDPBackend.MATH):  # many operations, none of which is torch's one attention
        output, _ = attention(Layer(), earlier.transpose(1, 2), *given[1:], None)
    inside = []
    output.grad_fn.register_prehook(lambda grads: inside.append(torch.get_float32_matmul_precision()))
    attention_node(earlier).register_prehook(lambda grads: inside.append(torch.get_float32_matmul_precision()))
    output.sum().backward()
    assert inside == ["medium", "highest"]
    assert torch.get_float32_matmul_precision() == "medium"


def test_only_what_needs_a_gradient_gets_one(one_dnn):
    query, key, value = inputs()
    output, _ = attention(Layer(), query.detach(), key, value.detach(), None)
    output.sum().backward()
    assert query.grad is None
    assert key.grad is not None
    assert value.grad is None


@pytest.mark.parametrize(
    ("length", "dtype", "setting", "expected"),
    [
        (7, torch.float32, "medium", "highest"),
        (7, torch.float32, "highest", "highest"),
        (7, torch.bfloat16, "medium", "medium"),
        (module._LARGE_BLOCKS, torch.float32, "medium", "medium"),
        (module._LARGE_BLOCKS - 1, torch.float32, "medium", "highest"),
    ],
)
def test_it_switches_for_small_float32_products_only(one_dnn, seen, length, dtype, setting, expected):
    torch.set_float32_matmul_precision(setting)
    with torch.no_grad():
        attention(Layer(), *inputs(length, dtype=dtype), None)
    assert seen == [expected]


def test_agents_at_work_side_by_side_leave_the_switch_alone(one_dnn, seen):
    meet = threading.Barrier(2)

    def work(agent):
        meet.wait(timeout=30)
        attention(Layer(), *inputs(), None)
        with by_mkl():
            return side_by_side(), torch.get_float32_matmul_precision()

    models = [object(), object()]
    assert for_each_agent(work, models, concurrent=True) == [(True, "medium")] * 2
    assert seen == ["medium"] * 2
    assert not side_by_side()


@pytest.mark.parametrize(("most", "of_layers"), [(30_000_000, "highest"), (0, "medium")])
@torch.no_grad()
def test_decoding_leaves_attention_to_mkl_and_all_else_of_small_models(one_dnn, monkeypatch, most, of_layers):
    monkeypatch.setattr(lean, "_MOST_PARAMETERS", most)
    decoder = lean.LeanDecoder(family("llama"), [[3, 4], [5]], [0, 1], 3)
    found = {"bmm": set(), "linear": set()}

    def spy(name, plain):
        return lambda *args: found[name].add(torch.get_float32_matmul_precision()) or plain(*args)

    monkeypatch.setattr(torch, "bmm", spy("bmm", torch.bmm))
    monkeypatch.setattr(torch.nn.functional, "linear", spy("linear", torch.nn.functional.linear))
    decoder.step(torch.tensor([7, 8]))
    assert found == {"bmm": {"highest"}, "linear": {of_layers}}
    assert torch.get_float32_matmul_precision() == "medium"


def test_an_error_inside_switches_back(one_dnn):
    with pytest.raises(ZeroDivisionError), by_mkl():
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == "medium"


def test_models_of_transformers_take_it_and_compute_the_same(one_dnn, seen):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = family("llama")
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    plain = model(ids).logits
    settle_attention()
    try:
        logits = model(ids).logits
    finally:
        ALL_ATTENTION_FUNCTIONS.register("sdpa", before)
    # Where "medium" is bfloat16 in truth, everything but our attention is that inexact.
    assert torch.allclose(logits, plain, atol=1e-5 if matmul_error() < EXACT else 5e-2)
    layers = model.config.num_hidden_layers
    assert seen == ["medium"] * layers + ["highest"] * layers


def test_a_frozen_copy_inherits_what_was_tried_out(monkeypatch):
    from comlrl_agents import decoders, head, scored_states

    policies = [word_policy(0), word_policy(1)]
    for policy in policies:
        policy.generate(["pick red"], 2)
        policy.sequence_logprobs([[1, 2, 3]] * 3, [[2, 3], [3, 1], [1, 1]])
    expected = [p.sequence_logprobs([[1, 2, 3]] * 3, [[2, 3], [3, 1], [1, 1]]) for p in policies]

    def refuse(*args):
        raise AssertionError("tried out again")

    for place, name in ((head, "_agrees"), (decoders, "_agrees"), (scored_states, "_sharing_agrees")):
        monkeypatch.setattr(place, name, refuse)
    copies = frozen_copies(policies, [None, None])
    for copied, original, logps in zip(copies, policies, expected, strict=True):
        copied.generate(["pick red"], 2)
        assert torch.equal(copied.sequence_logprobs([[1, 2, 3]] * 3, [[2, 3], [3, 1], [1, 1]]), logps)
        found = head.find_head(copied.model)
        assert found.linear is copied.model.get_output_embeddings()
        assert found.backbone is copied.model.get_decoder()
        assert head.find_head(copied.model) is not head.find_head(original.model)
    fresh = copy.deepcopy(policies[0].model)
    with pytest.raises(AssertionError, match="tried out again"):
        head.find_head(fresh)
