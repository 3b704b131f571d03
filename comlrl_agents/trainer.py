"""The training loop: collect → store → replay → learn → evaluate → save, the same for every trainer.

A fresh run is a resume from round 0; a base trainer is the case of one round. Everything that decides what comes next
lies in :class:`Progress`, the random streams, the replay index and the item schedule, and all of it is in a checkpoint.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import comlrl_env
from comlrl_agents.comparators import Comparator
from comlrl_agents.config import PreferenceConfig, TeamConfig, to_mapping
from comlrl_agents.context import refuse_long_prompts
from comlrl_agents.drift import mean_logprob
from comlrl_agents.evaluate import evaluate
from comlrl_agents.given_pairs import GivenPairs
from comlrl_agents.items import ItemSchedule
from comlrl_agents.policy_history import PolicyHistory
from comlrl_agents.progress import Progress, RunState
from comlrl_agents.questions import refuse_more_turns
from comlrl_agents.replay import PairSample, ReplayBuffer, ReplayRule
from comlrl_agents.report import write_report
from comlrl_agents.run_folder import RunFolder, own_folder, set_aside, usable_folder
from comlrl_agents.streams import Streams
from comlrl_agents.team import load_team
from comlrl_agents.tracking import Tracker
from comlrl_agents.types import Generation
from comlrl_env.errors import ComlrlError, ConfigError, TrainingError
from comlrl_env.joint_text import JointAdapter, SectionAdapter
from comlrl_env.registry import make_evaluation, on_evaluation
from comlrl_env.shared_reward import RewardRule
from comlrl_env.wrappers import joint_text_env


class Learning(Protocol):
    """The learning half of a round: what each algorithm family does with the round's pairs."""

    measures_drift: bool
    """Whether it logs, when it has learned, what a collection after it would find."""

    def prepare(self) -> None:
        """Take what is needed from the run folder, once it is there."""

    def learn(self, sample: PairSample, save: Callable[[], Path]) -> None:
        """Do what ``Progress`` says is left of this round; ``save`` writes a checkpoint."""

    def save_model(self, folder: Path) -> None:
        """Write whatever stands beside the agents' own folders."""

    def fingerprint(self) -> dict[str, Any]:
        """What a run that goes on must have begun with, beside the configuration."""

    def state_dict(self) -> dict[str, Any]:
        """Optimizers and models of its own, as tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""


def refuse_greedy(args: TeamConfig, why: str) -> None:
    """Raise ConfigError where the team's sampling gives one and the same answer each time, which is no use ``why``."""
    for name, greedy in (("temperature", 0), ("top_k", 1)):
        if getattr(args, name) == greedy:
            raise ConfigError(
                f"{name}: {greedy} samples the same answer every time, and {why}; raise it (`comlrl eval` allows it)"
            )


class Trainer:
    """Trains a team of language models on an environment; the base of the trainers, which say how.

    Args:
        env: any PettingZoo ``ParallelEnv`` with text observations and actions, or the id of one (``"module:Task"``).
        eval_env: where the team is evaluated; without one the evaluation split of an id or a ``TextEnv``, or else
            ``env`` itself.
        agents: ``"tiny"``, a model id, a folder, a list of them, loaded model objects, or policies; see ``load_team``.
        tokenizer: for model objects that do not tell theirs; one for all or a list.
        args: the configuration; the defaults without one.
        output_dir: the run folder. It must not hold another run unless that run is resumed. None: a folder of its own
            for each trainer, ``runs/<algorithm>-<date>-<time>``; ``folder.path`` tells it.
        reward_rule: how rewards that differ between agents become one: "mean", "sum", "min", "max"; None refuses.
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
        output_dir: str | Path | None = None,
        reward_rule: RewardRule | None = None,
        joint_adapter: JointAdapter | None = None,
    ) -> None:
        self.args = self.config_class() if args is None else args
        if not isinstance(self.args, self.config_class):
            raise ConfigError(
                f"args: {type(self).__name__} takes a {self.config_class.__name__}, actually {type(self.args).__name__}"
            )
        self.given: GivenPairs | None = None
        self.env = comlrl_env.make(env) if isinstance(env, str) else env
        self.eval_env, self._no_split = _evaluation(env, eval_env)
        self.reward_rule = reward_rule
        _check_env("env", self.env, self.args)
        _check_env("eval_env", self.eval_env, self.args)
        if set(self.eval_env.possible_agents) != set(self.env.possible_agents):
            raise ConfigError(
                f"eval_env: must have the agents of env, {list(self.env.possible_agents)}, actually "
                f"{list(self.eval_env.possible_agents)}; give an environment of the same task"
            )
        self.adapter = SectionAdapter() if joint_adapter is None else joint_adapter
        if self.args.collaboration_mode == "centralized":
            self.env = joint_text_env(self.env, self.adapter, reward_rule)
            self.eval_env = joint_text_env(self.eval_env, self.adapter, reward_rule)
        self.agents = list(self.env.possible_agents)
        self._check_args()
        self.folder = RunFolder(own_folder(self._algorithm()) if output_dir is None else output_dir)
        policies_folder = self._subfolder("policy_checkpoint_dir", self.folder.policies)
        pairs_folder = self._subfolder("preference_replay_dir", self.folder.pairs)
        self.items = ItemSchedule(self.env, self.args.items_per_round)
        self.policies = load_team(agents, tokenizer, self.args)
        self.streams = Streams(self.args.seed)
        self.history = PolicyHistory(policies_folder, self.policies)
        rule = self.args.replay if isinstance(self.args, PreferenceConfig) else ReplayRule()
        self.replay = ReplayBuffer(pairs_folder, rule)
        self.comparator: Comparator | None = None
        self.progress = Progress()
        # What config.yaml says besides the fields. The command line puts its keys here, from which it can start again.
        self.description: dict[str, Any] = {
            "algorithm": type(self).__name__,
            "env": str(env),
            "agents": [policy.name or type(policy.model).__name__ for policy in self.policies],
        }
        self.command: str | None = None  # the command line, for command.txt
        self.learning: Learning

    def _algorithm(self) -> str:
        """Its name on the command line: that of ``MADPOIterTrainer`` is ``madpo-iter``."""
        return type(self).__name__.removesuffix("Trainer").replace("Iter", "-iter").lower()

    def _check_args(self) -> None:
        """Refuse settings that do not fit, before any model is loaded."""

    # ---------------------------------------------------------------- what a user calls

    def train(self, resume_from_checkpoint: bool | str | Path | None = None) -> dict[str, float]:
        """Run to the end of the configured rounds; returns the last evaluation.

        Args:
            resume_from_checkpoint: True continues the run in ``output_dir`` from its newest whole checkpoint (and
                starts it when it has none yet); a path names the checkpoint. None starts a new run.

        Raises:
            ConfigError: the folder holds a run and none is to be resumed, or another process is training in it.
            CheckpointError: the checkpoint does not fit; nothing has changed then. Or one cannot be written.
            TrainingError: a value is not finite, or no candidate could be scored.

        """
        state = RunState(self)
        for env, count in ((self.env, None), (self.eval_env, self.args.eval_num_samples)):
            refuse_long_prompts(dict(zip(self.agents, self.policies, strict=True)), env, count)
        with self.folder.claimed():
            return self._train(state, state.find(resume_from_checkpoint))

    def _train(self, state: RunState, checkpoint: Path | None) -> dict[str, float]:
        with Tracker(self.folder.path, report_to=self.args.report_to) as self.tracker:
            if checkpoint is None:
                self._start(state)
            else:
                state.restore(checkpoint)
                self.folder.write_command(self.command, resumed=True)
                self.folder.renew_config(to_mapping(self.args))
                ended = self.progress.round > self.args.rounds
                left = ": the run had ended, and nothing is left to do" if ended else ""
                self.tracker.console(f"resumed from {checkpoint}{left}")
            self.learning.prepare()
            while self.progress.round <= self.args.rounds:
                try:
                    if self.progress.phase == "collect":
                        self._collect_round()
                        state.save()
                    self._learn_round(state)
                except TrainingError as error:
                    raise TrainingError(f"round {self.progress.round}: {error}") from error
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
        self.folder.write_command(self.command, resumed=False)
        if self._no_split:
            self.tracker.console(f"evaluation: {self._no_split}")
        self.history.save(0)
        try:
            self.log_evaluation()
            refuse_more_turns("eval/turn_2/reward_mean" not in self.progress.last_evaluation)
        except ComlrlError:
            self.folder.config.unlink()  # no run has begun: what is mended may begin it here
            raise
        state.save()

    def _collect_round(self) -> None:
        raise NotImplementedError

    def _learn_round(self, state: RunState) -> None:
        self.learning.learn(self.replay.sample(self.progress.sample), state.save)

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

    def drift(self, samples: Sequence[Sequence[Generation]]) -> dict[str, float]:
        """How likely the team's own samples are under its initial weights (mean log-probability per token)."""
        if not self.args.drift_samples:
            return {}
        with self.timed("drift"):
            initial = self.history.load(0) if self.progress.updates else self.policies
            return {
                f"agent_{i}/drift": mean_logprob(policy, own[: self.args.drift_samples])
                for i, (policy, own) in enumerate(zip(initial, samples, strict=True))
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
        current = min(self.progress.round, self.args.rounds)
        self.tracker.progress(current, self.args.rounds, "evaluate", 0, self.args.eval_num_samples)
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
            "task_step": self.progress.task_steps,
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


def _evaluation(env: Any, given: Any) -> tuple[Any, str]:
    """The environment of the evaluation, and why it is none of its own where that is so."""
    if isinstance(given, str) or (given is None and isinstance(env, str)):
        return make_evaluation(env if given is None else given)
    return on_evaluation(env) if given is None else (given, "")


def _check_env(name: str, env: Any, config: TeamConfig) -> None:
    agents = list(getattr(env, "possible_agents", []))
    if not agents or not hasattr(env, "step") or not hasattr(env, "reset"):
        raise ConfigError(
            f"{name}: must be an id or a PettingZoo ParallelEnv with possible_agents, reset, step, actually {env!r}; "
            "a task becomes one by comlrl_env.TextEnv(task)"
        )
    if len(agents) != config.num_agents:
        raise ConfigError(
            f"num_agents: must be the number of agents of {name} ({len(agents)}: {', '.join(agents)}), actually "
            f"{config.num_agents}"
        )
    num_turns = getattr(env, "num_turns", 1)
    if num_turns > 1:
        raise ConfigError(f"{name}: training covers environments of one turn so far, actually {num_turns} turns")
