"""Policy learning as part of a trainer's loop: epochs over items, each sampled anew, scored and learned from.

Logged beside the learner's figures: ``rollout/reward_mean``, ``rollout/reward_std`` (of the rewards that are learned
from), ``completions/…`` and ``agent_i/…`` as in collection, ``oracle/error_rate``. Where a learned reward is learned
from, the latest ``task_reward_samples`` joint responses behind each logged line are scored by the task as well:
``reward_check/learned_mean``, ``reward_check/task_mean`` and, of four or more where neither is constant,
``reward_check/correlation``. A learned reward that rises while the task's does not is being deceived. Nothing is
learned from these scores, and like those of evaluation they are not in ``env_step``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from comlrl_agents.items import Reset
from comlrl_agents.placement import per_agent, pick_device
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_gradient import Experience
from comlrl_agents.policy_window import Window, beside_the_task, sample_row
from comlrl_agents.progress import phase_shown
from comlrl_agents.replay import PairSample
from comlrl_agents.rollouts import Group, Scorer, TaskReward, sample_groups
from comlrl_env.errors import TrainingError

if TYPE_CHECKING:
    from comlrl_agents.config import PolicyFields
    from comlrl_agents.trainer import Trainer


class PolicyLearner(Protocol):
    """A back end."""

    least_group: int
    references: Sequence[LLMPolicy] | None

    def assess(self, groups: Sequence[Group]) -> list[Experience]:
        """Advantages of a buffer under the weights that sampled it."""

    def learn(self, batch: Sequence[Experience], progress: float = 0.0) -> dict[str, float]:
        """One update over a minibatch."""

    def state_dict(self) -> dict[str, Any]:
        """Optimizers and critics."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""

    def save_critics(self, folder: Path) -> None:
        """Write the critics, if there are any."""

    def describe_critics(self) -> list[str]:
        """Each critic in words."""


class PolicyEpochs:
    """``num_train_epochs`` over the round's items.

    ``compared_samples``: how many joint responses per logged line the task scores beside the reward that is learned
    from; None: the reward is the task's own, and is logged under its name.
    """

    def __init__(
        self, run: "Trainer", args: "PolicyFields", learner: PolicyLearner, compared_samples: int | None
    ) -> None:
        self.run = run
        self.args = args
        self.learner = learner
        self.compared_samples = compared_samples
        self.task_reward = TaskReward(run.env, run.reward_rule)
        named = args.reference_devices
        self._reference_devices = None
        if named is not None:
            names = per_agent(named, len(run.policies), "reference_devices")
            self._reference_devices = [pick_device(name, "reference_devices").value for name in names]

    def learn_from(self, score: Scorer, save: Callable[[], Path]) -> None:
        """The epochs that are left of this round; ``save`` writes a checkpoint."""
        progress = self.run.progress
        if self.args.reference_kl_enabled:
            self.learner.references = self.run.history.load(0, self._reference_devices)
        while progress.epoch < self.args.num_train_epochs:
            with self.run.timed("policy"):
                self._epoch(score)
            progress.epoch += 1
            if self.args.num_train_epochs > 1 and progress.epoch % self.args.checkpoint_interval == 0:
                save()
        self.learner.references = None
        for policy in self.run.policies:
            # On a GPU this makes room for the next reward model's. On a CPU it would be memory to touch anew.
            if policy.device.type != "cpu":
                policy.model.zero_grad(set_to_none=True)

    def fingerprint(self) -> dict[str, Any]:
        """What a run that goes on must have begun with."""
        return {"critics": self.learner.describe_critics()}

    def save_model(self, folder: Path) -> None:
        """The critics, if there are any."""
        self.learner.save_critics(folder)

    def state_dict(self) -> dict[str, Any]:
        """The learner's state; the weights belong to the policies."""
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.learner.load_state_dict(state)

    def _epoch(self, score: Scorer) -> None:
        run, progress = self.run, self.run.progress
        resets = progress.resets()
        order = run.streams["policy_shuffle"].permutation(len(resets))
        window, judged, failed = Window(), 0, 0
        for start in range(0, len(order), self.args.rollout_buffer_size):
            buffer = [resets[int(i)] for i in order[start : start + self.args.rollout_buffer_size]]
            groups = self._rollout(buffer, score, window)
            window.groups += groups
            share = (progress.epoch + start / len(order)) / self.args.num_train_epochs
            self._update(groups, (progress.round - 1 + share) / self.args.rounds, window)
            seen = progress.items_seen
            progress.items_seen += len(buffer)
            latest = window.latest_reward
            last = start + len(buffer) >= len(order)
            if last or len(window.updates) >= self.args.logging_steps:
                judged, failed = judged + len(window.rewards), failed + window.failed
                if last and not judged:
                    raise TrainingError(
                        f"rewards: all {failed} joint responses of an epoch failed to be scored, so nothing can be "
                        "learned; see the environment's reward_reason"
                    )
                self._log(window, last=last)
                window = Window()
            phase = phase_shown("policy", progress.epoch, self.args.num_train_epochs)
            reward = {"reward" if self.compared_samples is None else "learned reward": latest}
            run.tracker.progress(progress.round, self.args.rounds, phase, start + len(buffer), len(order), **reward)
            if progress.items_seen // self.args.eval_interval > seen // self.args.eval_interval:
                run.log_evaluation()

    def _rollout(self, buffer: Sequence[Reset], score: Scorer, window: Window) -> list[Group]:
        run = self.run
        began = perf_counter()
        rngs = [run.streams[f"rollout/{agent}"] for agent in run.agents]
        mp = self.args.parallel_training == "mp"
        sampled = sample_groups(run.env, buffer, run.policies, rngs, self.args.num_generations, concurrent=mp)
        scoring = perf_counter()
        groups = [group.scored(rewards) for group, rewards in zip(sampled, score(sampled), strict=True)]
        scored = sum(len(group.rewards) for group in groups)
        run.progress.env_steps += scored
        run.progress.task_steps += scored if self.compared_samples is None else 0
        window.add_rollout(groups, scoring - began, perf_counter() - scoring)
        return [group for group in (g.judged() for g in groups) if len(group.rewards) >= self.learner.least_group]

    def _update(self, groups: Sequence[Group], progress: float, window: Window) -> None:
        began = perf_counter()
        experiences = self.learner.assess(groups) if groups else []
        for _ in range(self.args.ppo_epochs):
            for start in range(0, len(experiences), self.args.batch_size):
                batch = experiences[start : start + self.args.batch_size]
                size = sum(len(experience.group.rewards) for experience in batch)
                window.updates.append((size, self.learner.learn(batch, progress)))
                self.run.progress.updates += 1
        window.seconds["update"] += perf_counter() - began

    def _log(self, window: Window, *, last: bool) -> None:
        run, rows = self.run, [sample_row(group) for group in window.groups[-4:]]
        metrics, compared = window.metrics(), dict[str, float]()
        if self.compared_samples is None and window.rewards:
            metrics["turn_1/reward_mean"] = metrics["rollout/reward_mean"]
            metrics["turn_1/expected_return"] = metrics.get("rollout/return_mean", metrics["rollout/reward_mean"])
        elif self.compared_samples and window.groups:
            compared, rows = beside_the_task(window.groups, self.task_reward, self.compared_samples)
        if last:  # once per epoch: it reads the initial weights
            metrics |= run.drift(window.samples)
        run.log(metrics | compared, show=last and bool(compared))
        run.tracker.log_time(run.progress.updates, window.seconds)
        run.tracker.log_samples(
            run.progress.updates, [{"round": run.progress.round, "phase": "policy", **row} for row in rows[:4]]
        )


class TaskPolicyEpochs(PolicyEpochs):
    """The learning half of a run that learns from the task's own reward."""

    measures_drift = True

    def __init__(self, run: "Trainer", args: "PolicyFields", learner: PolicyLearner) -> None:
        super().__init__(run, args, learner, compared_samples=None)

    def prepare(self) -> None:
        """Nothing is needed from the run folder."""

    def learn(self, sample: PairSample, save: Callable[[], Path]) -> None:
        """What is left of the run; there are no pairs in ``sample``."""
        self.learn_from(self.task_reward, save)
