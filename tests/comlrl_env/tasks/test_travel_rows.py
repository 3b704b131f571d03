"""Rows of TravelPlanner: read from texts as they are published, scored by hand arithmetic, refused by name."""

import csv
import itertools
import json
import sys
import types

import numpy as np
import pytest

import comlrl_env
from comlrl_env import Item
from comlrl_env.errors import TaskError
from comlrl_env.tasks.travel.least_cost import least_cost
from comlrl_env.tasks.travel.plans import written
from comlrl_env.tasks.travel.real_trips import trip_of
from comlrl_env.tasks.travel.tables import lines
from comlrl_env.tasks.travel.travel_planner import AGENTS, NAMES, TravelPlanner
from comlrl_env.tasks.travel.trips import cost

from .travel_rows import COLUMNS, FIVE, THREE, THREE_PARTS, leg, place, row

NAME = "comlrl/TravelPlanner-v0"


def test_a_table_is_read_by_its_columns():
    text = (
        "                 NAME  price       room type              house_rules  minimum nights  maximum occupancy"
        "  review rate number    city\n"
        "Bedroom,  Park   view  932.0    Private room No visitors & No smoking             4.0                  1"
        "                 5.0 El Paso"
    )
    (line,) = lines("hotels", text, COLUMNS["Accommodations"])
    assert list(line.values()) == [
        *["Bedroom,  Park   view", "932.0", "Private room", "No visitors & No smoking", "4.0", "1", "5.0", "El Paso"]
    ]
    assert lines("hotels", "There is no attraction in this city.", COLUMNS["Accommodations"]) == []


def test_a_row_of_three_towns_becomes_a_trip():
    trip = trip_of(FIVE)
    assert (trip["home"], trip["towns"], trip["people"]) == ("Alton", ["Bray", "Cove"], 6)
    assert [(way["id"], way["price"]) for way in trip["ways"]] == [
        *[("F11", 300), ("self-driving-1", 24), ("taxi-1", 200)],
        *[("self-driving-2", 16), ("taxi-2", 120)],
        *[("F31", 420), ("F32", 360), ("taxi-3", 180)],
    ]
    assert [(hotel["name"], hotel["price"], hotel["nights"]) for hotel in trip["places"]["Bray"]["hotels"]] == [
        *[("Loft, with a view, Bray", 200, 2), ("Cheap room, Bray", 60, 1)],
        *[("Long stay, Bray", 10, 3), ("No dogs, Bray", 30, 1)],
    ]
    shed = trip["places"]["Cove"]["hotels"][1]
    assert shed["features"] == ["shared room", "parties", "smoking", "children under 10", "pets"]
    assert trip["places"]["Bray"]["restaurants"][0] == {"name": "R1, Bray", "foods": ["Tea", "Cafe"], "price": 6}
    assert len(trip["places"]["Bray"]["restaurants"]) == 6
    assert trip["places"]["Cove"]["sights"] == ["Fort, Cove", "Pier, Cove", "Zoo, Cove"]
    assert (trip["features"], trip["foods"], trip["avoid"]) == (
        ["pets", "entire room"],
        ["Chinese", "French"],
        "flight",
    )


def test_gold_is_the_cheapest_plan():
    for given, expected in ((FIVE, 1210), (THREE, 12 + 7 + 60 + 21)):
        trip = trip_of(given)
        assert cost(trip, {(day, name): value for day, name, value in trip["plan"]}) == expected
    trip = trip_of(FIVE)
    eaten = {value for _, name, value in trip["plan"] if name in ("lunch", "dinner")}
    assert eaten == {f"R{n}, Bray" for n in (1, 2, 3, 6)} | {f"S{n}, Cove" for n in (1, 2, 3, 4, 5, 7)}


def answers(**changed):
    """The gold plan with slots ``name_day`` changed."""
    plan = {(day, name): value for day, name, value in trip_of(FIVE)["plan"]}
    for slot, value in changed.items():
        name, _, day = slot.partition("_")
        plan[int(day), name] = value
    return plan


def chinese():
    return next(f"{name}_{day}" for (day, name), value in answers().items() if value == "R6, Bray")


# 7 + 15 slots, 8 rules, 5 wishes (budget, pets, entire room, foods, no flight).
@pytest.mark.parametrize(
    ("changed", "strict", "reference"),
    [
        ({}, 1, 1.15),
        ({"transport_1": "F11"}, 0.55 - 0 + 0.2 * 4 / 5, 1.15 - 0.1 - 0.7 * 0.25 * 2 / 5 + 0.7 * 0.25 / 5),
        ({"transport_1": "self-driving-1"}, 0.55 + 0.2 * 7 / 8, 1.05 - 0.7 * 0.35 / 8),
        ({"hotel_1": "Long stay, Bray", "hotel_2": "Long stay, Bray"}, 0.55 + 0.2 * 7 / 8, 1.05 - 0.7 * 0.35 / 8),
        (
            {"hotel_2": "No dogs, Bray"},
            0.1 + 0.2 * 7 / 8 + 0.2 * 4 / 5,
            1.05 - 0.7 * (0.35 / 8 + 0.25 / 5),
        ),
        ({"hotel_1": "Cheap room, Bray", "hotel_2": "Cheap room, Bray"}, 0.55 + 0.2 * 4 / 5, 1.05 - 0.7 * 0.25 / 5),
        ({chinese(): "R4, Bray"}, 0.55 + 0.2 * 4 / 5, 1.05 - 0.7 * 0.25 / 5),
        ({chinese(): "S8, Cove"}, 0.55 + 0.2 * 7 / 8, 1.05 - 0.7 * 0.35 / 8),
        (
            # One night in the loft, none anywhere, and one there again while in the other town.
            {"hotel_2": "-", "hotel_3": "Loft, with a view, Bray"},
            42 / 43 * (0.5 + 0.5 * 6 / 7) * (0.1 + 0.2 * 6 / 8 + 0.2 * 4 / 5),
            0.35 + 0.7 * (0.1 * 21 / 22 + 0.15 + 0.15 * 42 / 43 + 0.35 * 6 / 8 + 0.25 * 4 / 5) - 0.15 / 7,
        ),
        (
            # A name without its town is no option; the loft is left after one night, and the budget needs all slots.
            {"hotel_1": "Loft, with a view"},
            42 / 44 * (0.1 + 0.2 * 7 / 8 + 0.2 * 4 / 5),
            0.25
            + 0.1 * 21 / 22
            + 0.7 * (0.1 + 0.15 * 21 / 22 + 0.15 * 42 / 44 + (0.1 + 0.9 * 21 / 22) * (0.35 * 7 / 8 + 0.25 * 4 / 5)),
        ),
    ],
)
def test_rewards_by_hand(changed, strict, reference):
    item = Item(key="by hand", data=trip_of(FIVE | {"budget": 1400}))
    plan = answers(**changed)
    responses = {agent: written(plan, NAMES[agent]) for agent in AGENTS}
    for name, expected in (("strict", strict), ("reference", reference)):
        got = TravelPlanner(name).score(item, (), responses)
        assert got.reward == pytest.approx(expected), (name, got)
        assert got.is_success is (not changed)
        assert got.is_success or got.reason


def test_logistics_alone_by_hand():
    """Of the rules it keeps route, hotels, drives and stays, of the wishes pets, entire room and no flight."""
    item = Item(key="by hand", data=trip_of(FIVE))
    task = TravelPlanner("reference")
    plan = 0.1 * 7 / 22 + 0.15 + 0.15 * 14 / 29 + 0.35 * 4 / 8 + 0.25 * 3 / 5
    expected = 0.05 / 2 - 0.15 / 2 + 0.05 + 0.1 + 0.1 + 0.7 * plan - 0.15
    assert task.score(item, (), task.solo(item)).reward == pytest.approx(expected)
    strict = TravelPlanner()
    expected = 14 / 29 * 0.5 * (0.1 + 0.2 * 4 / 8 + 0.2 * 3 / 5)
    assert strict.score(item, (), strict.solo(item)).reward == pytest.approx(expected)


def test_the_search_is_exact():
    """By brute force over six meals of eight, two foods asked for, and ways of three kinds."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        draws = iter(rng.integers(1, 30, size=40).tolist())
        kinds_of_food = [["Tea"], ["French"], ["Tea", "Chinese"], ["Chinese", "French"], [], ["Tea"]]
        ways = [
            {"id": f"{kind}-{leg}", "kind": kind, "from": leg[0], "to": leg[1], "price": next(draws)}
            for leg in ("HT", "TH")
            for kind in ("flight", "self-driving", "taxi")
            if next(draws) > 8
        ]
        meals = [{"name": f"r{n}", "foods": kinds_of_food[next(draws) % 6], "price": next(draws)} for n in range(8)]
        hotel = {"name": "h", "price": 0, "features": [], "nights": 1}
        trip = {
            **{"home": "H", "towns": ["T"], "days": 3, "ways": ways, "features": [], "foods": ["Chinese", "French"]},
            **{"avoid": None, "budget": 10**6},
            "places": {"T": {"hotels": [hotel], "restaurants": meals, "sights": ["a", "b", "c"]}},
        }
        together = [
            one["price"] + two["price"]
            for one, two in itertools.product(ways, ways)
            if (one["from"], two["from"]) == ("H", "T")
            and {one["kind"], two["kind"]} not in ({"self-driving", "flight"}, {"self-driving", "taxi"})
        ]
        eaten = [
            sum(one["price"] for one in six)
            for six in itertools.combinations(meals, 6)
            if {"Chinese", "French"} <= {food for one in six for food in one["foods"]}
        ]
        if together and eaten:
            assert cost(trip, least_cost(trip)) == min(together) + min(eaten)
        else:
            with pytest.raises(TaskError, match="ways" if not together else "Restaurants"):
                least_cost(trip)


REFERENCE = FIVE["reference_information"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"days": "many"}, "days: expected an integer ≥ 1, actually 'many'"),
        ({"people_number": 0}, "people_number: expected an integer"),
        ({"days": 3}, "days: expected 2 a town"),
        ({"visiting_city_number": 3}, "days: expected 2 a town"),
        ({"org": "Elsewhere"}, "expected flights from Elsewhere"),
        ({"date": repr(["2022-04-01"] * 5)}, "reference_information: expected flights"),
        ({"date": "['2022-03-01'"}, "date: expected the text of a Python list"),
        ({"local_constraint": "__import__('os').abort()"}, "local_constraint: expected the text of a Python dict"),
        ({"local_constraint": "{'house rule': 'horses'}"}, "local_constraint: .* actually house rule: 'horses'"),
        ({"local_constraint": "{'view': 'sea'}"}, "local_constraint: .* actually view: 'sea'"),
        ({"local_constraint": "{'cuisine': 'Chinese'}"}, "local_constraint: expected a list of texts as cuisine"),
        ({"reference_information": "(" * 100_000}, "reference_information: expected the text of a Python list"),
        ({"reference_information": "[{'Description': 'x'}]"}, "reference_information: expected parts"),
        ({"reference_information": REFERENCE.replace("Restaurants in", "Inns in")}, "part 'Restaurants in Bray'"),
        ({"reference_information": REFERENCE.replace(" price", " preis")}, "Accommodations in Bray: .* columns"),
        ({"reference_information": REFERENCE.replace("Loft, with", "Loft  with a")}, "Accommodations in Bray: .* end"),
        (
            {"reference_information": REFERENCE.replace("100.0", "  nan")},
            "in Bray: price: .* number ≥ 0, actually 'nan'",
        ),
        ({"reference_information": REFERENCE.replace(", cost: 12'", ", cost: ?'")}, "Self-driving from Alton to Bray"),
        ({"reference_information": REFERENCE.replace(" Cove\\n", " Bray\\n")}, "expected only lines of Cove"),
        ({"reference_information": REFERENCE.replace(" Cove\\n", " Coves\\n")}, "Accommodations in Cove: .* end"),
        ({"reference_information": repr([])}, "reference_information: expected flights"),
        ({"budget": 1209}, "budget: .* the cheapest is 1210, actually 1209"),
        ({"local_constraint": "{'room type': 'shared room'}"}, "Accommodations in Bray: expected .* shared room"),
        ({"local_constraint": "{'cuisine': ['Indian']}"}, "Restaurants: expected a choice with Indian food"),
    ],
)
def test_a_malformed_row_is_named(changed, message):
    with pytest.raises(TaskError, match=message):
        trip_of(FIVE | changed)


def test_towns_without_enough_are_named():
    few = place("Bray", [("No dogs", 30.0, "Entire home/apt", "No pets", 1.0, 6)], [("R1", 1, "Tea")], "ABC")
    with pytest.raises(TaskError, match="Restaurants in Bray: expected 6, actually 1"):
        trip_of(row(few, *THREE_PARTS[1:], days=3))
    few = THREE_PARTS[0] | {"Attractions in Bray": "There is no attraction in this city."}
    with pytest.raises(TaskError, match="Attractions in Bray: expected one for every day"):
        trip_of(row(few, *THREE_PARTS[1:], days=3))
    full = place("Bray", [("Hut", 30.0, "Hotel room", "", 1.0, 0)], [("R1", 1, "Tea")], "ABC")
    with pytest.raises(TaskError, match="expected a maximum occupancy ≥ 1, actually 0"):
        trip_of(row(full, *THREE_PARTS[1:], days=3))


@pytest.fixture
def folder(tmp_path):
    """``train.csv`` with a malformed row, ``validation.jsonl`` with one row of each number of days."""
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(THREE))
        writer.writeheader()
        writer.writerows([THREE, THREE | {"local_constraint": "{'house rule': "}, FIVE])
    rows = [THREE | {"budget": 120}, FIVE | {"budget": 1500}]
    (tmp_path / "validation.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(tmp_path)


def test_rows_come_from_files_by_level(folder):
    with pytest.warns(
        RuntimeWarning, match=r"1 train rows are left out: train/1 \(local_constraint: expected the text"
    ):
        env = comlrl_env.make(NAME, data=folder)
    prompts, _ = env.reset(seed=0)
    assert "3 days from Alton" in prompts[AGENTS[0]]
    assert "No dogs, Bray 30 (entire room, not shared room, parties" in prompts[AGENTS[0]]
    assert "R7, Bray 7 (Tea)" in prompts[AGENTS[1]]
    assert "Spend at most 100 together. All prices are for the whole party of 1." in prompts[AGENTS[1]]
    task = TravelPlanner(level=1, data=folder)
    (item,) = task.items("train")
    told = task.instructions(item, ())[AGENTS[0]]
    assert "All hotels must have pets and entire room; at least one meal must be Chinese; at least one" in told
    assert "nobody may go by flight. No restaurant or sight twice." in told
    assert (
        "Loft, with a view, Bray 200 (entire room, not shared room, smoking, children under 10, visitors, pets, "
        "from 2 nights)" in told
    )
    for split in ("train", "eval"):
        for item in task.items(split):
            assert task.score(item, (), task.gold(item)).reward == 1
            drawn = task.score(item, (), task.sample_answers(item, np.random.default_rng(0)))
            assert drawn.reward < 1
            assert not drawn.is_success
    with pytest.raises(TaskError, match=r"rows of 3 towns for (train|eval) at level 2, actually none"):
        TravelPlanner(level=2, data=folder)


def test_seven_days_through_three_towns():
    hotels = [("Hut", 30.0, "Hotel room", "No pets", 2.0, 1)]
    towns = ["Bray", "Cove", "Dell"]
    places = [place(town, hotels, [(f"R{n}", n, "Tea") for n in range(1, 8)], "ABC") for town in towns]
    stops = ["Alton", *towns, "Alton"]
    legs = [
        leg(*pair, f"2022-03-0{day}", drive=1)
        for pair, day in zip(itertools.pairwise(stops), (1, 3, 5, 7), strict=True)
    ]
    task = TravelPlanner("reference", level=2)
    # Four drives, six nights, meals of 10, 10 and 21: 4 + 180 + 41.
    item = Item(key="by hand", data=trip_of(row(*places, *legs, days=7, budget=225)))
    assert task.score(item, (), task.gold(item)).reward == pytest.approx(1.15)
    with pytest.raises(TaskError, match="the cheapest is 225"):
        trip_of(row(*places, *legs, days=7, budget=224))


def test_the_hub_is_asked_for_both_configurations(monkeypatch):
    asked = []

    def load_dataset(repo, config, *, split, revision):
        asked.append((repo, config, split, revision))
        return [THREE if split == "train" else THREE | {"budget": 120}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    task = TravelPlanner(data="hub", revision="ab" * 20)
    assert sorted(asked) == [("osunlp/TravelPlanner", split, split, "ab" * 20) for split in ("train", "validation")]
    assert [len(task.items(split)) for split in ("train", "eval")] == [1, 1]
    with pytest.raises(TaskError, match="40 hexadecimal digits"):
        TravelPlanner(data="hub", revision="main")
