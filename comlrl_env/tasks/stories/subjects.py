"""Story subjects: adjective × character × deed × thing × place, in present and past tense."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_ADJECTIVES = """
shy clever old young tired proud quiet brave hungry curious lonely merry lazy gentle clumsy patient
nervous cheerful stubborn kind sleepy careful gloomy busy
"""
ADJECTIVES = tuple(_ADJECTIVES.split())
_CHARACTERS = """
fox baker sailor robot painter farmer wizard teacher bear miller princess tailor rabbit gardener pirate
nurse goat singer shepherd clown mouse captain knight beaver doctor owl fisher giant cook hunter badger
dancer
"""
CHARACTERS = tuple(_CHARACTERS.split())
DEEDS = (
    ("finds", "found"),
    ("loses", "lost"),
    ("steals", "stole"),
    ("builds", "built"),
    ("paints", "painted"),
    ("hides", "hid"),
    ("sells", "sold"),
    ("carries", "carried"),
    ("mends", "mended"),
    ("buys", "bought"),
    ("breaks", "broke"),
    ("borrows", "borrowed"),
)
# The number of things must be a multiple of CLASSES, so that every class can be reached by the choice of
# the thing.
_THINGS = """
boat lantern drum kite clock mirror ladder violin wagon crown basket kettle puppet telescope trumpet
statue lamp chest barrel flag bell cradle sledge box
"""
THINGS = tuple(_THINGS.split())
_PLACES = """
in the harbour/in the forest/at the market/on the hill/by the river/in the village/at the old mill
in the garden/on the island/under the bridge/in the castle/at the station/in the desert/by the lake
in the library/on the farm/in the valley/at the inn/in the mountains/on the beach/in the tower
near the well/in the city/by the sea
"""
PLACES = tuple(_PLACES.strip().replace("\n", "/").split("/"))

CLASSES = 8
NUM_SUBJECTS = len(ADJECTIVES) * len(CHARACTERS) * len(DEEDS) * len(THINGS) * len(PLACES)


def draw_subject(rng: np.random.Generator, split: str, seed: int) -> dict[str, Any]:
    """Draw one subject of the class that belongs to the split and to the parity of the seed.

    The class of a subject is the sum of its five word numbers modulo 8. Train uses classes 0-2 for even and
    3-5 for odd seeds, eval 6 and 7: so train and eval never share a subject, nor do neighbouring seeds,
    while every word is used everywhere.
    """
    target = 6 + seed % 2 if split == "eval" else 3 * (seed % 2) + int(rng.integers(3))
    pools = (ADJECTIVES, CHARACTERS, DEEDS, PLACES)
    adjective, character, deed, place = (int(rng.integers(len(pool))) for pool in pools)
    shift = (target - adjective - character - deed - place) % CLASSES
    thing = shift + CLASSES * int(rng.integers(len(THINGS) // CLASSES))
    present, past = DEEDS[deed]
    return {
        "adjective": ADJECTIVES[adjective],
        "character": CHARACTERS[character],
        "deed": present,
        "past": past,
        "thing": THINGS[thing],
        "place": PLACES[place],
    }


def subject_class(subject: Mapping[str, Any]) -> int:
    """Return the class in 0 … 7 that :func:`draw_subject` speaks of."""
    numbers = (
        ADJECTIVES.index(subject["adjective"]),
        CHARACTERS.index(subject["character"]),
        DEEDS.index((subject["deed"], subject["past"])),
        THINGS.index(subject["thing"]),
        PLACES.index(subject["place"]),
    )
    return sum(numbers) % CLASSES


def with_article(words: str) -> str:
    """Return the words behind "a" or "an"."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def describe(subject: Mapping[str, Any]) -> str:
    """Return the subject as a clause, such as "a shy fox finds a boat in the harbour"."""
    who = with_article(f"{subject['adjective']} {subject['character']}")
    return f"{who} {subject['deed']} {with_article(subject['thing'])} {subject['place']}"
