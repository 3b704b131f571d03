"""Checks of any ParallelEnv, stricter than PettingZoo's: each yields what it saw and what to mend."""

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from gymnasium.spaces import Space
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import ParallelEnv

from comlrl_env.env import TextEnv

AnyEnv = ParallelEnv[Any, Any, Any]
MAX_STEPS = 1000
HOSTILE_TURNS = 5
SEEDS = range(8)

HOSTILE = {
    "an empty answer": "",
    "an answer of blanks": " \n\t \u3000",
    "unicode": "ñ 漢字 🙂 👩‍👩‍👧 e\u0301 \u202eabc",
    "digits of other scripts": "²٣५ Ⅷ ①",
    "control characters": "\x00\x07\x1b[31m\x7f\u200b",
    "quotes and braces": "'\"`\\ ${x} {0} %s </s> <|im_end|>",
    "numbers": "NaN, -inf, 1e999, 0x7f, -0",
    "one huge word": "a" * 200_000,
    "very many lines": "a, b\n" * 40_000,
    "deep nesting": "(" * 5_000,
    "a lone surrogate": "a\ud800b",
}


class Finding(msgspec.Struct, frozen=True):
    """One fault: the name of the check, what was seen, and what to mend."""

    check: str
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.check}: {self.problem}. To mend: {self.mend}"


class BrokenError(Exception):
    """A call of the environment raised: the running check cannot go on."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def attempt(check: str, what: str, mend: str, call: Callable[[], Any]) -> Any:
    """Return ``call()``; when it raises, raise :class:`BrokenError` with the finding."""
    try:
        return call()
    except Exception as error:
        raise BrokenError(Finding(check, f"{what} raised {type(error).__name__}: {error!s:.300}", mend)) from error


def reset(env: AnyEnv, **kwargs: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Reset the environment; a wrong form is a :class:`BrokenError`."""
    shown = ", ".join(f"{key}={value!r}" for key, value in kwargs.items())
    mend = "accept reset(seed=None, options=None), return (observations, infos) and ignore options you do not know"
    made = attempt("reset", f"reset({shown})", mend, lambda: env.reset(**kwargs))
    if not (isinstance(made, tuple) and len(made) == 2 and all(isinstance(part, dict) for part in made)):
        raise BrokenError(Finding("reset", f"reset({shown}) returned {type(made).__name__}", mend))
    return made


def step(env: AnyEnv, actions: Mapping[Any, Any], check: str = "step", what: str = "step") -> tuple[Any, ...]:
    """Step the environment; a wrong form is a :class:`BrokenError`."""
    mend = "return five dictionaries with one entry per agent; an answer is data and must never raise"
    made = attempt(check, what, mend, lambda: env.step(dict(actions)))
    if not (isinstance(made, tuple) and len(made) == 5 and all(isinstance(part, dict) for part in made)):
        raise BrokenError(Finding(check, f"{what} returned {type(made).__name__}, not five dictionaries", mend))
    return made


def sample_actions(env: AnyEnv, observations: Mapping[Any, Any]) -> dict[Any, Any]:
    """Draw one action for every live agent, within its mask when the observation has one."""
    actions = {}
    for agent in env.agents:
        seen = observations.get(agent)
        mask = seen.get("action_mask") if isinstance(seen, Mapping) else None
        space: Space[Any] = env.action_space(agent)
        actions[agent] = space.sample() if mask is None else space.sample(mask=mask)
    return actions


def seed_spaces(env: AnyEnv) -> None:
    """Seed every action space, so that a run can be repeated."""
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(1000 + number)


def check_structure(env: AnyEnv) -> Iterator[Finding]:
    """Agents, spaces and metadata."""
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, list) or not agents or len(set(agents)) != len(agents):
        mend = "set possible_agents to a list of different names in __init__"
        raise BrokenError(Finding("agents", f"possible_agents is {agents!r}", mend))
    for kind, agent in itertools.product(("observation_space", "action_space"), agents):
        get: Callable[[Any], Any] = getattr(env, kind)
        mend = f"define {kind}(agent) and return a gymnasium Space made once in __init__"
        first = attempt("spaces", f"{kind}({agent!r})", mend, functools.partial(get, agent))
        if not isinstance(first, Space):
            raise BrokenError(Finding("spaces", f"{kind}({agent!r}) is {first!r:.80}", mend))
        if get(agent) is not first:
            mend = "make the spaces once in __init__ and return the same object each time, or seeding them is lost"
            yield Finding("spaces", f"{kind}({agent!r}) makes a new object at each call", mend)
    if not isinstance(getattr(env, "metadata", None), dict):
        yield Finding("metadata", "metadata is no dict", "set metadata = {'name': …, 'render_modes': […]}")


def check_reset(env: AnyEnv) -> Iterator[Finding]:
    """What reset returns, and that it bears unknown options."""
    observations, infos = reset(env, seed=0, options={"options": 1, "an unknown option": None})
    if sorted(map(str, env.agents)) != sorted(map(str, env.possible_agents)):
        problem = f"agents is {env.agents!r} after reset"
        yield Finding("agents", problem, "set agents = possible_agents[:] in reset, everyone answers at once")
    for name, part in (("observations", observations), ("infos", infos)):
        missing = [agent for agent in env.agents if agent not in part]
        if missing:
            mend = f"return one entry of {name} for every agent"
            raise BrokenError(Finding("reset", f"{name} lack {missing}", mend))
    yield from outside(env, observations, "reset")


def check_seed(env: AnyEnv) -> Iterator[Finding]:
    """The same seed gives the same episode, whatever came before."""
    mend = "draw everything in reset from a generator made from the seed (gymnasium.utils.seeding.np_random(seed))"
    for seed in SEEDS:
        first, _ = reset(env, seed=seed)
        second, _ = reset(env, seed=seed)
        if not data_equivalence(first, second):
            yield Finding("seed", f"reset(seed={seed}) gave two different observations: the seed is ignored", mend)
            return
    if isinstance(env, TextEnv) and env.num_items > 1:
        keys = {env.reset(seed=seed)[1][env.possible_agents[0]]["item"] for seed in range(32)}
        if len(keys) == 1:
            yield Finding("seed", f"32 seeds all gave item {keys.pop()!r}: the seed is ignored", mend)


def check_episodes(env: AnyEnv, episodes: int) -> Iterator[Finding]:
    """Whole episodes of random actions: spaces, rewards, ends."""
    for episode in range(episodes):
        observations, _ = reset(env, seed=episode)
        for _ in range(MAX_STEPS):
            live = list(env.agents)
            made = step(env, sample_actions(env, observations))
            observations, rewards, terminations, truncations, infos = made
            for name, part in zip(
                ("observations", "rewards", "terminations", "truncations", "infos"), made, strict=True
            ):
                missing = [agent for agent in live if agent not in part]
                if missing:
                    mend = f"return one entry of {name} for every agent that acted"
                    raise BrokenError(Finding("step", f"{name} lack {missing}", mend))
            yield from outside(env, {agent: observations[agent] for agent in live}, "step")
            yield from faulty_rewards({agent: rewards[agent] for agent in live}, infos)
            done = [agent for agent in live if terminations[agent] or truncations[agent]]
            if sorted(map(str, env.agents)) != sorted(str(agent) for agent in live if agent not in done):
                problem = f"agents is {env.agents!r} when {done} have just finished"
                yield Finding("agents", problem, "remove finished agents; after the last step agents must be []")
                break
            if not env.agents:
                break
        else:
            problem = f"an episode has not ended after {MAX_STEPS} steps"
            yield Finding("ends", problem, "terminate or truncate every episode")
            return


def check_repeatable(env: AnyEnv) -> Iterator[Finding]:
    """The same seed and actions give the same rewards, whatever was scored in between."""
    observations, _ = reset(env, seed=0)
    seed_spaces(env)
    tried = [sample_actions(env, observations) for _ in range(4)]
    rounds = []
    for _ in range(3):
        results = []
        for actions in tried:
            reset(env, seed=0)
            results.append(visible_results(step(env, actions)))
        rounds.append(results)
    if not all(data_equivalence(rounds[0], other) for other in rounds[1:]):
        mend = (
            "make the score a pure function of item and answers: no unseeded randomness, no clock, no counter, nothing "
            "remembered between calls"
        )
        problem = "the same seed and actions gave different rewards or observations: the oracle is impure"
        yield Finding("purity", problem, mend)


def check_hostile(env: AnyEnv) -> Iterator[Finding]:
    """Empty, huge, unicode and malformed answers are data, from everyone or from one agent."""
    writers = [agent for agent in env.possible_agents if isinstance(env.action_space(agent).sample(), str)]
    mend = "answers of a model are data: catch what your code raises and return a score with a reason"
    for label, text in HOSTILE.items():
        able = [agent for agent in writers if isinstance(env, TextEnv) or env.action_space(agent).contains(text)]
        for who in [able, able[:1], able[-1:]] if len(able) > 1 else [able]:
            try:
                yield from hostile_episode(env, label, who)
            except BrokenError as broken:
                yield Finding("hostile", broken.finding.problem, mend)
                return


def hostile_episode(env: AnyEnv, label: str, who: Sequence[Any]) -> Iterator[Finding]:
    """Play the first turns with one hostile text from these agents; raise :class:`BrokenError` where that fails."""
    observations, _ = reset(env, seed=0)
    for _ in range(HOSTILE_TURNS):
        writing = [agent for agent in who if agent in env.agents]
        if not writing:
            return
        actions = sample_actions(env, observations) | dict.fromkeys(writing, HOSTILE[label])
        observations, rewards, _, _, infos = step(env, actions, "hostile", f"step with {label} from {writing}")
        info = infos.get(writing[0])
        status = info.get("reward_status", "ok") if isinstance(info, Mapping) else "ok"
        if status != "ok":
            reason = f"{status}: {info.get('reward_reason')!s:.300}"
            raise BrokenError(Finding("hostile", f"the oracle failed on {label} from {writing} ({reason})", ""))
        yield from faulty_rewards(rewards, infos)


def check_copies(env: AnyEnv) -> Iterator[Finding]:
    """Deep copies are independent: a slate of K candidates steps K copies of one environment."""
    observations, _ = reset(env, seed=0)
    seed_spaces(env)
    actions, others = sample_actions(env, observations), sample_actions(env, observations)
    mend = "make copy.deepcopy(env) work: keep no open files, locks, sockets or generators in the environment"
    twin, spare = attempt("copies", "copy.deepcopy", mend, lambda: (copy.deepcopy(env), copy.deepcopy(env)))
    step(spare, others)
    copied, original = (visible_results(step(one, actions)) for one in (twin, env))
    if not data_equivalence(copied, original):
        mend = "keep the episode's state in attributes that copy.deepcopy copies, not in the class or a module"
        yield Finding("copies", "a deep copy and its original gave different results for the same actions", mend)


def visible_results(made: tuple[Any, ...]) -> tuple[Any, dict[Any, str]]:
    """Observations, and rewards as text so that NaN equals NaN; infos may hold clock readings."""
    return made[0], {agent: repr(reward) for agent, reward in made[1].items()}


def outside(env: AnyEnv, observations: Mapping[Any, Any], where: str) -> Iterator[Finding]:
    """A finding for the first observation that its space does not contain."""
    for agent in env.possible_agents:
        if agent in observations and not env.observation_space(agent).contains(observations[agent]):
            seen, space = observations[agent], env.observation_space(agent)
            problem = f"{where} gave {agent} {type(seen).__name__} {seen!r:.80}, which is outside {space!r:.80}"
            yield Finding("observation", problem, "return what the space contains, or widen observation_space(agent)")
            return


def faulty_rewards(rewards: Mapping[Any, Any], infos: Mapping[Any, Any]) -> Iterator[Finding]:
    """Findings for rewards that are no number, not finite without a failed status, or not shared."""
    values = {}
    for agent, reward in rewards.items():
        try:
            values[agent] = math.nan if isinstance(reward, str) else float(reward)
        except (TypeError, ValueError):
            problem = f"the reward of {agent} is {type(reward).__name__} {reward!r:.80}"
            yield Finding("reward", problem, "return one float per agent")
            return
        info = infos.get(agent)
        status = info.get("reward_status", "ok") if isinstance(info, Mapping) else "ok"
        if not math.isfinite(values[agent]) and status == "ok":
            problem = f"the reward of {agent} is {reward!r} while its status is ok"
            mend = "return a finite number, or say in infos[agent]['reward_status'] that the oracle failed"
            yield Finding("reward", problem, mend)
            return
    if len({repr(value) for value in values.values()}) > 1:
        problem = f"the agents got different rewards {values}"
        mend = "give every agent the same float, or name a rule: PreferenceWrapper(env, reward_rule='mean')"
        yield Finding("shared reward", problem, mend)
