"""A small grammar of simple stories on a subject, of any length from about 20 to 400 characters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from comlrl_env.tasks.stories.subjects import with_article

LONGEST = 400

OPENINGS = (
    "One {time} {a_hero} {past} {a_thing} {place}.",
    "{A_hero} {past} {a_thing} {place}.",
    "Once {a_hero} {past} {a_thing} {place}.",
    "It was a {weather} {time} when {a_hero} {past} {a_thing} {place}.",
    "There once was {a_hero} who {past} {a_thing} {place}.",
    "{Place}, {a_hero} {past} {a_thing}.",
    "The {hero} {past} {a_thing} {place}.",
    "The {hero} {past} {a_thing}.",
    "One {time} the {hero} {past} {a_thing}.",
)
MIDDLES = (
    "The {hero} felt {mood}.",
    "The {hero} was {mood} and {mood2}.",
    "It was a {weather} {time}.",
    "The wind was cold.",
    "Nobody else was there.",
    "Birds sang in the trees.",
    "It was getting late.",
    "The moon came out.",
    "Nobody said a word.",
    "Somewhere a bell rang.",
    "An hour went by.",
    "The sun went down.",
    "The {thing} was {look}.",
    "The {thing} was {look} and {look2}.",
    "{A_friend} came along the road.",
    "{A_friend} saw everything.",
    "The {friend} asked about the {thing}.",
    '"What {a_look} {thing}," said the {friend}.',
    '"Be careful with the {thing}," said the {friend}.',
    '"Please help me," said the {hero}.',
    '"I will keep the {thing}," said the {hero}.',
    '"Whose {thing} is this?" asked the {friend}.',
    "The {hero} thought about it for a long {time}.",
    "The {hero} put the {thing} {spot}.",
    "Soon the {thing} was {spot}.",
    "The {friend} laughed and sat down {spot}.",
    "Then it began to {pour}.",
    "They waited until the {time} was over.",
    "They shared some {food} and talked.",
    "The {hero} ate {food} {spot}.",
    "A {weather} {time} passed.",
    "The {hero} walked home with the {friend}.",
    "Then the {friend} told a story about {a_thing2}.",
    "The {hero} had never seen such {a_look} {thing}.",
    "Far away a dog began to bark.",
    "The {friend} was {mood}, but the {hero} was not.",
    "All the people {place} heard about it.",
)
ENDINGS = (
    "In the end everyone was {mood}.",
    "In the end the {hero} was {mood} again.",
    "That was the end of the {thing}.",
    "From then on they were friends.",
    "The {hero} never forgot that {time}.",
    "And so the {hero} went home.",
    "That {time} they all slept well.",
    "The {thing} is still {spot} today.",
)
WORDS = {
    "time": ("morning", "evening", "night", "day", "summer", "winter", "afternoon", "autumn"),
    "weather": ("cold", "warm", "rainy", "windy", "sunny", "dark", "quiet", "foggy", "bright"),
    "mood": (
        "happy",
        "sad",
        "angry",
        "afraid",
        "glad",
        "surprised",
        "calm",
        "hopeful",
        "worried",
        "thankful",
    ),
    "look": (
        "old",
        "heavy",
        "shiny",
        "broken",
        "beautiful",
        "strange",
        "small",
        "red",
        "blue",
        "dusty",
        "golden",
    ),
    "friend": (
        "neighbour",
        "friend",
        "stranger",
        "child",
        "traveller",
        "cousin",
        "guard",
        "widow",
        "boy",
        "girl",
    ),
    "spot": ("by the fire", "under a tree", "on the table", "behind the door", "near the wall", "on a stone"),
    "pour": ("rain", "snow", "grow dark", "thunder"),
    "food": ("bread", "soup", "apples", "cheese", "cake", "honey"),
    "thing2": ("dragon", "ship", "ghost", "king", "treasure", "storm", "horse", "island"),
}


SHORTEST_OPENING = "The {hero} {past} {a_thing}."
SHORTEST_MIDDLE = len("An hour went by.")


class _Filling(dict[str, str]):
    """The words of one sentence: the cast of the story, and others drawn when first asked for."""

    def __init__(self, story: Mapping[str, str], rng: np.random.Generator) -> None:
        super().__init__(story)
        self._rng = rng

    def __missing__(self, name: str) -> str:
        if name.startswith("a_"):
            word = with_article(self[name[2:]])
        elif name in ("mood2", "look2"):
            word = _pick([word for word in WORDS[name[:-1]] if word != self[name[:-1]]], self._rng)
        else:
            word = _pick(WORDS[name], self._rng)
        self[name] = word
        return word


def write_story(subject: Mapping[str, Any], rng: np.random.Generator, length: int) -> str:
    """Write a story on the subject of about ``length`` characters (within a sentence), at most 400.

    An opening comes first; sentences follow in random order without repetition, and an ending closes longer
    stories.
    """
    cast = _cast(subject, rng)
    openings = (template.format_map(_Filling(cast, rng)) for template in _shuffled(OPENINGS, rng))
    shortest = SHORTEST_OPENING.format_map(cast)
    story = next((opening for opening in openings if len(opening) <= length), shortest)
    # Stories of one or two sentences just stop.
    closing = f" {_pick(ENDINGS, rng).format_map(_Filling(cast, rng))}" if length >= 80 else ""
    room = min(length + 10, LONGEST) - len(closing)
    for template in _shuffled(MIDDLES, rng):
        if len(story) + 1 + SHORTEST_MIDDLE > room:
            break
        sentence = template.format_map(_Filling(cast, rng))
        if len(story) + 1 + len(sentence) <= room:
            story = f"{story} {sentence}"
    return story + closing


def _cast(subject: Mapping[str, Any], rng: np.random.Generator) -> dict[str, str]:
    """The words that stay the same all through a story."""
    hero = with_article(f"{subject['adjective']} {subject['character']}")
    friend = _pick(WORDS["friend"], rng)
    return {
        "hero": subject["character"],
        "a_hero": hero,
        "A_hero": hero.capitalize(),
        "friend": friend,
        "A_friend": with_article(friend).capitalize(),
        "time": _pick(WORDS["time"], rng),
        "past": subject["past"],
        "thing": subject["thing"],
        "a_thing": with_article(subject["thing"]),
        "place": subject["place"],
        "Place": subject["place"].capitalize(),
    }


def _shuffled(templates: Sequence[str], rng: np.random.Generator) -> list[str]:
    return [templates[i] for i in rng.permutation(len(templates)).tolist()]


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
