"""``comlrl/LengthSimplex-v0``: n authors share a number of words in given proportions.

Purpose: the ratio of lengths for any number of agents, with a floor on variety. Shares and total are properties of
the team: nobody can keep them alone.

Roles: ``author_0`` … ``author_{n-1}`` (n = 2, 3 or 4). Each knows the subject, the band of the total and its own
share. One simultaneous response.

Example (level 0; the first training item of seed 0)::

    author_0 is told   You are author_0 of 2 authors who write one story together, 40 to 80 words in all. Your part
                       is 1/4 of all words.
                       Subject: a patient goat builds a lantern in the garden.
    author_1 is told   You are author_1 of 2 authors who write one story together, 40 to 80 words in all. Your part
                       is 3/4 of all words.
                       Subject: a patient goat builds a lantern in the garden.
    author_0 answers   One autumn a patient goat built a lantern in the garden. "Please help me," said the goat. The
                       lantern was.
    author_1 answers   A patient goat built a lantern in the garden. "Whose lantern is this?" asked the child. It
                       was a foggy autumn. The lantern was golden. It was getting late. "What a shiny lantern," said
                       the child. Birds sang in the trees. The wind was cold. Somewhere a bell rang. The goat walked
                       home with the child. A foggy autumn passed.
    score              1

Reward, in [0, 1]: with len_i the words of author i, L their sum, p the shares and TV = ½ Σ |len_i/L − p_i|,
Π g_i · 1[a ≤ L ≤ b] · max(0, 1 − TV/0.25), where g_i = 1[len_i ≥ 5] · min(1, distinct_i/(0.4 len_i)).

Levels: 0 the shares (1, 3, 5, …)/n², the band [40, 80]; 1 shares and band are drawn, the band is [a, 1.5 a]; 2
[a, 1.25 a].

Figures (``python -m comlrl_env.figures comlrl/LengthSimplex-v0``; level 0, 1, 2 with two authors)::

    gold     1.00  1.00  1.00   words of the grammar, cut to the shares
    solo      .00   .00   .00   author_0 writes well, the others say nothing
    random    .11   .05   .03   5 to 100 words each, log-uniform, independent of the role

Data: subjects and stories from word lists and a grammar written for this project, Apache-2.0. Train and eval, and
neighbouring seeds, never share a subject: see :func:`~comlrl_env.tasks.stories.subjects.draw_subject`.

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
from comlrl_env.tasks.stories.words import words_of
from comlrl_env.types import Item, Score

FEWEST = 5
VARIETY = 0.4
TOLERANCE = 0.25


class LengthSimplex(ProceduralTask):
    """Shares of words; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.11}
    role = "author"
    cues = ("Story:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``subject``, ``shares``: parts by author (of their sum), ``low`` and ``high``: the band of all words."""
        count = len(self.agents)
        subject = draw_subject(rng, split, self.seed)
        if self.level == 0:
            return {"subject": subject, "shares": [2 * i + 1 for i in range(count)], "low": 40, "high": 80}
        shares = rng.integers(1, 5, size=count).tolist()
        total = sum(shares)
        low = max(total * 8, 40) + int(rng.integers(20))
        return {"subject": subject, "shares": shares, "low": low, "high": int(low * (1.5 if self.level == 1 else 1.25))}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The subject, the band and the agent's share."""
        shares, low, high = item.data["shares"], item.data["low"], item.data["high"]
        return {
            agent: (
                f"You are {agent} of {len(self.agents)} authors who write one story together, "
                f"{low} to {high} words in all. Your part is {share}/{sum(shares)} of all words.\n"
                f"Subject: {describe(item.data['subject'])}."
            )
            for agent, share in zip(self.agents, shares, strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts words, shares (TV), variety and in_band."""
        texts = [words_of(responses[agent]) for agent in self.agents]
        lengths = [len(words) for words in texts]
        total = sum(lengths)
        parts = {f"words_{i}": float(length) for i, length in enumerate(lengths)}
        short = [agent for agent, length in zip(self.agents, lengths, strict=True) if length < FEWEST]
        if short:
            reason = f"fewer than {FEWEST} words by {' and '.join(short)}"
            return Score(reward=0.0, parts=parts, reason=reason, is_success=False)
        variety = math.prod(
            min(1.0, len(set(words)) / (VARIETY * length)) for words, length in zip(texts, lengths, strict=True)
        )
        shares = item.data["shares"]
        distance = sum(abs(n / total - p / sum(shares)) for n, p in zip(lengths, shares, strict=True)) / 2
        in_band = item.data["low"] <= total <= item.data["high"]
        reward = variety * in_band * max(0.0, 1 - distance / TOLERANCE)
        faults = [
            f"{total} words are outside [{item.data['low']}, {item.data['high']}]" if not in_band else "",
            f"the shares are off by {distance:.3f}" if distance else "",
            f"words repeated too often ({variety:.2f})" if variety < 1 else "",
        ]
        return Score(
            reward=reward,
            parts=parts | {"tv": distance, "variety": variety, "in_band": float(in_band)},
            reason=", ".join(filter(None, faults)),
            is_success=reward > 1 - 1e-9,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Words of the grammar, as many for each author as make the shares exact."""
        rng = np.random.default_rng(zlib.crc32(item.key.encode()))
        shares = item.data["shares"]
        unit = item.data["high"] // sum(shares)
        return {
            agent: write_words(item.data["subject"], rng, unit * share)
            for agent, share in zip(self.agents, shares, strict=True)
        }

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every author writes 5 to 100 words, log-uniform and independent of the role."""
        counts = np.exp(rng.uniform(math.log(FEWEST), math.log(100), size=len(self.agents)))
        return {
            agent: write_words(item.data["subject"], rng, int(count))
            for agent, count in zip(self.agents, counts, strict=True)
        }


def write_words(subject: Mapping[str, Any], rng: np.random.Generator, count: int) -> str:
    """A story of the grammar with exactly so many words."""
    words: list[str] = []
    while len(words) < count:
        words += write_story(subject, rng, min(LONGEST, 8 * (count - len(words)) + 20)).split()
    return f"{' '.join(words[:count]).rstrip('.,')}."
