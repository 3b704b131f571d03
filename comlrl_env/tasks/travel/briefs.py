"""What the planners are told of a trip: the request, and the options of each."""

from collections.abc import Mapping
from typing import Any

from comlrl_env.tasks.travel.trips import town_of


def request(trip: Mapping[str, Any]) -> str:
    """Route, budget and wishes, which both planners read."""
    days = ", ".join(f"day {day} in {town_of(trip, day)}" for day in range(1, trip["days"] + 1))
    wishes = [f"at least one meal must be {food}" for food in trip["foods"]]
    if trip["features"]:
        wishes.insert(0, f"all hotels must have {' and '.join(trip['features'])}")
    if trip.get("avoid"):
        wishes.append(f"nobody may go by {trip['avoid']}")
    asked = "; ".join(wishes)
    people = ""
    if "people" in trip:
        people = (
            f" All prices are for the whole party of {trip['people']}. Who goes by self-driving on any day takes "
            "neither flight nor taxi. A hotel may ask for a least number of nights in a row."
        )
    return (
        f"Two planners plan a trip of {trip['days']} days from {trip['home']} and back: {days}, and home on the last "
        f"day. Spend at most {trip['budget']} together.{people} {asked[:1].upper()}{asked[1:]}{'. ' if asked else ''}"
        "No restaurant or sight twice."
    )


def logistics_options(trip: Mapping[str, Any]) -> list[str]:
    """One line for the ways and one for the hotels of each town."""
    ways = "; ".join(f"{way['id']} {way['from']} to {way['to']} {way['price']}" for way in trip["ways"])
    return [
        f"Transport: {ways}.",
        *(
            f"Hotels in {town}, price a night (with): {'; '.join(map(_hotel, place['hotels']))}."
            for town, place in trip["places"].items()
        ),
    ]


def experience_options(trip: Mapping[str, Any]) -> list[str]:
    """One line for each town; foods stand behind restaurants of rows, since their names do not tell."""
    found = []
    for town, place in trip["places"].items():
        meals = [
            f"{one['name']} {one['price']}" + (f" ({', '.join(one['foods'])})" if "people" in trip else "")
            for one in place["restaurants"]
        ]
        found.append(f"Restaurants in {town}: {'; '.join(meals)}. Sights: {'; '.join(place['sights'])}.")
    return found


def _hotel(hotel: Mapping[str, Any]) -> str:
    nights = f", from {hotel['nights']} nights" if hotel.get("nights", 1) > 1 else ""
    return f"{hotel['name']} {hotel['price']} ({', '.join(hotel['features']) or 'nothing'}{nights})"
