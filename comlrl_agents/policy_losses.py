"""Learning from returns: pure functions of rewards, log-probabilities and values (ALGORITHMS 10 and 11).

A group is the G joint responses k that a team gave to one item; all agents share its advantages unless a reference
term makes their returns differ.
"""

from typing import Literal

import torch
from torch import Tensor

GroupBaseline = Literal["magrpo", "mareinforce", "marloo", "maremax"]

LEAST_STD = 1e-6


def group_advantages(returns: Tensor, baseline: GroupBaseline, normalize: bool = False) -> Tensor:
    """How much better each response was than its group expects, (…, G) like ``returns``.

    ``magrpo``: R − mean (Shao et al. 2024, DeepSeekMath, section 4.1, for teams). ``mareinforce``: R. ``marloo``: R −
    mean of the others (Kool et al. 2019, eq. 8). ``maremax``: R − max (ReMax, Li et al. 2023, whose greedy baseline
    is replaced by the best of the group). ``normalize``: see :func:`standardised`; it makes the four identical.
    """
    mean = returns.mean(-1, keepdim=True)
    if baseline == "magrpo":
        advantages = returns - mean
    elif baseline == "marloo":
        size = returns.shape[-1]
        advantages = (returns - mean) * (size / (size - 1))  # R − (Σ − R)/(G−1) = G/(G−1)·(R − mean)
    elif baseline == "maremax":
        advantages = returns - returns.amax(-1, keepdim=True)
    else:
        advantages = returns
    return standardised(advantages) if normalize else advantages


def standardised(values: Tensor) -> Tensor:
    """(x − mean) / max(population standard deviation, 1e-6) over the last dimension."""
    std = values.std(-1, keepdim=True, correction=0)
    return (values - values.mean(-1, keepdim=True)) / std.clamp(min=LEAST_STD)


def policy_gradient_loss(logps: Tensor, advantages: Tensor) -> Tensor:
    """−(1/G) Σ_k A_k Σ_t log π: the mean of −A·log π over all responses; both (N,), the advantages constant."""
    return -(advantages * logps).mean()


def clipped_policy_loss(logps: Tensor, old_logps: Tensor, mask: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """−(1/G) Σ_k Σ_t min(ρ A, clip(ρ, 1 ± ε) A) with ρ = exp(log π − log π_old) (PPO, Schulman et al. 2017, eq. 7).

    ``logps``, ``old_logps`` and the bool ``mask`` of real tokens: (N, T); ``advantages``: (N,). At ρ = 1 its gradient
    is that of :func:`policy_gradient_loss`.
    """
    ratio = torch.exp((logps - old_logps).masked_fill(~mask, 0.0))
    own = advantages[:, None]
    worst = torch.minimum(ratio * own, ratio.clamp(1 - clip, 1 + clip) * own)
    return -(worst * mask).sum(1).mean()


def clipped_tokens(logps: Tensor, old_logps: Tensor, mask: Tensor, clip: float) -> Tensor:
    """Which tokens' ratio to the old probability lies outside of 1 ± clip, bool (N, T); arguments as above."""
    return ((logps - old_logps).masked_fill(~mask, 0.0).exp() - 1).abs() > clip


def reference_kl(logps: Tensor, reference_logps: Tensor, mask: Tensor) -> Tensor:
    """Σ_t (e^d − d − 1) with d = log π_ref − log π, per response (N,) from tokens (N, T).

    An unbiased, never negative estimate of KL(π ‖ π_ref) from samples of π (Schulman 2020, "Approximating KL
    divergence", k3).
    """
    difference = (reference_logps - logps).masked_fill(~mask, 0.0)
    return (difference.exp() - difference - 1.0).sum(1)


def shaped_returns(rewards: Tensor, divergences: Tensor, coefficient: float) -> Tensor:
    """Rewards minus coefficient × KL: an agent's return, before any baseline."""
    return rewards - coefficient * divergences


def value_loss(values: Tensor, targets: Tensor, old_values: Tensor | None = None, clip: float | None = None) -> Tensor:
    """Mean squared error of predicted returns, all (N,).

    With ``clip`` an update may not gain from moving a value further than that from ``old_values``: the larger of the
    plain and of the clipped error counts (PPO's implementation, Engstrom et al. 2020, section 3, item 1).
    """
    errors = (values - targets).square()
    if clip is None or old_values is None:
        return errors.mean()
    near = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(errors, (near - targets).square()).mean()
