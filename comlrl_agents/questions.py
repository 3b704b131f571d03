"""From the state of an environment to what a policy is asked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from comlrl_agents.types import Generation, Policy, Prompt, Sampling


class Start(NamedTuple):
    """What all agents see of one item; ``item`` is its data where the environment tells them, else None."""

    prompts: Mapping[str, str]
    infos: Mapping[str, Any]
    item: Any = None


def item_data(env: Any) -> Any:
    """The data of the item that a freshly reset environment plays, None where it tells none."""
    item = getattr(getattr(env, "unwrapped", env), "item", None)
    return getattr(item, "data", None)


def agent_prompt(start: Start, agent: str, policy: Policy) -> Prompt:
    """What a policy is asked: the chat form where the policy can use it and the environment offers it."""
    if getattr(policy, "uses_chat", False):
        messages: Prompt | None = start.infos.get(agent, {}).get("messages")
        return messages or start.prompts[agent]
    return start.prompts[agent]


def ask(
    policy: Policy,
    prompts: Sequence[Prompt],
    items: Sequence[Any],
    n: int,
    rng: np.random.Generator,
    sampling: Sampling | None = None,
) -> list[list[Generation]]:
    """``n`` answers per prompt, fewer where a remote model failed; remote models may tell their server the items.

    ``sampling``: instead of the policy's own; a scripted policy has none.
    """
    extras: dict[str, Any] = {}
    if hasattr(policy, "sampling") and sampling is not None:
        extras["sampling"] = sampling
    if getattr(policy, "takes_items", False):
        extras["items"] = items
    return policy.generate(prompts, n, rng, **extras)
