"""The preference losses: pure functions of sequence log-probabilities, one number per joint response.

Notation of ALGORITHMS: agent i of n, pair p of P; w the preferred and l the rejected joint response. A margin is
Δ_i = log π_i(a^w) − log π_i(a^l), summed over turns; the joint margin is the sum over agents, Δ = Σ_i Δ_i.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name every torch user knows
from torch import Tensor

LossType = Literal["sigmoid", "ipo"]


def madpo_loss(
    margins: Tensor, beta: float = 0.1, *, label_smoothing: float = 0.0, target_margin: float = 0.0
) -> Tensor:
    """Multi-agent DPO: −E[log σ(β Δ − γ)] with the joint margin Δ = Σ_i Δ_i.

    Its gradient for agent i is −β E[σ(−β Δ) ∇Δ_i]: the weight comes from the team, the direction from the agent.

    Args:
        margins: (agents, pairs), log-probability of the winner minus that of the loser, per agent.
        beta: η > 0, the steepness.
        label_smoothing: ε in [0, 0.5), the share of labels taken to be wrong (conservative DPO, Mitchell 2023,
            "A note on DPO with noisy preferences", eq. 3).
        target_margin: γ ≥ 0, how far the winner should lead (SimPO, Meng et al. 2024, eq. 6, used there with
            length-normalised log-probabilities).

    Returns:
        Scalar, the mean over pairs.

    """
    logits = beta * margins.sum(dim=0) - target_margin
    kept = (1.0 - label_smoothing) * F.logsigmoid(logits)
    flipped = label_smoothing * F.logsigmoid(-logits)
    return -(kept + flipped).mean()


def ipo_loss(margins: Tensor, beta: float = 0.1) -> Tensor:
    """Squared loss on the joint margin: E[(Δ − 1/(2β))²] (IPO, Azar et al. 2023, eq. 17).

    Args:
        margins: (agents, pairs).
        beta: τ of the paper, > 0.

    Returns:
        Scalar, the mean over pairs.

    """
    return (margins.sum(dim=0) - 1.0 / (2.0 * beta)).square().mean()


def bradley_terry_loss(winner_rewards: Tensor, loser_rewards: Tensor) -> Tensor:
    """−E[log σ(R(winner) − R(loser))] (Bradley and Terry 1952; Christiano et al. 2017, eq. 1).

    Args:
        winner_rewards, loser_rewards: (pairs,), summed over turns.

    """
    return -F.logsigmoid(winner_rewards - loser_rewards).mean()


def winner_term(winner_logps: Tensor, winner_lengths: Tensor) -> Tensor:
    """Negative log-likelihood of the winners per token (Pang et al. 2024, "Iterative Reasoning Preference
    Optimization", eq. 1), the mean over pairs of the sum over agents.

    Args:
        winner_logps: (agents, pairs).
        winner_lengths: (agents, pairs), scored tokens; an empty answer counts zero.

    """
    return -(winner_logps / winner_lengths.clamp(min=1)).sum(dim=0).mean()


@dataclass(frozen=True, slots=True)
class PreferenceLoss:
    """Which loss, with its constants; the default is the plain multi-agent DPO loss."""

    beta: float = 0.1
    loss_type: LossType = "sigmoid"
    label_smoothing: float = 0.0
    target_margin: float = 0.0
    length_normalization: bool = False
    winner_term_weight: float = 0.0
    reference_anchored: bool = False


class PairLogps(NamedTuple):
    """Log-probabilities and scored lengths of one minibatch, each (agents, pairs)."""

    winner: Tensor
    loser: Tensor
    winner_lengths: Tensor
    loser_lengths: Tensor


def pair_scores(logps: PairLogps, spec: PreferenceLoss, reference: PairLogps | None = None) -> tuple[Tensor, Tensor]:
    """What is compared of winner and loser: log π per agent and pair, each (agents, pairs).

    With ``reference`` that of the initial weights is subtracted (DPO, Rafailov et al. 2023, eq. 7); with
    ``length_normalization`` the rest is divided by its length (SimPO, eq. 4).
    """
    winner, loser = logps.winner, logps.loser
    if reference is not None:
        winner, loser = winner - reference.winner, loser - reference.loser
    if spec.length_normalization:
        winner = winner / logps.winner_lengths.clamp(min=1)
        loser = loser / logps.loser_lengths.clamp(min=1)
    return winner, loser


def pair_margins(logps: PairLogps, spec: PreferenceLoss, reference: PairLogps | None = None) -> Tensor:
    """Margins Δ_i per agent and pair, (agents, pairs): the winner's score minus the loser's."""
    winner, loser = pair_scores(logps, spec, reference)
    return winner - loser


def preference_loss(logps: PairLogps, spec: PreferenceLoss, reference: PairLogps | None = None) -> Tensor:
    """The loss that ``spec`` names, a scalar."""
    margins = pair_margins(logps, spec, reference)
    if spec.loss_type == "ipo":
        loss = ipo_loss(margins, spec.beta)
    else:
        loss = madpo_loss(margins, spec.beta, label_smoothing=spec.label_smoothing, target_margin=spec.target_margin)
    if spec.winner_term_weight:
        loss = loss + spec.winner_term_weight * winner_term(logps.winner, logps.winner_lengths)
    return loss


@torch.no_grad()
def preference_metrics(logps: PairLogps, spec: PreferenceLoss, reference: PairLogps | None = None) -> dict[str, float]:
    """What to watch: the names that people know from single-agent preference training.

    Joint values have no prefix, an agent's own values stand under ``agent_i/``. ``rewards/…`` are β times what the loss
    compares (implicit rewards: ``chosen − rejected = margins``), ``logps/…`` are sums over tokens, both means over
    pairs.
    """
    beta = spec.beta
    chosen, rejected = pair_scores(logps, spec, reference)
    margins = chosen - rejected
    joint = margins.sum(dim=0)
    metrics = {
        "rewards/margins": beta * joint.mean().item(),
        "rewards/accuracies": (joint > 0).float().mean().item(),
        "rewards/chosen": beta * chosen.sum(dim=0).mean().item(),
        "rewards/rejected": beta * rejected.sum(dim=0).mean().item(),
        "logps/chosen": logps.winner.sum(dim=0).mean().item(),
        "logps/rejected": logps.loser.sum(dim=0).mean().item(),
    }
    for agent, (own, winner, loser) in enumerate(zip(margins, logps.winner, logps.loser, strict=True)):
        metrics[f"agent_{agent}/rewards/margins"] = beta * own.mean().item()
        metrics[f"agent_{agent}/logps/chosen"] = winner.mean().item()
        metrics[f"agent_{agent}/logps/rejected"] = loser.mean().item()
    return metrics
