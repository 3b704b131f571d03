"""``comlrl/LengthRatio-v0``: two stories on one subject, the second two to three times as long.

Purpose: the smallest task that needs a team. The ratio of two lengths is a property of the pair: whatever
one author does, the other decides whether it counts. Nothing rewards the language itself, so watch that it
stays readable.

Roles: ``author_0`` writes the short story, ``author_1`` the long one. Both know the subject and both roles.
One simultaneous response.

Example (level 0; the first training item of seed 0)::

    author_0 is told   You are author_0. Write the short story; author_1 writes one 2 to 3 times as long.
                       Subject: a patient goat builds a lantern in the garden.
                       Story:
    author_1 is told   You are author_1. Write the long story, 2 to 3 times as long as the one of author_0.
                       Subject: a patient goat builds a lantern in the garden.
                       Story:
    author_0 answers   The goat built a lantern.
    author_1 answers   The goat built a lantern in the garden. The moon came out.
    score              1.0: the ratio is 58/25 = 2.32

Reward, in [0, 1]: with len the number of characters after blanks at both ends are cut and ρ = len_1/len_0,
1 if low ≤ ρ ≤ high, else exp(-d), d the distance from ρ to the nearer bound; 0 if either answer shows
nothing (empty, blanks, control characters). Parts: length_0, length_1, ratio, distance.

Levels: 0 the window [2, 3]; 1 the window [2, 2.5]; 2 a window [w, w + 0.5] with w in {1.5, 2, …, 4} drawn
per item and stated in both prompts.

Figures (``python -m comlrl_env.figures comlrl/LengthRatio-v0``; level 0, 1, 2)::

    gold     1.00  1.00  1.00   stories of the grammar with fitting lengths
    solo     0.00  0.00  0.00   author_0 writes well, author_1 says nothing
    random    .37   .35   .27   stories of the grammar, 20 to 400 characters, independent of the role

An author whose partner is known to say one fixed thing can fit its own length to it: then the two have
agreed.

Data: subjects (5.3 million) and stories from word lists and a grammar written for this project, Apache-2.0.
Train and eval, and neighbouring seeds, never share a subject: see
:func:`~comlrl_env.tasks.stories.subjects.draw_subject`.

Versions: v0 first version.
"""

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.stories.grammar import LONGEST, write_story
from comlrl_env.tasks.stories.subjects import describe, draw_subject
from comlrl_env.types import Item, Score

SHORTEST = 20
# A written story misses its asked length by less than 40 characters: that must be below 0.25 · GOLD_SHORT,
# half of the narrowest window.
GOLD_SHORT = 200


class LengthRatio(ProceduralTask):
    """Two stories whose lengths must fit. Raises :class:`TaskError` for arguments out of range."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.37}
    roles = ("author_0", "author_1")
    cues = ("Story:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``subject`` (its words) and the bounds ``low`` and ``high`` of the ratio."""
        low = 1.5 + 0.5 * int(rng.integers(6)) if self.level == 2 else 2.0
        high = 3.0 if self.level == 0 else low + 0.5
        return {"subject": draw_subject(rng, split, self.seed), "low": low, "high": high}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The subject, the agent's role and the window of the ratio."""
        subject = f"Subject: {describe(item.data['subject'])}."
        times = f"{item.data['low']:g} to {item.data['high']:g} times as long"
        return {
            "author_0": f"You are author_0. Write the short story; author_1 writes one {times}.\n{subject}",
            "author_1": f"You are author_1. Write the long story, {times} as the one of author_0.\n{subject}",
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        short, long = (visible_length(responses[agent]) for agent in self.agents)
        parts = {"length_0": float(short), "length_1": float(long)}
        silent = [agent for agent, length in zip(self.agents, (short, long), strict=True) if length == 0]
        if silent:
            return Score(reward=0.0, parts=parts, reason=f"{' and '.join(silent)} wrote nothing", is_success=False)
        ratio, low, high = long / short, item.data["low"], item.data["high"]
        distance = max(low - ratio, ratio - high, 0.0)
        reason = f"the ratio {ratio:.2f} is outside [{low:g}, {high:g}]" if distance else ""
        return Score(
            reward=math.exp(-distance),
            parts=parts | {"ratio": ratio, "distance": distance},
            reason=reason,
            is_success=distance == 0,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Two stories of the grammar in the middle of the window (the same ones each time)."""
        rng = np.random.default_rng(zlib.crc32(item.key.encode()))
        subject = item.data["subject"]
        short = write_story(subject, rng, GOLD_SHORT)
        middle = (item.data["low"] + item.data["high"]) / 2
        long, target = "", round(middle * len(short))
        while target - len(long) > 30:
            long = f"{long} {write_story(subject, rng, min(LONGEST, target - len(long)))}".strip()
        return dict(zip(self.agents, (short, long), strict=True))

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every author writes 20 to 400 characters, log-uniform and independent of the role."""
        lengths = np.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST), size=len(self.agents)))
        return {
            agent: write_story(item.data["subject"], rng, int(length))
            for agent, length in zip(self.agents, lengths, strict=True)
        }


def visible_length(text: str) -> int:
    """Return the number of characters without blanks at the ends; 0 when none is visible."""
    stripped = text.strip()
    if not any(char.isprintable() and not char.isspace() for char in stripped):
        return 0
    return len(stripped)
