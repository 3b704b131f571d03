"""The training loop: collect → store → replay → learn → evaluate → save, the same for every trainer.

A fresh run is a resume from round 0; a base trainer is the case of one round. Everything that decides what comes next
lies in :class:`Progress`, the random streams, the replay index and the item schedule, and all of it is in a checkpoint.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from comlrl_agents.collect import Collection, collect
from comlrl_agents.comparators import Comparator, open_comparator
from comlrl_agents.config import MADPOConfig, MADPOIterConfig, TeamConfig, to_mapping
from comlrl_agents.context import refuse_long_prompts
from comlrl_agents.drift import mean_logprob
from comlrl_agents.evaluate import evaluate
from comlrl_agents.items import ItemSchedule
from comlrl_agents.policy_history import PolicyHistory
from comlrl_agents.preference_epochs import PreferenceEpochs
from comlrl_agents.progress import Progress, RunState
from comlrl_agents.replay import PairSample, ReplayBuffer
from comlrl_agents.report import write_report
from comlrl_agents.run_folder import RunFolder, set_aside, usable_folder
from comlrl_agents.sides import CandidateSource, Side
from comlrl_agents.streams import Streams
from comlrl_agents.team import load_frozen, load_team
from comlrl_agents.tracking import Tracker
from comlrl_agents.types import Policy
from comlrl_env.errors import ConfigError
from comlrl_env.joint_text import JointAdapter, SectionAdapter
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.shared_reward import RewardRule
from comlrl_env.wrappers import joint_text_env


class Learning(Protocol):
    """The learning half of a round: what each algorithm family does with the round's pairs."""

    def prepare(self) -> None:
        """Take what is needed from the run folder, once it is there."""

    def learn(self, sample: PairSample, save: Callable[[], Path]) -> None:
        """Do what ``Progress`` says is left of this round; ``save`` writes a checkpoint."""

    def save_model(self, folder: Path) -> None:
        """Write whatever stands beside the agents' own folders."""

    def state_dict(self) -> dict[str, Any]:
        """Optimizers and models of its own, as tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""


class Trainer:
    """Trains a team of language models on an environment from preferences between joint responses.

    Args:
        env: any PettingZoo ``ParallelEnv`` with text observations and actions.
        eval_env: where the team is evaluated; without one the training environment serves.
        agents: ``"tiny"``, a model id, a folder, a list of them, loaded model objects, or policies; see ``load_team``.
        tokenizer: for model objects that do not tell theirs; one for all or a list.
        args: the configuration; the defaults without one.
        output_dir: the run folder. It must not hold another run unless that run is resumed.
        reward_rule: how rewards that differ between agents become one: "mean", "sum", "min", "max"; None refuses.
        comparator_agents: for ``comparator_policy="model"``: model objects or policies of any kind, one per agent,
            in place of the names that the configuration would give.
        joint_adapter: how one model is asked for all roles and its text is read, where one writes for all; the
            default puts each agent's answer in a section, see ``comlrl_env.joint_text``.

    Raises:
        ConfigError: something does not fit; nothing has been trained or written then.

    """

    config_class: type[TeamConfig] = TeamConfig

    def __init__(
        self,
        env: Any,
        eval_env: Any = None,
        agents: Any = "tiny",
        tokenizer: Any = None,
        args: TeamConfig | None = None,
        output_dir: str | Path = "runs/run",
        reward_rule: RewardRule | None = None,
        comparator_agents: Any = None,
        joint_adapter: JointAdapter | None = None,
    ) -> None:
        self.args = self.config_class() if args is None else args
        if not isinstance(self.args, self.config_class):
            raise ConfigError(
                f"args: {type(self).__name__} takes a {self.config_class.__name__}, actually {type(self.args).__name__}"
            )
        _check_comparator(self.args, comparator_agents)
        self.env, self.eval_env, self.reward_rule = env, env if eval_env is None else eval_env, reward_rule
        _check_env("env", self.env, self.args)
        _check_env("eval_env", self.eval_env, self.args)
        adapter = SectionAdapter() if joint_adapter is None else joint_adapter
        if self.args.collaboration_mode == "centralized":
            self.env = joint_text_env(self.env, adapter, reward_rule)
            self.eval_env = joint_text_env(self.eval_env, adapter, reward_rule)
        self.agents = list(self.env.possible_agents)
        self.folder = RunFolder(output_dir)
        policies_folder = self._subfolder("policy_checkpoint_dir", self.folder.policies)
        pairs_folder = self._subfolder("preference_replay_dir", self.folder.pairs)
        self.wrapper = PreferenceWrapper(
            self.env,
            pair_selection=self.args.pair_selection,
            preference_pairs_per_sample=self.args.preference_pairs_per_sample,
            reward_rule=reward_rule,
        )
        self.items = ItemSchedule(self.env, self.args.items_per_round)
        self.policies = load_team(agents, tokenizer, self.args)
        self.streams = Streams(self.args.seed)
        self.history = PolicyHistory(policies_folder, self.policies)
        self.replay = ReplayBuffer(pairs_folder, self.args.replay)
        self.comparator = self._make_comparator(comparator_agents, adapter)
        self.progress = Progress()
        self.learning = self._make_learning()
        # What config.yaml says besides the fields. The command line puts its keys here, from which it can start again.
        self.description: dict[str, Any] = {
            "algorithm": type(self).__name__,
            "env": str(env),
            "agents": [policy.name or type(policy.model).__name__ for policy in self.policies],
        }

    def _make_comparator(self, given: Any, adapter: JointAdapter) -> Comparator | None:
        rule = self.args.comparator
        if rule is None:
            return None
        models = rule.models if given is None else given

        def load() -> list[Policy]:
            return load_frozen(models, rule.devices, self.args)

        open_policies = open_comparator(rule, self.policies, self.history, load)
        return Comparator(rule, self.policies, open_policies, adapter)

    def _make_learning(self) -> Learning:
        raise ConfigError(f"{type(self).__name__} is the base of the trainers; use MADPOTrainer or MADPOIterTrainer")

    # ---------------------------------------------------------------- what a user calls

    def train(self, resume_from_checkpoint: bool | str | Path | None = None) -> dict[str, float]:
        """Run to the end of the configured rounds; returns the last evaluation.

        Args:
            resume_from_checkpoint: True continues the run in ``output_dir`` from its newest whole checkpoint (and
                starts it when it has none yet); a path names the checkpoint. None starts a new run.

        Raises:
            ConfigError: the folder holds a run and none is to be resumed.
            CheckpointError: the checkpoint does not fit; nothing has changed then.
            TrainingError: a value is not finite, or no candidate could be scored.

        """
        state = RunState(self)
        checkpoint = state.find(resume_from_checkpoint)
        for env, count in ((self.env, None), (self.eval_env, self.args.eval_num_samples)):
            refuse_long_prompts(dict(zip(self.agents, self.policies, strict=True)), env, count)
        with Tracker(self.folder.path, report_to=self.args.report_to) as self.tracker:
            if checkpoint is None:
                self._start(state)
            else:
                state.restore(checkpoint)
                self.tracker.console(f"resumed from {checkpoint}")
            self.learning.prepare()
            while self.progress.round <= self.args.rounds:
                if self.progress.phase == "collect":
                    self._collect_round()
                    state.save()
                self._learn_round(state)
                self._finish_round(state)
            result = self._finish()
        return result

    def evaluate(self, num_eval_samples: int | None = None) -> dict[str, float]:
        """The current team on the first items of the evaluation environment, scored by the task itself."""
        return self._evaluate(num_eval_samples or self.args.eval_num_samples)[0]

    def save_model(self, folder: str | Path) -> None:
        """Write ``agent_0``, ``agent_1``, … , each a folder that ``from_pretrained`` loads, with its tokenizer."""
        for index, policy in enumerate(self.policies):
            policy.save(Path(folder) / f"agent_{index}")
        self.learning.save_model(Path(folder))

    # ---------------------------------------------------------------- the phases

    def _start(self, state: RunState) -> None:
        # A run that was stopped before its first checkpoint may have left lines.
        self.tracker.rewind(dict.fromkeys(self.tracker.position(), 0))
        for folder, own, names in (
            (self.replay.folder, self.folder.pairs, "iteration_*.json"),
            (self.history.folder, self.folder.policies, "round_*"),
        ):
            if folder != own and (earlier := set_aside(folder, names)):
                self.tracker.console(f"{names} of an earlier run now lie in {earlier}")
        self.folder.write_config(to_mapping(self.args), self.description)
        self.history.save(0)
        self.log_evaluation()
        state.save()

    def _collect_round(self) -> None:
        iteration = self.progress.round
        resets = self.items.draw(self.streams["items"])
        rngs = [self.streams[f"policy/{agent}"] for agent in self.agents]
        team = Side(self.policies, rngs, self.args.preference_num_candidates)
        self.tracker.progress(iteration, self.args.rounds, "collect", 0, len(resets))

        def against(other: CandidateSource | None) -> Collection:
            return collect(self.wrapper, resets, team, other, self.streams["selection"])

        with self.timed("collect"):
            if self.comparator is None:
                collection = against(None)
            else:
                collection = self.comparator.during(iteration, self.agents, self.streams, against)
        self.replay.add(iteration, collection.pairs)
        sample = self.replay.draw(iteration, self.streams["replay"])
        self.progress.sample = sample.places
        self.progress.env_steps += collection.scored
        self.progress.reference_env_steps += len(collection.pairs) * self.args.environment_steps_per_pair
        self.progress.phase, self.progress.epoch = "learn", 0
        self.log({**collection.metrics(), **self._drift(collection), **sample.round_shares()})
        self.tracker.log_samples(
            self.progress.updates,
            [{"round": iteration, "phase": "collect", **row} for row in collection.examples[:4]],
        )

    def _learn_round(self, state: RunState) -> None:
        sample = self.replay.sample(self.progress.sample)
        if not len(sample):
            self.tracker.console(f"round {self.progress.round}: no pair to train on, the policies stay as they are")
            return
        self.learning.learn(sample, state.save)

    def _finish_round(self, state: RunState) -> None:
        number = self.progress.round
        if self.comparator is not None and self.comparator.rule.policy == "history":
            self.history.save(number)
            oldest = number - self.comparator.rule.history_k
            self.history.prune({0, *range(max(0, oldest), number + 1)})
        self.progress.round, self.progress.phase = number + 1, "collect"
        last = number == self.args.rounds
        if last and self.progress.evaluated_at != self.progress.updates:
            self.log_evaluation()
        if last or number % self.args.checkpoint_interval == 0:
            state.save()

    def _finish(self) -> dict[str, float]:
        self.save_model(self.folder.model)
        write_report(self.folder.path)
        return dict(self.progress.last_evaluation)

    # ---------------------------------------------------------------- parts of the phases

    def _drift(self, collection: Collection) -> dict[str, float]:
        """How likely the team's own samples are under its initial weights (mean log-probability per token)."""
        if not self.args.drift_samples:
            return {}
        with self.timed("drift"):
            initial = self.history.load(0)
            return {
                f"agent_{i}/drift": mean_logprob(policy, own[: self.args.drift_samples])
                for i, (policy, own) in enumerate(zip(initial, collection.samples, strict=True))
            }

    def _evaluate(self, num_samples: int) -> tuple[dict[str, float], list[dict[str, Any]]]:
        outcome = evaluate(
            dict(zip(self.agents, self.policies, strict=True)),
            self.eval_env,
            num_samples,
            # Fresh streams: every evaluation draws with the same numbers and leaves training undisturbed.
            {agent: self.streams.fresh(f"eval/{agent}") for agent in self.agents},
            batch_size=self.args.eval_batch_size,
            reward_rule=self.reward_rule,
        )
        return outcome.metrics, outcome.samples

    def log_evaluation(self) -> None:
        """Evaluate the current team and write the figures down."""
        with self.timed("evaluate"):
            metrics, samples = self._evaluate(self.args.eval_num_samples)
        self.progress.evaluated_at = self.progress.updates
        self.progress.last_evaluation = metrics
        self.log(metrics, show=True)
        rows = [{"round": self.progress.round, "phase": "eval", **row} for row in samples[:4]]
        self.tracker.log_samples(self.progress.updates, rows)

    def log(self, metrics: dict[str, float], *, show: bool = False) -> None:
        """Write metrics with the run's counters; ``show`` puts the important ones on the console too."""
        counters = {
            "round": min(self.progress.round, self.args.rounds),
            "env_step": self.progress.env_steps,
            "reference_env_step": self.progress.reference_env_steps,
        }
        self.tracker.log(self.progress.updates, counters | metrics, show=show)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Write down the wall-clock seconds of a part of the round."""
        start = time.perf_counter()
        yield
        self.tracker.log_time(self.progress.updates, {phase: time.perf_counter() - start})

    def _subfolder(self, field: str, default: Path) -> Path:
        named = getattr(self.args, field, None)
        return default if named is None else usable_folder(field, named)


def _check_env(name: str, env: Any, config: TeamConfig) -> None:
    agents = list(getattr(env, "possible_agents", []))
    if not agents or not hasattr(env, "step") or not hasattr(env, "reset"):
        raise ConfigError(
            f"{name}: must be a PettingZoo ParallelEnv with possible_agents, reset and step, actually {env!r}"
        )
    if len(agents) != config.num_agents:
        raise ConfigError(
            f"num_agents: must be the number of agents of {name} ({len(agents)}: {', '.join(agents)}), actually "
            f"{config.num_agents}"
        )
    num_turns = getattr(env, "num_turns", 1)
    if num_turns > 1:
        raise ConfigError(f"{name}: training covers environments of one turn so far, actually {num_turns} turns")


def _check_comparator(config: TeamConfig, given: Any) -> None:
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


class MADPOTrainer(Trainer):
    """Collect once with the initial team, then ``num_train_epochs`` of MADPO over the pairs."""

    config_class = MADPOConfig
    args: MADPOConfig

    def _make_learning(self) -> Learning:
        return PreferenceEpochs(self, self.args)


class MADPOIterTrainer(MADPOTrainer):
    """Rounds of comparison with a comparator, each followed by MADPO on the replayed pairs."""

    config_class = MADPOIterConfig
