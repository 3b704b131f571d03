"""Standing at one point of an episode of any ParallelEnv and going on from there in several ways.

Two ways to branch: a deep copy of the environment, or the same seeded reset and actions once more. The copy is exact
and needs no seed, so it comes first. The replay is for environments that cannot be copied (open connections, running
processes) or whose copies forget the episode: an ``EzPickle`` environment is rebuilt from its constructor arguments.
"""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
from gymnasium.utils import EzPickle
from pettingzoo import AECEnv, ParallelEnv

from comlrl_env.errors import TaskError
from comlrl_env.parallel import acting_agents, advance, begin, read_prompts

Texts = dict[str, str]
Step = tuple[Texts, Mapping[str, Any], Mapping[str, Any]]


class Branch(Protocol):
    """One point of one episode; ``agents`` are those that act next, nobody once the episode is over."""

    agents: list[str]

    def fork(self) -> "Branch":
        """Another branch at the same point."""
        ...

    def step(self, actions: Texts) -> Step:
        """Go on by one joint action: prompts, rewards and infos."""
        ...


def can_copy(env: ParallelEnv[str, Any, Any]) -> bool:
    """Whether a deep copy of a freshly reset environment stands where the environment stands."""
    if _rebuilds_itself(env):
        return False
    try:
        twin = copy.deepcopy(env)
    except Exception:  # noqa: BLE001 - whatever an environment raises when copied, the answer is no
        return False
    return list(getattr(twin, "agents", ())) == list(env.agents)


class CopiedBranch:
    """A branch that owns a copy of the environment."""

    def __init__(self, env: ParallelEnv[str, Any, Any]) -> None:
        self._env = env
        self.agents = acting_agents(env)

    def fork(self) -> "CopiedBranch":
        """A deep copy: random streams are copied too, so all forks meet the same chance events."""
        return CopiedBranch(copy.deepcopy(self._env))

    def step(self, actions: Texts) -> Step:
        """See :class:`Branch`."""
        observations, rewards, _, _, infos = advance(self._env, dict(actions))  # it may change what it is given
        self.agents = acting_agents(self._env)
        return read_prompts(observations, self.agents), rewards, infos


class ReplayedBranch:
    """A branch that shares its environment with others and remembers how to come back.

    Raises TaskError when the same seed and actions lead to other prompts.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Any, Any],
        seed: int,
        options: dict[str, Any] | None,
        prompts: Texts,
        way: tuple[tuple[Texts, Texts], ...] = (),
    ) -> None:
        self._env, self._seed, self._options, self._prompts, self._way = env, seed, options, prompts, way
        self.agents = list(way[-1][1] if way else prompts)

    def fork(self) -> "ReplayedBranch":
        """A branch with the same past."""
        return ReplayedBranch(self._env, self._seed, self._options, self._prompts, self._way)

    def step(self, actions: Texts) -> Step:
        """Reset, replay, then go on; see :class:`Branch`."""
        observations, _ = begin(self._env, self._seed, self._options)
        self._compare(self._prompts, read_prompts(observations, acting_agents(self._env)))
        for past, prompts in self._way:
            observations, *_ = advance(self._env, dict(past))
            self._compare(prompts, read_prompts(observations, acting_agents(self._env)))
        observations, rewards, _, _, infos = advance(self._env, dict(actions))
        self.agents = acting_agents(self._env)
        prompts = read_prompts(observations, self.agents)
        self._way = (*self._way, (actions, prompts))
        return prompts, rewards, infos

    def _compare(self, first: Texts, now: Texts) -> None:
        if first != now:
            agent = next(name for name in {**first, **now} if first.get(name) != now.get(name))
            raise TaskError(
                f"{type(self._env.unwrapped).__name__}: expected reset(seed={self._seed}) and the same actions to give "
                f"the same prompts, actually {agent!r} read {first.get(agent)!r} and then {now.get(agent)!r}: the "
                "environment ignores its seed, so the candidates of one item would be judged on different items; "
                "draw everything in reset from its seed, or let copy.deepcopy copy the environment"
            )


def _rebuilds_itself(env: Any) -> bool:
    """Whether the environment, or one inside it, loses its state when copied."""
    seen: set[int] = set()
    waiting = [env]
    while waiting:
        layer = waiting.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        if isinstance(layer, EzPickle) and not hasattr(type(layer), "__deepcopy__"):
            return True
        inner = vars(layer).values() if hasattr(layer, "__dict__") else ()
        waiting.extend(value for value in inner if isinstance(value, ParallelEnv | AECEnv | gymnasium.Env | EzPickle))
    return False
