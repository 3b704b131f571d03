"""``comlrl/Reference-v0``: describe one of several objects so that the listener finds it.

Purpose: the reference game. The speakers know which object is meant, only the listener can choose, and words are
dear.

Roles: ``speaker_0`` (and, with three agents, ``speaker_1``, who then each see half of the properties) and
``listener_1`` (``listener_2``), whose objects have names and stand in an order of their own. Two turns: the speakers'
notes, then the listener's choice; what the listener writes first and the speakers last is ignored.

Example (level 0; the first training item of seed 0)::

    turn 1
    speaker_0 is told    You are speaker_0. Objects: yellow ball; yellow cube; red ball; green ball.
                         This one is meant: yellow ball.
                         Describe it for listener_1 in at most 2 words; numbers, places and names are struck out.
    listener_1 is told   You are listener_1. Objects: zup: yellow cube; gorp: green ball; blick: red ball; toma:
                         yellow ball.
                         Wait for the note of speaker_0; write anything.
    speaker_0 answers    yellow ball
    listener_1 answers
    score                0
    turn 2
    speaker_0 is told    You are speaker_0. Objects: yellow ball; yellow cube; red ball; green ball.
                         This one is meant: yellow ball.
                         Your note is sent; write anything.
    listener_1 is told   You are listener_1. Objects: zup: yellow cube; gorp: green ball; blick: red ball; toma:
                         yellow ball.
                         speaker_0 wrote: yellow ball
                         Which object is meant? Write its name.
    speaker_0 answers
    listener_1 answers   toma
    score                1

Reward: the notes earn 0; then 1[correct] · (1 − .2 · min(1, over/m)), in [0, 1], where over is the number of words
above m in each note, added. The listener reads the first 2m words of a note, without ordinals, numbers and names of
objects, which are banned. A choice that names several objects, or none, is wrong.

Levels: 0 four objects told apart by two properties, m = 2; 1 six objects, three properties, m = 3; 2 eight objects,
four properties, m = 3: the speaker must choose what to say (any object is told apart by some three). With three
agents each speaker has so many words.

Figures (``python -m comlrl_env.figures comlrl/Reference-v0``; level 0, 1, 2 with two agents)::

    gold     1.00  1.00  1.00   the properties that tell the object apart; then its name
    solo      .25   .17   .13   the listener alone: always the same name, 1/K
    random    .25   .17   .13   random words and names, 1/K

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the sum of the numbers of all properties of the object that is meant is 2·(0 in train, 1 in eval) +
(seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.talking.notes import count_words, delivered, find_named, message_score
from comlrl_env.types import Item, Score

# By kind of property; an object has one word of each.
PROPERTIES = (
    ("red", "blue", "green", "yellow"),
    ("cube", "ball", "cone", "ring"),
    ("large", "small", "tall", "flat"),
    ("striped", "dotted", "plain", "shiny"),
)
NAMES = ("dax", "wug", "blick", "fep", "zup", "toma", "modi", "gorp")
_ORDINALS = "first second third fourth fifth sixth seventh eighth last next middle left right top bottom"
_NUMBERS = "one two three four five six seven eight nine ten"
BANNED = frozenset(f"{_ORDINALS} {_NUMBERS}".split()) | set(NAMES) | {str(i) for i in range(100)}
BANNED |= {"1st", "2nd", "3rd", *(f"{i}th" for i in range(4, 10))}
# Objects, kinds of properties, words of a note, by level.
PLANS = ((4, 2, 2), (6, 3, 3), (8, 4, 3))
# How another object may differ from the one that is meant, by number of kinds: in one or two, but not in all.
# The second key is a kind of property in which alone no other object differs, or -1.
STEPS = {
    (kinds, spare): [
        step
        for step in itertools.product(range(4), repeat=kinds)
        if 0 < sum(map(bool, step)) < min(kinds, 3) and any(move for k, move in enumerate(step) if k != spare)
    ]
    for kinds in (2, 3, 4)
    for spare in range(-1, kinds)
}


class Reference(ProceduralTask):
    """The reference game; see the page above. ``num_agents``: 2, or 3 for two speakers."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.25, "random": 0.25}
    team_sizes = (2, 3)
    cues = ("Note:", "Name:")
    num_turns = 2

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        speakers = len(self.agents) - 1
        self.agents = (*(f"speaker_{i}" for i in range(speakers)), f"listener_{speakers}")

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``objects``: words of each; ``target``: its place; ``names`` by object; ``orders`` by role."""
        size, kinds, words = PLANS[self.level]
        wanted = self.item_class(split)
        target = rng.integers(4, size=kinds).tolist()
        target[-1] = (wanted - sum(target[:-1])) % 4
        # One property is not needed where the note has fewer words than there are properties.
        spare = int(rng.integers(kinds)) if words < kinds else -1
        others = STEPS[kinds, spare]
        chosen = [others[i] for i in rng.permutation(len(others))[: size - 1].tolist()]
        codes = [[(t + move) % 4 for t, move in zip(target, step, strict=True)] for step in [(0,) * kinds, *chosen]]
        names = rng.permutation(len(NAMES)).tolist()
        return {
            "objects": [[PROPERTIES[k][code[k]] for k in range(kinds)] for code in codes],
            "target": 0,
            "names": [NAMES[i] for i in names[:size]],
            "orders": [rng.permutation(size).tolist() for _ in self.agents],
        }

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The objects as a role sees them; for the listener also their names and, in the second turn, the notes."""
        *speakers, listener = self.agents
        words = PLANS[self.level][2]
        told = {}
        for i, agent in enumerate(speakers):
            seen = [item.data["objects"][k][self._kinds(i)] for k in item.data["orders"][i]]
            target = " ".join(item.data["objects"][item.data["target"]][self._kinds(i)])
            rule = (
                f"Describe it for {listener} in at most {words} words; numbers, places and names are struck out."
                if not history
                else "Your note is sent; write anything."
            )
            told[agent] = (
                f"You are {agent}. Objects: {'; '.join(' '.join(each) for each in seen)}.\n"
                f"This one is meant: {target}.\n{rule}"
            )
        shown = [f"{item.data['names'][k]}: {' '.join(item.data['objects'][k])}" for k in item.data["orders"][-1]]
        lines = [f"You are {listener}. Objects: {'; '.join(shown)}."]
        if history:
            lines += [f"{agent} wrote: {self._note(history[0].responses[agent])}" for agent in speakers]
            lines.append("Which object is meant? Write its name.")
        else:
            lines.append(f"Wait for the note of {' and '.join(speakers)}; write anything.")
        return told | {listener: "\n".join(lines)}

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts correct and over."""
        if not history:
            return message_score(responses)
        *speakers, listener = self.agents
        words = PLANS[self.level][2]
        over = sum(max(0, count_words(history[0].responses[agent]) - words) for agent in speakers)
        named = find_named(responses[listener], item.data["names"])
        correct = named == [item.data["names"][item.data["target"]]]
        reason = "" if correct else f"{listener} names {' and '.join(named) or 'nothing'}"
        return Score(
            reward=correct * (1 - 0.2 * min(1.0, over / words)),
            parts={"correct": float(correct), "over": float(over)},
            reason=f"{over} words too many" if correct and over else reason,
            is_success=correct and not over,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The fewest properties that tell the object apart; then its name."""
        *speakers, listener = self.agents
        target = item.data["objects"][item.data["target"]]
        if history:
            return dict.fromkeys(speakers, "") | {listener: item.data["names"][item.data["target"]]}
        kinds = self._telling(item.data["objects"], item.data["target"])
        notes = {
            agent: " ".join(target[k] for k in kinds if k in range(len(target))[self._kinds(i)])
            for i, agent in enumerate(speakers)
        }
        return notes | {listener: ""}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The listener names an object without any note."""
        return dict.fromkeys(self.agents, "") | {self.agents[-1]: min(item.data["names"]) if history else ""}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Random words and a random name."""
        names = item.data["names"]
        if history:
            return dict.fromkeys(self.agents, names[int(rng.integers(len(names)))])
        return {agent: PROPERTIES[0][int(rng.integers(4))] for agent in self.agents}

    def _kinds(self, speaker: int) -> slice:
        """The kinds of properties that a speaker sees."""
        if len(self.agents) == 2:
            return slice(None)
        half = PLANS[self.level][1] // 2
        return slice(half) if speaker == 0 else slice(half, None)

    def _note(self, text: str) -> str:
        return delivered(text, 2 * PLANS[self.level][2], BANNED) or "(nothing)"

    @staticmethod
    def _telling(objects: list[list[str]], target: int) -> tuple[int, ...]:
        kinds = range(len(objects[target]))
        for size in kinds:
            for chosen in itertools.combinations(kinds, size + 1):
                alike = [each for each in objects if all(each[k] == objects[target][k] for k in chosen)]
                if len(alike) == 1:
                    return chosen
        raise AssertionError("objects differ")
