"""The level by level score of two texts: a level counts only when the one before it did not stop.

    1  .5        both texts have a number of words in the range
    2  1 · r     ρ = characters of the second / of the first: 1 on the peak, linear to 0 at the ends of the support
    3  .5 · d    u = distinct words of the second / of the first, in the same way
    4  .4T + .6·min(J, cap)/cap      links and common words

J is the share of common words without stop words, c the number of kinds of transition words in the second text.
T = 0 if c = 0, else min(1, .4 + min(.05 (c − 1), .6)) as published, so that all twelve kinds give .95 and the maximum
is 2.98; in the strict reward T = min(1, c/3), with whole words.
"""

import math
from dataclasses import dataclass

from comlrl_env.tasks.texts.words import jaccard, transitions, words

STRICT_MAXIMUM = 3.0
STRICT_KINDS = 3


@dataclass(frozen=True)
class Band:
    """A trapezoid: 1 on the peak, falling to 0 at the ends of the support."""

    support: tuple[float, float]
    peak: tuple[float, float]

    def __call__(self, value: float) -> float | None:
        """The height at ``value``, ``None`` outside the support."""
        (low, high), (first, last) = self.support, self.peak
        if not low <= value <= high:
            return None
        if value < first:
            return (value - low) / (first - low)
        return 1.0 if value <= last else (high - value) / (high - last)


@dataclass(frozen=True)
class Levels:
    """The numbers of one task."""

    words: tuple[int, int]
    ratio: Band
    distinct: Band
    jaccard_cap: float

    def score(self, one: str, two: str, *, strict: bool) -> tuple[dict[str, float], str]:
        """The parts that were reached, and what stopped there (empty when nothing did)."""
        if strict:
            one, two = (" ".join(text.split()) for text in (one, two))
        first, second = words(one), words(two)
        low, high = self.words
        if not (low <= len(first) <= high and low <= len(second) <= high):
            return {"words": 0.0}, f"{len(first)} and {len(second)} words, where both need {low} to {high}"
        parts = {"words": 0.5}
        ratio = len(two) / len(one)
        height = self.ratio(ratio)
        if height is None:
            return parts, f"the second text is {ratio:.2f} times as long, outside {_shown(self.ratio)}"
        parts["ratio"] = height
        distinct = len(set(second)) / len(set(first))
        height = self.distinct(distinct)
        if height is None:
            return parts, f"it has {distinct:.2f} times as many distinct words, outside {_shown(self.distinct)}"
        parts["distinct"] = 0.5 * height
        kinds = transitions(two, whole_words=strict)
        if strict:
            links = min(1.0, kinds / STRICT_KINDS)
        else:
            links = min(1.0, 0.4 + min(0.05 * (kinds - 1), 0.6)) if kinds else 0.0
        parts["links"] = 0.4 * links
        parts["common"] = 0.6 * min(jaccard(first, second), self.jaccard_cap) / self.jaccard_cap
        return parts, ""


def _shown(band: Band) -> str:
    low, high = band.support
    return f"[{low:g}, {high:g}]" if math.isfinite(high) else f"[{low:g}, …)"
