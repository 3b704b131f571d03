"""Texts around environments whose observations and actions are not text."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, Space
from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

from comlrl_env.errors import ActionError, ConfigError
from comlrl_env.parallel import advance, begin
from comlrl_env.spaces import UnicodeText

Observe = Callable[[str, Any, Space[Any]], str]
Act = Callable[[str, str, Space[Any]], Any]
StepResult = tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]


class TextAdapter(BaseParallelWrapper[str, str, str]):
    """Lets language models play an environment of numbers.

    ``observe(agent, observation, action_space)`` writes the prompt; the default shows the observation and the choices.
    ``act(agent, text, action_space)`` reads the action out of an answer and returns None when it finds none; the
    default takes the first integer of a Discrete space, or the first of ``names`` (the names of the actions 0, 1, …).

    An answer without an action, or with one that the observation's ``action_mask`` forbids, plays the first action
    that is allowed (in a space that is not Discrete: always the same one), and ``infos[agent]["parse_failed"]``
    counts such answers of the agent in this episode: an unreadable answer is data, not an error.

    Raises ConfigError at construction when an action space is not Discrete and ``act`` is missing.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        observe: Observe | None = None,
        act: Act | None = None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(env)
        for agent in env.possible_agents:
            if act is None and not isinstance(env.action_space(agent), Discrete):
                raise ConfigError(
                    f"TextAdapter: expected a Discrete action space for {agent!r}, actually {env.action_space(agent)}: "
                    "pass act=function(agent, text, action_space)"
                )
        self._observe: Observe = observe or (lambda agent, seen, space: describe(agent, seen, space, names))
        self._act: Act = act or (lambda agent, text, space: read_choice(text, space, names))
        self._texts = {agent: UnicodeText() for agent in env.possible_agents}
        self._seen: dict[str, Any] = {}
        self._failures: dict[str, int] = {}

    def observation_space(self, agent: str) -> UnicodeText:
        """Texts, the same object each time."""
        return self._texts[agent]

    def action_space(self, agent: str) -> UnicodeText:
        """Texts, the same object each time."""
        return self._texts[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        observations, infos = begin(self.env, seed, options)
        self._failures = dict.fromkeys(self.env.possible_agents, 0)
        return self._describe(observations), infos

    def step(self, actions: Mapping[str, str]) -> StepResult:
        """Read an action out of each text and play them. Raises ActionError for an action that is no str."""
        observations, rewards, terminations, truncations, infos = advance(
            self.env, {agent: self._read(agent, text) for agent, text in actions.items()}
        )
        infos = {agent: {**info, "parse_failed": self._failures[agent]} for agent, info in infos.items()}
        return self._describe(observations), rewards, terminations, truncations, infos

    def _describe(self, observations: Mapping[str, Any]) -> dict[str, str]:
        self._seen = dict(observations)
        return {agent: self._observe(agent, seen, self.env.action_space(agent)) for agent, seen in observations.items()}

    def _read(self, agent: str, text: str) -> Any:
        if not isinstance(text, str):
            raise ActionError(f"action of {agent!r}: expected a str, actually {text!r:.80}")
        space = self.env.action_space(agent)
        action = self._act(agent, text, space)
        allowed = _allowed(self._seen.get(agent), space)
        if action is not None and (allowed is None or action in allowed):
            return action
        self._failures[agent] += 1
        if allowed is not None:
            return allowed[0]
        fixed = copy.deepcopy(space)
        fixed.seed(0)
        return fixed.sample()


def describe(agent: str, observation: Any, space: Space[Any], names: Sequence[str] = ()) -> str:
    """A plain prompt: who the agent is, what it observes, and which actions it may choose."""
    seen = observation["observation"] if _has_mask(observation) else observation
    lines = [f"You are {agent}.", f"You observe: {np.array2string(seen) if isinstance(seen, np.ndarray) else seen}"]
    allowed = _allowed(observation, space)
    if allowed is None:
        lines.append("Answer with an action.")
    else:
        start = int(getattr(space, "start", 0))
        choices = [f"{k} ({names[k - start]})" if k - start < len(names) else str(k) for k in allowed]
        lines.append(f"Answer with one of these actions: {', '.join(choices)}.")
    return "\n".join(lines)


def read_choice(text: str, space: Space[Any], names: Sequence[str] = ()) -> int | None:
    """The first integer or name in the text, as an action of a Discrete space; None if it is missing or outside."""
    assert isinstance(space, Discrete)
    start = int(space.start)
    known = [name.casefold() for name in names]
    options = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    pattern = r"(?<!\w)(?:(-?\d{1,18})" + (f"|({options})" if options else "") + r")(?!\w)"
    found = re.search(pattern, text.casefold())
    if found is None:
        return None
    choice = int(found[1]) if found[1] is not None else start + known.index(found[2])
    return choice if start <= choice < start + int(space.n) else None


def _has_mask(observation: Any) -> bool:
    return isinstance(observation, Mapping) and "action_mask" in observation and "observation" in observation


def _allowed(observation: Any, space: Space[Any]) -> list[int] | None:
    """The actions that an agent may play, None where they cannot be listed."""
    if not isinstance(space, Discrete):
        return None
    every = range(int(space.start), int(space.start) + int(space.n))
    if not _has_mask(observation):
        return list(every)
    legal = [action for action, free in zip(every, observation["action_mask"], strict=True) if free]
    return legal or list(every)
