"""``comlrl/ConstraintStory-v0``: a story in paragraphs, each with private constraints, all with common ones.

Purpose: constraints that can be checked by a program, half of them about the whole: who is the hero, which letters
the paragraphs begin with, whether they say different things.

Roles: ``author_0`` … ``author_{n-1}`` (n = 2, 3 or 4), one paragraph each. Each knows its own constraints and the
common ones; the names that the hero may have stand in a private order. One simultaneous response.

Example (level 0; the first training item of seed 0)::

    author_0 is told   You are author_0 of 2 authors who write one paragraph each of the same story.
                       Yours has 12 to 28 words, begins with the letter N, uses barrel, and does not use clock.
                       The hero has the same name in all paragraphs, and no other name of the list is used: Boris,
                       Henry, Clara, Frank. The paragraphs should share few words.
    author_1 is told   You are author_1 of 2 authors who write one paragraph each of the same story.
                       Yours has 12 to 28 words, begins with the letter M, uses clock, and does not use barrel.
                       The hero has the same name in all paragraphs, and no other name of the list is used: Frank,
                       Boris, Clara, Henry. The paragraphs should share few words.
    author_0 answers   Now Boris saw the barrel, rain fell on empty streets, some children sang loudly.
    author_1 answers   Meanwhile Boris saw the clock, every window stayed closed, two birds built their nest.
    score              1

Reward, in [0, 1]: (.5 · mean local_i + .5 · mean cross) · 1[no empty paragraph].

- local_i = (share of the required words that are used) · 1[no forbidden word] · 1[the number of words is in the range].
- cross: ``hero``, 1 if every paragraph uses exactly one of the names, all the same; ``letters``, the share of
  paragraphs that begin with their letter; ``distinct``, the share of pairs of paragraphs whose Jaccard overlap
  (without the names and the most common words) is at most .25, or .15 in level 2.

Some of the words that one author must use are forbidden to another.

Levels: 0 one required and one forbidden word; 1 two of each, a narrower range of words; 2 three of each.

Figures (``python -m comlrl_env.figures comlrl/ConstraintStory-v0``; level 0, 1, 2 with two authors)::

    gold     1.00  1.00  1.00
    solo      .00   .00   .00   author_0 writes well, the others say nothing
    random    .23   .25   .22   everyone writes about drawn things and a drawn hero, in drawn letter and length

Everyone writing the perfect paragraph of one author earns .50 with two authors.

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the least number of words of author_0 is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.stories.subjects import THINGS
from comlrl_env.tasks.stories.words import words_of
from comlrl_env.types import Item, Score

HEROES = ("Alma", "Boris", "Clara", "David", "Edith", "Frank", "Greta", "Henry")
CHOICES = 4
OPENERS = {
    "A": "Afterwards",
    "B": "Before noon",
    "F": "Finally",
    "H": "Here",
    "I": "Indeed",
    "L": "Later",
    "M": "Meanwhile",
    "N": "Now",
    "O": "Once",
    "S": "Suddenly",
    "T": "Then",
    "W": "Without haste",
}
FILLERS = (
    "rain fell on empty streets",
    "every window stayed closed",
    "some children sang loudly",
    "two birds built their nest",
    "strong winds shook tall trees",
    "fresh bread lay ready nearby",
    "an old song came back",
    "bright stars appeared above roofs",
    "nobody answered those questions",
    "seven horses crossed shallow water",
    "warm soup steamed inside kitchens",
    "long shadows covered green fields",
)
_COMMON = "a an the and or but of to in on at by with was were is it he she they his her their for from then so very"
COMMON = frozenset(_COMMON.split()) | {name.lower() for name in HEROES}
# Required and forbidden words, words from the least to the most, and the highest overlap, by level.
RULES = ((1, 16, 0.25), (2, 10, 0.25), (3, 8, 0.15))


class ConstraintStory(ProceduralTask):
    """Paragraphs under constraints; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.23}
    attack_ceiling = 0.5
    role = "author"
    cues = ("Paragraph:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """By author: ``required``, ``forbidden``, ``ranges`` [least, most], ``letters`` and ``heroes`` in its order."""
        count = len(self.agents)
        number, width, _ = RULES[self.level]
        things = [THINGS[i] for i in rng.permutation(len(THINGS)).tolist()]
        required = [things[number * i : number * (i + 1)] for i in range(count)]
        rest = things[number * count :]
        # One word of the next author, and others that nobody needs.
        forbidden = [[required[(i + 1) % count][0], *rest[i * number : i * number + number - 1]] for i in range(count)]
        least = (8 + 4 * rng.integers(3, size=count)).tolist()
        least[0] += self.item_class(split)
        letters = [tuple(OPENERS)[i] for i in rng.permutation(len(OPENERS))[:count].tolist()]
        chosen = rng.permutation(len(HEROES))[:CHOICES]
        return {
            "required": required,
            "forbidden": forbidden,
            "ranges": [[low, low + width] for low in least],
            "letters": letters,
            "heroes": [[HEROES[i] for i in rng.permutation(chosen).tolist()] for _ in range(count)],
        }

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The agent's own constraints and the common ones."""
        told = {}
        for i, agent in enumerate(self.agents):
            low, high = item.data["ranges"][i]
            told[agent] = (
                f"You are {agent} of {len(self.agents)} authors who write one paragraph each of the same story.\n"
                f"Yours has {low} to {high} words, begins with the letter {item.data['letters'][i]}, "
                f"uses {listed(item.data['required'][i])}, and does not use {listed(item.data['forbidden'][i])}.\n"
                "The hero has the same name in all paragraphs, and no other name of the list is used: "
                f"{', '.join(item.data['heroes'][i])}. The paragraphs should share few words."
            )
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts local_i, hero, letters and distinct."""
        texts = [words_of(responses[agent]) for agent in self.agents]
        empty = [agent for agent, words in zip(self.agents, texts, strict=True) if not words]
        if empty:
            return Score(
                reward=0.0, parts={"empty": float(len(empty))}, reason=f"nothing by {listed(empty)}", is_success=False
            )
        local, faults = [], []
        for i, words in enumerate(texts):
            used = set(words)
            missing = [word for word in item.data["required"][i] if word not in used]
            forbidden = [word for word in item.data["forbidden"][i] if word in used]
            low, high = item.data["ranges"][i]
            fits = low <= len(words) <= high
            local.append((1 - len(missing) / len(item.data["required"][i])) * (not forbidden) * fits)
            faults += [f"{self.agents[i]} lacks {listed(missing)}"] if missing else []
            faults += [f"{self.agents[i]} uses {listed(forbidden)}"] if forbidden else []
            faults += [] if fits else [f"{self.agents[i]} has {len(words)} words, not {low} to {high}"]
        cross = self._cross(item, texts)
        faults += [f"{name} {value:.2f}" for name, value in cross.items() if value < 1]
        reward = 0.5 * sum(local) / len(local) + 0.5 * sum(cross.values()) / len(cross)
        return Score(
            reward=reward,
            parts={f"local_{i}": value for i, value in enumerate(local)} | cross,
            reason=", ".join(faults),
            is_success=not faults,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The alphabetically first name, the required words, and sentences that no other author has."""
        hero = min(item.data["heroes"][0])
        data = item.data
        return {
            agent: self._write(i, hero, data["letters"][i], data["required"][i], data["ranges"][i][0])
            for i, agent in enumerate(self.agents)
        }

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every author writes about drawn things and a drawn hero, behind a drawn letter, in a drawn range."""
        answers = {}
        for i, agent in enumerate(self.agents):
            things = [THINGS[k] for k in rng.permutation(len(THINGS))[: RULES[self.level][0]].tolist()]
            letter = list(OPENERS)[int(rng.integers(len(OPENERS)))]
            hero = item.data["heroes"][i][int(rng.integers(CHOICES))]
            answers[agent] = self._write(i, hero, letter, things, int(rng.integers(8, 20)))
        return answers

    def _cross(self, item: Item, texts: list[list[str]]) -> dict[str, float]:
        names = [{name.lower() for name in item.data["heroes"][0]} & set(words) for words in texts]
        letters = [words[0][0] == letter.lower() for words, letter in zip(texts, item.data["letters"], strict=True)]
        content = [set(words) - COMMON for words in texts]
        most = RULES[self.level][2]
        pairs = list(itertools.combinations(content, 2))
        apart = sum(bool(one and two) and len(one & two) <= most * len(one | two) for one, two in pairs)
        return {
            "hero": float(len(names[0]) == 1 and all(each == names[0] for each in names)),
            "letters": sum(letters) / len(letters),
            "distinct": apart / len(pairs),
        }

    def _write(self, number: int, hero: str, letter: str, things: list[str], least: int) -> str:
        mine = FILLERS[number :: len(self.agents)]
        text = f"{OPENERS[letter]} {hero} saw {' and '.join(f'the {word}' for word in things)}"
        for filler in itertools.cycle(mine):
            if len(words_of(text)) >= least:
                break
            text = f"{text}, {filler}"
        return f"{text}."


def listed(words: list[str]) -> str:
    """Words with commas."""
    return ", ".join(words)
