"""Trips from the rows of TravelPlanner (Xie et al., 2024, arXiv:2402.01622), in the form of :mod:`.trips`.

A row's towns, their order and their days stand in its flight tables: out on day 1, on to the next town on every other
day, home on the last. Prices become those of all travellers, as the published evaluation counts them.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.tasks.travel.least_cost import least_cost
from comlrl_env.tasks.travel.tables import lines, literal, number, shown, whole

RULES = ("parties", "smoking", "children under 10", "visitors", "pets")
ROOMS = {"Entire home/apt": "entire room", "Private room": "private room", "Shared room": "shared room"}
NOT_SHARED = "not shared room"
WISHES: dict[str, tuple[str, ...]] = {
    "house rule": RULES,
    "room type": (*ROOMS.values(), NOT_SHARED),
    "transportation": ("no flight", "no self-driving"),
}
SEATS = {"self-driving": 5, "taxi": 4}
_SIGHTS = ("Name", "Latitude", "Longitude", "Address", "Phone", "Website", "City")
_MEALS = ("Name", "Average Cost", "Cuisines", "Aggregate Rating", "City")
_HOTELS = (
    *("NAME", "price", "room type", "house_rules", "minimum nights", "maximum occupancy", "review rate number", "city"),
)
_FLIGHTS = (
    *("Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate"),
    *("OriginCityName", "DestCityName", "Distance"),
)
_FLIGHT = re.compile(r"Flight from (.+) to (.+) on (\d{4}-\d\d-\d\d)")
_DRIVE = re.compile(r"(?:self-driving|taxi), from .+, cost: (\d+)")
REFERENCE = "reference_information"


def trip_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The trip of a row, with ``people`` and, under ``plan``, the cheapest plan as (day, name, value).

    Raises :class:`TaskError`, which names the field, where a text is not what it should be, or no plan keeps all rules.
    """
    days, people, budget = (whole(row, field) for field in ("days", "people_number", "budget"))
    blocks = _blocks(row)
    legs = _legs(row, days, blocks)
    towns = [end for _, end in legs[:-1]]
    ways = [way for n, leg in enumerate(legs, start=1) for way in _ways(n, leg, people, blocks)]
    trip: dict[str, Any] = {
        "home": legs[0][0],
        "towns": towns,
        "days": days,
        "ways": ways,
        "places": {town: _place(town, people, blocks) for town in towns},
        "people": people,
        "budget": budget,
        **_wishes(row),
    }
    trip["plan"] = [[day, name, value] for (day, name), value in least_cost(trip).items()]
    return trip


def _blocks(row: Mapping[str, Any]) -> dict[str, str]:
    blocks = {}
    for block in literal(row, REFERENCE, list):
        name, content = (block.get(key) if isinstance(block, dict) else None for key in ("Description", "Content"))
        if not isinstance(name, str) or not isinstance(content, str):
            raise TaskError(f"{REFERENCE}: expected parts with Description and Content, actually {shown(block)}")
        blocks[name] = content
    return blocks


def _legs(row: Mapping[str, Any], days: int, blocks: Mapping[str, str]) -> list[tuple[str, str]]:
    """From where to where the flights go, checked against origin, dates and the number of towns."""
    dates = literal(row, "date", list)
    flights = [found.groups() for name in blocks if (found := _FLIGHT.fullmatch(name))]
    towns = whole(row, "visiting_city_number")
    if days != 2 * towns + 1 or len(dates) != days:
        raise TaskError(f"days: expected 2 a town, 1 more, and as many dates, actually {days} days and {towns} towns")
    stops = [flight[0] for flight in flights]
    if (
        [flight[2] for flight in flights] != dates[::2]
        or stops[:1] != [row["org"]]
        or [flight[1] for flight in flights] != [*stops[1:], *stops[:1]]
        or len(set(stops)) != towns + 1
    ):
        raise TaskError(
            f"{REFERENCE}: expected flights from {row['org']} through {towns} towns and back on {dates[::2]}, actually "
            f"{shown([' '.join(flight) for flight in flights])}"
        )
    return [(start, end) for start, end, _ in flights]


def _ways(place: int, leg: tuple[str, str], people: int, blocks: Mapping[str, str]) -> list[dict[str, Any]]:
    between = f"from {leg[0]} to {leg[1]}"
    ends = {"from": leg[0], "to": leg[1]}
    name = next(name for name in blocks if name.startswith(f"Flight {between} on "))
    ways = [
        {
            "id": line["Flight Number"],
            "kind": "flight",
            **ends,
            "price": people * number(f"{name}: Price", line["Price"]),
        }
        for line in lines(name, blocks[name], _FLIGHTS)
    ]
    for kind, seats in SEATS.items():
        name = f"{kind.capitalize()} {between}"
        content = _content(blocks, name)
        if content.lower().endswith("no valid information."):
            continue
        found = _DRIVE.fullmatch(content)
        if not found:
            raise TaskError(f"{name}: expected a text that ends with its cost, actually {shown(content)}")
        price = int(found[1]) * math.ceil(people / seats)
        ways.append({"id": f"{kind}-{place}", "kind": kind, **ends, "price": price})
    return ways


def _place(town: str, people: int, blocks: Mapping[str, str]) -> dict[str, Any]:
    """The options of a town. Names get the town behind them, since chains have houses in many.

    Where a name comes twice in a town, the first counts, as in the published evaluation.
    """
    hotels: dict[str, dict[str, Any]] = {}
    restaurants: dict[str, dict[str, Any]] = {}
    about = f"Accommodations in {town}"
    for line in _listed(about, town, blocks, _HOTELS):
        price, nights, beds = (
            number(f"{about}: {column}", line[column]) for column in ("price", "minimum nights", "maximum occupancy")
        )
        if beds < 1:
            raise TaskError(f"{about}: expected a maximum occupancy ≥ 1, actually {line['maximum occupancy']}")
        hotels.setdefault(
            line["NAME"],
            {
                "name": f"{line['NAME']}, {town}",
                "price": price * math.ceil(people / beds),
                "features": [
                    ROOMS.get(line["room type"], line["room type"]),
                    *([] if line["room type"] == "Shared room" else [NOT_SHARED]),
                    *(rule for rule in RULES if f"No {rule}" not in line["house_rules"]),
                ],
                "nights": nights,
            },
        )
    about = f"Restaurants in {town}"
    for line in _listed(about, town, blocks, _MEALS):
        price = people * number(f"{about}: Average Cost", line["Average Cost"])
        restaurants.setdefault(
            line["Name"],
            {"name": f"{line['Name']}, {town}", "foods": line["Cuisines"].split(", "), "price": price},
        )
    seen = _listed(f"Attractions in {town}", town, blocks, _SIGHTS)
    sights = dict.fromkeys(f"{line['Name']}, {town}" for line in seen)
    return {"hotels": [*hotels.values()], "restaurants": [*restaurants.values()], "sights": [*sights]}


def _listed(name: str, town: str, blocks: Mapping[str, str], columns: tuple[str, ...]) -> list[dict[str, str]]:
    found = lines(name, _content(blocks, name), columns)
    wrong = [line for line in found if line[columns[-1]] != town]
    if wrong:
        raise TaskError(f"{name}: expected only lines of {town}, actually {shown(wrong[0])}")
    return found


def _content(blocks: Mapping[str, str], name: str) -> str:
    if name not in blocks:
        raise TaskError(f"{REFERENCE}: expected a part {name!r}, actually {shown([*blocks])}")
    return blocks[name]


def _wishes(row: Mapping[str, Any]) -> dict[str, Any]:
    asked = literal(row, "local_constraint", dict)
    for name, value in asked.items():
        if value is None:
            continue
        if name == "cuisine":
            if not isinstance(value, list) or not all(isinstance(food, str) for food in value):
                raise TaskError(f"local_constraint: expected a list of texts as cuisine, actually {shown(value)}")
        elif value not in WISHES.get(name, ()):
            known = "; ".join(f"{key}: {', '.join(values)}" for key, values in WISHES.items())
            raise TaskError(f"local_constraint: expected cuisine; {known}; actually {name}: {shown(value)}")
    transport = asked.get("transportation")
    return {
        "features": [asked[name] for name in ("house rule", "room type") if asked.get(name)],
        "foods": asked.get("cuisine") or [],
        "avoid": transport and transport.removeprefix("no "),
    }
