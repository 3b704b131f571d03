import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from comlrl_env import TaskError
from comlrl_env.figures import measure
from comlrl_env.tasks.partition import partition
from comlrl_env.tasks.partition.names import COMMON, HALVES, NAMES
from comlrl_env.tasks.partition.partition import Partition, is_odd, parse_claims

PAGE = " ".join(partition.__doc__.split())


def score(task, *answers):
    item = task.items("train")[0]
    return task.score(item, (), dict(zip(task.agents, answers, strict=True)))


def test_the_page_shows_the_first_item():
    task = Partition()
    item = task.items("train")[0]
    first, second = task.prompts(item, ()).values()
    assert " ".join(first.split()) in PAGE
    assert second.split("Write")[0].split("Things: ")[1].strip() in PAGE
    assert score(task, "cup, key, map", "Hat, pen and box.").reward == 1


def test_rewards_by_hand():
    task = Partition()  # six things: cup, key, map, hat, pen, box; cap 3
    assert score(task, "cup, key, map", "hat, pen, box").reward == 1
    # one thing missed: 1 - 2/6
    assert score(task, "cup, key, map", "hat, pen").reward == pytest.approx(4 / 6)
    # one missed (box), one claimed twice (map): 1 - 4/6
    assert score(task, "cup, key, map", "hat, pen, map").reward == pytest.approx(2 / 6)
    assert score(task, "cup, key, map", "map, cup, key").reward == 0
    assert score(task, "", "").reward == 0
    # alone: three missed, 1 - 6/6
    assert score(task, "cup, key, map", "").reward == 0
    # four claims at a cap of three: the fourth (hat) covers nothing and costs one
    over = score(task, "cup, key, map, hat", "hat, pen, box")
    assert over.reward == pytest.approx(4 / 6)
    assert over.parts == {"covered": 6, "missed": 0, "duplicate": 1, "over_cap": 1, "unknown": 0}
    # listing everything: 3 + 3 claims over the cap
    everything = "cup, key, map, hat, pen, box"
    assert score(task, everything, ", ".join(reversed(everything.split(", ")))).reward == 0


def test_reasons_and_success():
    task = Partition()
    won = score(task, "cup, key, map", "hat, pen, box")
    assert (won.is_success, won.reason) == (True, "")
    lost = score(task, "cup, zebra", "hat, pen, box, box")
    assert lost.is_success is False
    assert lost.reason == "2 missed, 1 duplicate, 1 over_cap, 1 unknown"


def test_every_answer_of_a_small_game():
    """All 7225 pairs of up to three claims, repetitions included, against the rule in words."""
    task = Partition(num_things=4)
    names = COMMON[:4]
    lists = [list(c) for length in range(4) for c in itertools.product(names, repeat=length)]
    item = task.items("train")[0]
    for one, two in itertools.product(lists, repeat=2):
        answers = {"helper_0": ", ".join(one), "helper_1": ", ".join(two)}
        reward = task.score(item, (), answers).reward
        exact = Counter(one + two) == Counter(names) and len(one) == len(two) == 2
        assert (reward == 1) == exact
        missed = 4 - len({*one[:2], *two[:2]})
        claimed_in_vain = len(one) + len(two) - (4 - missed)
        assert reward == max(0, 1 - (missed + claimed_in_vain) / 2)


def test_more_claims_over_the_cap_never_help():
    task = Partition(num_things=4)
    item = task.items("train")[0]
    pairs = list(itertools.product(itertools.permutations(COMMON[:4], 2), repeat=2))
    for one, two in pairs:
        base = task.score(item, (), {"helper_0": ", ".join(one), "helper_1": ", ".join(two)}).reward
        for extra in COMMON[:4]:
            answers = {"helper_0": ", ".join([*one, extra]), "helper_1": ", ".join(two)}
            assert task.score(item, (), answers).reward <= base


@pytest.mark.parametrize(
    ("text", "claims", "unknown"),
    [
        ("cup, key", ["cup", "key"], 0),
        ("  CUP ,Key.  ", ["cup", "key"], 0),
        ("cup and key", ["cup", "key"], 0),
        ("cup, and the key!", ["cup", "key"], 0),
        ("1. cup\n2. key\n", ["cup", "key"], 0),
        ("- cup\r\n* key", ["cup", "key"], 0),
        ("(1) cup; 2) key", ["cup", "key"], 0),
        ("Answer: cup, key", ["cup", "key"], 0),
        ("**cup**, `key`, 'map'", ["cup", "key", "map"], 0),
        ("cup, cup", ["cup", "cup"], 0),
        ("cups, sandal, keyhole", [], 3),
        ("", [], 0),
        (",,, and\n\n . ", [], 0),
        ("\x00", [], 1),
        ("ＣＵＰ, ключ", [], 2),
    ],
)
def test_lenient_parsing(text, claims, unknown):
    assert parse_claims(text, {"cup", "key", "map"}) == (claims, unknown)


def test_names_are_plain():
    assert len(set(NAMES)) == len(NAMES) == 172
    assert all(name.isascii() and name.isalpha() and name.islower() and name != "and" for name in NAMES)
    assert not set(HALVES["train"]) & set(HALVES["eval"])


@pytest.mark.parametrize(("things", "count", "cap"), [(4, 2, 2), (7, 3, 3), (12, 3, 4), (5, 5, 1)])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_gold_and_samples_for_n_agents(things, count, cap, level):
    task = Partition(num_things=things, num_agents=count, level=level)
    rng = np.random.default_rng(0)
    for split in ("train", "eval"):
        for item in task.items(split)[:20]:
            gold = task.gold(item)
            assert task.score(item, (), gold).reward == 1
            assert list(gold) == [f"helper_{i}" for i in range(count)]
            orders = item.data["orders"]
            assert len(orders) == count
            assert all(sorted(order) == sorted(orders[0]) and len(set(order)) == things for order in orders)
            for agent, text in task.sample_answers(item, rng).items():
                claims, unknown = parse_claims(text, set(orders[0]))
                assert (len(set(claims)), unknown, agent in gold) == (cap, 0, True)


def test_random_figures_are_exact_and_measured():
    # Two helpers claim half of M at random: overlaps are hypergeometric.
    assert Partition.figures["random"] == pytest.approx(1 / 20 + 9 / 20 * (1 - 4 / 6))
    for things, count, exact in [(4, 2, 1 / 6), (6, 2, 1 / 5), (8, 2, 1 / 70 + 16 / 70 / 2), (12, 3, 0.0502)]:
        measured = measure(Partition(num_things=things, num_agents=count, num_items=256), num_items=256, draws=8)
        assert measured["random"] == pytest.approx(exact, abs=0.025)
        assert (measured["gold"], measured["solo"]) == (1, 0)


def test_solo_with_an_odd_number_and_two_helpers():
    assert measure(Partition(num_things=7), num_items=8, draws=1)["solo"] == pytest.approx(1 / 7)


@pytest.mark.parametrize("things", [2, 3, 4, 6])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_train_and_eval_and_neighbouring_seeds_are_disjoint(things, level):
    def contents(seed, split):
        task = Partition(num_things=things, level=level, seed=seed, num_items=300)
        return {repr(item.data) for item in task.items(split)}

    sets = {(seed, split): contents(seed, split) for seed in (0, 1, 2) for split in ("train", "eval")}
    for (seed_a, split_a), (seed_b, split_b) in itertools.combinations(sets, 2):
        if split_a != split_b or (seed_a - seed_b) % 2 == 1:
            assert not sets[seed_a, split_a] & sets[seed_b, split_b]


def test_parity_against_matrices():
    for size in range(1, 6):
        for order in itertools.permutations(range(size)):
            assert is_odd(order) == (round(np.linalg.det(np.eye(size)[list(order)])) == -1)


def test_levels():
    fixed = {tuple(sorted(item.data["orders"][0])) for item in Partition(num_items=30).items("train")}
    assert fixed == {tuple(sorted(COMMON[:6]))}
    drawn = {name for item in Partition(level=1).items("train")[:200] for name in item.data["orders"][0]}
    assert drawn == set(COMMON)
    for split in ("train", "eval"):
        names = {name for item in Partition(level=2).items(split)[:200] for name in item.data["orders"][0]}
        assert names <= set(HALVES[split])
        assert len(names) > 60


def test_prompts_are_short_and_fair():
    task = Partition(num_things=6)
    item = task.items("train")[3]
    prompts = task.prompts(item, ())
    for agent, order in zip(task.agents, item.data["orders"], strict=True):
        assert len(prompts[agent].split()) <= 45
        assert ", ".join(order) in prompts[agent]
        assert agent in prompts[agent]
        assert task.messages(item, ())[agent] == [{"role": "user", "content": prompts[agent].removesuffix("\nAnswer:")}]


def test_items_are_the_same_in_every_process():
    code = (
        "from comlrl_env.tasks.partition.partition import Partition\n"
        "print([Partition(level=1, seed=5).items(s)[i].data['orders'] for s in ('train', 'eval') for i in (0, 47)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        )
        for seed in ("0", "1")
    ]
    here = [Partition(level=1, seed=5).items(s)[i].data["orders"] for s in ("train", "eval") for i in (0, 47)]
    assert runs[0].stdout == runs[1].stdout == f"{here}\n"


def test_known_items():
    """A change of these breaks every saved run: raise the task's version then."""
    task = Partition()
    assert task.items("train")[0].data["orders"] == [
        ["map", "pen", "cup", "hat", "box", "key"],
        ["key", "hat", "box", "pen", "map", "cup"],
    ]
    assert task.items("train")[0].key == "train/0/0/0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_things": 1}, "num_things: expected an integer in [2, 48], actually 1"),
        ({"num_things": 49}, "num_things: expected an integer in [2, 48], actually 49"),
        ({"num_things": "six"}, "num_things: expected an integer in [2, 48], actually 'six' (str)"),
        ({"num_agents": 1}, "num_agents: expected an integer in [2, 48], actually 1"),
        ({"num_agents": 7}, "num_agents: expected at most num_things (6), actually 7"),
        ({"level": 3}, "level: expected an integer in [0, 2], actually 3"),
        ({"seed": -1}, "seed: expected an integer ≥ 0, actually -1"),
        ({"seed": True}, "seed: expected an integer ≥ 0, actually True"),
        ({"num_items": 0}, "num_items: expected an integer ≥ 1, actually 0"),
        ({"num_items": {"train": 3}}, "num_items: expected a number or sizes for ['train', 'eval']"),
    ],
)
def test_illegal_arguments(arguments, message):
    with pytest.raises(TaskError) as caught:
        Partition(**arguments)
    assert str(caught.value).startswith(message)


def test_unknown_split():
    with pytest.raises(TaskError, match="split: expected 'train' or 'eval', actually 'test'"):
        Partition().items("test")
