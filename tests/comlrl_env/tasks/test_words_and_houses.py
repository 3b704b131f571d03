"""StrBuild and HouseBuild: the published rewards by hand arithmetic on small blueprints, and the strict ones."""

import pytest

from comlrl_env import Item, TaskError
from comlrl_env.tasks.building.font import FONT, WORDS, cells, drawn, width
from comlrl_env.tasks.building.house_build import HouseBuild, kills_it
from comlrl_env.tasks.building.str_build import StrBuild

# An I: bars of five cells below and above, three between them; 13 cells of 25, and 12 pairs that touch.
LETTER = Item(key="I", data={"word": "I", "palettes": {"builder_0": ["aa", "bb"], "builder_1": ["cc", "dd"]}})
BOTTOM, TOP, STEM = "/fill 0 0 0 4 0 0 {}", "/fill 0 4 0 4 4 0 {}", "/fill 2 1 0 2 3 0 {}"


def checkers(even, odd):
    return "\n".join(f"/setblock {x} {y} 0 {odd if (x + y) % 2 else even}" for x, y in sorted(cells("I")))


STR_CASES = [
    ("", "", -0.5),
    ("prose", "/setblock 0 0 0 gold", -0.5),
    ("/setblock 0 0 0 aa", "", 2 / 13 - 0.5),
    ("/setblock 0 0 0 cc", "", -0.5),  # a block that it does not have
    ("/setblock 0 0 0 aa\n/setblock 4 0 0 bb", "", 4 / 13 - 0.25),
    (BOTTOM.format("aa"), "", 10 / 13 - 4 / 4 - 0.5),
    (BOTTOM.format("aa") + TOP.format("bb"), "", 20 / 13 - 8 / 8 - 0.25),
    (BOTTOM.format("aa"), TOP.format("cc"), 20 / 13 - 8 / 8 - 0.5),
    (BOTTOM.format("aa") + TOP.format("bb"), STEM.format("cc"), 2 - 10 / 12 - 0.25),
    (BOTTOM.format("aa") + TOP.format("aa") + STEM.format("aa"), "", 2 - 12 / 12 - 0.5),
    (checkers("aa", "bb"), "", 2 - 0.25),  # the hole
    ("", checkers("cc", "dd"), 2 - 0.25),
    (checkers("aa", "bb"), checkers("cc", "dd"), 2),
    (checkers("aa", "bb"), "/setblock 0 0 0 cc", 2 - 0.25),
    (checkers("aa", "bb"), "/setblock 0 0 0 cc\n/setblock 1 0 0 cc", 2 - 1 / 12 - 0.25),
    (checkers("aa", "bb"), "/setblock 0 0 0 cc\n/setblock 4 4 0 dd", 2),
    (checkers("aa", "bb") + "\n/setblock 0 2 0 aa", "/setblock 0 0 0 cc\n/setblock 4 4 0 dd", 2 - 1.5 / 12),
    (checkers("aa", "bb") + "\n/fill 0 1 0 1 3 0 aa", "", 2 - 1.5 * 6 / 12 - 0.25),
    ("/fill 0 0 0 4 4 0 aa", "", 2 - 1.5 - 1 - 0.5),
    ("/setblock 9 9 9 aa\n/setblock 0 0 0 bb", "", 2 / 13 - 1.5 / 12 - 0.25),
    ("/setblock 0 0 0 aa\n/setblock 0 0 0 bb", "", 2 / 13 - 0.5),  # only the last one stands
    ("/setblock 0 0 0 aa\n/setblock 0 0 0 air\n/setblock 4 0 0 bb", "", 2 / 13 - 0.5),
]
# 4 x 3 cells of ground, walls of two: 12 floor, 12 roof, 14 wall, 10 of 48 cells are air. Stock: 9, 11, 9.
HOUSE = Item(
    key="house",
    data={"size": [4, 3, 4], "materials": ["ff", "ww", "rr"], "intruder": "spider", "damage": 10, "hp": 20},
)
FLOOR = ("/fill 0 0 0 1 0 2 ff", "/fill 2 0 0 3 0 2 ff")
ROOF = ("/fill 0 3 0 1 3 2 rr", "/fill 2 3 0 3 3 2 rr")
WALLS = (
    "/fill 0 1 0 1 2 2 ww\n/fill 1 1 0 1 2 1 air\n/setblock 0 2 1 air",
    "/fill 2 1 0 3 2 2 ww\n/fill 2 1 0 2 2 1 air\n/setblock 3 2 1 air",
)
HALVES = tuple("\n".join(parts) for parts in zip(FLOOR, WALLS, ROOF, strict=True))
KILL = "\n/kill spider"
HOUSE_CASES = [
    ("", "", 10 / 48 - 0.05),
    (KILL, "", 10 / 48),  # the hole
    ("", "kill @e[type=spider]", 10 / 48),
    ("/kill zombie", "", 10 / 48 - 0.05),
    (KILL, KILL, 10 / 48),
    (FLOOR[0], "", 16 / 48 - 0.05),
    (FLOOR[0], FLOOR[1], 22 / 48 - 0.05),
    (FLOOR[0] + "\n" + FLOOR[1], "", 19 / 48 - 0.05),  # nine of twelve
    (FLOOR[0] + "\n" + FLOOR[1], KILL + "\n" + FLOOR[1], 22 / 48),
    (ROOF[0], KILL, 16 / 48),
    (WALLS[0], KILL, 17 / 48),
    (HALVES[0], KILL, 29 / 48),
    (HALVES[0], "", 29 / 48 - 0.05),
    (HALVES[0], HALVES[1], 1 - 0.05),
    (HALVES[0], HALVES[1] + "\n" + KILL, 1),
    (HALVES[1] + KILL, HALVES[0], 1),  # whoever does it
    (HALVES[0] + KILL, HALVES[0], 29 / 48),
    (HALVES[0] + KILL, HALVES[1] + "\n/setblock 1 1 1 ww", 47 / 48),  # inside
    (HALVES[0] + KILL, HALVES[1] + "\n/setblock 9 9 9 ww", 1),  # outside the box nothing counts
    (HALVES[0] + KILL, HALVES[1] + "\n/fill 0 0 0 1 0 0 rr", 46 / 48),
    (HALVES[0] + "\n" + HALVES[1] + KILL, "", (10 + 9 + 11 + 9) / 48),
    (HALVES[0] + KILL, HALVES[1] + "\n/setblock 0 0 0 gold", 1),  # it has no gold
]


def play(task, item, one, two):
    return task.score(item, (), {"builder_0": one, "builder_1": two})


@pytest.mark.parametrize(("one", "two", "expected"), STR_CASES)
def test_published_reward_of_a_word_by_hand(one, two, expected):
    score = play(StrBuild("reference"), LETTER, one, two)
    assert score.reward == pytest.approx(expected), score
    assert score.is_success is (expected == 2)
    assert score.is_success or score.reason


@pytest.mark.parametrize(("one", "two", "expected"), HOUSE_CASES)
def test_published_reward_of_a_house_by_hand(one, two, expected):
    score = play(HouseBuild("reference"), HOUSE, one, two)
    assert score.reward == pytest.approx(expected), score
    assert score.is_success is (expected == 1)
    assert score.is_success or score.reason


def test_strict_word_by_hand():
    """Even x + y: aa where it is 0, 4, 8, bb at 2 and 6; odd: cc at 1 and 5, dd at 3 and 7."""
    task = StrBuild()
    plan = {(x, y): ("aa", "cc", "bb", "dd")[(x + y) % 4] for x, y in cells("I")}
    own = {
        agent: "\n".join(f"/setblock {x} {y} 0 {b}" for (x, y), b in plan.items() if b in palette)
        for agent, palette in LETTER.data["palettes"].items()
    }
    assert play(task, LETTER, own["builder_0"], own["builder_1"]).reward == 1
    even = sum((x + y) % 2 == 0 for x, y in cells("I"))
    assert even == 3 + 1 + 3
    assert play(task, LETTER, own["builder_0"], "").reward == pytest.approx(7 / 13)
    assert play(task, LETTER, "\n".join(own.values()), "").reward == pytest.approx(7 / 13)  # cc and dd are refused
    assert play(task, LETTER, own["builder_0"] + "\n/setblock 0 1 0 aa", own["builder_1"]).reward == pytest.approx(
        13 / 14
    )
    everything = "\n".join(own.values())
    assert play(task, LETTER, everything, everything).reward == 0
    assert play(task, LETTER, checkers("aa", "bb"), "").reward < 0.6


def test_strict_house_by_hand():
    """Stock 6, 7, 6; 38 cells to build."""
    task = HouseBuild()
    assert play(task, HOUSE, HALVES[0] + KILL, HALVES[1]).reward == 1
    assert play(task, HOUSE, HALVES[0], HALVES[1]).reward == pytest.approx(0.9)
    assert play(task, HOUSE, HALVES[0] + KILL, HALVES[1] + KILL).reward == pytest.approx(0.9)
    assert play(task, HOUSE, HALVES[0] + KILL, "").reward == pytest.approx(19 / 38)
    assert play(task, HOUSE, "\n".join(HALVES) + KILL, "").reward == pytest.approx(19 / 38)
    assert play(task, HOUSE, KILL, "").reward == 0
    assert play(task, HOUSE, HALVES[0] + KILL, HALVES[0]).reward == 0
    assert play(task, HOUSE, HALVES[0] + KILL, HALVES[1] + "\n/setblock 9 9 9 gold").reward == pytest.approx(38 / 39)
    score = play(task, HOUSE, HALVES[0], HALVES[1])
    assert score.parts["kills"] == 0
    assert "0 builders kill the spider" in score.reason


@pytest.mark.parametrize("task_class", [StrBuild, HouseBuild])
@pytest.mark.parametrize("reward", ["strict", "reference"])
def test_gold_reaches_the_maximum(task_class, reward):
    for level, count in ((0, 100), (1, 5), (2, 5)):
        task = task_class(reward, level=level, num_items=count)
        scores = [task.score(item, (), task.gold(item)) for split in ("train", "eval") for item in task.items(split)]
        assert {round(score.reward, 9) for score in scores} == {task.figures["gold"]}
        assert all(score.is_success for score in scores)


def test_the_font():
    assert len(FONT) == 26
    assert drawn("I") == "#####\n..#..\n..#..\n..#..\n#####"
    assert drawn("LT").split("\n") == ["#.....#####", "#.......#..", "#.......#..", "#.......#..", "#####...#.."]
    assert width("LT") == 11
    assert (0, 0) in cells("L")
    assert [len(words) for words in WORDS] == [40, 40, 40]
    assert [len(set(words)) for words in WORDS] == [40, 40, 40]
    assert all(len(word) == 3 + level for level, words in enumerate(WORDS) for word in words)


def test_killing():
    assert kills_it("say /kill spider now", "spider")
    assert kills_it("KILL @e[type=minecraft:spider,limit=1]", "spider")
    assert not kills_it("/kill spiders", "spider")
    assert not kills_it("skill spider", "spider")


def test_they_have_no_rows_to_read():
    with pytest.raises(TaskError, match="makes all its items itself"):
        StrBuild(data="rows.json")
