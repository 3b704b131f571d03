"""Sources to write about, made from word lists: forum posts and abstracts, each with names that no other split has."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_SOUNDS = """
bal bren cor dal del dor fen gal gor hal jor kal kel lan lor mar mel mak nal nor pel ral rok sol tal tor val ven vik wen
yor zan
"""
_SYLLABLES = tuple(_SOUNDS.split())
_LAST_SOUNDS = "a an ar el en ia in is o on or u ur us ya yn"
_ENDINGS = tuple(_LAST_SOUNDS.split())
CLASSES = 8

_POST = (
    "{A} and I have lived near {P} for {n} years, and until this {season} we shared a {room}.",
    "Last {season} {A} bought a {adjective} {thing} from {B} and asked me to keep it in the {room}.",
    "I agreed, because {A} had helped me with my {trouble} when nobody else in {P} did.",
    "Then {B} came to the {room} and claimed that the {thing} still belonged to the {kin} of {C}.",
    "{C} says that {A} promised to pay for the {thing} before the {event}, and never did.",
    "My {kin} thinks that I should give the {thing} back and forget about {B}.",
    "The {event} in {P} is only {n} weeks away, and {A} does not answer my letters.",
    "I feel {feeling} whenever I see {C}, who works in the same {work} as me.",
    "Yesterday {B} shouted at me in the {work}, in front of {C} and my {kin}.",
    "I have already spent {m} coins on the {trouble}, so I cannot pay for a {thing} as well.",
    "{A} left a note that spoke of {P}, the {event} and some {adjective} {thing2}, but not of {B}.",
    "What would you do about {A}, and should I tell {B} where the {thing} is?",
)
_ABSTRACT = (
    "We study the {quality} of {adjective} {object} in the {A} model of {field}.",
    "Earlier work on {A} treats {object} and {object2} apart, which hides how {effect} grows with {quantity}.",
    "Here we introduce {B}, a {adjective2} {method} that couples {object} to {object2} through a {tool}.",
    "{B} needs {n} times less {quantity} than the {method2} of {C}, and keeps its {quality} under {effect}.",
    "We prove that the {quantity} of {B} is bounded by the {quantity2} of the {tool}, up to {m} percent.",
    "Experiments on {n} data sets from {field} and on {A} simulations confirm the bound.",
    "In the regime of strong {effect}, {C} fails, while {B} recovers the {adjective} {object} within {m} percent.",
    "A {tool} without {object2} loses {quality}, which shows that the coupling matters.",
    "Our results suggest that {B} extends to {field2}, where {quantity2} of {object} is measured directly.",
)


def _pools(texts: dict[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, tuple(text.split())) for name, text in texts.items()]


_POST_WORDS = _pools(
    {
        "season": "spring summer autumn winter January March April June August October November December",
        "room": "kitchen garage attic cellar garden workshop balcony shed stable studio barn hallway",
        "adjective": "broken golden ancient heavy strange narrow crooked silent painted foreign fragile wooden",
        "thing": "piano bicycle telescope carpet lantern tractor mirror violin wardrobe cannon scooter statue",
        "thing2": "painting letter necklace jacket camera map engine ladder window compass ticket cradle",
        "trouble": "divorce mortgage surgery lawsuit thesis flood burglary allergy eviction bankruptcy exam accident",
        "kin": "mother brother cousin uncle grandmother sister nephew daughter husband father niece aunt",
        "event": "wedding funeral auction festival trial election parade concert harvest reunion tournament graduation",
        "feeling": "guilty furious ashamed nervous jealous lonely frightened hopeful tired bitter helpless confused",
        "work": "bakery hospital library factory school station museum office restaurant theatre pharmacy brewery",
    }
)
_ABSTRACT_WORDS = _pools(
    {
        "adjective": "broken golden ancient heavy strange narrow crooked silent painted foreign fragile wooden",
        "quality": "stability accuracy fairness robustness symmetry convergence coherence sparsity diversity entropy",
        "object": "graphs lattices galaxies polymers neurons markets proteins crystals auctions vortices",
        "object2": "bosons citations currents mutations shocks photons queries rewards sediments traders",
        "field": "cosmology linguistics robotics genetics economics optics hydrology topology ecology cryptography",
        "field2": "seismology astronomy chemistry sociology geometry neurology forestry acoustics medicine logistics",
        "effect": "noise disorder turbulence friction diffusion congestion drift saturation decoherence competition",
        "quantity": "energy memory bandwidth training curvature temperature latency momentum supervision capital",
        "quantity2": "rank density volume degree spectrum width pressure magnitude length viscosity",
        "method": "estimator algorithm decoder sampler scheme controller expansion filter solver classifier",
        "method2": "baseline heuristic relaxation approximation ensemble regression protocol mapping surrogate",
        "tool": "kernel tensor manifold potential functional operator network transform projection matrix",
        "adjective2": "recursive bayesian quantum greedy spectral variational distributed causal discrete adaptive",
    }
)
_NAMED = ("A", "B", "C", "P")


def write_post(rng: np.random.Generator, split: str, seed: int) -> str:
    """A post in the form of the data set: forum, title, text, and "TL;DR:" at the end."""
    cast = _cast(rng, _POST_WORDS, split, seed)
    middle = [_POST[i] for i in cast["order"] if 0 < i < len(_POST) - 1][:8]
    told = " ".join([_POST[0], *middle, _POST[-1]])
    form = "SUBREDDIT: r/advice\n\nTITLE: {A}, {B} and the {adjective} {thing}\n\nPOST: " + told + "\n\nTL;DR:"
    return form.format_map(cast)


def write_abstract(rng: np.random.Generator, split: str, seed: int) -> str:
    """An abstract of eight sentences, the first four always the same ones."""
    cast = _cast(rng, _ABSTRACT_WORDS, split, seed)
    left_out = 4 + cast["order"][0] % (len(_ABSTRACT) - 4)
    return " ".join(s for i, s in enumerate(_ABSTRACT) if i != left_out).format_map(cast)


def name_class(name: str) -> int:
    """The class in 0 … 7 of a name that :func:`write_post` or :func:`write_abstract` made up."""
    rest, total = name.lower(), 0
    for _ in range(2):
        syllable = next(s for s in _SYLLABLES if rest.startswith(s))
        rest, total = rest[len(syllable) :], total + _SYLLABLES.index(syllable)
    return total % CLASSES


def _cast(
    rng: np.random.Generator, pools: Sequence[tuple[str, tuple[str, ...]]], split: str, seed: int
) -> dict[str, Any]:
    """One word for each place of the templates, and an order for the sentences.

    The class of a name is the sum of its two syllable numbers modulo 8. Train uses classes 0-2 for even and 3-5 for
    odd seeds, eval 6 or 7, as with the subjects of stories: two splits, or two neighbouring seeds, share no name.
    """
    # One draw for everything: a draw for each word costs more than the text.
    numbers = iter(rng.integers(1 << 30, size=len(pools) + 4 * len(_NAMED) + 2 + len(_POST)).tolist())
    cast: dict[str, Any] = {name: pool[next(numbers) % len(pool)] for name, pool in pools}
    for name in _NAMED:
        shift, first, second, ending = (next(numbers) for _ in range(4))
        target = 6 + seed % 2 if split == "eval" else 3 * (seed % 2) + shift % 3
        first %= len(_SYLLABLES)
        second = (target - first) % CLASSES + second % len(_SYLLABLES) // CLASSES * CLASSES
        cast[name] = f"{_SYLLABLES[first]}{_SYLLABLES[second]}{_ENDINGS[ending % len(_ENDINGS)]}".capitalize()
    cast |= {"n": 2 + next(numbers) % 9, "m": 5 + next(numbers) % 90}
    keys = list(numbers)
    cast["order"] = sorted(range(len(keys)), key=keys.__getitem__)
    return cast
