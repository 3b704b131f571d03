"""Reading two parts of a plan, putting them together, and looking at the whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comlrl_env.tasks.travel.trips import APART, MEALS, cost, leg_of, slots, town_of

LOGISTICS, EXPERIENCE = ("transport", "hotel"), (*MEALS, "sight")
MAX_TEXT = 20_000
Slot = tuple[int, str]


@dataclass
class Part:
    """One answer: the slots that it fills, how many entries make no sense, and how it is written."""

    filled: dict[Slot, str] = field(default_factory=dict)
    invalid: int = 0
    is_object: bool = False
    is_strict: bool = False


def read_part(text: str) -> Part:
    """The slots of an answer ``{"days": [{"day": 1, "hotel": "…"}, …]}``, alone (strict) or with text around it."""
    part = Part()
    text = text[:MAX_TEXT].strip()
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1])
        days = found["days"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return part
    if not isinstance(days, list):
        return part
    part.is_object = True
    part.is_strict = text == text[start : end + 1] and set(found) == {"days"}
    for entry in days:
        if not isinstance(entry, dict) or type(entry.get("day")) is not int:
            part.invalid += 1
            continue
        for name, value in entry.items():
            if name == "day" or value in ("", "-", None):
                continue
            slot = (entry["day"], name)
            if name not in (*LOGISTICS, *EXPERIENCE) or not isinstance(value, str) or slot in part.filled:
                part.invalid += 1
            else:
                part.filled[slot] = value.strip()
    return part


def written(plan: Mapping[Slot, str], names: Sequence[str]) -> str:
    """The slots with these names as an answer, one day a line."""
    days: dict[int, dict[str, Any]] = {}
    for (day, name), value in sorted(
        plan.items(), key=lambda one: (one[0][0], names.index(one[0][1]) if one[0][1] in names else 9)
    ):
        if name in names:
            days.setdefault(day, {"day": day})[name] = value
    return '{"days": [\n' + ",\n".join(json.dumps(day) for day in days.values()) + "\n]}"


@dataclass(frozen=True)
class Look:
    """What a plan is worth, every share in [0, 1]."""

    coverage: float
    grounded: float
    f1: float
    commonsense: float
    hard: float
    faults: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing or wrong."""
        return self.coverage == self.grounded == self.commonsense == self.hard == 1


def look(trip: Mapping[str, Any], plan: Mapping[Slot, str], others: int = 0) -> Look:
    """Compare a plan with the world and the request; ``others``: entries that count as wrong besides."""
    needed = {slot for part in slots(trip) for slot in part}
    real = {slot: value for slot, value in plan.items() if slot in needed and value in _known(trip, slot[1])}
    filled = len(plan) + others
    faults = []
    missing = sorted(needed - plan.keys())
    if missing:
        faults.append(f"{len(missing)} slots are empty, first {missing[0][1]} of day {missing[0][0]}")
    if len(real) < filled:
        faults.append(f"{filled - len(real)} entries are no options for their slot")
    rules = {**_commonsense(trip, real), **_hard(trip, real)}
    faults += [rule for rule, kept in rules.items() if not kept]
    sense = list(_commonsense(trip, real).values())
    wishes = list(_hard(trip, real).values())
    return Look(
        coverage=len(needed & plan.keys()) / len(needed),
        grounded=len(real) / filled if filled else 0.0,
        f1=2 * len(real) / (filled + len(needed)) if filled else 0.0,
        commonsense=sum(sense) / len(sense),
        hard=sum(wishes) / len(wishes),
        faults=tuple(faults),
    )


def _known(trip: Mapping[str, Any], name: str) -> set[str]:
    if name == "transport":
        return {way["id"] for way in trip["ways"]}
    if name == "sight":
        return {sight for place in trip["places"].values() for sight in place["sights"]}
    kind = "hotels" if name == "hotel" else "restaurants"
    return {one["name"] for place in trip["places"].values() for one in place[kind]}


def _commonsense(trip: Mapping[str, Any], real: Mapping[Slot, str]) -> dict[str, bool]:
    """Rules that every trip keeps; one that nothing was planned for is not kept."""
    ways = {way["id"]: (way["from"], way["to"]) for way in trip["ways"]}
    legs = {day: leg for day in range(1, trip["days"] + 1) if (leg := leg_of(trip, day))}
    travel = {day: ways[value] for (day, name), value in real.items() if name == "transport"}
    meals = [value for (_, name), value in real.items() if name in MEALS]
    sights = [value for (_, name), value in real.items() if name == "sight"]
    nights = [(day, value) for (day, name), value in real.items() if name == "hotel"]
    eaten = [(day, value) for (day, name), value in real.items() if name in MEALS]
    seen = [(day, value) for (day, name), value in real.items() if name == "sight"]
    rules = {
        "the ways do not follow the route": travel == legs,
        "a hotel is in another town": bool(nights) and all(_here(trip, d, v, "hotels") for d, v in nights),
        "a restaurant is in another town": bool(eaten) and all(_here(trip, d, v, "restaurants") for d, v in eaten),
        "a sight is in another town": bool(seen)
        and all(v in trip["places"][town_of(trip, d)]["sights"] for d, v in seen),
        "a restaurant comes twice": bool(meals) and len(set(meals)) == len(meals),
        "a sight comes twice": bool(sights) and len(set(sights)) == len(sights),
    }
    if "people" in trip:
        kinds = {way["kind"] for way in _taken(trip, real)}
        asked = {hotel["name"]: hotel["nights"] for place in trip["places"].values() for hotel in place["hotels"]}
        rules["a drive is mixed with a flight or a taxi"] = bool(kinds) and not any({*pair} <= kinds for pair in APART)
        rules["a stay is too short for its hotel"] = bool(nights) and all(
            count >= asked[name] for name, count in _stays(nights)
        )
    return rules


def _taken(trip: Mapping[str, Any], real: Mapping[Slot, str]) -> list[Mapping[str, Any]]:
    ways = {way["id"]: way for way in trip["ways"]}
    return [ways[value] for (_, name), value in real.items() if name == "transport"]


def _stays(nights: Sequence[Slot]) -> list[tuple[str, int]]:
    """Hotels with the number of nights that are spent there in a row; a hotel can come twice."""
    stays: list[tuple[str, int]] = []
    last = 0
    for day, name in sorted(nights):
        if stays and stays[-1][0] == name and day == last + 1:
            stays[-1] = (name, stays[-1][1] + 1)
        else:
            stays.append((name, 1))
        last = day
    return stays


def _hard(trip: Mapping[str, Any], real: Mapping[Slot, str]) -> dict[str, bool]:
    """What the request asks for; the budget is kept by whole plans only."""
    hotels = {one["name"]: one["features"] for place in trip["places"].values() for one in place["hotels"]}
    foods = {one["name"]: one["foods"] for place in trip["places"].values() for one in place["restaurants"]}
    nights = [value for (_, name), value in real.items() if name == "hotel"]
    eaten = {food for (_, name), value in real.items() if name in MEALS for food in foods[value]}
    priced = [slot for part in slots(trip) for slot in part if slot[1] != "sight"]
    wishes = {
        "the budget is not kept": all(slot in real for slot in priced) and cost(trip, real) <= trip["budget"],
    }
    for feature in trip["features"]:
        wishes[f"a hotel has no place for {feature}"] = bool(nights) and all(feature in hotels[n] for n in nights)
    if trip["foods"]:
        wishes[f"nobody eats {' or nobody '.join(trip['foods'])} food"] = {*trip["foods"]} <= eaten
    if trip.get("avoid"):
        kinds = {way["kind"] for way in _taken(trip, real)}
        wishes[f"somebody goes by {trip['avoid']}"] = bool(kinds) and trip["avoid"] not in kinds
    return wishes


def _here(trip: Mapping[str, Any], day: int, name: str, kind: str) -> bool:
    return any(one["name"] == name for one in trip["places"][town_of(trip, day)][kind])
