"""Small worlds to travel in: towns with hotels, restaurants and sights, ways between them, and a request.

A trip holds ``home``, ``towns``, ``days``, ``ways``, ``places``, ``budget`` and the wishes ``features`` (of every
hotel) and ``foods`` (of one meal each). Trips from rows (:mod:`.real_trips`) hold ``people``, ``avoid`` (a kind of ways
or ``None``) and ``plan`` besides; their ways have a ``kind``, their hotels the least number of ``nights``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

_TOWNS = """
Albury Bexhill Corby Dover Epsom Falmouth Grantham Hythe Ilford Jarrow Kendal Lydd Malton Neston Oakham Penrith Ripon
Selby Thirsk Ulverston Ventnor Whitby Yarm Amble
"""
TOWNS = tuple(_TOWNS.split())
_FOODS = ("Chinese", "French", "Indian", "Italian", "Mexican")
_FEATURES = ("pets", "parking", "a pool")
# The first hotel has everything, so that every wish can be met.
_HOTELS = {"Anchor": _FEATURES, "Beacon": ("a pool",), "Castle": ("parking",), "Dolphin": ("pets",)}
_MODES = ("bus", "train", "flight")
_SIGHTS = ("museum", "castle ruin", "botanic garden", "old harbour", "gallery", "lighthouse")
RESTAURANTS = 9
MARGIN = 1.15
MEALS = ("lunch", "dinner")
NIGHTS = 2
# Kinds of ways that no plan with real rows mixes: a car stays where it is left.
APART = (("self-driving", "flight"), ("self-driving", "taxi"))


def make_trip(rng: np.random.Generator, towns: int, wanted: int) -> dict[str, Any]:
    """A trip of 2·towns + 1 days through so many towns; the budget is 1.15 times the least that it can cost.

    The number of the home town is ``wanted`` modulo 4.
    """
    home = 4 * int(rng.integers(len(TOWNS) // 4)) + wanted
    order = [i for i in rng.permutation(len(TOWNS)).tolist() if i != home][:towns]
    route = [TOWNS[i] for i in (home, *order)]
    draws = iter(rng.integers(1000, size=400).tolist())
    legs = [*zip(route, [*route[1:], route[0]], strict=True)]
    ways = [
        {
            "id": f"{mode}-{number}-{1 + leg}",
            "from": start,
            "to": end,
            "price": 10 + (number + 1) * (5 + next(draws) % 30),
        }
        for leg, (start, end) in enumerate(legs)
        for number, mode in enumerate(_MODES)
    ]
    places = {town: _town(town, draws) for town in route[1:]}
    trip: dict[str, Any] = {
        "home": route[0],
        "towns": route[1:],
        "days": 2 * towns + 1,
        "ways": ways,
        "places": places,
        "features": [_FEATURES[next(draws) % len(_FEATURES)]],
        "foods": [_FOODS[next(draws) % len(_FOODS)]],
    }
    trip["budget"] = int(MARGIN * cost(trip, cheapest(trip)))
    return trip


def _town(town: str, draws: Any) -> dict[str, Any]:
    hotels = [
        {"name": f"{name} {town}", "price": 30 + next(draws) % 90, "features": [*features]}
        for name, features in _HOTELS.items()
    ]
    start = next(draws) % len(_FOODS)
    foods = (_FOODS * 3)[start : start + RESTAURANTS]
    restaurants = [
        {"name": f"{food} House {number} {town}", "foods": [food], "price": 5 + next(draws) % 30}
        for number, food in enumerate(foods, start=1)
    ]
    first = next(draws)
    sights = [f"{town} {_SIGHTS[(first + i) % len(_SIGHTS)]}" for i in range(4)]
    return {"hotels": hotels, "restaurants": restaurants, "sights": sights}


def town_of(trip: Mapping[str, Any], day: int) -> str:
    """Where the travellers are on a day: two days in each town, three in the last."""
    return str(trip["towns"][min((day - 1) // 2, len(trip["towns"]) - 1)])


def leg_of(trip: Mapping[str, Any], day: int) -> tuple[str, str] | None:
    """From where to where they travel on a day, ``None`` on a day without travel."""
    if day == trip["days"]:
        return town_of(trip, day), str(trip["home"])
    if day % 2 == 1:
        return (str(trip["home"]) if day == 1 else town_of(trip, day - 1)), town_of(trip, day)
    return None


def slots(trip: Mapping[str, Any]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The slots (day, name) of logistics and of experience that a whole plan fills."""
    days = range(1, trip["days"] + 1)
    logistics = [(day, "transport") for day in days if leg_of(trip, day)]
    logistics += [(day, "hotel") for day in days if day < trip["days"]]
    return sorted(logistics), [(day, name) for day in days for name in (*MEALS, "sight")]


def cheapest(trip: Mapping[str, Any]) -> dict[tuple[int, str], str]:
    """A plan that keeps every rule at little cost: what a trip of :func:`make_trip` has its budget from."""
    (feature,), (food,) = trip["features"], trip["foods"]
    plan: dict[tuple[int, str], str] = {}
    left: dict[str, list[dict[str, Any]]] = {}
    for town, place in trip["places"].items():
        left[town] = sorted(place["restaurants"], key=lambda one: (one["price"], one["name"]))
    town = min(left, key=lambda name: _least(left[name], food)["price"] - left[name][0]["price"])
    asked = _least(left[town], food)
    left[town].remove(asked)
    left[town].insert(0, asked)
    sights = {name: iter(place["sights"]) for name, place in trip["places"].items()}
    for day in range(1, trip["days"] + 1):
        town = town_of(trip, day)
        leg = leg_of(trip, day)
        if leg:
            fitting = [way for way in trip["ways"] if (way["from"], way["to"]) == leg]
            plan[day, "transport"] = min(fitting, key=lambda way: way["price"])["id"]
        if day < trip["days"]:
            hotels = [hotel for hotel in trip["places"][town]["hotels"] if feature in hotel["features"]]
            plan[day, "hotel"] = min(hotels, key=lambda hotel: hotel["price"])["name"]
        for meal in MEALS:
            plan[day, meal] = left[town].pop(0)["name"]
        plan[day, "sight"] = next(sights[town])
    return plan


def _least(restaurants: list[dict[str, Any]], food: str) -> dict[str, Any]:
    return next(one for one in restaurants if food in one["foods"])


def cost(trip: Mapping[str, Any], plan: Mapping[tuple[int, str], str]) -> float:
    """What the named entries of a plan cost; names that do not exist cost nothing."""
    prices: dict[str, float] = {way["id"]: way["price"] for way in trip["ways"]}
    for place in trip["places"].values():
        prices |= {one["name"]: one["price"] for one in (*place["hotels"], *place["restaurants"])}
    return sum(prices.get(value, 0) for value in plan.values())
