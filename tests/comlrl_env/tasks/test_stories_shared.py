"""LengthSimplex and ConstraintStory."""

import pytest

from comlrl_env import Item
from comlrl_env.tasks.stories.constraint_story import FILLERS, OPENERS, ConstraintStory
from comlrl_env.tasks.stories.length_simplex import LengthSimplex
from comlrl_env.tasks.stories.words import words_of


def text(count, distinct=None):
    """So many words, of which so many are different."""
    return " ".join(f"w{i % (distinct or count)}" for i in range(count))


def score(task, item, *answers):
    return task.score(item, (), dict(zip(task.agents, answers, strict=True)))


LENGTHS = Item(key="x", data={"subject": {}, "shares": [1, 3], "low": 40, "high": 80})


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        (text(10), text(30), 1),
        (text(20), text(60), 1),
        # shares .5 and .5: TV = .25
        (text(20), text(20), 0),
        # shares .3 and .7: TV = .05, so 1 - .2
        (text(15), text(35), 0.8),
        (text(12), text(28), 0.8),
        (text(9), text(27), 0),  # 36 words
        (text(21), text(63), 0),  # 84 words
        (text(4), text(36), 0),  # fewer than five
        ("", text(40), 0),
        # two different words of ten: 2/(.4 · 10)
        (text(10, 2), text(30), 0.5),
        (text(10, 2), text(30, 6), 0.25),
        (text(10, 4), text(30, 12), 1),
    ],
)
def test_shares_by_hand(one, two, reward):
    got = score(LengthSimplex(), LENGTHS, one, two)
    assert got.reward == pytest.approx(reward)
    assert got.is_success == (reward == 1)


def test_shares_of_three():
    item = Item(key="x", data={"subject": {}, "shares": [1, 1, 2], "low": 40, "high": 80})
    task = LengthSimplex(num_agents=3)
    assert score(task, item, text(10), text(10), text(20)).reward == 1
    # (.2, .3, .5) against (.25, .25, .5): TV = .05
    assert score(task, item, text(10), text(15), text(25)).reward == pytest.approx(0.8)


def test_words():
    assert words_of("It's a well-known  fact, No. 7!\n") == ["it's", "a", "well-known", "fact", "no", "7"]
    assert words_of("… --- \x00") == []


STORY = Item(
    key="x",
    data={
        "required": [["boat", "drum"], ["kite", "flag"]],
        "forbidden": [["kite"], ["boat"]],
        "ranges": [[4, 10], [4, 10]],
        "letters": ["N", "S"],
        "heroes": [["Alma", "Boris"], ["Boris", "Alma"]],
    },
)
ONE, TWO = "Now Alma saw boat, drum.", "Suddenly Alma heard kite, flag."


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        (ONE, TWO, 1),
        (ONE, "", 0),
        (ONE, " ...", 0),
        # half of the required words of one: local .75
        ("Now Alma saw boat.", TWO, 0.5 * 0.75 + 0.5),
        # a forbidden word: local .5
        (ONE[:-1] + " kite.", TWO, 0.5 * 0.5 + 0.5),
        # three words: out of range, local .5
        ("Now boat, drum.", TWO, 0.5 * 0.5 + 0.5 * 2 / 3),
        # another hero, or both: cross 2/3
        (ONE.replace("Alma", "Boris"), TWO, 0.5 + 0.5 * 2 / 3),
        (ONE.replace("Alma", "Alma Boris"), TWO, 0.5 + 0.5 * 2 / 3),
        # a wrong letter: cross (1 + .5 + 1)/3
        (ONE.replace("Now", "Once"), TWO, 0.5 + 0.5 * 2.5 / 3),
        # the same text twice: nothing local for the second; letters .5, distinct 0
        (ONE, ONE, 0.5 * 0.5 + 0.5 * (1 + 0.5 + 0) / 3),
        # only common words besides the hero: not distinct
        ("Now Alma", "So Alma", 0.5 * (1 + 1 + 0) / 3),
        ("Now Alma", "Suddenly Alma", 0.5),
        ("the Alma and", "he Alma of", 0.5 * 1 / 3),
    ],
)
def test_stories_by_hand(one, two, reward):
    assert score(ConstraintStory(), STORY, one, two).reward == pytest.approx(reward)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_text_can_serve_two_authors(count):
    for item in ConstraintStory(level=2, num_agents=count, num_items=30).items("train"):
        required, forbidden = item.data["required"], item.data["forbidden"]
        for i in range(count):
            assert required[(i + 1) % count][0] in forbidden[i]
            assert not set(required[i]) & set(forbidden[i])
        assert len({word for words in required for word in words}) == 3 * count
        assert len({frozenset(names) for names in item.data["heroes"]}) == 1
        assert item.data["ranges"][0][0] % 4 == 0


def test_gold_has_words_of_its_own():
    said = [set(words_of(filler)) for filler in FILLERS]
    assert sum(len(one & two) for i, one in enumerate(said) for two in said[:i]) == 0
    assert all(opener[0] == letter for letter, opener in OPENERS.items())
