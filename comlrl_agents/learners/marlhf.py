"""Fitting a joint reward model to preferences: the first half of MARLHF (ALGORITHMS 9).

Logged per update: ``reward_model/loss`` (Bradley–Terry), ``reward_model/accuracy`` (share of pairs whose winner gets
the higher reward), ``reward_model/margin`` (mean difference), ``reward_model/mean`` (of all rewards),
``reward_model/grad_norm``; the first three for held-out pairs under ``reward_model/held_out_…``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from comlrl_agents.head import gradients_in_place
from comlrl_agents.losses import bradley_terry_loss
from comlrl_agents.optimisation import Optimisation, TeamOptimizer
from comlrl_agents.reward_model import JointRewardModel
from comlrl_agents.reward_text import Joint
from comlrl_agents.scalar_model import lookups
from comlrl_env.errors import TrainingError
from comlrl_env.types import JointTurn, PreferencePair

_EMPTY = 8

_CENTRED_ON = 128
"""Pairs whose mean reward becomes 0: of 256 joint responses its standard error is a sixteenth of their spread."""


@dataclass(frozen=True, slots=True)
class RewardFitRule:
    """How a reward model is fitted; ``held_out_share``: the share of items whose pairs only measure."""

    learning_rate: float = 1e-5
    num_epochs: int = 1
    batch_size: int = 1
    max_length: int | None = None
    freeze_backbone: bool = False
    held_out_share: float = 0.1
    max_grad_norm: float | None = 1.0
    micro_batch_tokens: int | None = None


class RewardFit:
    """The learner of a reward model; drop it, and its optimizer state is gone."""

    def __init__(self, model: JointRewardModel, rule: RewardFitRule) -> None:
        self.model = model
        self.rule = rule
        model.backbone.requires_grad_(not rule.freeze_backbone)
        model.head.requires_grad_(True)
        self.optimizer = TeamOptimizer(
            {0: model},
            Optimisation(learning_rate=rule.learning_rate, max_grad_norm=rule.max_grad_norm),
            who="reward model",
            rate_field="reward_learning_rate",
            lookups=lookups({0: model}),
        )

    def learn(self, pairs: Sequence[PreferencePair]) -> dict[str, float]:
        """One optimizer step over ``pairs`` as one minibatch; returns the statistics of this update.

        Raises:
            TrainingError: a reward or a gradient is not finite; no weight has changed then.

        """
        self.optimizer.clear_gradients()
        budget = self.rule.micro_batch_tokens
        rows = self.model.encode([text for text, _ in _sides(pairs)])
        with torch.set_grad_enabled(budget is None), gradients_in_place():
            values = self.model.values(rows, budget)
        table = values.detach().cpu().requires_grad_()
        winners, losers = _per_side(pairs, table)
        _refuse_non_finite(pairs, winners, losers)
        loss = bradley_terry_loss(winners, losers)
        (weights,) = torch.autograd.grad(loss, table)
        if budget is None:
            values.backward(weights.to(values.device))  # type: ignore[no-untyped-call]  # torch's own annotation
        else:
            self.model.backward_weighted(rows, weights, budget)
        stats = {f"reward_model/{name}": value for name, value in _metrics(winners, losers).items()}
        stats["reward_model/mean"] = table.mean().item()
        return stats | {"reward_model/grad_norm": self.optimizer.step(0.0)["grad_norm"]}

    @torch.no_grad()
    def centre(self, pairs: Sequence[PreferencePair]) -> None:
        """Move all rewards so that those of ``pairs`` (of 128 spread evenly over them) are 0 on average, as Ouyang et
        al. 2022 do (section 3.5).

        The loss sees differences only and leaves the zero anywhere, but a policy without a baseline of its own
        (``mareinforce``) is pushed away from every answer that lies below it.

        Raises:
            TrainingError: a reward is not finite.

        """
        pairs = pairs[:: -(-len(pairs) // _CENTRED_ON)]  # one item's pairs stand side by side
        values = self.model.rewards([text for text, _ in _sides(pairs)], self.rule.micro_batch_tokens)
        _refuse_non_finite(pairs, *_per_side(pairs, values.cpu()))
        self.model.head.bias.sub_(values.mean())

    @torch.no_grad()
    def measure(self, pairs: Sequence[PreferencePair]) -> dict[str, float]:
        """Loss, accuracy and margin on pairs that are not learned from; {} without any."""
        if not pairs:
            return {}
        values = self.model.rewards([text for text, _ in _sides(pairs)], self.rule.micro_batch_tokens).cpu()
        winners, losers = _per_side(pairs, values)
        found = _metrics(winners, losers) | {"pairs": float(len(pairs))}
        return {f"reward_model/held_out_{name}": value for name, value in found.items()}

    @torch.no_grad()
    def worth_of_nothing(self, pairs: Sequence[PreferencePair]) -> dict[str, float]:
        """The mean reward of answers that are all empty, to the first eight different prompts of the pairs.

        After :meth:`centre` real answers are worth 0 on average; where this is far above, silence deceives the model.
        """
        asked = list(dict.fromkeys(turn.prompts for pair in pairs for turn in pair.winner))[:_EMPTY]
        values = self.model.rewards([(prompts, [""] * len(prompts)) for prompts in asked], self.rule.micro_batch_tokens)
        return {"reward_model/empty_mean": values.mean().item()}


def _sides(pairs: Sequence[PreferencePair]) -> Iterator[tuple[Joint, int]]:
    """Every turn of both sides with its slot: 2·pair for the winner's side, 2·pair + 1 for the loser's."""
    for index, pair in enumerate(pairs):
        for side, turns in enumerate((pair.winner, pair.loser)):
            for turn in turns:
                yield _text(turn), 2 * index + side


def _text(turn: JointTurn) -> Joint:
    return turn.prompts, turn.texts


def _per_side(pairs: Sequence[PreferencePair], values: Tensor) -> tuple[Tensor, Tensor]:
    slots = torch.tensor([slot for _, slot in _sides(pairs)])
    sums = values.new_zeros(2 * len(pairs)).index_add(0, slots, values)
    return sums[0::2], sums[1::2]


@torch.no_grad()
def _metrics(winners: Tensor, losers: Tensor) -> dict[str, float]:
    return {
        "loss": bradley_terry_loss(winners, losers).item(),
        "accuracy": (winners > losers).float().mean().item(),
        "margin": (winners - losers).mean().item(),
    }


def _refuse_non_finite(pairs: Sequence[PreferencePair], winners: Tensor, losers: Tensor) -> None:
    bad = torch.nonzero(~torch.isfinite(winners - losers))
    if len(bad):
        at = int(bad[0])
        raise TrainingError(
            f"reward model: the rewards of item {pairs[at].item_key!r} must be finite, actually {winners[at].item()} "
            f"and {losers[at].item()}; lower reward_learning_rate, or look at the weights it starts from"
        )
