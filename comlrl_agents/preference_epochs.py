"""The learning half of a round of MADPO: epochs of preference updates over the round's pairs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comlrl_agents.learners.madpo import MADPO
from comlrl_agents.progress import phase_shown
from comlrl_agents.replay import PairSample, candidate_means
from comlrl_agents.tracking import weighted_means
from comlrl_env.types import PreferencePair

if TYPE_CHECKING:
    from comlrl_agents.config import MADPOConfig
    from comlrl_agents.trainer import Trainer


class PreferenceEpochs:
    """``num_train_epochs`` of MADPO over a sample of pairs, as one part of a trainer's loop."""

    measures_drift = False

    def __init__(self, run: "Trainer", args: "MADPOConfig") -> None:
        self.run = run
        self.args = args
        self.learner = MADPO(run.policies, args.loss, args.optimisation)

    def prepare(self) -> None:
        """What the learner needs from the run folder, once it is there."""
        if self.args.reference_anchored:
            self.learner.reference_policies = self.run.history.load(0)

    def learn(self, sample: PairSample, save: Callable[[], Path]) -> None:
        """The epochs that are left of this round; ``save`` writes a checkpoint."""
        progress = self.run.progress
        while progress.epoch < self.args.num_train_epochs:
            with self.run.timed("learn"):
                self._epoch(sample)
            progress.epoch += 1
            if self.args.num_train_epochs > 1 and progress.epoch % self.args.checkpoint_interval == 0:
                save()

    def fingerprint(self) -> dict[str, Any]:
        """The configuration says it all."""
        return {}

    def save_model(self, folder: Path) -> None:
        """Nothing is saved beside the agents."""

    def state_dict(self) -> dict[str, Any]:
        """The learner's state; the weights belong to the policies."""
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.learner.load_state_dict(state)

    def _epoch(self, sample: PairSample) -> None:
        run, progress = self.run, self.run.progress
        order = run.streams["shuffle"].permutation(len(sample))
        size = self.args.batch_size
        window: list[tuple[int, dict[str, float]]] = []
        trained: list[PreferencePair] = []
        for start in range(0, len(order), size):
            pairs = [sample[int(i)] for i in order[start : start + size]]
            done = (progress.epoch + start / len(order)) / self.args.num_train_epochs
            stats = self.learner.learn(pairs, progress=(progress.round - 1 + done) / self.args.rounds)
            progress.updates += 1
            window.append((len(pairs), stats))
            trained += pairs
            last = start + size >= len(order)
            if last or progress.updates % self.args.logging_steps == 0:
                run.log(weighted_means(window) | candidate_means(trained))
                window, trained = [], []
            phase = phase_shown("learn", progress.epoch, self.args.num_train_epochs)
            run.tracker.progress(
                progress.round, self.args.rounds, phase, start + len(pairs), len(order), loss=stats["loss"]
            )
            if progress.updates % self.args.eval_interval == 0:
                run.log_evaluation()
