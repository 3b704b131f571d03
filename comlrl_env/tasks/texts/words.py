"""Words of a text: all of them, those that carry its content, and those that link sentences."""

import re
from collections import Counter
from functools import lru_cache

_WORD = re.compile(r"\w+")
_BLANKS = re.compile(r"\s+")
SHORTEST_CONTENT = 4
LONGEST_CONTENT = 24
NUM_KEYWORDS = 12

_STOP = """
a about above after again against all also am an and any are as at be because been before being below between both
but by can cannot could did do does doing down during each even ever every few for from further get give go going
good got had has have having he her here hers herself him himself his how i if in into is it its itself just know
let like made make many may me might more most much must my myself need never no nor not now of off on once one only
or other our ours out over own people quite really said same say says she should since so some still such take than
that the their theirs them themselves then there these they thing things this those though through time to told too
two under until up upon us use very want wanted was way we well went were what when where which while who whom why
will with without would year years yet you your yours yourself subreddit title post tldr
"""
STOP_WORDS = frozenset(_STOP.split())
# Twelve kinds of links between sentences; a kind counts once.
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "addition": ("also", "moreover", "furthermore", "in addition", "besides"),
    "contrast": ("however", "but", "in contrast", "whereas", "on the other hand"),
    "cause": ("because", "due to", "owing to", "as a result of"),
    "effect": ("therefore", "thus", "consequently", "as a result", "hence"),
    "example": ("for example", "for instance", "such as", "namely"),
    "order": ("first", "then", "next", "finally", "afterwards"),
    "emphasis": ("indeed", "in fact", "above all", "especially"),
    "likeness": ("similarly", "likewise", "in the same way", "equally"),
    "condition": ("if", "unless", "provided that", "otherwise"),
    "concession": ("although", "even though", "nevertheless", "despite"),
    "summary": ("in short", "overall", "in conclusion", "to sum up"),
    "restating": ("in other words", "that is to say", "rather", "put differently"),
}
LINKING = frozenset(word for phrases in TRANSITIONS.values() for phrase in phrases for word in phrase.split())
_WHOLE = {kind: re.compile(rf"\b(?:{'|'.join(phrases)})\b") for kind, phrases in TRANSITIONS.items()}


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order: runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())


def is_content(word: str) -> bool:
    """Whether a word can say what a text is about: 4 to 24 letters, neither frequent nor a link."""
    fits = SHORTEST_CONTENT <= len(word) <= LONGEST_CONTENT and word.isalpha()
    return fits and word not in STOP_WORDS and word not in LINKING


@lru_cache(maxsize=4096)
def keywords(source: str) -> tuple[str, ...]:
    """The twelve content words that a source says most often; among equals the longer ones, then by the alphabet."""
    counts = Counter(word for word in words(source) if is_content(word))
    return tuple(sorted(counts, key=lambda word: (-counts[word], -len(word), word))[:NUM_KEYWORDS])


def transitions(text: str, *, whole_words: bool = True) -> int:
    """How many of the twelve kinds a text has; as whole words, or (as published) anywhere in its letters."""
    lowered = _BLANKS.sub(" ", text.lower())
    if whole_words:
        return sum(pattern.search(lowered) is not None for pattern in _WHOLE.values())
    return sum(any(phrase in lowered for phrase in phrases) for phrases in TRANSITIONS.values())


def jaccard(one: list[str], two: list[str]) -> float:
    """Common words over all words of two texts, stop words left out; 0 when there are none."""
    first, second = set(one) - STOP_WORDS, set(two) - STOP_WORDS
    union = first | second
    return len(first & second) / len(union) if union else 0.0
