import copy
import math

import numpy as np
import pytest

from comlrl_env import TaskError, TextEnv, from_functions
from comlrl_env.testing import check_env

ROWS = [{"q": f"question {n}", "n": n} for n in range(6)]


def formatter(row):
    return f"Answer: {row['q']}"


def lengths(one, two, batch_items):
    return [float(len(a) + len(b) + 10 * row["n"]) for a, b, row in zip(one, two, batch_items, strict=True)]


def play(env, *texts, item=0):
    env.reset(options={"item": item})
    return env.step(dict(zip(env.possible_agents, texts, strict=True)))


def test_the_three_callables_make_an_environment():
    env = from_functions(ROWS, lengths, formatter, lambda r: r / 2, eval_dataset=[{"q": "last", "n": 9}])
    assert isinstance(env, TextEnv)
    assert env.possible_agents == ["agent_0", "agent_1"]
    assert env.num_items == 6
    prompts, infos = env.reset(options={"item": 2})
    assert prompts == dict.fromkeys(env.agents, "Answer: question 2")
    assert infos["agent_0"]["item"] == "train/2"
    # 3 + 2 characters and ten times the row's number, halved by the processor
    _, rewards, _, _, infos = env.step({"agent_0": "abc", "agent_1": "de"})
    assert rewards == dict.fromkeys(["agent_0", "agent_1"], 12.5)
    assert infos["agent_0"]["raw_reward"] == 25
    evaluation = TextEnv(env.task, split="eval")
    assert evaluation.num_items == 1
    assert play(evaluation, "", "")[1]["agent_0"] == 90


def test_formatters_for_each_agent_and_their_names():
    formatters = [lambda row: f"short {row['q']}", lambda row: f"long {row['q']}", formatter]
    env = from_functions(ROWS, lambda *texts: [0.0] * len(texts[0]), formatters)
    assert env.possible_agents == ["agent_0", "agent_1", "agent_2"]
    assert env.reset(options={"item": 0})[0]["agent_1"] == "long question 0"
    named = from_functions(ROWS, lengths, formatter, agents=["writer_0", "editor_1"])
    assert named.possible_agents == ["writer_0", "editor_1"]
    alone = from_functions(ROWS, lambda texts: [1.0] * len(texts), formatter, num_agents=1)
    assert play(alone, "x")[1] == {"agent_0": 1.0}


def test_candidates_are_one_call_with_one_row_each():
    calls = []

    def reward(one, two, batch_items):
        calls.append((one, two, batch_items))
        return np.array([1, 0, 2], np.float32)[: len(one)]

    env = from_functions(ROWS, reward, formatter)
    env.reset(options={"item": 1})
    scores = env.score_candidates([{"agent_0": a, "agent_1": b} for a, b in ("ab", "cd", "ef")])
    assert [score.reward for score in scores] == [1, 0, 2]
    assert calls == [(["a", "c", "e"], ["b", "d", "f"], [ROWS[1]] * 3)]


def test_batch_items_only_where_accepted():
    def with_keywords(one, two, **rest):
        return [float(len(rest["batch_items"]))] * len(one)

    def without(one, two):
        return [7.0] * len(one)

    class Judge:
        def __call__(self, one, two, *, batch_items=None):
            return [float(batch_items[0]["n"])] * len(one)

    assert play(from_functions(ROWS, with_keywords, formatter), "", "")[1]["agent_0"] == 1
    assert play(from_functions(ROWS, without, formatter), "", "")[1]["agent_0"] == 7
    assert play(from_functions(ROWS, Judge(), formatter), "", "", item=4)[1]["agent_0"] == 4


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ([1.0, 2.0], "reward_func returned 2 rewards for 1 joint responses; expected a list"),
        ([], "reward_func returned 0 rewards for 1 joint responses; expected a list"),
        (1.0, "reward_func returned float 1.0 for 1 joint responses; expected a list"),
        (None, "reward_func returned NoneType None for 1 joint responses; expected a list"),
        ({1.0}, "reward_func returned set {1.0} for 1 joint responses; expected a list"),
        ("1", "reward_func returned str '1' for 1 joint responses; expected a list"),
        ([math.nan], "reward_func returned nan; expected a finite number"),
        ([math.inf], "reward_func returned inf; expected a finite number"),
        (["1"], "reward_func returned '1'; expected a finite number"),
        ([None], "reward_func returned None; expected a finite number"),
        ([[1.0]], "reward_func returned [1.0]; expected a finite number"),
    ],
)
def test_bad_rewards_are_statuses_and_never_numbers(returned, reason):
    _, rewards, _, _, infos = play(from_functions(ROWS, lambda one, two: returned, formatter, lambda r: 0.0), "", "")
    assert math.isnan(rewards["agent_0"])
    assert infos["agent_0"]["reward_status"] == "error"
    assert infos["agent_0"]["reward_reason"] == reason


@pytest.mark.parametrize("value", [True, 1, np.float32(1), np.int64(1), np.array(1.0)])
def test_numbers_of_other_types(value):
    rewards = play(from_functions(ROWS, lambda one, two: [value], formatter), "", "")[1]
    assert rewards["agent_0"] == 1.0
    assert type(rewards["agent_0"]) is float


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("no"), "error"), (SystemExit(1), "error"), (RecursionError("deep"), "error"),
     (TimeoutError("late"), "timeout")],
)  # fmt: skip
def test_one_bad_answer_does_not_spoil_the_others(error, status):
    def reward(one, two):
        if "boom" in one:
            raise error
        return [1.0] * len(one)

    env = from_functions(ROWS, reward, formatter)
    env.reset(seed=0)
    scores = env.score_candidates([{"agent_0": text, "agent_1": ""} for text in ("a", "boom", "c")])
    assert [score.status for score in scores] == ["ok", status, "ok"]
    assert scores[1].reason == f"reward_func raised {type(error).__name__}: {error}"


def test_a_user_who_interrupts_is_obeyed():
    def reward(one, two):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(from_functions(ROWS, reward, formatter), "", "")


def hang(one, two):
    while "hang" in one:
        pass
    return [1.0] * len(one)


def test_a_hanging_reward_function_costs_one_time_out():
    env = from_functions(ROWS, hang, formatter, oracle_timeout=0.5)
    env.reset(seed=0)
    scores = env.score_candidates([{"agent_0": text, "agent_1": ""} for text in ("a", "hang", "c")])
    assert [score.status for score in scores] == ["ok", "timeout", "ok"]
    env.close()


class Table:
    """A dataset that is no list, as those of ``datasets`` are."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def test_other_kinds_of_datasets():
    env = from_functions(Table(ROWS), lengths, formatter)
    assert env.num_items == 6
    assert env.reset(options={"item": "train/5"})[0]["agent_0"] == "Answer: question 5"
    for key in ("train/6", "eval/0", "train/05", "train/²", "train/-1", "5"):
        with pytest.raises(TaskError, match="which no item has"):
            env.reset(options={"item": key})
    check_env(env)
    check_env(copy.deepcopy(env))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "with at least one row, actually an empty list"),
        (Table([]), "with at least one row, actually an empty Table"),
        ({"q": ["a", "b"]}, "actually dict"),
        ("questions.json", "actually str"),
        (None, "actually NoneType"),
        (iter(ROWS), r"actually list_iterator; list\(…\) turns an iterable into one"),
        (["a", "b"], "actually row 0 is str 'a'"),
        ([*ROWS, 3], "actually row 6 is int 3"),
        (Table({0: 3}), "actually row 0 is int 3"),
        (Table({"q": "a"}), r"but row 0 of Table raises KeyError\(0\)"),
    ],
)
@pytest.mark.parametrize("name", ["train", "eval"])
def test_datasets_that_are_none(rows, message, name):
    if name == "eval" and rows is None:
        return
    datasets = (rows, None) if name == "train" else (ROWS, rows)
    with pytest.raises(TaskError, match=f"{name}_dataset: expected a sequence of mappings.*{message}"):
        from_functions(datasets[0], lengths, formatter, eval_dataset=datasets[1])


def test_no_eval_dataset():
    env = from_functions(ROWS, lengths, formatter)
    with pytest.raises(TaskError, match="expected eval_dataset=…, actually none was given to from_functions"):
        TextEnv(env.task, split="eval")
    with pytest.raises(TaskError, match="eval_dataset"):
        env.reset(options={"split": "eval"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reward_func": 3}, "reward_func: expected a function, actually 3"),
        ({"formatters": "{q}"}, "formatters: expected one function for all or one for each"),
        (
            {"formatters": [formatter], "num_agents": 2},
            r"one for each of .*, actually \['formatter'\]",
        ),
        ({"formatters": []}, "num_agents: expected an integer ≥ 1, actually 0"),
        ({"formatters": [formatter, None]}, "formatters: expected"),
        ({"num_agents": 3, "agents": ["a", "b"]}, r"num_agents: expected 2 as in agents=\['a', 'b'\], actually 3"),
        ({"num_agents": 0}, "num_agents: expected an integer ≥ 1, actually 0"),
        ({"agents": "ab"}, "agents: expected a sequence of role names, actually 'ab'"),
        ({"agents": ["a", "a"]}, "FunctionTask.agents: expected a tuple of different role names"),
        ({"split": "test"}, "split: expected 'train' or 'eval'"),
    ],
)
def test_illegal_arguments(arguments, message):
    given = {"train_dataset": ROWS, "reward_func": lengths, "formatters": formatter} | arguments
    with pytest.raises(TaskError, match=message):
        from_functions(**given)


def test_a_formatter_that_makes_no_text():
    env = from_functions(ROWS, lengths, [formatter, lambda row: row["n"]])
    with pytest.raises(TaskError, match="formatter of agent_1: expected a str for item 'train/3', actually 3"):
        env.reset(options={"item": 3})


def test_formatters_and_rewards_cannot_change_the_rows():
    rows = [{"q": "a", "n": 1}]

    def rude(row):
        row["q"] = "changed"
        return "prompt"

    def rude_reward(one, two, batch_items):
        batch_items[0].clear()
        return [0.0]

    env = from_functions(rows, rude_reward, rude)
    play(env, "", "")
    assert env.item.data == {"q": "a", "n": 1}
