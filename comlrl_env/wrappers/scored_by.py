"""Another judge over an environment: a learned reward, a judge model, any function of prompts and answers."""

import copy
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.candidates import ScoreFunction, given_scores
from comlrl_env.errors import ConfigError
from comlrl_env.parallel import acting_agents, advance, begin, read_prompts
from comlrl_env.shared_reward import RewardRule, check_rule, shared_score

StepResult = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class ScoredBy(BaseParallelWrapper[str, Any, Any]):
    """``score(prompts, joint_responses)`` gives every turn's reward in place of the environment.

    For example ``ScoredBy(env, JointRewardModel.from_pretrained("runs/a/model/reward_model").judge)``. All agents get
    the same number, also as ``infos[agent]["raw_reward"]``. The environment still plays, and what it gave stands beside
    it: ``infos[agent]["task_reward"]``, which is also a part of the reward's components. A score of NaN is a failed
    one, like anywhere; infinite ones and a wrong number of scores raise RewardError. Copies of the environment share
    the score function.

    ``reward_rule``: how task rewards that differ between agents become one; None refuses them.
    """

    def __init__(
        self, env: ParallelEnv[str, Any, Any], score: ScoreFunction, reward_rule: RewardRule | None = None
    ) -> None:
        super().__init__(env)
        check_rule(reward_rule)
        if hasattr(score, "judge") or not callable(score):
            raise ConfigError(
                f"ScoredBy: score must be a function of prompts and joint responses, actually {type(score).__name__}; "
                "of a reward model give its judge: ScoredBy(env, model.judge)"
            )
        self.score = score
        self.reward_rule = reward_rule
        self._prompts: dict[str, str] = {}

    def __str__(self) -> str:
        """Not the environment's own name: what it gives is no longer the task's reward."""
        return f"ScoredBy({self.env})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "ScoredBy":
        twin = ScoredBy(copy.deepcopy(self.env, memo), self.score, self.reward_rule)
        twin._prompts = dict(self._prompts)
        return twin

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        observations, infos = begin(self.env, seed, options)
        self._prompts = read_prompts(observations, acting_agents(self.env))
        return observations, infos

    def step(self, actions: dict[str, Any]) -> StepResult:
        """Play one joint action; the score function judges it."""
        acted = acting_agents(self.env)
        asked = {agent: self._prompts[agent] for agent in acted}
        (judged,) = given_scores(self.score, asked, [{agent: actions[agent] for agent in acted}])
        assert judged is not None, "given_scores has a score, maybe a failed one, for every joint response"
        observations, rewards, terminations, truncations, infos = advance(self.env, actions)
        task = shared_score(rewards, infos, acted, self.reward_rule)
        self._prompts = read_prompts(observations, acting_agents(self.env))
        parts = {**task.parts, "task_reward": task.reward} if task.status == "ok" else dict(task.parts)
        own = {
            "raw_reward": judged.reward,
            "task_reward": task.reward,
            "reward_components": parts,
            "reward_status": judged.status,
            "reward_reason": judged.reason,
        }
        return (
            observations,
            dict.fromkeys(acted, judged.reward),
            terminations,
            truncations,
            {agent: {**infos.get(agent, {}), **own} for agent in acted},
        )
