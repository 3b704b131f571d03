"""Whether the prompts of an environment fit into the context of the models, found out before anything is sampled."""

from collections.abc import Mapping
from typing import Any

from comlrl_agents.items import first_items
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.questions import Start, agent_prompt
from comlrl_agents.types import Policy
from comlrl_env.parallel import begin

LOOKED_AT = 1024
"""Items of an environment that tells how many it has; tokenising their prompts takes a second."""
LOOKED_AT_ENDLESS = 8


def refuse_long_prompts(team: Mapping[str, Policy], env: Any, count: int | None = None) -> None:
    """Encode the prompts of the first ``count`` items for every agent that is a local model.

    None looks at all items of a moderate number, and at a few seeds of an endless source. What comes later is refused
    when it is to be answered.

    Raises:
        ConfigError: a prompt and its answer do not fit; it names the agent, the item and the lengths.

    """
    if count is None:
        count = LOOKED_AT_ENDLESS if getattr(env, "num_items", None) is None else LOOKED_AT
    for reset in first_items(env, count):
        start = Start(*begin(env, reset.seed, reset.options))
        for agent, policy in team.items():
            if isinstance(policy, LLMPolicy) and agent in start.prompts:
                item = start.infos.get(agent, {}).get("item", f"of seed {reset.seed}")
                length = len(policy.encode(agent_prompt(start, agent, policy)))
                policy.refuse_too_long(length, policy.sampling.max_new_tokens, f"agent {agent!r}, item {item}: ")
