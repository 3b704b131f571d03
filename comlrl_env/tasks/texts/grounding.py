"""What a text shows of having read its source, in [0, 1]; every factor is 1 for an honest short text of one's own.

cover    min(1, keywords of the source in the text / wanted)
loyal    min(1, share of the text's distinct content words that the source has / share wanted)
own      1 while at most a fifth of the text's words stand in runs of six that it copied, falling to 0 at 70 %
varied   min(1, distinct words / (.4 · words))

The product is the text's grounding. It cannot tell a summary from a list of the right words, nor a true sentence
from a false one with the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from comlrl_env.tasks.texts.words import is_content, keywords, words

RUN = 6
FREELY_COPIED = 0.2
FULLY_COPIED = 0.7
DISTINCT_SHARE = 0.4


@dataclass(frozen=True)
class Wanted:
    """How many keywords a text must take up, and which share of its content words the source must have."""

    keywords: int
    loyal_share: float


def grounding(text: str, source: str, wanted: Wanted, others: Sequence[str] = ()) -> dict[str, float]:
    """The four factors of a text; runs copied from the texts ``others`` count as copied too. All 0 without words."""
    said = words(text)
    if not said:
        return dict.fromkeys(("cover", "loyal", "own", "varied"), 0.0)
    known = set(words(source))
    keys = keywords(source)
    distinct = set(said)
    content = {word for word in distinct if is_content(word)}
    need = min(wanted.keywords, len(keys))
    loyal = len(content & known) / len(content) if content else 0.0
    copied = copied_share(said, [words(source), *map(words, others)])
    return {
        "cover": min(1.0, len(distinct & set(keys)) / need) if need else 1.0,
        "loyal": min(1.0, loyal / wanted.loyal_share) if need else 1.0,
        "own": min(1.0, max(0.0, (FULLY_COPIED - copied) / (FULLY_COPIED - FREELY_COPIED))),
        "varied": min(1.0, len(distinct) / (DISTINCT_SHARE * len(said))),
    }


def copied_share(said: Sequence[str], sources: Sequence[Sequence[str]]) -> float:
    """The share of words in runs of six that stand in a source; a shorter text is one run."""
    size = min(RUN, len(said))
    runs = {tuple(source[i : i + size]) for source in sources for i in range(len(source) - size + 1)}
    copied: set[int] = set()
    for start in range(len(said) - size + 1):
        if tuple(said[start : start + size]) in runs:
            copied.update(range(start, start + size))
    return len(copied) / len(said)
