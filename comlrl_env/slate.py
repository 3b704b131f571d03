"""K joint candidates for one item, judged side by side on any ParallelEnv."""

from typing import Any

import msgspec
from gymnasium.utils.seeding import np_random
from pettingzoo import ParallelEnv

from comlrl_env.branches import Branch, CopiedBranch, ReplayedBranch, Texts, can_copy
from comlrl_env.candidates import Candidates, joint_responses
from comlrl_env.errors import ActionError
from comlrl_env.parallel import acting_agents, begin, read_prompts, scores_itself
from comlrl_env.shared_reward import RewardRule, check_rule, shared_score
from comlrl_env.types import Score


class SlateStep(msgspec.Struct, frozen=True):
    """K copies after one more turn, in the order of the candidates.

    ``scores``: raw shared scores of this turn, None for a copy whose episode was over before it. ``prompts``: what
    each agent of each copy reads next, empty where the episode is over.
    """

    scores: list[Score | None]
    prompts: list[Texts]

    @property
    def finished(self) -> bool:
        """Whether the episodes of all copies are over."""
        return not any(self.prompts)


class Slate:
    """K copies of one item stepped together.

    An environment that scores many candidates itself (a ``TextEnv``) is asked to; any other is branched once per
    candidate (see :mod:`comlrl_env.branches`; an environment that carries much data is copied faster when its
    ``__deepcopy__`` shares them). ``reward_rule``: how to combine rewards that differ between agents, None to refuse.
    """

    def __init__(self, env: ParallelEnv[str, Any, Any], reward_rule: RewardRule | None = None) -> None:
        check_rule(reward_rule)
        self.env = env
        self.reward_rule = reward_rule
        self._scores_itself = scores_itself(env)
        self._copies: bool | None = None
        self._seeds, _ = np_random()
        self._root: Branch | None = None
        self._branches: list[Branch] | None = None

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, dict[str, dict[str, Any]]]:
        """Begin an item: prompts and infos as the environment gives them.

        Raises TaskError when an observation is no text.
        """
        if seed is not None:
            self._seeds, _ = np_random(seed)
        elif self._copies is False:
            seed = self._draw_seed()
        observations, infos = begin(self.env, seed, options)
        if self._copies is None:
            self._copies = self._scores_itself or can_copy(self.env)
            if not self._copies and seed is None:  # the item must be found again, so it needs a seed
                seed = self._draw_seed()
                observations, infos = begin(self.env, seed, options)
        prompts = read_prompts(observations, acting_agents(self.env))
        self._branches = None
        if self._copies:
            self._root = CopiedBranch(self.env)
        else:
            self._root = ReplayedBranch(self.env, seed or 0, options, prompts)
        return prompts, infos

    def score(self, candidates: Candidates) -> list[Score]:
        """Raw scores of the candidates for the item's first turn; the item can be scored again afterwards.

        ``candidates``: for each agent its K texts; the k-th texts of all agents form joint response k. Raises
        ActionError for candidates of another form, RewardError as :func:`~comlrl_env.shared_reward.shared_score` does.
        """
        root = self._begun()
        joint = joint_responses(candidates, root.agents)
        if self._scores_itself:
            scores: list[Score] = self.env.score_candidates(joint)  # type: ignore[attr-defined] # asked for in __init__
            return scores
        return [self._advance(root.fork(), actions)[0] for actions in joint]

    def step(self, candidates: Candidates) -> SlateStep:
        """Advance all copies by one turn; the first step makes one copy per candidate, later ones need as many.

        Texts for copies whose episode is over, or for agents that no longer act in a copy, are not looked at.
        """
        if self._branches is None and self._scores_itself and self._is_single_turn():
            scores = self.score(candidates)
            self._root = None
            return SlateStep(list(scores), [{} for _ in scores])
        if self._branches is None:
            root = self._begun()
            joint = joint_responses(candidates, root.agents)
            branches = [root.fork() for _ in joint]
        else:
            branches = self._branches
            joint = joint_responses(candidates, self.agents)
            if len(joint) != len(branches):
                raise ActionError(f"candidates: expected {len(branches)} as in the first turn, actually {len(joint)}")
        self._branches = branches
        steps = [
            self._advance(branch, {agent: texts[agent] for agent in branch.agents}) if branch.agents else (None, {})
            for branch, texts in zip(branches, joint, strict=True)
        ]
        return SlateStep([score for score, _ in steps], [prompts for _, prompts in steps])

    def process(self, raw: float) -> float:
        """The raw score after the environment's reward processor; the same number where there is none."""
        if self._scores_itself:
            return float(self.env.process(raw))  # type: ignore[attr-defined] # comes with score_candidates
        return raw

    @property
    def agents(self) -> list[str]:
        """The agents that act next in at least one copy."""
        if self._branches is None:
            return list(self._root.agents) if self._root else []
        acting = {agent for branch in self._branches for agent in branch.agents}
        return [agent for agent in self.env.possible_agents if agent in acting]

    def _advance(self, branch: Branch, actions: Texts) -> tuple[Score, Texts]:
        acted = list(branch.agents)
        try:
            prompts, rewards, infos = branch.step(actions)
        except Exception as error:
            error.add_note(f"while the environment stepped with {actions!r}")
            raise
        if self._scores_itself:  # its rewards are processed already
            rewards = {agent: infos[agent]["raw_reward"] for agent in acted}
        return shared_score(rewards, infos, acted, self.reward_rule), prompts

    def _begun(self) -> Branch:
        if self._root is None:
            raise ActionError("slate: expected reset before candidates, actually no item has begun")
        return self._root

    def _is_single_turn(self) -> bool:
        return bool(self.env.task.num_turns == 1)  # type: ignore[attr-defined] # comes with score_candidates

    def _draw_seed(self) -> int:
        return int(self._seeds.integers(2**31))
