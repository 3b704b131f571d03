"""``comlrl/EvidencePool-v0``: everyone's own evidence favours a decoy, all evidence together the optimum.

Purpose: a hidden profile. Each agent's own best option is wrong, and a different one for each, so a team must pool
what it knows instead of voting for favourites.

Roles: ``witness_0`` … ``witness_{n-1}`` (n = 2, 3 or 4), each with numbers of its own for the same options. Without
talk (default), one simultaneous response: everyone writes a number in [-9, 9] for each option, the numbers are added,
and the option with the highest sum is taken. With ``talk=True``, a note first, which the others read (at most 24
words), then everyone names one option, and the option that most name is taken.

Example (level 0; the first training item of seed 0)::

    witness_0 is told   You are witness_0 of 2. The best option has the highest sum of everyone's evidence.
                        Your evidence: amber +3, birch -3, cedar +1, delta -5.
                        Write a number from -9 to 9 for each option, such as amber 2, birch -1. All numbers are
                        added, and the option with the highest sum is taken.
    witness_1 is told   You are witness_1 of 2. The best option has the highest sum of everyone's evidence.
                        Your evidence: amber -4, birch +3, cedar +1, delta +2.
                        Write a number from -9 to 9 for each option, such as amber 2, birch -1. All numbers are
                        added, and the option with the highest sum is taken.
    witness_0 answers   amber 3, birch -3, cedar 1, delta -5
    witness_1 answers   amber -4, birch 3, cedar 1, delta 2
    score               1

Reward, in [0, 1]: 1 for the optimum, else .25 · (V(k) − min V)/(max V − min V) for the option k that is taken, V the
sum of all private numbers. A tie takes the worst of the tied; so does silence. An option's number is the first
integer after its name; numbers outside [-9, 9], and options that are not named, count 0.

By construction, V(optimum) − V(k) ≥ 2 for every other k, and each agent's own highest number is on another decoy.

Levels: 4, 5 or 6 options (never fewer than n + 2).

Figures (``python -m comlrl_env.figures comlrl/EvidencePool-v0``; level 0, 1, 2; then with ``talk=true``)::

    gold     1.00  1.00  1.00    1.00  1.00  1.00   everyone writes its numbers as they are
    solo      .08   .09   .09     .08   .09   .09   witness_0 writes its numbers (or favourite), the others nothing
    random    .27   .22   .21     .10   .08   .06   random numbers (options)

What it does not prove: the optimum is never an agent's favourite. One who knows how items are made can guess it from
its own numbers alone, in at most half of the cases (level 0 and 1; .38 in level 2).

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the sum of the numbers of witness_0 is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.talking.notes import MAX_TEXT, delivered, find_named, message_score
from comlrl_env.types import Item, Score

OPTIONS = ("amber", "birch", "cedar", "delta", "ember", "frost", "grove", "heron")
HIGHEST = 9
NOTE_WORDS = 24
_NUMBER = re.compile(r"\b([a-z]+)\b[^a-z0-9+-]{0,8}([+-]?[0-9]{1,9})(?![0-9])")


class EvidencePool(ProceduralTask):
    """A hidden profile; see the page above. ``talk``: a note before the answer. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.08, "random": 0.27}
    role = "witness"

    def __init__(self, *, talk: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        if not isinstance(talk, bool):
            raise TaskError(f"talk: expected True or False, actually {talk!r}")
        self.num_turns = 2 if talk else 1
        self.cues = ("Note:", "Option:") if talk else ("Numbers:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``values``: for each agent its number of each of the ``options``."""
        count = len(self.agents)
        size = max(4 + self.level, count + 2)
        order = rng.permutation(size).tolist()
        likes = rng.integers(1, 4, size=count).tolist()
        low = rng.integers(3, 6, size=(count, size)).tolist()
        fans = rng.integers(count, size=size).tolist()
        values = [[-low[i][k] for k in range(size)] for i in range(count)]
        optimum, decoys = order[0], order[1 : 1 + count]
        for i in range(count):
            values[i][optimum] = likes[i]
            values[i][decoys[i]] = likes[i] + 2
        for k in order[1 + count :]:
            values[fans[k]][k] = likes[fans[k]] + 1
        # The first agent dislikes the second one's decoy as much more as the class asks.
        values[0][decoys[1]] -= (sum(values[0]) - self.item_class(split)) % 4
        return {"options": list(OPTIONS[:size]), "values": values}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The agent's own numbers and, in a second turn, the others' notes."""
        told = {}
        for agent, values in zip(self.agents, item.data["values"], strict=True):
            own = ", ".join(f"{name} {value:+d}" for name, value in zip(item.data["options"], values, strict=True))
            lines = [
                f"You are {agent} of {len(self.agents)}. The best option has the highest sum of everyone's evidence.",
                f"Your evidence: {own}.",
            ]
            if self.num_turns == 1:
                lines.append(
                    "Write a number from -9 to 9 for each option, such as amber 2, birch -1. "
                    "All numbers are added, and the option with the highest sum is taken."
                )
            elif not history:
                lines.append(f"Write a note to the others, at most {NOTE_WORDS} words. Then everyone names one option.")
            else:
                notes = history[0].responses.items()
                lines += [f"{name} wrote: {delivered(text, NOTE_WORDS)}" for name, text in notes if name != agent]
                lines.append("Name one option; the one that most name is taken.")
            told[agent] = "\n".join(lines)
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts value (normalised), margin and agents that gave no answer."""
        if self.num_turns == 2 and not history:
            return message_score(responses)
        options = item.data["options"]
        totals = dict(zip(options, map(sum, zip(*item.data["values"], strict=True)), strict=True))
        votes: Counter[str] = Counter(dict.fromkeys(options, 0))
        silent = []
        for agent in self.agents:
            given = self._read(responses[agent], options)
            votes.update(given)
            silent += [] if given else [agent]
        top = max(votes.values())
        chosen = min((name for name in options if votes[name] == top), key=lambda name: totals[name])
        best = max(totals.values())
        value = (totals[chosen] - min(totals.values())) / (best - min(totals.values()))
        right = totals[chosen] == best
        faults = [] if right else [f"{chosen} is taken, its value is {totals[chosen]} of {best}"]
        faults += [f"no answer by {', '.join(silent)}"] if silent else []
        parts = {"value": value, "votes": float(top), "silent": float(len(silent))}
        return Score(reward=1.0 if right else 0.25 * value, parts=parts, reason="; ".join(faults), is_success=right)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone tells its numbers; where there is talk, then the optimum."""
        options, values = item.data["options"], item.data["values"]
        if history:
            totals = [sum(column) for column in zip(*values, strict=True)]
            return dict.fromkeys(self.agents, options[totals.index(max(totals))])
        return {
            agent: ", ".join(f"{name} {value}" for name, value in zip(options, own, strict=True))
            for agent, own in zip(self.agents, values, strict=True)
        }

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first agent tells its numbers, and names its favourite where there is talk; the others say nothing."""
        first = self.gold(item)[self.agents[0]]
        own = item.data["values"][0]
        if history:
            first = item.data["options"][own.index(max(own))]
        return {agent: first if agent == self.agents[0] else "" for agent in self.agents}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Random numbers for all options, or one option at random."""
        options = item.data["options"]
        if history:
            return {agent: options[int(rng.integers(len(options)))] for agent in self.agents}
        numbers = rng.integers(-HIGHEST, HIGHEST + 1, size=(len(self.agents), len(options))).tolist()
        return {
            agent: ", ".join(f"{name} {value}" for name, value in zip(options, own, strict=True))
            for agent, own in zip(self.agents, numbers, strict=True)
        }

    def _read(self, text: str, options: list[str]) -> dict[str, int]:
        """What one agent gives each option: its numbers, or one vote where exactly one option is named."""
        if self.num_turns == 2:
            named = find_named(text, options)
            return {named[0]: 1} if len(named) == 1 else {}
        given: dict[str, int] = {}
        for name, number in _NUMBER.findall(text[:MAX_TEXT].lower()):
            if name in options:
                given.setdefault(name, int(number) if abs(int(number)) <= HIGHEST else 0)
        return given
