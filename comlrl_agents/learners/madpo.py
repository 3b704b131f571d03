"""MADPO: multi-agent direct preference optimisation (ALGORITHMS 8).

The joint margin is the sum of the agents' margins, so the loss of a pair needs one number from each agent and gives
one weight back. An update is therefore: every agent scores its own winner and loser tokens, the margins are added,
the loss is differentiated on that tiny table, and each agent backpropagates its own sequences with its own weights.

Logged per update: ``loss``; ``rewards/{chosen,rejected,margins,accuracies}``, ``logps/{chosen,rejected}`` (joint, and
per agent under ``agent_i/``); ``grad_norm``, ``learning_rate``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from comlrl_agents.concurrency import for_each_agent
from comlrl_agents.head import gradients_in_place
from comlrl_agents.logprobs import backward_weighted
from comlrl_agents.losses import PairLogps, PreferenceLoss, preference_loss, preference_metrics
from comlrl_agents.optimisation import Optimisation, TeamOptimizer, distinct_modules
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.sequences import AgentSequences, agent_sequences
from comlrl_env.errors import TrainingError
from comlrl_env.types import PreferencePair


class MADPO:
    """The learner of a team; agents that share one model share its optimizer, their gradients add up."""

    def __init__(
        self,
        policies: Sequence[LLMPolicy],
        loss: PreferenceLoss,
        optimisation: Optimisation,
        reference_policies: Sequence[LLMPolicy] | None = None,
    ) -> None:
        self.policies = list(policies)
        self.loss = loss
        self.optimisation = optimisation
        self.reference_policies = reference_policies
        self.optimizer = TeamOptimizer(distinct_modules(self.policies), optimisation)

    def learn(self, pairs: Sequence[PreferencePair], progress: float = 0.0) -> dict[str, float]:
        """One optimizer step over ``pairs`` as one minibatch; returns the statistics of this update.

        Args:
            pairs: the minibatch.
            progress: how much of the run is done, in [0, 1], for the learning-rate schedule.

        Raises:
            TrainingError: a log-probability, the loss or a gradient is not finite; no weight has changed then.

        """
        self.optimizer.clear_gradients()
        batch = [agent_sequences(pairs, agent, policy) for agent, policy in enumerate(self.policies)]
        micro_batched = self.optimisation.micro_batch_tokens is not None
        models = [policy.model for policy in self.policies]

        def score(agent: int) -> Tensor:
            with torch.set_grad_enabled(not micro_batched), gradients_in_place():  # both are matters of each thread
                return self._score(self.policies[agent], batch[agent])

        rows = for_each_agent(score, models, concurrent=self.optimisation.concurrent)
        reference = self._reference_logps(batch)

        table = [row.detach().float().cpu().requires_grad_() for row in rows]
        logps = _pair_logps(batch, table, self.optimisation.score_final_token)
        self._refuse_non_finite(logps, pairs)
        loss = preference_loss(logps, self.loss, reference)
        # ∂loss/∂log π of every sequence: −η σ(−ηΔ)/P for a winner, + for a loser, and whatever a variant adds.
        weights = torch.autograd.grad(loss, table)

        def backward(agent: int) -> None:
            if not micro_batched:
                row = rows[agent]
                row.backward(weights[agent].to(row.device))  # type: ignore[no-untyped-call]  # torch's own annotation
                return
            with self.policies[agent].computing():
                backward_weighted(
                    models[agent],
                    batch[agent].prompt_ids,
                    batch[agent].completion_ids,
                    weights[agent],
                    micro_batch_tokens=self.optimisation.micro_batch_tokens,
                    score_final_token=self.optimisation.score_final_token,
                )

        for_each_agent(backward, models, concurrent=self.optimisation.concurrent)
        stats = {"loss": loss.item(), **preference_metrics(logps, self.loss, reference)}
        return stats | self.optimizer.step(progress)

    def state_dict(self) -> dict[str, Any]:
        """The optimizers; the weights belong to the policies."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.optimizer.load_state_dict(state)

    def _score(self, policy: LLMPolicy, own: AgentSequences) -> Tensor:
        return policy.sequence_logprobs(
            own.prompt_ids,
            own.completion_ids,
            micro_batch_tokens=self.optimisation.micro_batch_tokens,
            score_final_token=self.optimisation.score_final_token,
        )

    @torch.no_grad()
    def _reference_logps(self, batch: Sequence[AgentSequences]) -> PairLogps | None:
        if self.reference_policies is None:
            return None
        rows = [
            self._score(policy, own).float().cpu() for policy, own in zip(self.reference_policies, batch, strict=True)
        ]
        return _pair_logps(batch, rows, self.optimisation.score_final_token)

    def _refuse_non_finite(self, logps: PairLogps, pairs: Sequence[PreferencePair]) -> None:
        for side, values in (("winner", logps.winner), ("loser", logps.loser)):
            bad = torch.nonzero(~torch.isfinite(values))
            if len(bad):
                agent, pair = bad[0].tolist()
                raise TrainingError(
                    f"agent {agent}: the log-probability of the {side} of item {pairs[pair].item_key!r} must be "
                    f"finite, actually {values[agent, pair].item()}; lower agent_learning_rate, or look at the "
                    "weights and at this pair in the round's file"
                )


def _pair_logps(batch: Sequence[AgentSequences], rows: Sequence[Tensor], score_final_token: bool) -> PairLogps:
    sides = [own.per_side(row) for own, row in zip(batch, rows, strict=True)]
    lengths = [own.lengths(score_final_token) for own in batch]
    return PairLogps(
        torch.stack([winner for winner, _ in sides]),
        torch.stack([loser for _, loser in sides]),
        torch.stack([winner for winner, _ in lengths]),
        torch.stack([loser for _, loser in lengths]),
    )
