"""``comlrl/JointCalls-v0``: one request, several agents with different tools.

Purpose: who makes which call. Everyone reads the whole request but can do only a part of it; what several can do must
be done once.

Roles: ``caller_0`` … ``caller_{n-1}`` (n = 2, 3 or 4), each with tools of its own. One simultaneous response, one
call per line, which is parsed and never executed.

Example (level 0; the first training item of seed 0)::

    caller_0 is told   You are caller_0 of 2. Together make every call that the request needs, none twice. Write
                       only calls of your tools, one per line; the others have other tools.
                       Request: buy 4 pears, get a taxi to the harbour in 8 minutes, set the cellar light to 21
                       percent, remind Cleo in 4 hours.
                       Your tools: set_light(room, percent), buy(product, amount).
    caller_1 is told   You are caller_1 of 2. Together make every call that the request needs, none twice. Write
                       only calls of your tools, one per line; the others have other tools.
                       Request: buy 4 pears, get a taxi to the harbour in 8 minutes, set the cellar light to 21
                       percent, remind Cleo in 4 hours.
                       Your tools: order_taxi(place, minutes), remind(person, hours).
    caller_0 answers   buy(product="pears", amount=4)
                       set_light(room="cellar", percent=21)
    caller_1 answers   order_taxi(place="harbour", minutes=8)
                       remind(person="Cleo", hours=4)
    score              1

Reward: F1 · (.5 + .5 · min_i recall_i), in [0, 1]; F1 of all calls together, recall_i over the calls that only agent
i can make. Duplicates, and calls by somebody who has no such tool, are false positives. See
:func:`comlrl_env.tasks.calls.matching.score_calls`. Lines that are no calls are ignored.

Levels: 0 two intents for each agent's own tools, always the same tools; 1 tools are dealt anew, and two more intents
are for tools that everyone has; 2 three own intents each and three shared, tools may be needed twice.

Figures (``python -m comlrl_env.figures comlrl/JointCalls-v0``; level 0, 1, 2 with two agents)::

    gold     1.00  1.00  1.00
    solo      .33   .40   .40   caller_0 makes every call that it can, the others none
    random    .00   .00   .00   everyone makes its number of calls of its own tools with random arguments

On an even split among two, alone: F1 = 2/3 and the other's recall 0, so 1/3. A team of which everyone makes every
call, its own or not, reaches F1 = 2/(n + 1): .67 for two.

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the first number in the request is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.calls.matching import Wanted, score_calls
from comlrl_env.types import Item, Score

ROOMS = ("kitchen", "bedroom", "hall", "office", "garage", "attic", "cellar", "bathroom")
PEOPLE = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")
PLACES = ("airport", "station", "library", "museum", "harbour", "theatre", "market", "stadium")
FOODS = ("apples", "lemons", "eggs", "rolls", "onions", "pears", "muffins", "tomatoes")


class Tool(NamedTuple):
    """A tool with a word and a number as arguments, and how a person asks for it."""

    name: str
    word: str
    words: tuple[str, ...]
    number: str
    phrase: str


TOOLS = (
    Tool("set_light", "room", ROOMS, "percent", "set the {0} light to {1} percent"),
    Tool("buy", "product", FOODS, "amount", "buy {1} {0}"),
    Tool("order_taxi", "place", PLACES, "minutes", "get a taxi to the {0} in {1} minutes"),
    Tool("remind", "person", PEOPLE, "hours", "remind {0} in {1} hours"),
    Tool("heat", "room", ROOMS, "minutes", "heat the {0} for {1} minutes"),
    Tool("book_tickets", "place", PLACES, "tickets", "book {1} tickets for the {0}"),
    Tool("send_money", "person", PEOPLE, "euros", "send {0} {1} euros"),
    Tool("open_blinds", "room", ROOMS, "percent", "open the {0} blinds to {1} percent"),
    Tool("return_goods", "product", FOODS, "amount", "return {1} {0}"),
    Tool("call", "person", PEOPLE, "minutes", "call {0} in {1} minutes"),
    Tool("clean", "room", ROOMS, "minutes", "clean the {0} for {1} minutes"),
    Tool("find_route", "place", PLACES, "kilometres", "find a way to the {0} of at most {1} kilometres"),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
PRIVATE_TOOLS, SHARED_TOOLS = 2, 2
# Intents for each agent's own tools, and for shared ones, by level.
INTENTS = ((2, 0), (2, 2), (3, 3))


class JointCalls(ProceduralTask):
    """A request for several callers; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 1 / 3, "random": 0.0}
    attack_ceiling = 2 / 3
    role = "caller"
    cues = ("Calls:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``tools``: tool names by agent, ``shared``: those of all, ``intents``: [tool, word, number, owner or -1]."""
        count = len(self.agents)
        order = rng.permutation(len(TOOLS)).tolist() if self.level else range(len(TOOLS))
        names = [TOOLS[i].name for i in order]
        own = [names[PRIVATE_TOOLS * i : PRIVATE_TOOLS * (i + 1)] for i in range(count)]
        own_intents, shared_intents = INTENTS[self.level]
        shared = names[len(names) - SHARED_TOOLS :] if shared_intents else []
        wanted = [(own[i][k % PRIVATE_TOOLS], i) for i in range(count) for k in range(own_intents)]
        wanted += [(shared[k % SHARED_TOOLS], -1) for k in range(shared_intents)]
        words = rng.integers(8, size=len(wanted)).tolist()
        numbers = rng.integers(4, 60, size=len(wanted)).tolist()
        places = rng.permutation(len(wanted)).tolist()
        first = places[0]
        numbers[first] += self.item_class(split) - numbers[first] % 4
        intents: list[list[Any]] = []
        for place in places:
            name, owner = wanted[place]
            tool = BY_NAME[name]
            # Two intents for one tool get different words, so that no call is wanted twice.
            taken = [intent[1] for intent in intents if intent[0] == name]
            word = next(w for w in tool.words[words[place] :] + tool.words if w not in taken)
            intents.append([name, word, numbers[place], owner])
        return {"tools": dict(zip(self.agents, own, strict=True)), "shared": shared, "intents": intents}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The rules, the request and the tools that the agent has."""
        phrases = [BY_NAME[name].phrase.format(word, number) for name, word, number, _ in item.data["intents"]]
        shared = f" Everyone has: {signatures(item.data['shared'])}." if item.data["shared"] else ""
        return {
            agent: (
                f"You are {agent} of {len(self.agents)}. Together make every call that the request needs, none twice. "
                "Write only calls of your tools, one per line; the others have other tools.\n"
                f"Request: {', '.join(phrases)}.\n"
                f"Your tools: {signatures(names)}.{shared}"
            )
            for agent, names in item.data["tools"].items()
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts calls, matched, f1 and min_recall."""
        wanted = []
        for name, word, number, owner in item.data["intents"]:
            tool = BY_NAME[name]
            owners = frozenset(self.agents if owner < 0 else (self.agents[owner],))
            wanted.append(Wanted(name, {tool.word: (word,), tool.number: (number,)}, owners))
        return score_calls(wanted, self.agents, responses)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone makes its own calls; the shared ones go round."""
        calls: dict[str, list[str]] = {agent: [] for agent in self.agents}
        shared = 0
        for name, word, number, owner in item.data["intents"]:
            if owner < 0:
                shared += 1
            calls[self.agents[owner if owner >= 0 else shared % len(self.agents)]].append(
                write_call(name, word, number)
            )
        return {agent: "\n".join(lines) for agent, lines in calls.items()}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first caller makes every call that it can, the others none."""
        able = [write_call(*intent[:3]) for intent in item.data["intents"] if intent[3] <= 0]
        return {agent: "\n".join(able) if agent == self.agents[0] else "" for agent in self.agents}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone makes its number of calls, of its own tools and with random arguments."""
        answers = {}
        for agent, names in item.data["tools"].items():
            count = len(item.data["intents"]) // len(self.agents)
            draws = rng.integers((len(names), 8, 60), size=(count, 3)).tolist()
            answers[agent] = "\n".join(write_call(names[t], BY_NAME[names[t]].words[w], n) for t, w, n in draws)
        return answers


def signatures(names: list[str]) -> str:
    """The tools as they are called, such as ``buy(product, amount)``."""
    return ", ".join(f"{name}({BY_NAME[name].word}, {BY_NAME[name].number})" for name in names)


def write_call(name: str, word: str, number: int) -> str:
    """One call as text."""
    tool = BY_NAME[name]
    return f'{name}({tool.word}="{word}", {tool.number}={number})'
