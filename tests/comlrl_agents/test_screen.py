import pytest
import torch

from comlrl_agents import screen as screen_module
from comlrl_agents.generation import generate
from comlrl_agents.projection import projection
from comlrl_agents.screen import Screen
from comlrl_agents.types import Sampling

SIZE, FEATURES = 20_011, 48  # not a multiple of the block


def drawn(rows=5, scale=1.0, seed=0):
    source = torch.Generator().manual_seed(seed)
    weight = scale * torch.randn(SIZE, FEATURES, generator=source)
    return weight, torch.randn(rows, FEATURES, generator=source)


def the_largest(weight, hidden, k):
    """(tokens, logits) of each row's k largest, in float64."""
    logits = hidden.double() @ weight.double().T
    values, tokens = logits.topk(k, dim=1)
    return [dict(zip(*pair, strict=True)) for pair in zip(tokens.tolist(), values.tolist(), strict=True)]


def check(weight, hidden, k):
    logits, tokens = Screen(weight, k)(hidden)
    assert tokens is not None
    for row, expected in enumerate(the_largest(weight, hidden, k)):
        real = logits[row] > float("-inf")
        own = tokens[row][real].tolist()
        assert own == sorted(set(own))
        found = dict(zip(own, logits[row][real].tolist(), strict=True))
        assert set(expected) <= set(found)
        for token, value in expected.items():
            assert found[token] == pytest.approx(value, rel=1e-5, abs=1e-5)
    return logits


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("k", [1, 7, 50])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_the_largest_are_all_there_with_their_exact_logits(rows, k, scale):
    weight, hidden = drawn(rows)
    logits = check(weight, scale * hidden, k)
    assert logits.shape[1] < 10 * k + 50


def test_roundings_that_all_go_the_wrong_way_hide_none():
    """Of 1 + n/128 and 1/256 more, bfloat16 keeps 1 + n/128 or 1 + (n + 1)/128: here the better token loses four times
    1/256 by that and the other one gains as much, so that they stand 3/128 apart, the wrong way round.
    """
    one, tiny = 1 / 128, 1e-6
    a, b = 1 + 8 * one + one / 2, 1 + 7 * one + one / 2
    weight = torch.zeros(SIZE, FEATURES)
    weight[5, 0], weight[10_000, 1], weight[5, 2] = b - tiny, a + 2 * tiny, 1e-4
    hidden = torch.zeros(1, FEATURES)
    hidden[0, 0], hidden[0, 1], hidden[0, 2] = a - tiny, b + 2 * tiny, 1.0
    rough = (hidden.bfloat16() @ weight.bfloat16().T).float()
    assert rough[0, 5] < rough[0, 10_000] - 0.02
    (best,) = the_largest(weight, hidden, 1)
    assert list(best) == [5]
    check(weight, hidden, 1)


@pytest.mark.parametrize("offset", [-300.0, -3.0, 3.0, 300.0])
def test_rounding_of_large_logits_hides_none(offset):
    """Logits far from 0 are coarse in bfloat16: at 300 they stand 2 apart."""
    weight, hidden = drawn()
    weight[:, 0], hidden[:, 0] = offset / 10, 10.0
    logits, tokens = Screen(weight, 20)(hidden)
    if tokens is None:
        torch.testing.assert_close(logits, hidden @ weight.T)
    else:
        check(weight, hidden, 20)


def test_logits_that_differ_by_less_than_bfloat16_can_tell():
    """One block of tokens is a hair better than all others; rounded they are the same."""
    source = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, FEATURES, generator=source)
    weight = 0.1 * torch.randn(SIZE, FEATURES, generator=source)
    weight[1000:1200] = hidden.sum(0) * (1 + 1e-5 * torch.arange(200)[:, None])
    check(weight, hidden, 10)


def test_where_bfloat16_can_tell_nothing_all_logits_are_given():
    weight, hidden = drawn(scale=1e-7)
    weight[:, 0], hidden[:, 0] = 1.0, 100.0
    logits, tokens = Screen(weight, 20)(hidden)
    assert tokens is None
    torch.testing.assert_close(logits, hidden @ weight.T)


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("where", ["weight", "one row"])
def test_what_is_no_number_is_not_hidden(where, value):
    weight, hidden = drawn()
    (weight if where == "weight" else hidden)[3, 2] = float(value)
    logits, tokens = Screen(weight, 5)(hidden)
    assert tokens is None
    torch.testing.assert_close(logits, hidden @ weight.T, equal_nan=True)


def test_it_is_taken_where_it_can_be(monkeypatch):
    monkeypatch.setattr(screen_module, "_is_fast_here", lambda: True)
    plain, biased = (torch.nn.Linear(FEATURES, SIZE, bias=bias) for bias in (False, True))
    assert isinstance(projection(plain, 8, 32, 50), Screen)
    for linear, rows, steps, top_k in (
        (biased, 8, 32, 50),
        (plain, 8, 32, None),
        (plain, 8, 32, 129),
        (plain, 8, 2, 50),
        (plain, 500, 32, 50),
        (torch.nn.Linear(FEATURES, 1000, bias=False), 8, 32, 50),
    ):
        assert not isinstance(projection(linear, rows, steps, top_k), Screen)
    monkeypatch.setattr(screen_module, "_is_fast_here", lambda: False)
    assert not isinstance(projection(plain, 8, 32, 50), Screen)


@pytest.mark.parametrize(
    "sampling", [Sampling(16, 0.0, 1.0, None), Sampling(16, 1.2, 0.9, 20), Sampling(16, 1.0, 1.0, 3)]
)
def test_answers_are_those_of_all_logits(sampling, monkeypatch):
    """Tokens are drawn in their own order either way, so the same random numbers give the same ones."""
    from tests.comlrl_agents.families import family

    model = family("gemma3", 1 << 14)
    prompts = [[5, 9, 4, 7], [3]]
    monkeypatch.setattr(screen_module, "_is_fast_here", lambda: True)
    used = []
    screened = Screen.__call__
    monkeypatch.setattr(Screen, "__call__", lambda self, hidden: used.append(1) or screened(self, hidden))
    narrow = generate(model, prompts, 4, sampling, {2}, torch.Generator().manual_seed(0))
    assert used
    monkeypatch.setattr(screen_module, "_MOST_BLOCKS", 0)
    assert generate(model, prompts, 4, sampling, {2}, torch.Generator().manual_seed(0)) == narrow
