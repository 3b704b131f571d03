import pytest

from comlrl_env import Item
from comlrl_env.tasks.building.cells import MAX_CELLS, UNLIMITED, read_commands, score_build
from comlrl_env.tasks.building.grid_build import GridBuild

TARGET = {(0, 0, 0): "red", (1, 0, 0): "blue", (2, 0, 0): "blue"}
STOCK = {"a": {"red": UNLIMITED}, "b": {"blue": 2}}


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("/setblock 1 2 3 red", {(1, 2, 3): "red"}),
        ("1. `setblock 1 2 3 minecraft:Red`.", {(1, 2, 3): "red"}),
        ("/setblock 1 2 3 red\n/setblock 1 2 3 blue", {(1, 2, 3): "blue"}),
        ("/setblock 1 2 3 red /setblock 1 2 3 air", {}),
        ("/setblock 1 2 3 air", {}),
        ("/fill 2 0 0 1 0 1 oak_log", dict.fromkeys([(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)], "oak_log")),
        ("/setblock -1 0 0 red", {(-1, 0, 0): "red"}),
        ("/setblock 1 2 red", {}),
        ("/setblock 1 2 3 4 red", {}),
        ("/setblock 1 2\n3 red", {}),
        ("/setblock 12345 2 3 red", {}),
        ("/setblock ١ 2 3 red", {}),
        ("resetblock 1 2 3 red", {}),
        ("/fill 0 0 0 999 999 999 red\n/setblock 0 0 0 red", {}),
    ],
)
def test_commands(text, placed):
    assert read_commands(text) == placed


def test_an_answer_places_a_limited_number_of_cells():
    assert len(read_commands("/fill 0 0 0 99 199 0 red")) == MAX_CELLS
    assert len(read_commands("/setblock 0 0 0 red\n/fill 1 0 0 100 199 0 red")) == 1


@pytest.mark.parametrize(
    ("one", "two", "reward", "parts"),
    [
        ("/setblock 0 0 0 red", "/fill 1 0 0 2 0 0 blue", 1, {}),
        ("/setblock 0 0 0 red", "", 1 / 3, {"missing": 2}),
        ("/setblock 0 0 0 red", "/setblock 1 0 0 blue", 2 / 3, {"missing": 1}),
        # One cell outside: 3 / (3 + 1).
        ("/setblock 0 0 0 red\n/setblock 0 1 0 red", "/fill 1 0 0 2 0 0 blue", 3 / 4, {"extra": 1}),
        # b writes over the red cell: 2 correct / (3 + 1 conflict).
        ("/setblock 0 0 0 red", "/fill 0 0 0 2 0 0 blue", 1 / 4, {"conflict": 1, "refused": 1, "wrong": 1}),
        # Both outside at the same place: 3 / (3 + 1 + 1).
        ("/setblock 0 0 0 red /setblock 5 5 5 red", "/fill 1 0 0 2 0 0 blue /setblock 5 5 5 blue", 3 / 5, None),
        # A colour that a does not have stands in the way.
        ("/setblock 0 0 0 red\n/setblock 1 0 0 blue", "/setblock 2 0 0 blue", 2 / 3, {"wrong": 1, "refused": 1}),
        ("/setblock 1 0 0 red", "", 0, {"wrong": 1, "missing": 2}),
        (
            "/setblock 0 0 0 red /fill 1 0 0 2 0 0 blue",
            "/setblock 0 0 0 red /fill 1 0 0 2 0 0 blue",
            0,
            None,
        ),
        ("/fill 0 0 0 9 9 0 air", "", 0, {"missing": 3}),
    ],
)
def test_scores_by_hand(one, two, reward, parts):
    score = score_build(TARGET, STOCK, {"a": one, "b": two})
    assert score.reward == pytest.approx(reward)
    if parts is not None:
        assert {name: value for name, value in score.parts.items() if value and name != "correct"} == parts
    assert score.is_success == (reward == 1)


def test_the_stock_is_used_in_the_order_of_the_commands():
    more = {**TARGET, (3, 0, 0): "blue"}
    score = score_build(more, STOCK, {"a": "/setblock 0 0 0 red", "b": "/fill 3 0 0 1 0 0 blue"})
    # Cells 1 and 2 are paid for, cell 3 is not.
    assert (score.reward, score.parts["refused"]) == (3 / 4, 1)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_blueprints(level, count):
    task = GridBuild(level=level, num_agents=count, num_items=20)
    for split, split_bit in (("train", 0), ("eval", 1)):
        for item in task.items(split):
            cells, palettes = item.data["cells"], item.data["palettes"]
            assert len({tuple(cell[:3]) for cell in cells}) == len(cells)
            assert len({colour for colours in palettes.values() for colour in colours}) == 2 * count
            for number, agent in enumerate(task.agents):
                mine = [cell for cell in cells if cell[4] == number]
                assert {cell[3] for cell in mine} <= set(palettes[agent])
                assert len(mine) == (3, 4, 6, 6)[level]
            half = [cell for cell in cells if level == 0 or cell[0] < 3]
            second = sum(cell[3] == palettes["builder_0"][1] for cell in half)
            last = sum(cell[3] == palettes[task.agents[-1]][1] for cell in half)
            assert (second % 2, last % 2) == (split_bit, 0)
            if level:
                mirrored = {(5 - x, y, z, colour) for x, y, z, colour, _ in cells}
                assert mirrored == {(x, y, z, colour) for x, y, z, colour, _ in cells}
            assert (sum(cell[3] == "white" for cell in cells) == 2 * count) == (level == 3)


def test_both_halves_together_are_the_blueprint():
    task = GridBuild(level=2)
    item: Item = task.items("train")[0]
    told = [text.split(" half: ")[1].rstrip(".").split("; ") for text in task.instructions(item, ()).values()]
    assert sorted(told[0] + told[1]) == sorted(f"{x} {y} {z} {colour}" for x, y, z, colour, _ in item.data["cells"])


def test_white_cells_are_a_convention():
    task = GridBuild(level=3)
    item = task.items("train")[0]
    white = [cell for cell in item.data["cells"] if cell[3] == "white"]
    gold = {agent: text.splitlines() for agent, text in task.gold(item).items()}
    for lines in gold.values():
        lines[:] = [line for line in lines if "white" not in line]
    other_way = {"builder_0": white[2:], "builder_1": white[:2]}
    for agent, cells in other_way.items():
        gold[agent] += [f"/setblock {x} {y} {z} white" for x, y, z, _, _ in cells]
    assert task.score(item, (), {agent: "\n".join(lines) for agent, lines in gold.items()}).reward == 1
    # All four by one: two are more than it has.
    gold["builder_0"] += [f"/setblock {x} {y} {z} white" for x, y, z, _, _ in white[:2]]
    gold["builder_1"] = [line for line in gold["builder_1"] if "white" not in line]
    total = len(item.data["cells"])
    assert task.score(item, (), {a: "\n".join(lines) for a, lines in gold.items()}).reward == (total - 2) / total
