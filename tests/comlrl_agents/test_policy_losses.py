import math

import pytest
import torch

from comlrl_agents.losses import bradley_terry_loss
from comlrl_agents.policy_losses import (
    clipped_policy_loss,
    clipped_tokens,
    group_advantages,
    policy_gradient_loss,
    reference_kl,
    shaped_returns,
    standardised,
    value_loss,
)

RETURNS = torch.tensor([1.0, 3.0, 2.0, 6.0])  # mean 3, sum 12
PLAIN = {
    "magrpo": [-2.0, 0.0, -1.0, 3.0],
    "mareinforce": [1.0, 3.0, 2.0, 6.0],
    "marloo": [1 - 11 / 3, 0.0, 2 - 10 / 3, 4.0],
    "maremax": [-5.0, -3.0, -4.0, 0.0],
}
STD = math.sqrt((4 + 0 + 1 + 9) / 4)


@pytest.mark.parametrize("name", PLAIN)
def test_advantages_by_hand(name):
    torch.testing.assert_close(group_advantages(RETURNS, name), torch.tensor(PLAIN[name]))


@pytest.mark.parametrize("name", PLAIN)
def test_normalised_advantages_are_the_same_for_all_four(name):
    expected = torch.tensor([-2.0, 0.0, -1.0, 3.0]) / STD
    torch.testing.assert_close(group_advantages(RETURNS, name, normalize=True), expected)


def test_equal_returns_have_no_advantage_and_no_division_by_zero():
    assert group_advantages(torch.full((3,), 0.7), "magrpo", normalize=True).tolist() == [0.0, 0.0, 0.0]
    assert standardised(torch.tensor([0.0, 1e-9])).abs().max() < 1e-2


def test_groups_are_judged_apart():
    both = group_advantages(torch.stack([RETURNS, 10 * RETURNS]), "maremax")
    torch.testing.assert_close(both[1], 10 * torch.tensor(PLAIN["maremax"]))


def test_bradley_terry_and_its_gradient_by_hand():
    winner, loser = (torch.tensor(v, requires_grad=True) for v in ([2.0, 0.0], [1.0, 0.0]))
    loss = bradley_terry_loss(winner, loser)
    assert loss.item() == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2)
    loss.backward()
    assert winner.grad.tolist() == pytest.approx([-(1 / (1 + math.e)) / 2, -0.25])
    assert loser.grad.tolist() == pytest.approx([(1 / (1 + math.e)) / 2, 0.25])


def test_policy_gradient_by_hand():
    logps = torch.tensor([-2.0, -5.0], requires_grad=True)
    loss = policy_gradient_loss(logps, torch.tensor([1.0, -0.5]))
    assert loss.item() == pytest.approx(-(-2.0 + 2.5) / 2)
    loss.backward()
    assert logps.grad.tolist() == [-0.5, 0.25]


OLD = torch.tensor([[-1.0, -2.0, -1.0], [-1.0, -1.0, 0.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_at_ratio_one_clipping_has_the_plain_gradient_and_ignores_padding():
    logps = (OLD + torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 77.0]])).requires_grad_()
    loss = clipped_policy_loss(logps, OLD, MASK, torch.tensor([2.0, -1.0]), 0.2)
    assert loss.item() == pytest.approx(-(2 * 3 - 1 * 2) / 2)
    loss.backward()
    assert logps.grad.tolist() == [[-1.0, -1.0, -1.0], [0.5, 0.5, 0.0]]


def test_clipping_stops_what_has_moved_far_enough_and_lets_the_rest_come_back():
    shift = torch.tensor([[math.log(1.5), math.log(0.5), math.log(1.1)], [math.log(1.5), math.log(0.5), 0.0]])
    logps = (OLD + shift).requires_grad_()
    loss = clipped_policy_loss(logps, OLD, MASK, torch.tensor([1.0, -1.0]), 0.2)
    assert loss.item() == pytest.approx(-((1.2 + 0.5 + 1.1) - (1.5 + 0.8)) / 2)
    loss.backward()
    # d(ρA)/d log π = ρA where the unclipped term is the smaller one.
    expected = [[0.0, -0.25, -0.55], [0.75, 0.0, 0.0]]
    torch.testing.assert_close(logps.grad, torch.tensor(expected))


def test_reference_kl_of_identical_models_is_zero_and_padding_counts_nothing():
    logps = torch.tensor([[-1.0, -3.0], [-2.0, 5.0]])
    mask = torch.tensor([[True, True], [True, False]])
    assert reference_kl(logps, logps, mask).tolist() == [0.0, 0.0]
    reference = logps + torch.tensor([[math.log(2.0), math.log(0.5)], [0.0, 9.0]])
    by_hand = (2 - math.log(2) - 1) + (0.5 + math.log(2) - 1)
    assert reference_kl(logps, reference, mask).tolist() == pytest.approx([by_hand, 0.0])


def test_the_example_of_a_shaped_return():
    assert shaped_returns(torch.tensor([1.0]), torch.tensor([0.4]), 0.25).tolist() == pytest.approx([0.9])


def test_value_loss_plain_and_clipped_by_hand():
    values, targets = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.4])
    assert value_loss(values, targets).item() == pytest.approx((0.25 + 0.16) / 2)
    old = torch.tensor([0.0, 0.1])
    # Clipped: 0 + 0.2 and 0.1 − 0.1; errors 0.09 and 0.16 against plain 0.25 and 0.16.
    assert value_loss(values, targets, old, 0.2).item() == pytest.approx((0.25 + 0.16) / 2)
    # A value that ran to its target is held to the clipped error.
    assert value_loss(torch.tensor([0.5]), torch.tensor([0.5]), torch.tensor([0.0]), 0.2).item() == pytest.approx(0.09)


def test_clipped_tokens_by_hand():
    old = torch.log(torch.tensor([[0.5, 0.5, 0.5], [0.25, 0.5, 0.5]]))
    now = torch.log(torch.tensor([[0.59, 0.61, 0.39], [0.25, 0.41, 9.0]]))
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert clipped_tokens(now, old, mask, 0.2).tolist() == [[False, True, True], [False, False, False]]
