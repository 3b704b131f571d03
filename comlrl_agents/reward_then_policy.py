"""The learning half of a round of MARLHF: fit a reward model to the round's pairs, then learn from it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comlrl_agents.learners.marlhf import RewardFit
from comlrl_agents.model_source import load_config, load_tokenizer, named_in
from comlrl_agents.placement import pick_device, pick_dtype
from comlrl_agents.policy_epochs import PolicyEpochs
from comlrl_agents.progress import phase_shown
from comlrl_agents.replay import PairSample, candidate_means
from comlrl_agents.reward_model import JointRewardModel, saved_settings
from comlrl_agents.reward_text import encode_joint, text_room
from comlrl_agents.rollouts import LearnedReward
from comlrl_agents.tracking import weighted_means
from comlrl_env.errors import ConfigError
from comlrl_env.types import PreferencePair

if TYPE_CHECKING:
    from comlrl_agents.config import MARLHFConfig
    from comlrl_agents.trainer import Trainer


class RewardThenPolicy:
    """A fresh reward model per round, frozen before the policies learn from it.

    ``reward_model`` is the latest one, None before the first fit; its optimizer lives as long as the fit.

    Raises ConfigError at construction when nothing says which model to begin with, there is none of that name, its
    device cannot be used, or ``reward_max_length`` leaves no room for the responses or exceeds the model's context.
    """

    measures_drift = True

    def __init__(self, run: "Trainer", args: "MARLHFConfig", policy: PolicyEpochs) -> None:
        self.run = run
        self.args = args
        self.policy = policy
        name = args.reward_model_name or run.policies[0].name
        if name is None:
            raise ConfigError(
                "reward_model_name: is required when the first agent is an object that does not say where it came "
                'from, actually None; give a model id, a folder, or "tiny"'
            )
        self.source = name
        own = args.reward_model_name is None
        inside = Path(name).expanduser() / "model" / "reward_model"
        if not own and inside.is_dir():
            raise ConfigError(f"reward_model_name: {name} is the folder of a run; give its reward model, {inside}")
        with named_in("reward_model_name"):
            self.tokenizer = run.policies[0].tokenizer if own else load_tokenizer(name)
            config = load_config(name)
        nothing = [""] * len(run.agents)
        saved = saved_settings(name)
        if saved is not None and saved.agents is not None and len(saved.agents) != len(nothing):
            raise ConfigError(
                f"reward_model_name: {name} was fitted to the texts of {len(saved.agents)} agents "
                f"({', '.join(saved.agents)}), and this team has {len(nothing)}; begin with another model"
            )
        own_limit = None if saved is None else saved.max_length
        limit = own_limit if args.reward_max_length is None else args.reward_max_length
        encode_joint(self.tokenizer, [(nothing, nothing)], text_room(config, limit))
        given = args.reward_model_device
        self.device = run.policies[0].device if given is None else pick_device(given, "reward_model_device").value
        self.reward_model: JointRewardModel | None = None
        self._fit: RewardFit | None = None

    def prepare(self) -> None:
        """Nothing is needed from the run folder."""

    def learn(self, sample: PairSample, save: Callable[[], Path]) -> None:
        """What is left of this round."""
        if self.run.progress.fit_epoch < self.args.reward_num_train_epochs:
            with self.run.timed("fit"):
                self._fit_model(sample, save)
        assert self.reward_model is not None
        self.policy.learn_from(LearnedReward(self.reward_model, self.args.micro_batch_tokens), save)

    def fingerprint(self) -> dict[str, Any]:
        """What a run that goes on must have begun with: folders may have moved."""
        return {"reward model": Path(self.source).name, **self.policy.fingerprint()}

    def save_model(self, folder: Path) -> None:
        """The reward model as ``reward_model``, and the critics if there are any."""
        if self.reward_model is not None:
            self.reward_model.save_pretrained(folder / "reward_model")
        self.policy.save_model(folder)

    def state_dict(self) -> dict[str, Any]:
        """Policy learner, reward model, and while it is fitted its optimizer."""
        return {
            "policy": self.policy.state_dict(),
            "reward_model": None if self.reward_model is None else self.reward_model.state_dict(),
            "fit": None if self._fit is None else self._fit.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` stopped."""
        self.policy.load_state_dict(state["policy"])
        self.reward_model, self._fit = None, None
        if state["reward_model"] is not None:
            self.reward_model = self._fresh_model()
            self.reward_model.load_state_dict(state["reward_model"])
        if self.reward_model is not None and state["fit"] is not None:
            self._fit = RewardFit(self.reward_model, self.args.reward_fit)
            self._fit.optimizer.load_state_dict(state["fit"])

    def _fresh_model(self) -> JointRewardModel:
        seed = int(self.run.streams.fresh(f"reward_model/{self.run.progress.round}").integers(2**31))
        model = JointRewardModel.from_base(
            self.source, self.tokenizer, max_length=self.args.reward_max_length, seed=seed, device=str(self.device)
        )
        model.compute_dtype = pick_dtype(self.args.dtype, self.device).value
        model.agents = tuple(self.run.agents)
        return model.requires_grad_(False)

    def _fit_model(self, sample: PairSample, save: Callable[[], Path]) -> None:
        progress = self.run.progress
        if progress.fit_epoch == 0:
            self.reward_model = self._fresh_model()
            self._fit = RewardFit(self.reward_model, self.args.reward_fit)
        assert self._fit is not None
        trained, held_out = self._split(sample)
        if not held_out and self.args.reward_held_out_share > 0:
            self.run.tracker.console(
                f"reward model: reward_held_out_share={self.args.reward_held_out_share:g} of so few items that ask "
                "different things is none, so nothing tells how it judges answers that it has not seen; raise it, or "
                "items_per_round"
            )
        while progress.fit_epoch < self.args.reward_num_train_epochs:
            self._fit_epoch(self._fit, trained, held_out)
            progress.fit_epoch += 1
            if progress.fit_epoch < self.args.reward_num_train_epochs:
                save()
        self._fit.centre(trained)
        self.run.log(self._fit.worth_of_nothing(trained))
        # The optimizer's state and the gradients go before the policies' memory comes.
        self._fit = None
        assert self.reward_model is not None
        self.reward_model.requires_grad_(False)
        for parameter in self.reward_model.parameters():
            parameter.grad = None
        save()

    def _fit_epoch(self, fit: RewardFit, trained: list[PreferencePair], held_out: list[PreferencePair]) -> None:
        run, size = self.run, self.args.reward_train_batch_size
        order = run.streams["reward_shuffle"].permutation(len(trained))
        window: list[tuple[int, dict[str, float]]] = []
        for start in range(0, len(order), size):
            pairs = [trained[int(i)] for i in order[start : start + size]]
            stats = fit.learn(pairs)
            run.progress.updates += 1
            window.append((len(pairs), stats))
            last = start + size >= len(order)
            if last or len(window) == self.args.logging_steps:
                means = weighted_means(window) | candidate_means(trained)
                run.log(means | (fit.measure(held_out) if last else {}), show=last)
                window = []
            phase = phase_shown("fit", run.progress.fit_epoch, self.args.reward_num_train_epochs)
            loss = stats["reward_model/loss"]
            run.tracker.progress(run.progress.round, self.args.rounds, phase, start + len(pairs), len(order), loss=loss)

    def _split(self, sample: PairSample) -> tuple[list[PreferencePair], list[PreferencePair]]:
        """Pairs to learn from, and those of the items held out: pairs of one item share their candidates.

        Items are told by their prompts: an environment without items of its own names them by seeds, of which several
        may ask the same.
        """
        pairs = list(sample)
        items = list(dict.fromkeys(map(_asked, pairs)))
        count = min(round(self.args.reward_held_out_share * len(items)), len(items) - 1)
        rng = self.run.streams.fresh(f"held_out/{self.run.progress.round}")
        held = {items[int(index)] for index in rng.permutation(len(items))[:count]}
        return [p for p in pairs if _asked(p) not in held], [p for p in pairs if _asked(p) in held]


def _asked(pair: PreferencePair) -> tuple[str, ...]:
    return pair.winner[0].prompts
