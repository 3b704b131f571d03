"""``comlrl/HintPlay-v0``: hidden hands, one hint each, one card each.

Purpose: the core of cooperative card games: each sees only another's cards, may say one colour or one number about
them, and must read from the hint it gets which of its own hidden cards to play.

Roles: ``player_0`` … ``player_{n-1}`` (n = 2, 3 or 4) in a ring: each sees the cards of the next one and gives it a
hint. Two turns: the hint, then the position of one card. What a hint touches is told truthfully by the game; the text
itself is not passed on.

Example (level 0; the first training item of seed 0)::

    turn 1
    player_0 is told   You are player_0 of 2. Highest cards on the table: red 3, blue 2, green 2, white 1. A card is
                       playable if it is the next number of its colour; everyone holds exactly one such card.
                       Cards of player_1: 1: red 3, 2: red 4. You do not see your own 2 cards.
                       Give player_1 a hint about its cards: write one colour or one number.
    player_1 is told   You are player_1 of 2. Highest cards on the table: red 3, blue 2, green 2, white 1. A card is
                       playable if it is the next number of its colour; everyone holds exactly one such card.
                       Cards of player_0: 1: blue 1, 2: red 4. You do not see your own 2 cards.
                       Give player_0 a hint about its cards: write one colour or one number.
    player_0 answers   4
    player_1 answers   red
    score              0
    turn 2
    player_0 is told   You are player_0 of 2. Highest cards on the table: red 3, blue 2, green 2, white 1. A card is
                       playable if it is the next number of its colour; everyone holds exactly one such card.
                       Cards of player_1: 1: red 3, 2: red 4. You do not see your own 2 cards.
                       player_1 hints red: your cards 2.
                       Play your playable card: write its position.
    player_1 is told   You are player_1 of 2. Highest cards on the table: red 3, blue 2, green 2, white 1. A card is
                       playable if it is the next number of its colour; everyone holds exactly one such card.
                       Cards of player_0: 1: blue 1, 2: red 4. You do not see your own 2 cards.
                       player_0 hints 4: your cards 2.
                       Play your playable card: write its position.
    player_0 answers   2
    player_1 answers   2
    score              1

Reward: the hint earns 0; then max(0, (plays − .5 · misplays)/n). A card is playable when its number follows the
highest one of its colour on the table; exactly one card in each hand is. All cards are judged by the table as it was.
A hint that names no colour and number of the game, or several, touches nothing; an answer without exactly one
position from 1 to h plays nothing.

Levels: hands of h = 2, 3 or 4 cards.

Figures (``python -m comlrl_env.figures comlrl/HintPlay-v0``; level 0, 1, 2 with two players)::

    gold     1.00  1.00  1.00   the hint that touches the fewest cards besides the playable one; then that card
    solo      .50   .50   .50   player_0 plays its card, the others nothing: 1/n
    random    .38   .21   .17   a random hint, then a random card (blind, a card is playable with 1/h)

With the best hint, the one that touches the fewest cards, and a random one of the touched cards played, a card is
right in 1.00, .96, .92 of the cases.

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the sum of the table is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.talking.notes import MAX_TEXT, message_score
from comlrl_env.types import Item, Score

COLOURS = ("red", "blue", "green", "white")
RANKS = 5
_TOKEN = re.compile(rf"\b({'|'.join(COLOURS)}|[0-9]+)\b")


class HintPlay(ProceduralTask):
    """Hints and hidden hands; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.5, "random": 0.38}
    role = "player"
    cues = ("Hint:", "Card:")
    num_turns = 2

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``table``: the highest number of each colour; ``hands``: [colour, number] of each agent's cards."""
        size = self.level + 2
        table = rng.integers(4, size=len(COLOURS)).tolist()
        table[-1] = (self.item_class(split) - sum(table[:-1])) % 4
        colours = rng.integers(len(COLOURS), size=(len(self.agents), size)).tolist()
        ranks = rng.integers(RANKS - 1, size=(len(self.agents), size)).tolist()
        places = rng.integers(size, size=len(self.agents)).tolist()
        hands = []
        for own_colours, own_ranks, place in zip(colours, ranks, places, strict=True):
            # Numbers skip the playable one, except at one place.
            hand = [[COLOURS[c], r + 1 + (r >= table[c])] for c, r in zip(own_colours, own_ranks, strict=True)]
            hand[place][1] = table[own_colours[place]] + 1
            hands.append(hand)
        return {"table": table, "hands": hands}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The table, the next player's hand and, in the second turn, which of the agent's own cards were touched."""
        table = ", ".join(f"{name} {top}" for name, top in zip(COLOURS, item.data["table"], strict=True))
        hands, count = item.data["hands"], len(self.agents)
        told = {}
        for i, agent in enumerate(self.agents):
            after, before = (i + 1) % count, (i - 1) % count
            cards = ", ".join(f"{place}: {colour} {rank}" for place, (colour, rank) in enumerate(hands[after], start=1))
            lines = [
                f"You are {agent} of {count}. Highest cards on the table: {table}. "
                "A card is playable if it is the next number of its colour; everyone holds exactly one such card.",
                f"Cards of {self.agents[after]}: {cards}. You do not see your own {len(hands[i])} cards.",
            ]
            if not history:
                lines.append(f"Give {self.agents[after]} a hint about its cards: write one colour or one number.")
            else:
                hint = read_hint(history[0].responses[self.agents[before]])
                at = ", ".join(str(place + 1) for place in touched(hint, hands[i])) or "none"
                lines.append(f"{self.agents[before]} hints {hint or 'nothing'}: your cards {at}.")
                lines.append("Play your playable card: write its position.")
            told[agent] = "\n".join(lines)
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts plays, misplays and passes."""
        if not history:
            return message_score(responses)
        plays = misplays = 0
        for agent, hand in zip(self.agents, item.data["hands"], strict=True):
            place = read_place(responses[agent], len(hand))
            if place is not None:
                colour, rank = hand[place]
                right = rank == item.data["table"][COLOURS.index(colour)] + 1
                plays += right
                misplays += not right
        count = len(self.agents)
        parts = {"plays": plays, "misplays": misplays, "passes": count - plays - misplays}
        return Score(
            reward=max(0.0, (plays - 0.5 * misplays) / count),
            parts={name: float(value) for name, value in parts.items()},
            reason=", ".join(f"{value} {name}" for name, value in parts.items() if value and name != "plays"),
            is_success=plays == count,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """For each the hint that touches the fewest cards besides the playable one; then everyone plays it."""
        places = [self._playable(item, hand) for hand in item.data["hands"]]
        if history:
            return {agent: str(place + 1) for agent, place in zip(self.agents, places, strict=True)}
        hands = item.data["hands"]
        hints = {}
        for i, agent in enumerate(self.agents):
            after = (i + 1) % len(self.agents)
            colour, rank = hands[after][places[after]]
            hints[agent] = min((colour, str(rank)), key=lambda hint: len(touched(hint, hands[after])))
        return hints

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """A random hint, then a random card."""
        if history:
            return {agent: str(1 + int(rng.integers(self.level + 2))) for agent in self.agents}
        hints = (*COLOURS, *map(str, range(1, RANKS + 1)))
        return {agent: hints[int(rng.integers(len(hints)))] for agent in self.agents}

    @staticmethod
    def _playable(item: Item, hand: list[list[Any]]) -> int:
        table = dict(zip(COLOURS, item.data["table"], strict=True))
        return next(place for place, (colour, rank) in enumerate(hand) if rank == table[colour] + 1)


def read_hint(text: str) -> str:
    """The one colour or number that a text names; empty when there is none, or several."""
    found = set(_TOKEN.findall(text[:MAX_TEXT].lower()))
    hint = found.pop() if len(found) == 1 else ""
    return hint if hint in COLOURS or hint in map(str, range(1, RANKS + 1)) else ""


def touched(hint: str, hand: list[list[Any]]) -> list[int]:
    """The positions, from 0, of the cards that a hint touches."""
    return [place for place, (colour, rank) in enumerate(hand) if hint in (colour, str(rank))]


def read_place(text: str, size: int) -> int | None:
    """The one position, from 0, that a text names; ``None`` when there is none, or several."""
    found = set(re.findall(r"[0-9]+", text[:MAX_TEXT]))
    number = found.pop() if len(found) == 1 else ""
    return int(number) - 1 if number in map(str, range(1, size + 1)) else None
