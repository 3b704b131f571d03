import itertools

import numpy as np
import pytest

from comlrl_env import Item, Score, TaskError
from comlrl_env.figures import measure
from comlrl_env.tasks.talking.evidence_pool import EvidencePool
from comlrl_env.tasks.talking.hint_play import HintPlay, read_hint, read_place, touched
from comlrl_env.tasks.talking.notes import delivered, find_named
from comlrl_env.tasks.talking.reference import BANNED, Reference
from comlrl_env.tasks.talking.schedule import Schedule
from comlrl_env.types import Turn


def after(task, *notes):
    """A history of one message turn."""
    responses = dict(zip(task.agents, notes, strict=True))
    return (Turn(dict.fromkeys(task.agents, ""), responses, Score(reward=0.0)),)


def score(task, item, *answers, history=()):
    return task.score(item, history, dict(zip(task.agents, answers, strict=True)))


@pytest.mark.parametrize(
    ("text", "limit", "banned", "read"),
    [
        ("one two three", 2, (), "one two"),
        ("  one\n\ttwo ", 5, (), "one two"),
        ("the 2nd red-one!", 5, {"2nd", "one"}, "the"),
        ("a\x00b \x1b[2J \u202e ok", 9, (), "ab [2J ok"),
        ("x" * 100, 1, (), "x" * 24),
        ("", 3, (), ""),
    ],
)
def test_notes(text, limit, banned, read):
    assert delivered(text, limit, banned) == read


def test_names_in_a_text():
    assert find_named("Mon9, not tue9; MON9!", ("mon9", "tue9", "wed9")) == ["mon9", "tue9"]
    assert find_named("mon91 xmon9", ("mon9",)) == []


EVIDENCE = Item(key="x", data={"options": ["amber", "birch", "cedar"], "values": [[3, 1, -4], [-4, 1, 3]]})


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        ("amber 3, birch 1, cedar -4", "amber -4, birch 1, cedar 3", 1),
        # Sums -1, 2, -1: amber alone is the worst of all, and as good as nothing.
        ("amber 9", "", 0),
        ("birch: +1", "", 1),
        ("birch 1, amber 1", "", 0),
        ("", "", 0),
        ("amber 10, birch 1", "", 1),
        ("AMBER = 2; birch 3; birch -9", "", 1),
        ("birch 2", "birch -2, cedar 1", 0),
    ],
)
def test_evidence_by_hand(one, two, reward):
    assert score(EvidencePool(), EVIDENCE, one, two).reward == reward


def test_a_decoy_is_worth_its_normalised_value():
    item = Item(key="x", data={"options": ["amber", "birch", "cedar"], "values": [[3, 1, -4], [-1, 3, 1]]})
    # Sums 2, 4, -3: amber is (2 + 3)/(4 + 3) of the way.
    assert score(EvidencePool(), item, "amber 1", "").reward == pytest.approx(0.25 * 5 / 7)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_hidden_profiles(level, count):
    for item in EvidencePool(level=level, num_agents=count, num_items=50).items("train"):
        values = np.array(item.data["values"])
        totals = np.sort(values.sum(axis=0))
        favourites = values.argmax(axis=1)
        assert totals[-1] - totals[-2] >= 2
        assert values.sum(axis=0).argmax() not in favourites
        assert len(set(favourites.tolist())) == count
        assert np.abs(values).max() <= 9
        assert values[0].sum() % 4 == 0


def test_evidence_with_talk():
    task = EvidencePool(talk=True)
    item = task.items("train")[0]
    note = task.gold(item)["witness_1"]
    assert f"witness_1 wrote: {note}" in task.prompts(item, after(task, "hi", note))["witness_0"]
    history = after(task, "", "")
    best = task.gold(item, history)["witness_0"]
    assert score(task, item, best, best, history=history).reward == 1
    # Two that disagree are a tie: the worse of the two is taken.
    assert score(task, item, best, "", history=history).reward == 1
    other = next(name for name in item.data["options"] if name != best)
    assert score(task, item, best, other, history=history).reward < 0.25
    assert score(task, item, f"{best} {other}", "", history=history).reward == 0
    with pytest.raises(TaskError, match="talk: expected True or False, actually 1"):
        EvidencePool(talk=1)


def test_schedule_by_hand():
    task = Schedule()
    item = task.items("train")[0]  # the page's example: mon9 mon11 mon12, and mon10 mon12 tue9
    history = after(task, "", "")
    for one, two, reward in [
        ("mon12", "Mon12.", 1),
        ("mon12", "mon9", 0),
        ("mon9", "mon9", 0.2),
        ("tue10", "tue10", 0.2),
        ("mon12 or mon9", "mon12", 0),
        ("", "mon12", 0),
        ("fri9", "fri9", 0),
    ]:
        assert score(task, item, one, two, history=history).reward == reward
    assert "member_1 wrote: a b c d\n" in task.prompts(item, after(task, "", "a b c d e"))["member_0"]


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize(("level", "share"), [(0, 3), (1, 5), (2, 8)])
def test_one_slot_is_free_for_all(level, share, count):
    for item in Schedule(level=level, num_agents=count, num_items=50).items("eval"):
        frees = [set(free) for free in item.data["free"]]
        assert all(len(free) == share for free in frees)
        (common,) = set.intersection(*frees)
        assert (common + sum(item.data["free"][0])) % 4 == 2


def test_reference_by_hand():
    task = Reference()
    item = task.items("train")[0]  # the page's example: the yellow ball is called toma
    for note, choice, reward in [
        ("yellow ball", "toma", 1),
        ("yellow ball", "It is Toma!", 1),
        ("yellow ball", "zup", 0),
        ("yellow ball", "toma zup", 0),
        ("", "toma", 1),
        # one word too many of two: 1 - .2/2
        ("the yellow ball", "toma", 0.9),
        ("it is the yellow ball", "toma", 0.8),
        ("x " * 50, "toma", 0.8),
    ]:
        assert score(task, item, "", choice, history=after(task, note, "")).reward == pytest.approx(reward)
    told = task.prompts(item, after(task, "the third, toma, yellow", ""))["listener_1"]
    assert "speaker_0 wrote: the yellow\n" in told
    assert {"first", "3", "3rd", "gorp"} <= BANNED


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_some_words_within_the_limit_tell_the_object(level, count):
    task = Reference(level=level, num_agents=count, num_items=60)
    for item in task.items("train"):
        objects = item.data["objects"]
        assert len({tuple(each) for each in objects}) == len(objects) == (4, 6, 8)[level]
        *notes, _ = task.gold(item).values()
        said = set(" ".join(notes).split())
        fitting = [each for each in objects if said <= set(each)]
        assert fitting == [objects[item.data["target"]]]
        assert all(len(note.split()) <= (2, 3, 3)[level] for note in notes)
        if count == 3:
            halves = [text.split("meant: ")[1].split(".")[0] for text in list(task.prompts(item, ()).values())[:2]]
            assert " ".join(halves) == " ".join(objects[item.data["target"]])


def test_alone_the_listener_guesses():
    for level, size in enumerate((4, 6, 8)):
        figures = measure(Reference(level=level, num_items=400), num_items=400, draws=1)
        assert figures["solo"] == pytest.approx(1 / size, abs=0.06)


HANDS = Item(key="x", data={"table": [0, 2, 0, 0], "hands": [[["red", 1], ["blue", 2]], [["blue", 3], ["white", 3]]]})


@pytest.mark.parametrize(
    ("one", "two", "reward"),
    [
        ("1", "1", 1),
        ("card 1", "1.", 1),
        ("2", "1", 0.25),
        ("1", "", 0.5),
        ("2", "2", 0),
        ("2", "", 0),
        ("1 or 2", "1", 0.5),
        ("0", "3", 0),
        ("١", "1", 0.5),
    ],
)
def test_cards_by_hand(one, two, reward):
    task = HintPlay()
    assert score(task, HANDS, one, two, history=after(task, "", "")).reward == reward


def test_hints():
    assert [read_hint(text) for text in ("Red!", "3", "red red", "red or 3", "9", "pink", "")] == [
        "red",
        "3",
        "red",
        "",
        "",
        "",
        "",
    ]
    assert touched("3", HANDS.data["hands"][1]) == [0, 1]
    assert read_place("the 2nd", 2) == 1
    assert read_place("9" * 5000, 4) is None
    task = HintPlay()
    told = task.prompts(HANDS, after(task, "blue", "1"))
    assert "player_1 hints 1: your cards 1." in told["player_0"]
    assert "player_0 hints blue: your cards 1." in told["player_1"]
    assert "player_1 hints nothing: your cards none." in task.prompts(HANDS, after(task, "blue", "hi"))["player_0"]


@pytest.mark.parametrize(("level", "chance"), [(0, 1.0), (1, 0.96), (2, 0.92)])
def test_hands_and_the_best_hint(level, chance):
    task = HintPlay(level=level, num_items=500)
    right = []
    for item in task.items("train"):
        assert sum(item.data["table"]) % 4 == 0
        table = dict(zip(("red", "blue", "green", "white"), item.data["table"], strict=True))
        for hand in item.data["hands"]:
            playable = [place for place, (colour, rank) in enumerate(hand) if rank == table[colour] + 1]
            assert len(playable) == 1
            assert all(1 <= rank <= 5 for _, rank in hand)
            colour, rank = hand[playable[0]]
            right.append(1 / min(len(touched(colour, hand)), len(touched(str(rank), hand))))
    assert np.mean(right) == pytest.approx(chance, abs=0.015)


def test_blind_play_of_two_hands_of_two():
    task = HintPlay()
    rewards = [
        score(task, HANDS, *pair, history=after(task, "", "")).reward for pair in itertools.product("12", repeat=2)
    ]
    assert np.mean(rewards) == pytest.approx(3 / 8)
    assert abs(task.figures["random"] - 3 / 8) < 0.01
