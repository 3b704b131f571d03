"""One text for a whole team: how all roles are asked at once, and how the answer is taken apart again."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from comlrl_env.errors import ConfigError

# Bounded white space keeps the search linear whatever a model writes.
_TAG = re.compile(r"<\s{0,8}(/?)\s{0,8}agent_(\d{1,6})\s{0,8}>", re.IGNORECASE)


class JointAdapter(Protocol):
    """Builds the prompt for all roles and reads the answer; replace it to speak another format."""

    def build_prompt(self, item: Any, prompts: Sequence[str]) -> str:
        """One prompt from those of all agents. ``item``: the item's data, None where an environment tells none."""
        ...

    def parse_completion(self, text: str, item: Any, n: int) -> Sequence[str] | None:
        """``n`` responses in the order of the agents; None when nothing in the text can be read."""
        ...


class SectionAdapter:
    """Each agent's prompt under a heading, each agent's answer in a section ``<agent_0>…</agent_0>``.

    Reading ignores case and white space in tags and white space around an answer, takes the first section of an agent,
    and gives "" for an agent without one. A text with no section at all is unreadable.
    """

    def build_prompt(self, item: Any, prompts: Sequence[str]) -> str:
        """All prompts, then the form of the answer."""
        parts = [f"{len(prompts)} agents work together. You write the answers of all of them."]
        parts += [f"Prompt of agent_{k}:\n{prompt}" for k, prompt in enumerate(prompts)]
        form = "\n".join(f"<agent_{k}>\nthe answer of agent_{k}\n</agent_{k}>" for k in range(len(prompts)))
        return "\n\n".join([*parts, f"Write one section for each agent, and nothing else:\n{form}"]) + "\n"

    def parse_completion(self, text: str, item: Any, n: int) -> list[str] | None:
        """The first closed section of each agent."""
        opened: dict[int, int] = {}
        found: dict[int, str] = {}
        for tag in _TAG.finditer(text):
            agent = int(tag[2])
            if agent >= n or agent in found:
                continue
            if not tag[1]:
                opened.setdefault(agent, tag.end())
            elif agent in opened:
                found[agent] = text[opened[agent] : tag.start()].strip()
        return [found.get(agent, "") for agent in range(n)] if found else None


def read_roles(adapter: JointAdapter, text: str, item: Any, n: int) -> list[str] | None:
    """What the adapter reads in ``text``, checked: ``n`` texts, or None for an unreadable one.

    Raises ConfigError when the adapter gives anything else.
    """
    roles = adapter.parse_completion(text, item, n)
    if roles is None:
        return None
    if isinstance(roles, str) or len(roles) != n or not all(isinstance(role, str) for role in roles):
        raise ConfigError(
            f"joint_adapter: {type(adapter).__name__}.parse_completion must give {n} texts, or None for an unreadable "
            f"one, actually {roles!r:.200}"
        )
    return list(roles)


def joint_prompt(adapter: JointAdapter, item: Any, prompts: Sequence[str]) -> str:
    """What the adapter asks, checked. Raises ConfigError when it is no text or an empty one."""
    prompt = adapter.build_prompt(item, list(prompts))
    if not isinstance(prompt, str) or not prompt:
        raise ConfigError(
            f"joint_adapter: {type(adapter).__name__}.build_prompt must give a text that is not empty, "
            f"actually {prompt!r}"
        )
    return prompt
