"""A learned judge of joint responses (ALGORITHMS 9)."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from comlrl_agents.model_source import UNREADABLE, load_model
from comlrl_agents.placement import pick_device
from comlrl_agents.reward_text import Joint, encode_joint, text_room
from comlrl_agents.scalar_model import HEAD, ScalarModel, backbone_of, load_body, load_head, save_scalar
from comlrl_agents.scored_states import Row
from comlrl_env.errors import ConfigError

SETTINGS = "reward_model.json"


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """What stands beside the weights of a saved reward model."""

    max_length: int | None
    agents: tuple[str, ...] | None


def saved_settings(name: str | os.PathLike[str]) -> SavedSettings | None:
    """Those of a folder that :meth:`JointRewardModel.save_pretrained` wrote; None for any other name. Loads no weights.

    Raises ConfigError when they are damaged.
    """
    path = Path(name).expanduser() / SETTINGS
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return SavedSettings(found["max_length"], None if found["agents"] is None else tuple(found["agents"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"reward model {str(name)!r}: {SETTINGS} must hold max_length and agents, actually reading it ends with "
            f"{type(error).__name__}: {error}; copy the folder again, or train the reward model anew"
        ) from error


class JointRewardModel(ScalarModel):
    """Reads all agents' prompts and responses as one text and gives one number.

    ``backbone``: the body of a causal language model; ``max_length``: tokens of a text (None: the body's context),
    longer ones are cut as :func:`~comlrl_agents.reward_text.encode_joint` says; ``seed``: of the fresh head.
    ``agents``: names of the agents to whose texts it was fitted, in their order; None where they are not known.

    Raises ConfigError when ``max_length`` is not a number from 1 to the body's context.
    """

    def __init__(self, backbone: nn.Module, tokenizer: Any, max_length: int | None = None, seed: int = 0) -> None:
        super().__init__(backbone, seed)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.agents: tuple[str, ...] | None = None
        text_room(backbone.config, max_length)

    @classmethod
    def from_base(
        cls,
        name: str | os.PathLike[str],
        tokenizer: Any = None,
        *,
        max_length: int | None = None,
        seed: int = 0,
        device: str | None = None,
    ) -> Self:
        """A model with a fresh head on the body of a causal language model ("tiny", a folder, a model id), or a saved
        reward model as it is, its head included.

        ``tokenizer``: None loads the one of that name.

        Raises ConfigError when there is no model of that name, or the device cannot be used.
        """
        if (Path(name).expanduser() / SETTINGS).is_file():
            saved = cls.from_pretrained(name, device=device)
            if max_length is not None:
                text_room(saved.backbone.config, max_length)
                saved.max_length = max_length
            return saved
        where = pick_device(device).value
        model, loaded = load_model(os.fspath(name), with_tokenizer=tokenizer is None)
        return cls(backbone_of(model).to(where), loaded if tokenizer is None else tokenizer, max_length, seed)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], *, device: str | None = None) -> Self:
        """What :meth:`save_pretrained` wrote.

        Raises ConfigError for a folder that it did not write, or in which a file is missing or damaged.
        """
        path = Path(folder).expanduser()
        if not (path / SETTINGS).is_file():
            raise ConfigError(
                f"reward model {str(folder)!r}: expected a folder with {SETTINGS}, written by "
                "JointRewardModel.save_pretrained (a run keeps one in model/reward_model), actually there is none"
            )
        where = pick_device(device).value
        try:
            settings = saved_settings(path)
            assert settings is not None
            model = cls(*load_body(path), settings.max_length)
            model.agents = settings.agents
            load_head(model, path / HEAD)
        except (ConfigError, *UNREADABLE) as error:
            raise ConfigError(
                f"reward model {str(folder)!r}: must hold whole files as save_pretrained wrote them, actually loading "
                f"ends with {type(error).__name__}: {error}; copy the folder again, or train the reward model anew"
            ) from error
        model.to(where).requires_grad_(False)
        return model

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write body, head, tokenizer and settings into a folder."""
        path = Path(folder)
        save_scalar(self, self.tokenizer, path)
        settings = {"max_length": self.max_length, "agents": self.agents}
        (path / SETTINGS).write_text(json.dumps(settings) + "\n", encoding="utf-8")

    def encode(self, texts: Sequence[Joint]) -> list[Row]:
        """Token rows of joint responses, for :meth:`values`."""
        return encode_joint(self.tokenizer, texts, text_room(self.backbone.config, self.max_length))

    def rewards(self, texts: Sequence[Joint], micro_batch_tokens: int | None = None) -> Tensor:
        """One reward per joint response, (N,), with gradient."""
        return self.values(self.encode(texts), micro_batch_tokens)

    @torch.no_grad()
    def score(self, texts: Sequence[Joint], micro_batch_tokens: int | None = None) -> list[float]:
        """Rewards as plain numbers."""
        found: list[float] = self.rewards(texts, micro_batch_tokens).tolist()
        return found

    def judge(self, prompts: Mapping[str, str], joint_responses: Sequence[Mapping[str, str]]) -> list[float]:
        """Rewards of several joint responses to one item; prompts and responses by agent name.

        They are read in the order of ``agents``, for agents of other names in that of ``prompts``. This is what
        ``PreferenceWrapper.step(score=…)`` and :class:`comlrl_env.wrappers.ScoredBy` call.

        Raises:
            ConfigError: it was fitted to a team of another size, or a response is not one text of each agent.

        """
        if self.agents is not None and len(self.agents) != len(prompts):
            raise ConfigError(
                f"reward model: was fitted to the texts of {len(self.agents)} agents and must judge as many, actually "
                f"{list(prompts)}; take it for the task and the collaboration_mode of its run"
            )
        for responses in joint_responses:
            texts = responses.values() if isinstance(responses, Mapping) and set(responses) == set(prompts) else [None]
            if not all(isinstance(text, str) for text in texts):
                raise ConfigError(
                    f"reward model: a joint response must hold one text of each of {list(prompts)}, actually "
                    f"{responses!r:.200}; give a list of dictionaries with those keys"
                )
        names = self.agents if self.agents is not None and set(self.agents) == set(prompts) else tuple(prompts)
        asked = [prompts[agent] for agent in names]
        return self.score([(asked, [responses[agent] for agent in names]) for responses in joint_responses])
