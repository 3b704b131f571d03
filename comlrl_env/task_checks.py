"""Checks of a task behind a TextEnv: items, purity, gold answers and the infos."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from comlrl_env.env import TextEnv
from comlrl_env.env_checks import HOSTILE, Finding
from comlrl_env.errors import TaskError
from comlrl_env.figures import episode_return
from comlrl_env.items import SPLITS
from comlrl_env.players import players
from comlrl_env.task import History
from comlrl_env.types import Item, Score, Turn

# Splits with more items than this are looked at in so many evenly spaced places.
LOOKED_AT = 4096
LEAK_LENGTH = 20
# On so many items one agent alone is compared with the team.
COOPERATING = 8
# So many items are compared with what they were before the checks.
REMEMBERED = 64
INFO_KEYS = {"item", "role", "messages"}
SCORE_KEYS = {
    "raw_reward",
    "reward_components",
    "reward_status",
    "reward_reason",
    "oracle_latency",
    "is_success",
}


def check_infos(env: TextEnv) -> Iterator[Finding]:
    """Every info holds what learners and logs read."""
    _, infos = env.reset(seed=0)
    keys = INFO_KEYS
    for where in ("reset", "step"):
        for agent, info in infos.items():
            if not keys <= info.keys():
                problem = f"infos[{agent!r}] after {where} lacks {sorted(keys - info.keys())}"
                yield Finding("infos", problem, "keep what TextEnv puts into infos when you override reset or step")
                return
            chat = info["messages"]
            if not all(isinstance(m, Mapping) and {"role", "content"} <= m.keys() for m in chat):
                mend = "return [{'role': …, 'content': …}] for each agent from messages(item, history)"
                yield Finding("infos", f"messages of {agent} are {chat!r:.80}", mend)
                return
        if where == "reset":
            infos = env.step(dict.fromkeys(env.agents, "x"))[4]
            keys = INFO_KEYS | SCORE_KEYS


def check_items(env: TextEnv) -> Iterator[Finding]:
    """Keys are unique, items and prompts repeatable, and train and eval never meet."""
    seen: dict[str, dict[str, str]] = {}
    for split in SPLITS:
        try:
            items = env.task.items(split)
        except TaskError:  # a task made for one split only says so in this way
            continue
        places = np.unique(np.linspace(0, len(items) - 1, LOOKED_AT).astype(int)).tolist()
        marks: dict[str, str] = {}
        for index in places:
            item = items[index]
            prompts = env.task.prompts(item, ())
            if fingerprint(item) != fingerprint(items[index]) or prompts != env.task.prompts(items[index], ()):
                mend = "make item i a pure function of (seed, split, i, level) and its prompts one of the item"
                yield Finding("items", f"{split} item {index} differs when it is read again", mend)
                return
            if f"key {item.key}" in marks:
                yield Finding("items", f"two {split} items have the key {item.key!r}", "give each item its own key")
                return
            marks[f"key {item.key}"] = item.key
            marks[f"data {fingerprint_data(item)}"] = item.key
            if env.task.num_turns == 1:
                marks[f"prompts {sorted(prompts.items())!r}"] = item.key
        seen[split] = marks
    common = seen.get("train", {}).keys() & seen.get("eval", {}).keys()
    if common:
        mark = min(common)
        kind = mark.partition(" ")[0]
        problem = (
            f"train and eval overlap: train item {seen['train'][mark]!r} and eval item {seen['eval'][mark]!r} have the "
            f"same {kind} ({len(common)} such marks)"
        )
        yield Finding("overlap", problem, "divide the items so that no train item is an eval item under another key")


def check_item_option(env: TextEnv) -> Iterator[Finding]:
    """``options={"item": …}`` takes the index and the key, and nothing else."""
    agent = env.possible_agents[0]
    last = env.num_items - 1
    mend = "keep TextEnv's reset, or honour options['item'] as key and as index"
    key = env.reset(options={"item": last})[1][agent]["item"]
    again = env.reset(options={"item": key})[1][agent]["item"]
    if key != again:
        yield Finding("item option", f"item {last} has the key {key!r}, which gave item {again!r}", mend)
    try:
        env.reset(options={"item": "no such key"})
    except TaskError:
        return
    yield Finding("item option", "an unknown key was accepted", mend)


def check_oracle(env: TextEnv) -> Iterator[Finding]:
    """Plain answers can be scored at all."""
    for index in {0, env.num_items - 1}:
        env.reset(options={"item": index})
        scores = env.score_candidates([*valid_answers(env, env.item, ()), dict.fromkeys(env.agents, "yes")])
        if all(score.status != "ok" for score in scores):
            problem = (
                f"the oracle failed on every answer to item {env.item.key!r} ({scores[0].status}: {scores[0].reason})"
            )
            mend = "return a score with a finite reward for every answer; a failed one must be the exception"
            yield Finding("oracle", problem, mend)
            return


class ItemsUntouched:
    """Remembers some of the items that an environment plays, to see later whether scoring has changed them."""

    def __init__(self, env: TextEnv) -> None:
        self.env = env
        self._before: list[tuple[Item, str]] = []

    def remember(self) -> Iterator[Finding]:
        """To be asked before anything is scored; finds nothing."""
        items = self.env.split_items
        places = {*range(min(len(items), REMEMBERED)), len(items) - 1}
        self._before = [(item, fingerprint(item)) for item in (items[at] for at in sorted(places))]
        yield from ()

    def compare(self) -> Iterator[Finding]:
        """Neither the items nor the answers that are scored change."""
        mend = "leave item.data and responses as they are in score: copy what is to be changed"
        for item, before in self._before:
            if fingerprint(item) != before:
                problem = f"item {item.key!r} is another one after some answers were scored: the oracle is impure"
                yield Finding("purity", problem, mend)
                return
        item = self.env.split_items[0]
        answers = dict.fromkeys(self.env.possible_agents, "yes")
        given = dict(answers)
        try:
            self.env.task.score(item, (), given)
        except Exception:  # noqa: BLE001  (check_oracle and check_hostile say so)
            return
        if given != answers:
            yield Finding("purity", f"scoring changed the answers to item {item.key!r}: {given!r:.120}", mend)


def check_scores(env: TextEnv) -> Iterator[Finding]:
    """The score is a pure function of item, history and answers, alone or among others."""
    mend = (
        "make score (and score_many) a pure function of item, history and answers: no unseeded randomness, no clock, "
        "nothing remembered, no change of item.data, and no look at the other candidates"
    )
    for seed in range(3):
        env.reset(seed=seed)
        item = env.item
        before = fingerprint(item)
        candidates = some_answers(env, item, ())
        together = env.score_candidates(candidates)
        backwards = env.score_candidates(candidates[::-1])[::-1]
        alone = [env.score_candidates([candidate])[0] for candidate in candidates]
        if fingerprint(item) != before:
            yield Finding("purity", f"scoring changed the data of item {item.key!r}: the oracle is impure", mend)
            return
        for one, two in itertools.pairwise((together, backwards, alone)):
            for first, second in zip(one, two, strict=True):
                if not same_score(first, second):
                    problem = (
                        f"one joint answer to item {item.key!r} scored {first.reward!r} {dict(first.parts)} and "
                        f"{second.reward!r} {dict(second.parts)}: the oracle is impure"
                    )
                    yield Finding("purity", problem, mend)
                    return


def check_gold(env: TextEnv) -> Iterator[Finding]:
    """Gold answers reach the maximum, beat every other answer we know, and stand in no prompt."""
    task: Any = env.task
    if not hasattr(task, "gold"):
        return
    items = task.items(env.split)
    for index in sorted({0, len(items) // 2, len(items) - 1}):
        item = items[index]
        if task.gold(item) is None:
            continue
        turns = play(env, item, task.gold)
        failed = [turn.score.reason for turn in turns if turn.score.status != "ok"]
        if failed:
            yield Finding("gold", f"the oracle failed on the gold answer of {item.key!r}: {failed[0]}", "mend score")
            return
        total, last = math.fsum(turn.score.reward for turn in turns), turns[-1].score
        others = [play(env, item, constantly(answer)) for answer in some_answers(env, item, ())]
        returns = [math.fsum(t.score.reward for t in turns if t.score.status == "ok") for turns in others]
        best = max([*returns, 0.0])
        # Where everything lies in [0, 1] and the task does not say what success is, the maximum is taken to
        # be 1.
        unsure = last.is_success is None and total < 1 - 1e-6 and min([*returns, 0.0]) >= 0 and best <= 1
        if last.is_success is False or total < best - 1e-9 or unsure:
            problem = (
                f"gold of item {item.key!r} scores {total:.4g}, short of the maximum (another answer got {best:.4g})"
            )
            mend = "return answers that reach the maximum from gold(item), or set is_success where the maximum is not 1"
            yield Finding("gold", problem, mend)
            return
        for turn, (reader, prompt), (writer, text) in leaks(turns):
            problem = f"turn {turn}: the prompt of {reader} contains the gold answer of {writer} ({text!r:.60})"
            yield Finding("leak", problem, f"take the answer out of the prompt (it reads {prompt!r:.60})")
            return


def check_cooperation(env: TextEnv) -> Iterator[Finding]:
    """One agent that answers well does not earn what the team earns."""
    found = players(env.task)
    if not {"gold", "solo"} <= found.keys():
        return
    items = [env.task.items(env.split)[index] for index in range(min(COOPERATING, env.num_items))]
    items = [item for item in items if found["gold"](item, ()) is not None]
    try:
        means = {
            name: math.fsum(episode_return(env.task, item, found[name]) for item in items) for name in ("gold", "solo")
        }
    except TaskError:  # the oracle failed, which another check tells
        return
    if items and means["solo"] >= means["gold"] - 1e-9:
        problem = (
            f"one agent alone earns {means['solo'] / len(items):.4g} on the first items, the team "
            f"{means['gold'] / len(items):.4g}"
        )
        mend = "make the reward depend on what several agents do; solo(item) is the best that one of them can do alone"
        yield Finding("cooperation", problem, mend)


def leaks(turns: Sequence[Turn]) -> Iterator[tuple[int, tuple[str, str], tuple[str, str]]]:
    """Yield (turn, (agent, prompt), (agent, answer)) where a long answer stands in a prompt of the same turn."""
    for number, turn in enumerate(turns, start=1):
        for told, said in itertools.product(turn.prompts.items(), turn.responses.items()):
            if len(said[1].strip()) >= LEAK_LENGTH and said[1].strip() in told[1]:
                yield number, told, said


def play(env: TextEnv, item: Item, answer: Callable[[Item, History], Mapping[str, str]]) -> tuple[Turn, ...]:
    """Play one item with the answers of a function of item and history."""
    env.reset(options={"item": item.key, "split": env.split})
    while env.agents:
        env.step(answer(item, env.history))
    return env.history


def constantly(answer: Mapping[str, str]) -> Callable[[Item, History], Mapping[str, str]]:
    """Return a function of item and history that gives the same joint answer in every turn."""
    return lambda item, history: answer


def valid_answers(env: TextEnv, item: Item, history: History) -> list[dict[str, str]]:
    """Four random valid joint answers, or none when the task cannot draw them."""
    sample = getattr(env.task, "sample_answers", None)
    rng = np.random.default_rng(0)
    return [dict(sample(item, rng, history)) for _ in range(4)] if sample else []


def some_answers(env: TextEnv, item: Item, history: History) -> list[dict[str, str]]:
    """A few joint answers: valid ones where the task can draw them, silence, and some nonsense."""
    agents = env.possible_agents
    drawn = valid_answers(env, item, history)
    nonsense = [dict.fromkeys(agents, text) for text in ("", "yes", "a b c", HOSTILE["unicode"])]
    ladder = [{agent: "word " * (1 + 2 * i) for i, agent in enumerate(agents)}]
    return [*drawn, *nonsense, *ladder, *nonsense[1:2]]


def fingerprint(item: Item) -> str:
    """Key and data of an item as text."""
    return f"{item.key} {fingerprint_data(item)}"


def fingerprint_data(item: Item) -> str:
    """The data of an item as text, the same for equal data."""
    try:
        return msgspec.json.encode(item.data, order="sorted").decode()
    except (TypeError, ValueError, msgspec.MsgspecError):  # data that is no JSON, such as arrays
        return repr(sorted(item.data.items()))


def same_score(first: Score, second: Score) -> bool:
    """Whether two scores say the same (NaN equals NaN)."""
    return repr((first.reward, sorted(first.parts.items()), first.status, first.is_success)) == repr(
        (second.reward, sorted(second.parts.items()), second.status, second.is_success)
    )
