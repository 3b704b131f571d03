"""Notes that agents write to each other in a message turn, which earns nothing."""

import re
from collections.abc import Container, Mapping

from comlrl_env.types import Score

# No answer is read further; models sometimes write a megabyte.
MAX_TEXT = 20_000
# No word of a note is shown longer.
MAX_WORD = 24


def delivered(text: str, limit: int, banned: Container[str] = ()) -> str:
    """What the others read of a note: its first ``limit`` words on one line, without those that are ``banned``.

    Words are cut at :data:`MAX_WORD` characters, and what cannot be printed is left out. ``banned`` holds lower-case
    words; signs around a word do not save it.
    """
    kept: list[str] = []
    for raw in text[:MAX_TEXT].split():
        word = "".join(char for char in raw if char.isprintable())[:MAX_WORD]
        if word and not any(part in banned for part in re.split(r"[\W_]+", word.lower())):
            kept.append(word)
        if len(kept) == limit:
            break
    return " ".join(kept)


def count_words(text: str) -> int:
    """The number of words of a note."""
    return len(text[:MAX_TEXT].split())


def message_score(responses: Mapping[str, str]) -> Score:
    """The score of a message turn: 0, with the number of words of each note."""
    parts = {f"words_{agent}": float(count_words(text)) for agent, text in responses.items()}
    return Score(reward=0.0, parts=parts, reason="a message turn earns nothing")


def find_named(text: str, names: Container[str]) -> list[str]:
    """The different names (lower case, one word each) that a text mentions, in order."""
    return list(dict.fromkeys(word for word in re.findall(r"\w+", text[:MAX_TEXT].lower()) if word in names))
