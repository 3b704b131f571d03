"""PreferenceWrapper: from K texts per agent to scores and preference pairs, around any ParallelEnv.

>>> env = PreferenceWrapper(env, pair_selection="reward_gap", preference_pairs_per_sample=4)
>>> prompts, infos = env.reset(seed=0)
>>> _, rewards, _, _, infos = env.step({agent: ["one text", "another"] for agent in env.agents})
>>> infos[agent]["preferences"]  # index pairs, winner first, best pair first
[(1, 0)]
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.candidates import Candidate, Candidates, ScoreFunction, given_scores, joint_responses
from comlrl_env.errors import ActionError
from comlrl_env.pair_counts import PairCounts, count_comparisons, count_pool
from comlrl_env.selection import (
    Pair,
    PairSelection,
    Same,
    check_selection,
    select_comparisons,
    select_pairs,
)
from comlrl_env.shared_reward import RewardRule
from comlrl_env.slate import Slate

__all__ = ["PairCounts", "PairSelection", "PreferenceWrapper", "select_comparisons", "select_pairs"]

StepResult = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class PreferenceWrapper(BaseParallelWrapper[str, Any, Any]):
    """Judges several candidates per agent on the same item and says which joint response beats which.

    An action of an agent is a list of K texts; the k-th texts of all agents form joint response k. ``reset`` is that
    of the environment. ``step`` compares the K candidates with each other, ``compare`` those of the team with those
    of a comparator, index by index. Both return the usual five:

    - observations: the prompts again when the episode is over, else for each agent a tuple with one prompt per
      candidate (the team's, then the comparator's), to be answered in this order;
    - rewards: the mean processed score of the (team's) candidates in this turn, the same for every agent; NaN where
      the oracle could score none;
    - infos of every agent: ``candidate_rewards`` (processed returns, NaN for a candidate that could not be scored),
      ``raw_candidate_rewards``, ``candidate_statuses``, ``candidate_scores`` (this turn's scores); after ``compare``
      the same four for the comparator (``comparator_rewards``, ``raw_comparator_rewards``, ``comparator_statuses``,
      ``comparator_scores``); when the episode is over ``preferences`` (see :mod:`comlrl_env.selection`) and
      ``pair_counts``, before that no pair and None.

    ``pair_selection`` and ``preference_pairs_per_sample``: which pairs, and how many of an item (None: all of them).
    ``reward_rule``: how to combine rewards that differ between agents; None refuses them with RewardError.
    ``seed``: of the stream that ``"random"`` selection draws from when a call brings none.

    Raises ConfigError at construction for illegal values and combinations.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        pair_selection: PairSelection = "reward_gap",
        preference_pairs_per_sample: int | None = 16,
        reward_rule: RewardRule | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(env)
        check_selection(pair_selection, preference_pairs_per_sample)
        self.pair_selection = pair_selection
        self.preference_pairs_per_sample = preference_pairs_per_sample
        self.agents: list[str] = []
        self._slate = Slate(env, reward_rule)
        self._rng = np.random.default_rng(seed)
        self._prompts: dict[str, str] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._candidates: list[Candidate] = []
        self._first_side: int | None = None

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Begin an item as the environment does."""
        self._prompts, self._infos = self._slate.reset(seed=seed, options=options)
        self.agents = list(self._prompts)
        self._candidates = []
        self._first_side = None
        return dict(self._prompts), dict(self._infos)

    def step(
        self,
        actions: Candidates,
        *,
        rng: np.random.Generator | None = None,
        score: ScoreFunction | None = None,
        same_tokens: Same | None = None,
    ) -> StepResult:
        """Judge K candidates per agent and pair them with each other.

        ``rng``: the stream for ``"random"`` selection. ``score(prompts, joint_responses)``: takes the place of the
        environment's own score (NaN: could not be scored) and ends the episode with this turn. ``same_tokens(i, j)``:
        says of two candidates with different texts that they are the same all the same.

        Raises ActionError for candidates of another form, ConfigError for ``comparator_reward`` selection.
        """
        check_selection(self.pair_selection, self.preference_pairs_per_sample, two_sides=False)
        return self._judge(actions, None, rng, score, same_tokens)

    def compare(
        self,
        current: Candidates,
        comparator: Candidates,
        *,
        rng: np.random.Generator | None = None,
        score: ScoreFunction | None = None,
        same_tokens: Same | None = None,
    ) -> StepResult:
        """Judge the team's candidates against a comparator's; the counts of the two sides may differ.

        ``preferences`` count through the team's candidates and then the comparator's. Arguments and errors are those
        of :meth:`step`.
        """
        return self._judge(current, comparator, rng, score, same_tokens)

    def _judge(
        self,
        current: Candidates,
        comparator: Candidates | None,
        rng: np.random.Generator | None,
        score: ScoreFunction | None,
        same_tokens: Same | None,
    ) -> StepResult:
        if not self.agents:
            raise ActionError("PreferenceWrapper: expected reset before candidates, actually no episode is going on")
        acted = self.agents
        first = len(joint_responses(current, acted))
        both = current if comparator is None else _joined(current, comparator, acted)
        count = len(both[acted[0]])
        side = None if comparator is None else first
        if not self._candidates:
            self._candidates, self._first_side = [Candidate() for _ in range(count)], side
        elif (len(self._candidates), self._first_side) != (count, side):
            raise ActionError(
                f"candidates: expected as many on each side as in the first turn, actually {first} of {count} "
                f"after {self._first_side} of {len(self._candidates)}"
            )
        observations = self._score_turn(both, score)
        over = not self.agents
        pairs, counts = self._choose(rng, same_tokens) if over else ([], None)
        reward = _mean(candidate.turn_reward for candidate in self._candidates[:first])
        info = {**self._report(first, comparator is not None), "preferences": pairs, "pair_counts": counts}
        return (
            observations,
            dict.fromkeys(acted, reward),
            {agent: agent not in self.agents for agent in acted},
            dict.fromkeys(acted, False),
            {agent: {**self._infos.get(agent, {}), **info} for agent in acted},
        )

    def _score_turn(self, both: Candidates, score: ScoreFunction | None) -> dict[str, Any]:
        """Score every candidate's turn, note it, and return what the agents read next."""
        joint = joint_responses(both, self.agents)
        if score is None:
            turn = self._slate.step(both)
            scores, prompts = turn.scores, turn.prompts
        else:
            if self._candidates[0].texts:
                raise ActionError("score=: expected a function for the only turn of an episode, actually a later turn")
            scores, prompts = given_scores(score, self._prompts, joint), [{} for _ in joint]
        process = self._slate.process if score is None else None
        for candidate, turn_score, texts in zip(self._candidates, scores, joint, strict=True):
            candidate.add_turn(turn_score, tuple(texts.values()), process)
        if not any(prompts):
            self.agents = []
            return dict(self._prompts)
        self.agents = self._slate.agents
        return {agent: tuple(copy.get(agent, "") for copy in prompts) for agent in self.agents}

    def _choose(self, rng: np.random.Generator | None, same_tokens: Same | None) -> tuple[list[Pair], PairCounts]:
        returns = [candidate.processed for candidate in self._candidates]
        texts = [candidate.texts for candidate in self._candidates]
        dropped: set[frozenset[int]] = set()

        def same(winner: int, loser: int) -> bool:
            if texts[winner] == texts[loser]:
                return True
            if same_tokens is None or not same_tokens(winner, loser):
                return False
            dropped.add(frozenset((winner, loser)))
            return True

        mode, limit, rng = self.pair_selection, self.preference_pairs_per_sample, rng or self._rng
        side = self._first_side
        if side is None:
            pairs = select_pairs(returns, mode, limit, rng, same=same)
            return pairs, count_pool(returns, texts, pairs, len(dropped))
        pairs = select_comparisons(returns[:side], returns[side:], mode, limit, rng, same=same)
        return pairs, count_comparisons(returns, texts, side, pairs, len(dropped))

    def _report(self, first: int, two_sides: bool) -> dict[str, Any]:
        """The per-candidate lists of the infos, in the names of the class's page."""
        sides = {"candidate_": self._candidates[:first]}
        if two_sides:
            sides["comparator_"] = self._candidates[first:]
        report: dict[str, Any] = {}
        for name, side in sides.items():
            report[f"{name}rewards"] = [candidate.processed for candidate in side]
            report[f"raw_{name}rewards"] = [candidate.raw for candidate in side]
            report[f"{name}statuses"] = [candidate.status for candidate in side]
            report[f"{name}scores"] = [candidate.score for candidate in side]
        return report


def _joined(current: Candidates, comparator: Candidates, agents: Sequence[str]) -> dict[str, list[str]]:
    joint_responses(comparator, agents)
    return {agent: [*current[agent], *comparator[agent]] for agent in agents}


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
