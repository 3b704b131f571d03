"""The records that pass between tasks, environments, slates and learners: frozen, without tensors."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Status = Literal["ok", "timeout", "error"]


class Item(msgspec.Struct, frozen=True):
    """One instance of a task.

    ``key`` is unique over all splits of the task; ``data`` is what the task needs to write prompts and to score.
    """

    key: str
    data: Mapping[str, Any]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What an oracle says about one joint response.

    ``reward`` is the shared scalar; it is NaN exactly when ``status`` is not ``"ok"``, because a broken oracle is not
    a zero. ``parts`` explains the reward by name, ``reason`` says in words why it is low or missing.
    """

    reward: float
    parts: Mapping[str, float] = {}
    status: Status = "ok"
    reason: str = ""
    is_success: bool | None = None

    def __post_init__(self) -> None:
        if (self.status == "ok") != math.isfinite(self.reward):
            raise ValueError(
                f"Score: expected a finite reward with status 'ok' and NaN with any other status, "
                f"actually reward {self.reward!r} with status {self.status!r} (reason: {self.reason!r})"
            )

    @classmethod
    def failed(cls, status: Literal["timeout", "error"], reason: str) -> "Score":
        """The score of a joint response that the oracle could not judge."""
        return cls(reward=math.nan, status=status, reason=reason)


class Turn(msgspec.Struct, frozen=True):
    """One finished turn of an episode; a history is a tuple of these, empty in the first turn."""

    prompts: Mapping[str, str]
    responses: Mapping[str, str]
    score: Score


class Completion(msgspec.Struct, frozen=True):
    """One agent's answer in a stored pair.

    ``token_ids`` are exactly the sampled tokens, the closing EOS included; ``finished`` tells whether the model ended
    by itself (the last token is an EOS) or was cut. Both are ``None`` for text that did not come from a local model.
    """

    text: str
    token_ids: tuple[int, ...] | None = None
    finished: bool | None = None


class JointTurn(msgspec.Struct, frozen=True):
    """What all agents saw and said in one turn, in the order of the environment's agents."""

    prompts: tuple[str, ...]
    completions: tuple[Completion, ...]
    prompt_ids: tuple[tuple[int, ...], ...] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The joint response as text, one string per agent."""
        return tuple(completion.text for completion in self.completions)


class PreferencePair(msgspec.Struct, frozen=True, kw_only=True):
    """A preferred and a rejected joint response to one item, turn by turn (one turn is the ordinary case).

    Rewards are processed oracle scores; ``raw_rewards`` (winner, loser), ``target_raw_reward`` and
    ``comparator_raw_reward`` are scores before the reward processor and exist in iterative training only. ``by_task``:
    whether the environment scored them, and not another judge such as a reward model.
    """

    winner: tuple[JointTurn, ...]
    loser: tuple[JointTurn, ...]
    winner_reward: float
    loser_reward: float
    candidate_reward_mean: float
    raw_rewards: tuple[float, float] | None = None
    target_raw_reward: float | None = None
    comparator_raw_reward: float | None = None
    item_key: str | None = None
    agents: tuple[str, ...] | None = None
    by_task: bool = True
