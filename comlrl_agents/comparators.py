"""The other side of each comparison in iterative training (ALGORITHMS 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_history import PolicyHistory
from comlrl_agents.types import Policy

ComparatorName = Literal["current", "history"]


@dataclass(frozen=True, slots=True)
class ComparatorRule:
    """Who answers on the other side, and how many candidates it gives per item."""

    policy: ComparatorName = "current"
    num_candidates: int = 20
    history_k: int = 1


class Comparator:
    """Hands out one policy per agent for a round; everything it loads is loaded once per round."""

    def __init__(self, rule: ComparatorRule, team: Sequence[LLMPolicy], history: PolicyHistory) -> None:
        self.rule = rule
        self._team = team
        self._history = history

    def policies(self, iteration: int) -> Sequence[Policy]:
        """The comparator's policies in round ``iteration`` (1-based).

        ``current``: the live team. ``history``: the policies that the team had ``history_k`` rounds ago; after round
        ν−1 the live policy is number ν−1, so this is number ν−1−k, and the initial policy (number 0) until it exists.
        """
        if self.rule.policy == "current":
            return self._team
        return self._history.load(max(0, iteration - 1 - self.rule.history_k))
