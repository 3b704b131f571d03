"""Each fault of a task has its own broken one, and the message says what to mend."""

import math
import random
from typing import Any, ClassVar

import pytest
from pettingzoo.utils import BaseParallelWrapper

import comlrl_env
from comlrl_env import Item, Score, TextEnv
from comlrl_env.env_checks import HOSTILE
from comlrl_env.testing import check_env

from .toys import TRAPS, Match, TwoTurns, findings, only


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


@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_oracle_that_never_gives_a_number(reward: Any) -> None:
    rows = [{"q": f"question {n}"} for n in range(4)]
    env = comlrl_env.from_functions(rows, lambda a, b: [reward] * len(a), lambda row: row["q"])
    message = only(env, "oracle")
    assert f"(error: reward_func returned {reward!r}; expected a finite number)" in message
    assert "return a score with a finite reward for every answer" in message


def test_second_turns_meet_hostile_answers_too() -> None:
    class Bad(TwoTurns):
        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            if history and not responses["caller_0"]:
                raise IndexError("nothing said")
            return super().score(item, history, responses)

    message = only(TextEnv(Bad()), "hostile")
    assert (
        "the oracle failed on an empty answer from ['caller_0', 'caller_1'] (error: IndexError: nothing said)"
        in message
    )


def test_a_wrapped_env_is_checked_to_the_core() -> None:
    class Bad(Match):
        def gold(self, item: Item, history: tuple = ()) -> dict[str, str]:
            return dict.fromkeys(self.agents, "0")

    assert "short of the maximum" in only(BaseParallelWrapper(TextEnv(Bad())), "gold")


def test_one_agent_must_not_be_enough() -> None:
    class Bad(Match):
        def score(self, item: Item, history: tuple, responses: Any) -> Score:
            right = str(item.data["number"]) in map(str.strip, responses.values())
            return Score(reward=float(right), parts={"right": float(right)}, is_success=right)

        def solo(self, item: Item, history: tuple = ()) -> dict[str, str]:
            return {"caller_0": str(item.data["number"]), "caller_1": ""}

    message = only(TextEnv(Bad()), "cooperation")
    assert "one agent alone earns 1 on the first items, the team 1" in message
    assert "make the reward depend on what several agents do" in message
    assert not findings(TextEnv(Match()))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda item, responses: item.data.update(s="q"),
            "item 'train/0' is another one after",
        ),
        (lambda item, responses: responses.update(a_0="zzz"), "scoring changed the answers to item 'train/0'"),
    ],
)
def test_what_is_scored_stays_as_it_is(change, text):
    class Bad:
        agents = ("a_0", "b_1")
        num_turns = 1
        kept: ClassVar = {
            split: [Item(f"{split}/{k}", {"s": f"{split} {k}"}) for k in range(2)] for split in ("train", "eval")
        }

        def items(self, split):
            return self.kept[split]

        def prompts(self, item, history):
            return dict.fromkeys(self.agents, item.data["s"])

        def score(self, item, history, responses):
            change(item, responses)
            return Score(reward=0.5)

    class AnewEachTime(Bad):
        def items(self, split):
            return [Item(f"{split}/{k}", {"s": f"{split} {k}"}) for k in range(2)]

    assert text in findings(TextEnv(Bad()))["purity"]
    assert text in findings(TextEnv(AnewEachTime()))["purity"]


def test_items_with_objects_in_them_are_not_accused():
    class Fresh:
        agents = ("a_0", "b_1")
        num_turns = 1

        def items(self, split):
            return [Item(f"{split}/{k}", {"s": f"{split} {k}", "judge": lambda text: text}) for k in range(2)]

        def prompts(self, item, history):
            return dict.fromkeys(self.agents, item.data["s"])

        def score(self, item, history, responses):
            return Score(reward=float(len(item.data["judge"](responses["a_0"])) > 3))

    assert "purity" not in findings(TextEnv(Fresh()))
