import math

import pytest
import torch

from comlrl_agents.losses import (
    PairLogps,
    PreferenceLoss,
    ipo_loss,
    madpo_loss,
    pair_margins,
    preference_loss,
    preference_metrics,
    winner_term,
)


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


MARGINS = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.5, -0.5]])  # joint: 4.0, -1.5, 0.0


def test_madpo_loss_is_the_mean_negative_log_sigmoid_of_the_joint_margin():
    by_hand = -sum(math.log(sigmoid(0.1 * joint)) for joint in (4.0, -1.5, 0.0)) / 3
    assert madpo_loss(MARGINS, 0.1).item() == pytest.approx(by_hand, abs=1e-6)


def test_zero_margins_give_log_two():
    assert madpo_loss(torch.zeros(3, 5), 0.7).item() == pytest.approx(math.log(2), abs=1e-6)


def test_one_agent_is_reference_free_dpo():
    margin = torch.tensor([[0.3, -0.8]])
    by_hand = -(math.log(sigmoid(0.5 * 0.3)) + math.log(sigmoid(0.5 * -0.8))) / 2
    assert madpo_loss(margin, 0.5).item() == pytest.approx(by_hand, abs=1e-6)


def test_gradient_weight_comes_from_the_team():
    margins = MARGINS.clone().requires_grad_()
    madpo_loss(margins, 0.1).backward()
    expected = torch.tensor([-0.1 * sigmoid(-0.1 * joint) / 3 for joint in (4.0, -1.5, 0.0)])
    for agent in range(2):
        torch.testing.assert_close(margins.grad[agent], expected)


def test_agents_only_matter_through_their_sum():
    regrouped = torch.stack([MARGINS.sum(0), torch.zeros(3)])
    torch.testing.assert_close(madpo_loss(MARGINS, 0.1), madpo_loss(regrouped, 0.1))


def test_label_smoothing_mixes_the_two_labellings():
    kept, flipped = madpo_loss(MARGINS, 0.1), madpo_loss(-MARGINS, 0.1)
    torch.testing.assert_close(madpo_loss(MARGINS, 0.1, label_smoothing=0.2), 0.8 * kept + 0.2 * flipped)


def test_target_margin_shifts_the_logit():
    by_hand = -math.log(sigmoid(2.0 * 1.5 - 0.7))
    assert madpo_loss(torch.tensor([[1.0], [0.5]]), 2.0, target_margin=0.7).item() == pytest.approx(by_hand, abs=1e-6)


def test_ipo_pulls_the_joint_margin_to_one_over_two_beta():
    assert ipo_loss(torch.tensor([[2.0], [3.0]]), 0.1).item() == pytest.approx(0.0, abs=1e-6)
    assert ipo_loss(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), 0.1).item() == pytest.approx((4.0 + 25.0) / 2, abs=1e-4)


def test_winner_term_is_per_token_and_ignores_empty_answers():
    logps = torch.tensor([[-4.0, 0.0], [-6.0, -2.0]])
    lengths = torch.tensor([[2.0, 0.0], [3.0, 4.0]])
    assert winner_term(logps, lengths).item() == pytest.approx((2.0 + 2.0 + 0.0 + 0.5) / 2)


LOGPS = PairLogps(
    winner=torch.tensor([[-3.0, -8.0]]),
    loser=torch.tensor([[-4.0, -6.0]]),
    winner_lengths=torch.tensor([[3.0, 4.0]]),
    loser_lengths=torch.tensor([[2.0, 3.0]]),
)


def test_swapping_winner_and_loser_negates_the_margin():
    swapped = PairLogps(LOGPS.loser, LOGPS.winner, LOGPS.loser_lengths, LOGPS.winner_lengths)
    for spec in (PreferenceLoss(), PreferenceLoss(length_normalization=True)):
        torch.testing.assert_close(pair_margins(swapped, spec), -pair_margins(LOGPS, spec))


def test_length_normalised_and_anchored_margins_by_hand():
    normalised = pair_margins(LOGPS, PreferenceLoss(length_normalization=True))
    torch.testing.assert_close(normalised, torch.tensor([[-1.0 + 2.0, -2.0 + 2.0]]))
    reference = LOGPS._replace(winner=LOGPS.winner - 1.0, loser=LOGPS.loser + 0.5)
    anchored = pair_margins(LOGPS, PreferenceLoss(reference_anchored=True), reference)
    torch.testing.assert_close(anchored, torch.tensor([[1.5, 1.5]]))


def test_anchoring_at_the_same_weights_gives_log_two():
    loss = preference_loss(LOGPS, PreferenceLoss(reference_anchored=True), LOGPS)
    assert loss.item() == pytest.approx(math.log(2), abs=1e-6)


def test_the_winner_term_is_added_with_its_weight():
    plain = preference_loss(LOGPS, PreferenceLoss())
    with_term = preference_loss(LOGPS, PreferenceLoss(winner_term_weight=0.5))
    assert (with_term - plain).item() == pytest.approx(0.5 * (1.0 + 2.0) / 2)


def test_metrics_by_hand():
    logps = PairLogps(
        winner=torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        loser=torch.tensor([[-2.0, -2.0], [-3.0, -1.0]]),
        winner_lengths=torch.ones(2, 2),
        loser_lengths=torch.ones(2, 2),
    )
    metrics = preference_metrics(logps, PreferenceLoss())
    assert metrics["rewards/accuracies"] == 0.5  # joint margins 1 and -3
    assert metrics["rewards/margins"] == pytest.approx(0.1 * -1.0)
    assert metrics["logps/chosen"] == pytest.approx(-5.0)
    assert metrics["logps/rejected"] == pytest.approx(-4.0)
    assert metrics["rewards/chosen"] == pytest.approx(-0.5)
    assert metrics["agent_1/rewards/margins"] == pytest.approx(0.1 * -1.5)


def test_rewards_are_of_what_the_loss_compares():
    one = PairLogps(*(torch.tensor([[value]]) for value in (-6.0, -8.0, 3.0, 2.0)))
    initial = PairLogps(*(torch.tensor([[value]]) for value in (-9.0, -7.0, 3.0, 2.0)))
    spec = PreferenceLoss(beta=2.0, length_normalization=True, reference_anchored=True)
    metrics = preference_metrics(one, spec, initial)
    assert metrics["rewards/chosen"] == pytest.approx(2.0 * (-6 + 9) / 3)
    assert metrics["rewards/rejected"] == pytest.approx(2.0 * (-8 + 7) / 2)
    assert metrics["rewards/margins"] == pytest.approx(2.0 + 1.0)
    assert metrics["logps/chosen"] == -6.0  # as they are
