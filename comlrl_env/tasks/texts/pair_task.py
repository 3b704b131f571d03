"""The base of tasks in which two authors write one text each about a source that both have read."""

import math
import zlib
from itertools import cycle, islice
from typing import ClassVar

import numpy as np

from comlrl_env.reference_task import ReferenceTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.texts.grounding import Wanted, grounding
from comlrl_env.tasks.texts.levels import STRICT_MAXIMUM, Levels
from comlrl_env.tasks.texts.words import STOP_WORDS, keywords, words
from comlrl_env.types import Item, Score

FIRST, SECOND = "author_0", "author_1"
_STOP = sorted(STOP_WORDS)
# Reasons name a text that earns less than this.
GOOD = 0.999


class PairTask(ReferenceTask):
    """Two texts on one source; a subclass says which, and how their structure is judged.

    ``reward``: ``"strict"`` (the structure times what both texts show of having read the source, in [0, 1]) or
    ``"reference"`` (as published, the structure alone). ``level``: how many keywords each text must take up: 0 the
    task's number, 1 a quarter more. The other arguments: see :class:`~comlrl_env.reference_task.ReferenceTask`.
    """

    roles = (FIRST, SECOND)
    levels = (0, 1)
    structure_levels: ClassVar[Levels]
    source_field: ClassVar[str]
    wanted: ClassVar[tuple[int, int]]
    loyal_share: ClassVar[float]
    asked: ClassVar[tuple[str, str]]
    outlines: ClassVar[tuple[str, str]]
    random_words: ClassVar[tuple[int, int]]

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The role and the source."""
        text = str(item.data[self.source_field]).strip()
        return {
            agent: f"You are {agent}. {asked}\n\n{text}" for agent, asked in zip(self.agents, self.asked, strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        one, two = (responses[agent] for agent in self.agents)
        structure, parts, reason = self.structure(one, two)
        if self.reward == "reference":
            best = self.reward_figures["reference"]["gold"]
            return Score(reward=structure, parts=parts, reason=reason, is_success=structure > best - 1e-9)
        if structure <= 0:
            return Score(reward=0.0, parts=parts, reason=reason, is_success=False)
        text = str(item.data[self.source_field])
        factors = {
            FIRST: grounding(one, text, self._wanted(0)),
            SECOND: grounding(two, text, self._wanted(1), [one]),
        }
        grounds = {agent: float(np.prod(list(found.values()))) for agent, found in factors.items()}
        parts |= {f"{name}_{i}": value for i, agent in enumerate(factors) for name, value in factors[agent].items()}
        lacks = [
            f"{agent}: " + ", ".join(f"{name} {value:.2f}" for name, value in factors[agent].items() if value < GOOD)
            for agent, ground in grounds.items()
            if ground < GOOD
        ]
        reward = structure * min(grounds.values())
        said = "; ".join(filter(None, [reason, *lacks])) or f"the lengths and links are worth {structure:.2f}"
        said = "" if reward > 1 - 1e-9 else said
        return Score(reward=reward, parts=parts, reason=said, is_success=reward > 1 - 1e-9)

    def structure(self, one: str, two: str) -> tuple[float, dict[str, float], str]:
        """What the two texts earn without a look at the source: the value, its parts, what stopped it."""
        strict = self.reward == "strict"
        parts, reason = self.structure_levels.score(one, two, strict=strict)
        return math.fsum(parts.values()) / (STRICT_MAXIMUM if strict else 1.0), parts, reason

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """An outline of fixed sentences filled with the source's keywords."""
        return dict(zip(self.agents, self._filled(item), strict=True))

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every author writes a log-uniform number of words, stop words and those of another source."""
        pool = [*words(str(self.build(rng, "train")[self.source_field])), *_STOP]
        low, high = np.log(self.random_words)
        lengths = np.exp(rng.uniform(low, high, size=2)).round().astype(int)
        return {
            agent: " ".join(pool[i] for i in rng.integers(len(pool), size=length))
            for agent, length in zip(self.agents, lengths.tolist(), strict=True)
        }

    def _wanted(self, agent: int) -> Wanted:
        return Wanted(-(-self.wanted[agent] * (4 + self.level) // 4), self.loyal_share)

    def _filled(self, item: Item) -> list[str]:
        """Both outlines with the keywords in an order of the item's own."""
        keys = list(keywords(str(item.data[self.source_field]))) or ["nothing"]
        rng = np.random.default_rng(zlib.crc32(item.key.encode()))
        texts = []
        for outline in self.outlines:
            order = [keys[i] for i in rng.permutation(len(keys))]
            slots = outline.count("{}")
            texts.append(" ".join(outline.format(*islice(cycle(order), slots)).split()))
        return texts
