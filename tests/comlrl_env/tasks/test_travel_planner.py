"""TravelPlanner: the published reward by hand arithmetic on one small trip, and the strict one."""

import json

import pytest

from comlrl_env import Item
from comlrl_env.tasks.travel.plans import read_part
from comlrl_env.tasks.travel.travel_planner import AGENTS, TravelPlanner
from comlrl_env.tasks.travel.trips import cheapest, cost, leg_of, make_trip, slots, town_of

# Three days in one town: 4 logistics and 9 experience slots. Cheapest: 10 + 10 + 2 · 50 + 6 · 5 = 150.
TRIP = {
    "home": "H",
    "towns": ["T"],
    "days": 3,
    "ways": [
        {"id": "bus-1", "from": "H", "to": "T", "price": 10},
        {"id": "jet-1", "from": "H", "to": "T", "price": 90},
        {"id": "bus-2", "from": "T", "to": "H", "price": 10},
    ],
    "places": {
        "T": {
            "hotels": [
                {"name": "A", "price": 50, "features": ["pets"]},
                {"name": "B", "price": 50, "features": []},
            ],
            "restaurants": [
                {"name": f"r{i}", "foods": ["Thai" if i == 1 else "Plain"], "price": 5} for i in range(1, 9)
            ],
            "sights": ["s1", "s2", "s3"],
        }
    },
    "features": ["pets"],
    "foods": ["Thai"],
    "budget": 160,
}
ITEM = Item(key="by hand", data=TRIP)


def part(*days, **rest):
    return json.dumps({"days": [{"day": number, **day} for number, day in enumerate(days, start=1)], **rest})


def logistics(first="bus-1", one="A", two="A", last="bus-2", **more):
    return part({"transport": first, "hotel": one, **more}, {"hotel": two}, {"transport": last})


def experience(r6="r6", r1="r1", s3="s3"):
    return part(
        {"lunch": r1, "dinner": "r2", "sight": "s1"},
        {"lunch": "r3", "dinner": "r4", "sight": "s2"},
        {"lunch": "r5", "dinner": r6, "sight": s3},
    )


L, E = logistics(), experience()
ALL = json.dumps({"days": [one | two for one, two in zip(json.loads(L)["days"], json.loads(E)["days"], strict=True)]})
# 1.15 = .05 strict + .10 format + .10 assignment + .10 g + .70 plan + .10 success
LOGISTICS_ONLY = 0.1 * 4 / 13 + 0.15 + 0.15 * 8 / 17 + 0.35 * 2 / 6 + 0.25 * 1 / 3
EXPERIENCE_ONLY = 0.1 * 9 / 13 + 0.15 + 0.15 * 18 / 22 + 0.35 * 4 / 6 + 0.25 * 1 / 3
HALF_STRICT = 0.05 / 2 - 0.15 / 2
CASES = [
    (L, E, 1.15),
    ("", "", -0.15 - 0.15),
    ("no plan", "none at all", -0.15 - 0.15),
    ("same text", "same  text", -0.15 - 0.15 - 0.25 + 0.05),  # the floor of −.5
    (L, "", HALF_STRICT + 0.05 + 0.1 + 0.1 + 0.7 * LOGISTICS_ONLY - 0.15),
    ("", E, HALF_STRICT + 0.05 + 0.1 + 0.1 + 0.7 * EXPERIENCE_ONLY - 0.15),
    (E, L, 1.15 - 0.1 - 0.15),  # the other's slots
    (ALL, "", HALF_STRICT + 0.05 + 0.1 * 4 / 13 + 0.1 + 0.7 + 0.1 - 0.15),
    ("", ALL, HALF_STRICT + 0.05 + 0.1 * 9 / 13 + 0.1 + 0.7 + 0.1 - 0.15),
    (ALL, ALL, 1.15 - 0.05 - 0.1 - 0.25),
    (L, L, 0.05 + 0.1 + 0.05 + 0.1 + 0.7 * LOGISTICS_ONLY - 0.1 * 4 / 13 - 0.15 - 0.25),
    (f"My part: {L}", E, 1.15 - 0.05 + HALF_STRICT),
    (f"```\n{L}\n```", f"{E}\nDone.", 1.15 - 0.05 - 0.15),
    (part(*json.loads(L)["days"], note="x"), E, 1.15 - 0.05 + HALF_STRICT),
    (logistics(one="B", two="B"), E, 1.15 - 0.1 - 0.7 * 0.25 / 3),
    (logistics(first="jet-1"), E, 1.15 - 0.1 - 0.7 * 0.25 / 3),  # 230 > 160
    (logistics(first="bus-2"), E, 1.15 - 0.1 - 0.7 * 0.35 / 6),  # the wrong way
    (L, experience(r6="r2"), 1.15 - 0.1 - 0.7 * 0.35 / 6),  # twice
    (L, experience(r1="r7"), 1.15 - 0.1 - 0.7 * 0.25 / 3),  # no Thai
    (L, experience(s3="-"), 0.4 - 0.1 + 0.05 + 0.7 * (0.1 * 12 / 13 + 0.15 + 0.15 * 24 / 25 + 0.6) - 0.15 / 9),
    (L, experience(s3="s1"), 1.15 - 0.1 - 0.7 * 0.35 / 6),
    (
        logistics(one="Nowhere Inn"),
        E,
        0.05
        + 0.2
        + 0.1 * 12 / 13
        + 0.7 * (0.1 + 0.15 * 12 / 13 + 0.15 * 24 / 26 + (0.1 + 0.9 * 12 / 13) * (0.35 + 0.25 * 2 / 3)),
    ),
    (logistics(boat="x"), E, 1.15 - 0.1 / 14),
    (logistics(lunch="r8"), E, 1.15 - 0.1 / 14 - 0.2 / 13),
    (logistics(lunch="r1"), E, 1.15 - 0.1 / 14 - 0.1 / 13),
    (L + " " * 4000, E, 1.15 - 0.15 / 2),
    ('{"days": 3}', E, HALF_STRICT + 0.05 + 0.1 + 0.1 + 0.7 * EXPERIENCE_ONLY - 0.15),
]


def score(reward, one, two):
    return TravelPlanner(reward).score(ITEM, (), dict(zip(AGENTS, (one, two), strict=True)))


@pytest.mark.parametrize(("one", "two", "expected"), CASES)
def test_published_reward_by_hand(one, two, expected):
    got = score("reference", one, two)
    assert got.reward == pytest.approx(expected), got
    assert got.is_success is (expected == 1.15)
    assert got.is_success or got.reason


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (L, E, 1),
        ("", "", 0),
        (L, "", 8 / 17 * 0.5 * (0.1 + 0.2 * 2 / 6 + 0.2 / 3)),
        ("", E, 18 / 22 * 0.5 * (0.1 + 0.2 * 4 / 6 + 0.2 / 3)),
        (E, L, 0),
        (ALL, "", 8 / 26 * 0.5 * (0.1 + 0.2 * 2 / 6 + 0.2 / 3)),
        (ALL, ALL, 26 / 39),
        (f"My part: {L}", E, 1),
        (logistics(one="B", two="B"), E, 1 - 0.2 / 3 - 0.25),
        (logistics(first="bus-2"), E, 1 - 0.2 / 6 - 0.25),
        (logistics(boat="x"), E, 26 / 27),
        (L, experience(s3="-"), 24 / 25 * (0.5 + 0.5 * 8 / 9)),
    ],
)
def test_strict_reward_by_hand(one, two, expected):
    assert score("strict", one, two).reward == pytest.approx(expected)


@pytest.mark.parametrize("reward", ["strict", "reference"])
def test_gold_reaches_the_maximum(reward):
    for level, count in ((0, 100), (1, 10), (2, 10)):
        task = TravelPlanner(reward, level=level, num_items=count)
        scores = [task.score(item, (), task.gold(item)) for split in ("train", "eval") for item in task.items(split)]
        assert {round(one.reward, 9) for one in scores} == {task.figures["gold"]}
        assert all(one.is_success for one in scores)


def test_the_cheapest_plan_is_the_cheapest():
    """By brute force over what can be chosen apart: ways, hotels, and which meal is the asked one."""
    import itertools

    import numpy as np

    for seed in range(20):
        trip = make_trip(np.random.default_rng(seed), 1, 0)
        plan = cheapest(trip)
        assert set(plan) == {slot for part_slots in slots(trip) for slot in part_slots}
        place = trip["places"][trip["towns"][0]]
        ways = [min(w["price"] for w in trip["ways"] if (w["from"], w["to"]) == leg_of(trip, day)) for day in (1, 3)]
        night = min(hotel["price"] for hotel in place["hotels"] if trip["features"][0] in hotel["features"])
        meals = min(
            sum(one["price"] for one in six)
            for six in itertools.combinations(place["restaurants"], 6)
            if trip["foods"][0] in {one["foods"][0] for one in six}
        )
        assert cost(trip, plan) == sum(ways) + 2 * night + meals
        assert trip["budget"] == int(1.15 * cost(trip, plan))


def test_days_and_ways():
    trip = {"home": "H", "towns": ["A", "B"], "days": 5}
    assert [town_of(trip, day) for day in range(1, 6)] == ["A", "A", "B", "B", "B"]
    assert [leg_of(trip, day) for day in range(1, 6)] == [("H", "A"), None, ("A", "B"), None, ("B", "H")]
    assert len(slots(trip)[0]) == 3 + 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 10_000,
        '{"days": [' * 3_000,
        '{"days": [1, null, {"day": true}]}',
        "{}",
        '{"days": {}}',
        "\ud800{}",
    ],
)
def test_any_text_is_data(text):
    assert not read_part(text).filled
    for reward in ("strict", "reference"):
        got = score(reward, text, text)
        assert got.status == "ok"
        assert got.reward <= 0.05
        assert got.reason
