"""The trainers: what each makes of the loop (:mod:`comlrl_agents.trainer`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comlrl_agents.collect import Collection, collect
from comlrl_agents.comparators import Comparator, open_comparator
from comlrl_agents.config import (
    MADPOConfig,
    MADPOIterConfig,
    MARLHFConfig,
    MARLHFIterConfig,
    PreferenceConfig,
    RLConfig,
    TeamConfig,
)
from comlrl_agents.given_pairs import GivenPairs
from comlrl_agents.items import Reset
from comlrl_agents.player_policy import with_players
from comlrl_agents.policy_epochs import PolicyEpochs, TaskPolicyEpochs
from comlrl_agents.policy_learners import make_policy_learner
from comlrl_agents.preference_epochs import PreferenceEpochs
from comlrl_agents.progress import RunState
from comlrl_agents.replay import PairSample
from comlrl_agents.reward_then_policy import RewardThenPolicy
from comlrl_agents.sides import CandidateSource, Side
from comlrl_agents.team import check_frozen, load_frozen, refuse_shared
from comlrl_agents.trainer import Trainer, refuse_greedy
from comlrl_agents.types import Policy
from comlrl_env.candidates import ScoreFunction
from comlrl_env.errors import ConfigError
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.types import PreferencePair


class PreferenceTrainer(Trainer):
    """Collects preferences between joint responses; its subclasses learn from them.

    Args:
        comparator_agents: for ``comparator_policy="model"``: model objects or policies of any kind, one per agent,
            in place of the names that the configuration would give.
        pairs: a folder of pairs to train from in place of collecting any; in rounds, its files are the rounds. The
            others as for the base.

    """

    config_class: type[TeamConfig] = PreferenceConfig
    args: PreferenceConfig

    def __init__(
        self, *arguments: Any, comparator_agents: Any = None, pairs: str | Path | None = None, **named: Any
    ) -> None:
        self._comparator_agents, self._pairs = comparator_agents, pairs
        super().__init__(*arguments, **named)
        self.wrapper = PreferenceWrapper(
            self.env,
            pair_selection=self.args.pair_selection,
            preference_pairs_per_sample=self.args.preference_pairs_per_sample,
            reward_rule=self.reward_rule,
        )
        self.comparator = self._make_comparator()

    def _check_args(self) -> None:
        _check_comparator(self.args, self._comparator_agents)
        self._comparator_models = self._seat_players()
        if self._pairs is not None:
            self.given = GivenPairs(self._pairs, self.args.num_actors, self.args.rounds)
        elif self.args.comparator is None or self.args.comparator.policy in ("current", "current_copy", "history"):
            refuse_greedy(self.args, "answers that are all alike make no pair")

    def _seat_players(self) -> Any:
        """The comparator's models by name, as objects or as policies, with policies in place of players' names."""
        rule = self.args.comparator
        if rule is None:
            return None
        named = rule.models if self._comparator_agents is None else self._comparator_agents
        self._comparator_field = "comparator_model_name" if isinstance(rule.models, str) else "comparator_agents"
        models = with_players(named, self.env, self._comparator_field)
        if rule.centralized and models is not named:
            raise ConfigError(
                "comparator_generation_mode: a scripted player answers for one agent, so it must be 'decentralized', "
                f"actually 'centralized' with {named!r}"
            )
        if models is not None:
            check_frozen(models, self.args, self._comparator_field)
        return models

    def _make_comparator(self) -> Comparator | None:
        rule = self.args.comparator
        if rule is None:
            return None

        refuse_shared(self._comparator_models, self.policies, self.args, self._comparator_field)

        def load() -> list[Policy]:
            return load_frozen(self._comparator_models, rule.devices, self.args, self._comparator_field)

        open_policies = open_comparator(rule, self.policies, self.history, load)
        return Comparator(rule, self.policies, open_policies, self.adapter)

    def _score(self) -> ScoreFunction | None:
        """What labels new comparisons in place of the task."""
        return None

    def _collect_round(self) -> None:
        resets = self.items.draw(self.streams["items"])
        if self.given is not None:
            if self.progress.round == 1:
                for remark in self.given.remarks(self.agents, self.args):
                    self.tracker.console(remark, style="yellow")
            pairs, retokenised = self.given.of_round(self.progress.round, self.policies)
            sample = self._draw(pairs, resets)
            self.log({"pairs/kept": len(pairs), "pairs/retokenised": retokenised, **sample.round_shares()})
            self._say_if_idle("the given folder has none for it")
            return
        score = self._score()
        collection = self._compare(resets, score)
        self.progress.env_steps += collection.scored
        self.progress.task_steps += collection.scored if score is None else 0
        sample = self._draw(collection.pairs, resets)
        # Where policies learn from samples of their own, those say at the end of an epoch what these would say again.
        known = self.progress.updates > 0 and self.learning.measures_drift
        drift = {} if known else self.drift(collection.samples)
        self.log({**collection.metrics(), **drift, **sample.round_shares()})
        self.tracker.log_samples(
            self.progress.updates,
            [{"round": self.progress.round, "phase": "collect", **row} for row in collection.examples[:4]],
        )
        self._say_if_idle(collection.without_pairs())

    def _compare(self, resets: Sequence[Reset], score: ScoreFunction | None) -> Collection:
        rngs = [self.streams[f"policy/{agent}"] for agent in self.agents]
        mp = self.args.parallel_training == "mp"
        team = Side(self.policies, rngs, self.args.preference_num_candidates, concurrent=mp)
        self.tracker.progress(self.progress.round, self.args.rounds, "collect", 0, len(resets))

        def against(other: CandidateSource | None) -> Collection:
            return collect(self.wrapper, resets, team, other, self.streams["selection"], score)

        with self.timed("collect"):
            if self.comparator is None:
                return against(None)
            return self.comparator.during(self.progress.round, self.agents, self.streams, against)

    def _draw(self, pairs: list[PreferencePair], resets: list[Reset]) -> PairSample:
        """Store the round's pairs and choose those to train on."""
        self.replay.add(self.progress.round, pairs)
        sample = self.replay.draw(self.progress.round, self.streams["replay"])
        self.progress.sample = sample.places
        self.progress.reference_env_steps += len(pairs) * self.args.environment_steps_per_pair
        self.progress.begin_learning(resets)
        return sample

    def _learn_round(self, state: RunState) -> None:
        if self.progress.sample:
            super()._learn_round(state)

    def _say_if_idle(self, why: str) -> None:
        if not self.progress.sample:
            said = f"round {self.progress.round}: no pair to train on, the policies stay as they are"
            self.tracker.console(f"{said}: {why}")


def _check_comparator(config: PreferenceConfig, given: Any) -> None:
    rule = config.comparator
    if rule is not None and rule.endpoint is not None:
        rule.endpoint.request_headers()  # a key that is not set is refused before any model is loaded
    asked = rule is not None and rule.policy == "model"
    if given is not None and not asked:
        raise ConfigError(
            "comparator_agents: belongs to comparator_policy='model'; set it in the configuration, or leave them out"
        )
    if asked and rule is not None and (rule.models is None) == (given is None):
        raise ConfigError(
            "comparator_policy: 'model' needs one of comparator_model_name (one for all), comparator_agents (one per "
            f"role) and the trainer's argument comparator_agents=, actually {'none' if given is None else 'two'}"
        )


class MADPOTrainer(PreferenceTrainer):
    """Collect once with the initial team, then ``num_train_epochs`` of MADPO over the pairs."""

    config_class = MADPOConfig
    args: MADPOConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.learning = PreferenceEpochs(self, self.args)


class MADPOIterTrainer(MADPOTrainer):
    """Rounds of comparison with a comparator, each followed by MADPO on the replayed pairs."""

    config_class = MADPOIterConfig


class MARLHFTrainer(PreferenceTrainer):
    """Collect once, fit a joint reward model to the pairs, then let the team learn from it.

    Args:
        critics, critic_model: see :func:`~comlrl_agents.policy_learners.make_policy_learner`. The others as for
            :class:`~comlrl_agents.trainer.Trainer`.

    """

    config_class = MARLHFConfig
    args: MARLHFConfig

    def _check_args(self) -> None:
        super()._check_args()
        refuse_greedy(self.args, "policies learn from how answers to one prompt differ")

    def __init__(
        self, *arguments: Any, critics: Sequence[Any] | None = None, critic_model: Any = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        learner = make_policy_learner(self.policies, self.args, self.streams, critics, critic_model)
        policy = PolicyEpochs(self, self.args, learner, self.args.task_reward_samples)
        self.learning: RewardThenPolicy = RewardThenPolicy(self, self.args, policy)


class MARLHFIterTrainer(MARLHFTrainer):
    """Rounds of comparison with a comparator, each followed by a fresh reward model and policy learning from it."""

    config_class = MARLHFIterConfig
    args: MARLHFIterConfig

    def _score(self) -> ScoreFunction | None:
        model = self.learning.reward_model
        if self.args.preference_scoring_reward == "task" or model is None:
            return None
        return model.judge


class RLTrainer(Trainer):
    """One of the six back ends directly on the task reward; no preference is made.

    Args:
        critics, critic_model: see :func:`~comlrl_agents.policy_learners.make_policy_learner`. The others as for
            :class:`~comlrl_agents.trainer.Trainer`.

    """

    config_class = RLConfig
    args: RLConfig

    def _check_args(self) -> None:
        refuse_greedy(self.args, "policies learn from how answers to one prompt differ")

    def __init__(
        self, *arguments: Any, critics: Sequence[Any] | None = None, critic_model: Any = None, **named: Any
    ) -> None:
        super().__init__(*arguments, **named)
        learner = make_policy_learner(self.policies, self.args, self.streams, critics, critic_model)
        self.learning = TaskPolicyEpochs(self, self.args, learner)

    def _algorithm(self) -> str:
        return self.args.rl_algorithm

    def _collect_round(self) -> None:
        self.progress.begin_learning(self.items.draw(self.streams["items"]))
