"""From the state of an environment to what a policy is asked."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from comlrl_agents.types import Generation, Policy, Prompt, Sampling
from comlrl_env.errors import ConfigError
from comlrl_env.task import History
from comlrl_env.types import Item


class Start(NamedTuple):
    """What all agents see of one item; where the environment tells them, the item and the turns played so far."""

    prompts: Mapping[str, str]
    infos: Mapping[str, Any]
    item: Item | None = None
    history: History = ()

    @property
    def data(self) -> Any:
        """The item's data, None where the environment tells no item."""
        return getattr(self.item, "data", None)


def start_of(env: Any, prompts: Mapping[str, str], infos: Mapping[str, Any]) -> Start:
    """The state of an environment that has just given ``prompts`` and ``infos``."""
    inner = getattr(env, "unwrapped", env)
    return Start(prompts, infos, getattr(inner, "item", None), getattr(inner, "history", ()))


def refuse_more_turns(finished: bool) -> None:
    """Raise ConfigError when an episode that is learned from goes on after its first turn."""
    if not finished:
        raise ConfigError(
            "env: training covers environments of one turn so far, actually an episode goes on after it; end it there, "
            "or fold the turns into one prompt"
        )


def agent_prompt(start: Start, agent: str, policy: Policy) -> Prompt:
    """What a policy is asked: the chat form where the policy can use it and the environment offers it."""
    if getattr(policy, "uses_chat", False):
        messages: Prompt | None = start.infos.get(agent, {}).get("messages")
        return messages or start.prompts[agent]
    return start.prompts[agent]


def ask(
    policy: Policy,
    prompts: Sequence[Prompt],
    starts: Sequence[Start],
    n: int,
    rng: np.random.Generator,
    sampling: Sampling | None = None,
) -> list[list[Generation]]:
    """``n`` answers per prompt, fewer where a remote model failed.

    ``starts``: where the prompts come from; remote models tell their server the items, scripted players know the task.
    ``sampling``: instead of the policy's own; a scripted policy has none.
    """
    extras: dict[str, Any] = {}
    if hasattr(policy, "sampling") and sampling is not None:
        extras["sampling"] = sampling
    if getattr(policy, "takes_items", False):
        extras["items"] = [start.data for start in starts]
    if getattr(policy, "takes_starts", False):
        extras["starts"] = starts
    return policy.generate(prompts, n, rng, **extras)


def ask_each(
    policy: Policy, prompts: Sequence[Prompt], starts: Sequence[Start], rngs: Sequence[np.random.Generator]
) -> list[list[Generation]]:
    """One answer per prompt (none where a remote model failed), drawn with the prompt's own generator where the policy
    can do that (``generate_each``), so that it does not depend on what else is asked beside it.

    Any other policy, remote models among them, is asked for all at once with the first generator.
    """
    if not prompts:
        return []
    if not _answers_each(policy):
        return ask(policy, prompts, starts, 1, rngs[0])
    answer: Any = policy
    extras = {"starts": starts} if getattr(policy, "takes_starts", False) else {}
    found: list[list[Generation]] = answer.generate_each(prompts, rngs, **extras)
    return found


def _answers_each(policy: Policy) -> bool:
    """Whether ``generate_each`` is there, and no way of answering that a subclass or somebody has put before it."""

    def place(name: str) -> float:
        if name in getattr(policy, "__dict__", {}):
            return -1
        return next((at for at, kind in enumerate(type(policy).__mro__) if name in vars(kind)), math.inf)

    each = place("generate_each")
    return each < math.inf and each <= min(place("generate"), place("generate_draws"))
