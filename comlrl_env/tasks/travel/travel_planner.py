"""``comlrl/TravelPlanner-v0``: a trip planned by two, ways and hotels here, meals and sights there.

Purpose: two halves of one plan that share a budget: neither sees the other's options.

Roles: ``logistics_0`` fills transport and hotel, ``experience_1`` lunch, dinner and sight of every day. One
simultaneous response, a JSON object each; the halves are put together slot by slot.

Example (level 0; the first training item of seed 0)::

    logistics_0 is told You are logistics_0. Two planners plan a trip of 3 days from Ventnor and back: day 1 in
                        Thirsk, day 2 in Thirsk, day 3 in Thirsk, and home on the last day. Spend at most 341
                        together. All hotels must have pets; at least one meal must be Italian. No restaurant or
                        sight twice. Write only transport (on travel days) and hotel (every night) as {"days":
                        [{"day": 1, "transport": "id", "hotel": "name"}, ...]}; the other planner writes the rest.
                        Transport: bus-0-1 Ventnor to Thirsk 17; train-1-1 Ventnor to Thirsk 46; flight-2-1 Ventnor
                        to Thirsk 109; bus-0-2 Thirsk to Ventnor 20; train-1-2 Thirsk to Ventnor 28; flight-2-2
                        Thirsk to Ventnor 49.
                        Hotels in Thirsk, price a night (with): Anchor Thirsk 70 (pets, parking, a pool); Beacon
                        Thirsk 105 (a pool); Castle Thirsk 47 (parking); Dolphin Thirsk 107 (pets).
    experience_1 is told the same for its own part
    logistics_0 answers {"days": [
                        {"day": 1, "transport": "bus-0-1", "hotel": "Anchor Thirsk"},
                        {"day": 2, "hotel": "Anchor Thirsk"},
                        {"day": 3, "transport": "bus-0-2"}
                        ]}
    experience_1 answers {"days": [
                        {"day": 1, "lunch": "Italian House 4 Thirsk", "dinner": "Indian House 3 Thirsk", "sight":
                        "Thirsk botanic garden"},
                        {"day": 2, "lunch": "Chinese House 1 Thirsk", "dinner": "French House 7 Thirsk", "sight":
                        "Thirsk old harbour"},
                        {"day": 3, "lunch": "Chinese House 6 Thirsk", "dinner": "Italian House 9 Thirsk", "sight":
                        "Thirsk gallery"}
                        ]}
    score               1.00

A plan is looked at in five ways. *coverage*: slots filled / slots needed. *g*: entries that exist among the options of
their slot / entries. *F1* of entries that exist against slots needed. *commonsense*: of six rules (the ways follow the
route; hotels, restaurants and sights are in the day's town; no restaurant and no sight twice), each needs an entry.
*hard*: of the three wishes (budget, the hotels' feature, one meal of the kind of food).

Reward, ``reward="strict"`` (default, in [0, 1])::

    F1 · (.5 + .5 min_i c_i) · (.1 + .2 commonsense + .2 hard + .25 [all six rules] + .25 [all three wishes])

for the plan of each planner's own slots; entries in the other's slots count as wrong in F1. c_i: the share of its own
slots that planner i fills.

``reward="reference"`` (version 5 as published, in [−.5, 1.15])::

    .05 strict + .10 format + .10 assignment + .10 g + .70 plan + .10 success
    − .10 overlap − .20 conflict − .10 invalid − .15 deficit − .15 (1 − strict) − .25 copying − .15 overlong
    plan = .10 coverage + .15 g + .15 F1 + (.1 + .9 g)(.35 commonsense + .25 hard)

for the merged plan (the owner's entry counts, then the other's). *strict*: answers that are nothing but the object;
*format*: answers that hold one (shares of two). *assignment*: entries in their planner's own slots / entries.
*success*: nothing missing or wrong. *overlap*, *conflict*: slots that both fill, alike or differently / slots needed.
*invalid*: entries with an unknown name, day or value / all. *deficit*: 1 − the smaller share of own slots filled.
*copying*: 1 if both answers are the same text (and not empty). *overlong*: the share of answers of more than 4000
characters. The weights are published; what stands here about the parts is ours.

Levels: 0, 1, 2: one, two, three towns in 3, 5, 7 days.

Figures (``python -m comlrl_env.figures comlrl/TravelPlanner-v0 reward=… level=…``; level 0, 1, 2)::

    reward      gold              solo              random             one plans everything; both plan everything
    strict      1.00  1.00  1.00  0.05  0.06  0.06  0.31  0.18  0.17   0.04; 0.67
    reference   1.15  1.15  1.15  0.37  0.37  0.37  0.85  0.70  0.69   0.78; 0.75

Solo: logistics_0 fills its slots, experience_1 says nothing. Random: a random option, of any town, in every own slot.

Data: towns, prices and wishes by a rule, written for this project, Apache-2.0, in the structure of TravelPlanner (Xie
et al., 2024, arXiv:2402.01622). Train and eval, and neighbouring seeds, share no home town. About 5 000 items a second:
each plans its own cheap trip for the budget.

``data=…`` reads ``osunlp/TravelPlanner`` (CC-BY-4.0; training: its split ``train`` of 45 rows, evaluation:
``validation``, 180; its ``test`` keeps back what the rows must tell). ``level`` takes the rows of 1, 2 or 3 towns. The
request is told from the fields, not by the row's ``query``; names have the town behind them ("Coco Bambu, Rockford"),
and prices are for all people: flights and meals for each, a car for five, a taxi for four, as many units as their
occupancy needs. Wishes are the budget and, where the row has them, house rule, room type, cuisines (all of them, over
the trip) and transport. Rows have two more commonsense rules: no drive beside a flight or a taxi, and a hotel's least
number of nights. Breakfast and second sights have no slot, and a meal counts on days of travel too. So this is not the
published evaluation, which also lets slots be empty.

Gold of a row, in training and evaluation, is the cheapest plan that keeps all rules, found by exact search over the
row's own options; the annotated plans, which only ``train`` has, are not read, since they leave slots empty. Rows
without such a plan, or with a text that is not as expected, are named in a warning and left out. The figures above are
not measured on rows: the reader was written from the published code and three published rows, without the data set.

Versions: v0 first version.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.reference_task import ReferenceTask
from comlrl_env.rows import PublicData
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.travel.briefs import experience_options, logistics_options, request
from comlrl_env.tasks.travel.plans import EXPERIENCE, LOGISTICS, Part, look, read_part, written
from comlrl_env.tasks.travel.real_trips import REFERENCE, trip_of
from comlrl_env.tasks.travel.trips import cheapest, make_trip, slots
from comlrl_env.types import Item, Score

AGENTS = ("logistics_0", "experience_1")
NAMES = dict(zip(AGENTS, (LOGISTICS, EXPERIENCE), strict=True))
SHAPES = {
    AGENTS[0]: "transport (on travel days) and hotel (every night) as "
    '{"days": [{"day": 1, "transport": "id", "hotel": "name"}, ...]}',
    AGENTS[1]: "lunch, dinner and sight of every day as "
    '{"days": [{"day": 1, "lunch": "name", "dinner": "name", "sight": "name"}, ...]}',
}
LONGEST = 4000
LOWEST, BEST = -0.5, 1.15


class TravelPlanner(ReferenceTask):
    """A trip for two planners; see the page above."""

    roles = AGENTS
    cues = ("Plan:",)
    attack_ceiling = 2 / 3
    source = PublicData(
        "osunlp/TravelPlanner",
        (*("org", "days", "visiting_city_number", "date", "people_number"), *("local_constraint", "budget", REFERENCE)),
        {"train": "train", "eval": "validation"},
        180,
        config="{split}",
    )
    item_cost = 12
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.05, "random": 0.31},
        "reference": {"gold": 1.15, "solo": 0.37, "random": 0.85},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """A trip of :func:`~comlrl_env.tasks.travel.trips.make_trip`."""
        return make_trip(rng, self.level + 1, self.item_class(split))

    def from_row(self, item: Item) -> Item:
        """The trip of a row; see :func:`~comlrl_env.tasks.travel.real_trips.trip_of`."""
        return Item(key=item.key, data=trip_of(item.data))

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The request, and the options of the agent's own slots."""
        trip = item.data
        options = dict(zip(AGENTS, (logistics_options(trip), experience_options(trip)), strict=True))
        return {
            agent: f"You are {agent}. {request(trip)} Write only {SHAPES[agent]}; the other planner writes the rest.\n"
            + "\n".join(options[agent])
            for agent in AGENTS
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        parts = {agent: read_part(responses[agent]) for agent in AGENTS}
        return self._strict(item, parts) if self.reward == "strict" else self._reference(item, parts, responses)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """A cheap plan that keeps every rule; for a row the cheapest there is."""
        trip = item.data
        plan = {(day, name): value for day, name, value in trip["plan"]} if "plan" in trip else cheapest(trip)
        return {agent: written(plan, NAMES[agent]) for agent in AGENTS}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """A random option of any town in every slot of one's own."""
        trip = item.data
        options: dict[str, list[str]] = {"transport": [way["id"] for way in trip["ways"]]}
        for place in trip["places"].values():
            options.setdefault("hotel", []).extend(one["name"] for one in place["hotels"])
            options.setdefault("sight", []).extend(place["sights"])
            for meal in ("lunch", "dinner"):
                options.setdefault(meal, []).extend(one["name"] for one in place["restaurants"])
        plan = {
            slot: options[slot[1]][int(rng.integers(len(options[slot[1]])))] for part in slots(trip) for slot in part
        }
        return {agent: written(plan, NAMES[agent]) for agent in AGENTS}

    def _usable(self, split: str, items: Sequence[Item]) -> list[Item]:
        # A number that is none of the three goes on to from_row, which names it.
        others = {"1", "2", "3"} - {str(self.level + 1)}
        fitting = [item for item in items if str(item.data["visiting_city_number"]) not in others]
        if not fitting:
            raise TaskError(
                f"data: expected rows of {self.level + 1} towns for {split} at level {self.level}, actually none of "
                f"{len(items)}; the levels 0, 1, 2 take rows of 1, 2, 3 towns"
            )
        return super()._usable(split, fitting)

    def _strict(self, item: Item, parts: dict[str, Part]) -> Score:
        own = {slot: v for agent, part in parts.items() for slot, v in part.filled.items() if slot[1] in NAMES[agent]}
        others = sum(part.invalid + sum(slot[1] not in NAMES[a] for slot in part.filled) for a, part in parts.items())
        seen = look(item.data, own, others)
        shares = [sum(slot in own for slot in needed) / len(needed) for needed in slots(item.data)]
        whole = 0.25 * (seen.commonsense == 1) + 0.25 * (seen.hard == 1)
        quality = 0.1 + 0.2 * seen.commonsense + 0.2 * seen.hard + whole
        reward = seen.f1 * (0.5 + 0.5 * min(shares)) * quality
        numbers = {"f1": seen.f1, "commonsense": seen.commonsense, "hard": seen.hard, "min_share": min(shares)}
        return Score(reward=reward, parts=numbers, reason="; ".join(seen.faults), is_success=reward > 1 - 1e-9)

    def _reference(self, item: Item, parts: dict[str, Part], responses: JointResponse) -> Score:
        plan: dict[tuple[int, str], str] = {}
        for agent in AGENTS:
            theirs = {slot: v for slot, v in parts[agent].filled.items() if slot[1] not in NAMES[agent]}
            plan = theirs | plan
        for agent in AGENTS:
            plan |= {slot: v for slot, v in parts[agent].filled.items() if slot[1] in NAMES[agent]}
        seen = look(item.data, plan)
        needed = slots(item.data)
        count = sum(map(len, needed))
        one, two = (parts[agent].filled for agent in AGENTS)
        both = [one[slot] == two[slot] for slot in one.keys() & two.keys()]
        filled, invalid = len(one) + len(two), sum(part.invalid for part in parts.values())
        right = sum(slot[1] in NAMES[agent] for agent in AGENTS for slot in parts[agent].filled)
        shares = [
            sum(slot in parts[agent].filled for slot in wanted) / len(wanted)
            for agent, wanted in zip(AGENTS, needed, strict=True)
        ]
        strict = sum(part.is_strict for part in parts.values()) / 2
        texts = [" ".join(responses[agent].split()) for agent in AGENTS]
        quality = (
            0.1 * seen.coverage
            + 0.15 * seen.grounded
            + 0.15 * seen.f1
            + (0.1 + 0.9 * seen.grounded) * (0.35 * seen.commonsense + 0.25 * seen.hard)
        )
        numbers = {
            "strict": 0.05 * strict - 0.15 * (1 - strict),
            "format": 0.1 * sum(part.is_object for part in parts.values()) / 2,
            "assignment": 0.1 * (right / filled if filled else 0.0),
            "grounding": 0.1 * seen.grounded,
            "plan": 0.7 * quality,
            "success": 0.1 * seen.is_whole,
            "overlap": -0.1 * sum(both) / count,
            "conflict": -0.2 * (len(both) - sum(both)) / count,
            "invalid": -0.1 * (invalid / (filled + invalid) if invalid else 0.0),
            "deficit": -0.15 * (1 - min(shares)),
            "copying": -0.25 * (texts[0] == texts[1] != ""),
            "overlong": -0.15 * sum(len(responses[agent]) > LONGEST for agent in AGENTS) / 2,
        }
        reward = max(LOWEST, sum(numbers.values()))
        reason = "; ".join(seen.faults) or "the halves overlap, are too long or not strict"
        success = reward > BEST - 1e-9
        return Score(reward=reward, parts=numbers, reason="" if success else reason, is_success=success)
