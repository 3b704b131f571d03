import pytest

from comlrl_env import Item
from comlrl_env.tasks.controls.schelling import WORDS, Schelling
from comlrl_env.tasks.controls.split_sum import SplitSum


def score(task, item, *answers):
    return task.score(item, (), dict(zip(task.agents, answers, strict=True)))


SUM = Item(key="x", data={"numbers": [[3, 5], [2, 10]]})


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        ("8", "12", 1),
        ("20", "0", 1),
        ("8", "", 8 / 20),
        ("3 + 5 = 8", "2+10 = 12.", 1),
        ("10", "12", 18 / 20),
        ("-8", "28", 1),
        ("1000000", "1", 0),
        ("9" * 10, "12", 12 / 20),
        ("8.5", "12", 12 / 20 + 8 / 20),
        ("", "", 0),
        ("eight", "٨", 0),
    ],
)
def test_sums_by_hand(one, two, reward):
    assert score(SplitSum(), SUM, one, two).reward == pytest.approx(reward)


def test_first_numbers_tell_the_splits_apart():
    for seed, split, residue in [(0, "train", 0), (1, "train", 1), (2, "eval", 2), (3, "eval", 3)]:
        items = SplitSum(seed=seed, level=1).items(split)
        assert {item.data["numbers"][0][0] % 4 for item in items} == {residue}
        assert all(1 <= number <= 48 for item in items for own in item.data["numbers"] for number in own)


OPTIONS = Item(key="x", data={"orders": [["river", "castle"], ["castle", "river"]]})


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        ("river", "River!", 1),
        ("river", "castle", 0),
        ("river castle", "river", 0),
        ("river", "", 0),
        ("bridge", "bridge", 0),
        ("riverside", "river", 0),
        ("the river, river", "river", 1),
    ],
)
def test_options_by_hand(one, two, reward):
    assert score(Schelling(), OPTIONS, one, two).reward == reward


def test_options_are_the_same_for_all_in_orders_of_their_own():
    assert len(set(WORDS)) == len(WORDS) == 48
    for level, size in enumerate((2, 4, 8)):
        for item in Schelling(level=level, num_agents=8).items("eval"):
            assert len({tuple(sorted(order)) for order in item.data["orders"]}) == 1
            assert len(set(item.data["orders"][0])) == size
            assert sum(WORDS.index(word) for word in item.data["orders"][0]) % 4 == 2
