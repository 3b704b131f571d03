"""A person as one agent of a team, or as all of them, in a terminal."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from comlrl_agents.types import Policy
from comlrl_env.errors import ConfigError
from comlrl_env.parallel import advance, begin

BLOCK = '"""'
HOW_TO = f"(an empty line ends your answer; a text with empty lines goes between two lines of {BLOCK})"
Infos = Mapping[str, Mapping[str, Any]]


class Left(Exception):  # noqa: N818 - a person's wish, not an error
    """The person wants to stop."""


class Game:
    """Plays episodes of a text environment with a person in it.

    ``env``: any ParallelEnv whose observations and actions are texts. ``person``: the name of an agent, or
    ``"all"``. ``others``: who plays the rest; ``"scripted"`` gives random valid answers, ``"tiny"`` is the
    embedded model. ``read(prompt)`` returns one line or raises EOFError; ``say`` prints.

    Raises ConfigError when there is no such agent, or nothing scripted to play the others.
    """

    def __init__(
        self,
        env: Any,
        *,
        person: str | None = None,
        others: str = "scripted",
        seed: int = 0,
        read: Callable[[str], str] = input,
        say: Callable[[str], None],
    ) -> None:
        names = list(env.possible_agents)
        person = names[0] if person is None else person
        if person not in ("all", *names):
            raise ConfigError(f"--as: expected one of {', '.join(names)} or all, actually {person!r}")
        if others not in ("scripted", "tiny"):
            raise ConfigError(f"--others: expected scripted or tiny, actually {others!r}")
        self.env, self._read, self._say = env, read, say
        self._people = names if person == "all" else [person]
        self._seed: int | None = seed
        self._rng = np.random.default_rng(seed)
        self._policy: Policy | None = None
        if len(self._people) < len(names):
            if others == "tiny":
                from comlrl_agents.policy import load_policy
                from comlrl_agents.terminal import quiet_loading

                quiet_loading()
                self._policy = load_policy("tiny")
            else:
                _check_scripted(env)

    def run(self) -> None:
        """Play until the person leaves: end of input, Ctrl-C, or ``q`` between two episodes."""
        try:
            while True:
                self.episode()
                if self._read("Enter for another item, q to stop: ").strip().lower() == "q":
                    break
        except (EOFError, KeyboardInterrupt, Left):
            self._say("")
        self._say("Thank you for playing.")

    def episode(self) -> None:
        """One item from its prompts to its last score. Raises :class:`Left` when the person leaves."""
        prompts, infos = begin(self.env, self._seed)
        self._seed = None  # the next items follow from the first seed
        _check_text(prompts)
        names = list(self.env.agents)
        turn = 1
        self._say(_rule(f"item {infos.get(names[0], {}).get('item', '')}".rstrip()))
        while self.env.agents:
            joint = {agent: self._answer(agent, prompts[agent], turn) for agent in self.env.agents}
            for agent, text in joint.items():
                if agent not in self._people:
                    self._say(f"{_rule(f'{agent} answers')}\n{text}")
            prompts, rewards, _, _, infos = advance(self.env, joint)
            self._say(verdict(names[0], rewards, infos))
            turn += 1

    def _answer(self, agent: str, prompt: str, turn: int) -> str:
        if agent in self._people:
            self._say(f"{_rule(f'you are {agent}, turn {turn}')}\n{prompt}\n{_rule('your answer')}\n{HOW_TO}")
            return read_answer(self._read)
        if self._policy is not None:
            return self._policy.generate([prompt], 1, self._rng)[0][0].text
        task = getattr(self.env, "task", None)
        if task is None:
            space = self.env.action_space(agent)
            space.seed(int(self._rng.integers(2**31)))
            return str(space.sample())
        answers: Mapping[str, str] = task.sample_answers(self.env.item, self._rng, self.env.history)
        return answers[agent]


def read_answer(read: Callable[[str], str]) -> str:
    """One answer: lines up to an empty one, or everything between two lines of three quotes.

    The end of the input ends an answer too; with nothing typed before it, :class:`Left` is raised.
    """
    lines: list[str] = []
    block = False
    while True:
        try:
            line = read("... " if lines or block else "> ")
        except EOFError:
            if lines:
                break
            raise Left from None
        if line.strip() == BLOCK and (block or not lines):
            if block:
                break
            block = True
        elif not line and not block:
            break
        else:
            lines.append(line)
    return "\n".join(lines)


def verdict(agent: str, rewards: Mapping[str, float], infos: Infos) -> str:
    """What the environment made of a joint answer, in words."""
    info = infos.get(agent, {})
    status = info.get("reward_status", "ok")
    shared = set(rewards.values())
    if status != "ok":
        said = f"no score ({status})"
    elif len(shared) == 1:
        said = f"reward {shared.pop():.4g}"
    else:
        said = "rewards " + ", ".join(f"{name} {value:.4g}" for name, value in rewards.items())
    lines = [_rule(said)]
    lines += [f"  {name}: {value:.4g}" for name, value in info.get("reward_components", {}).items()]
    if info.get("reward_reason"):
        lines.append(f"  {info['reward_reason']}")
    if info.get("is_success"):
        lines.append("  solved")
    return "\n".join(lines)


def _check_scripted(env: Any) -> None:
    task = getattr(env, "task", None)
    if task is not None and not hasattr(task, "sample_answers"):
        raise ConfigError(
            f"--others: 'scripted' needs sample_answers, which {type(task).__name__} does not have; "
            "use --others tiny, or --as all"
        )


def _check_text(prompts: Mapping[str, Any]) -> None:
    for agent, prompt in prompts.items():
        if not isinstance(prompt, str):
            raise ConfigError(
                f"env: a person can read texts only, actually {agent} is shown a {type(prompt).__name__}; "
                "wrap the environment in comlrl_env.wrappers.TextAdapter"
            )


def _rule(title: str) -> str:
    return f"\n── {title} " + "─" * max(4, 66 - len(title))
