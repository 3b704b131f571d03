"""The cheapest plan of a trip from a row: exact, since ways, hotels, meals and sights can be chosen apart."""

import itertools
from collections.abc import Mapping
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.tasks.travel.trips import APART, MEALS, NIGHTS, cost, leg_of, town_of


def least_cost(trip: Mapping[str, Any]) -> dict[tuple[int, str], str]:
    """A plan that fills every slot and keeps every rule and wish at the least cost.

    Raises :class:`TaskError` where there is none.
    """
    days = range(1, trip["days"] + 1)
    ways, hotels, meals = _ways(trip), _hotels(trip), iter(_meals(trip))
    sights = {town: iter(place["sights"]) for town, place in trip["places"].items()}
    plan: dict[tuple[int, str], str] = {}
    for day in days:
        town = town_of(trip, day)
        leg = leg_of(trip, day)
        if leg:
            plan[day, "transport"] = ways[leg]
        if day < trip["days"]:
            plan[day, "hotel"] = hotels[town]
        for meal in MEALS:
            plan[day, meal] = next(meals)
        sight = next(sights[town], None)
        if sight is None:
            raise TaskError(f"Attractions in {town}: expected one for every day there, actually none for day {day}")
        plan[day, "sight"] = sight
    if cost(trip, plan) > trip["budget"]:
        raise TaskError(
            f"budget: expected enough for a plan with {len(MEALS)} meals a day, the cheapest is {cost(trip, plan)}, "
            f"actually {trip['budget']}"
        )
    return plan


def _ways(trip: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    legs = [leg for day in range(1, trip["days"] + 1) if (leg := leg_of(trip, day))]
    offers = []
    # Of every two kinds that exclude each other one is given up.
    for given_up in itertools.product(*APART):
        left = [way for way in trip["ways"] if way["kind"] not in (*given_up, trip["avoid"])]
        fitting = [[way for way in left if (way["from"], way["to"]) == leg] for leg in legs]
        if all(fitting):
            chosen = [min(ways, key=lambda way: way["price"]) for ways in fitting]
            offers.append((sum(way["price"] for way in chosen), [way["id"] for way in chosen]))
    if not offers:
        raise TaskError(f"ways: expected transport of kinds that go together on {legs}, actually none")
    return dict(zip(legs, min(offers)[1], strict=True))


def _hotels(trip: Mapping[str, Any]) -> dict[str, str]:
    chosen = {}
    for town, place in trip["places"].items():
        fitting = [h for h in place["hotels"] if h["nights"] <= NIGHTS and {*trip["features"]} <= {*h["features"]}]
        if not fitting:
            asked = " with ".join(["one for two nights", *trip["features"]])
            raise TaskError(f"Accommodations in {town}: expected {asked}, actually none")
        chosen[town] = min(fitting, key=lambda hotel: hotel["price"])["name"]
    return chosen


def _meals(trip: Mapping[str, Any]) -> tuple[str, ...]:
    """The restaurants in the order of days, no two alike, that have all foods asked for.

    Dynamic programming over restaurants: the best offer for each set of foods and number of meals so far.
    """
    asked = frozenset(trip["foods"])
    best: dict[frozenset[str], tuple[float, tuple[str, ...]]] = {frozenset(): (0, ())}
    for town, place in trip["places"].items():
        count = len(MEALS) * sum(town_of(trip, day) == town for day in range(1, trip["days"] + 1))
        offers = {(foods, 0): offer for foods, offer in best.items()}
        for one in place["restaurants"]:
            for (foods, meals), (price, names) in list(offers.items()):
                if meals < count:
                    key = (foods | asked.intersection(one["foods"]), meals + 1)
                    offer = (price + one["price"], (*names, one["name"]))
                    offers[key] = min(offer, offers.get(key, offer))
        best = {foods: offer for (foods, meals), offer in offers.items() if meals == count}
        if not best:
            raise TaskError(f"Restaurants in {town}: expected {count}, actually {len(place['restaurants'])}")
    if asked not in best:
        raise TaskError(f"Restaurants: expected a choice with {', '.join(trip['foods'])} food, actually none")
    return best[asked][1]
