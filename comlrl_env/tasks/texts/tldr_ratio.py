"""``comlrl/TLDRRatio-v0``: two summaries of one post, 220 characters and two to three times as many.

Purpose: the length example of the field on real or made-up posts. One part of the reward is a property of the pair, the
other of the first summary alone.

Roles: ``author_0`` writes a summary of about 220 characters, ``author_1`` one that is two to three times as long. Both
read the post. One simultaneous response.

Example (the first training item of seed 0)::

    author_0 is told   You are author_0. Summarise this post in about 220 characters, in your own words; author_1
                       writes a summary 2 to 3 times as long.
                       SUBREDDIT: r/advice
                       TITLE: Yorvenur, Solhalon and the broken mirror
                       POST: Yorvenur and I have lived near Valyoryn for 8 years, and until this winter we shared a
                       hallway. The reunion in Valyoryn is only 8 weeks away, and Yorvenur does not answer my
                       letters. Yesterday Solhalon shouted at me in the library, in front of Brenmakel and my aunt.
                       Brenmakel says that Yorvenur promised to pay for the mirror before the reunion, and never did.
                       Then Solhalon came to the hallway and claimed that the mirror still belonged to the aunt of
                       Brenmakel. I have already spent 51 coins on the exam, so I cannot pay for a mirror as well.
                       Yorvenur left a note that spoke of Valyoryn, the reunion and some broken engine, but not of
                       Solhalon. I feel helpless whenever I see Brenmakel, who works in the same library as me. Last
                       winter Yorvenur bought a broken mirror from Solhalon and asked me to keep it in the hallway.
                       What would you do about Yorvenur, and should I tell Solhalon where the mirror is?
                       TL;DR:
    author_1 is told   You are author_1. Summarise this post in your own words, 2 to 3 times as long as the summary
                       of author_0, which has about 220 characters.
                       the same post
    author_0 answers   It is about yorvenur, valyoryn, brenmakel and winter, and what I should do about library
                       before aunt is there again ourselves yourself because really other then now so a ourselves
                       yourself because really other so really.
    author_1 answers   First of all there is yesterday with its yorvenur, and then there was brenmakel, which is why
                       we are here. I had to go to hallway because of mirror, but nobody would say what aunt had to
                       do with it. If it was only about solhalon, I would not even be telling you this; still, it is
                       reunion that I want to know about. What was once library is now broken, and it never got any
                       better. So that is where I am, and I do not know what should be done with valyoryn and winter,
                       or who else I could go to now.
    score              1.0: 36 and 104 words, ρ = 2.27, 26 and 67 distinct words

Reward. With len_i the characters without blanks at the ends, ρ = len_1/len_0 and d the distance from ρ to [2, 3]::

    R = max(−1, 1 − d)      L = max(−1, 1 − |len_0 − 220|/110)

``reward="reference"``: (R + L)/2, −1 if either answer shows nothing; in [−1, 1]. ``reward="strict"`` (default, in
[0, 1]): (max(0, R) + max(0, L))/2 · min(G_0, G_1), with repeated blanks counted once; 0 if either shows nothing. G_i is
what text i shows of having read the post, with 4 and 8 keywords wanted, as in ``comlrl/TLDR-v0``; that page says what
it can tell and what not. A lone text earns nothing in strict.

Levels: 0 as above; 1 a quarter more keywords are wanted.

Figures (``python -m comlrl_env.figures comlrl/TLDRRatio-v0 reward=…``)::

    reward      gold   solo   random  one good answer for every post; copies of the post; a salad of its words
    strict      1.00   0.00   0.00     .02; 0.00;  .70
    reference   1.00  -1.00    .04    1.00; 1.00;  .95

Gold is an outline filled with the post's keywords. Solo: author_0 writes its summary, author_1 nothing. Random: 8 to 64
words each, stop words and words of another post.

Data: as for ``comlrl/TLDR-v0``, ``trl-lib/tldr`` with ``data=…`` included.

Versions: v0 first version.
"""

from typing import Any, ClassVar

from comlrl_env.tasks.texts.pair_task import FIRST
from comlrl_env.tasks.texts.tldr import TLDR
from comlrl_env.types import Item

TARGET, TOLERANCE = 220, 110
LOW, HIGH = 2.0, 3.0
_SHORT = "It is about {}, {}, {} and {}, and what I should do about {} before {} is there again."
_LONG = """
First of all there is {} with its {}, and then there was {}, which is why we are here. I had to go to {} because of {},
but nobody would say what {} had to do with it. If it was only about {}, I would not even be telling you this; still, it
is {} that I want to know about. What was once {} is now {}, and it never got any better. So that is where I am, and I
do not know what should be done with {} and {}, or who else I could go to now.
"""
# A word of each length, to end on the character.
_FILLING = ("a", "so", "now", "then", "other", "really", "because", "yourself", "ourselves")


class TLDRRatio(TLDR):
    """Two summaries whose lengths must fit; see the page above and :class:`PairTask` for the arguments."""

    wanted = (4, 8)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.0, "random": 0.0},
        "reference": {"gold": 1.0, "solo": -1.0, "random": 0.04},
    }
    asked = (
        "Summarise this post in about 220 characters, in your own words; author_1 writes a summary 2 to 3 times as "
        "long.",
        "Summarise this post in your own words, 2 to 3 times as long as the summary of author_0, which has about 220 "
        "characters.",
    )
    outlines = (_SHORT, _LONG)

    def structure(self, one: str, two: str) -> tuple[float, dict[str, float], str]:
        """(R + L)/2."""
        strict = self.reward == "strict"
        first, second = (len(shown(text, strict)) for text in (one, two))
        parts = {"length_0": float(first), "length_1": float(second)}
        if not (first and second):
            return 0.0 if strict else -1.0, parts, "an answer shows nothing"
        floor = 0.0 if strict else -1.0
        distance = max(LOW - second / first, second / first - HIGH, 0.0)
        ratio = max(floor, 1 - distance)
        length = max(floor, 1 - abs(first - TARGET) / TOLERANCE)
        said = f"the ratio is {second / first:.2f}" if distance else ""
        return (ratio + length) / 2, parts | {"ratio": ratio, "length": length}, said

    def gold(self, item: Item, history: Any = ()) -> dict[str, str]:
        """Outlines filled with the post's keywords, the first one brought to 220 characters exactly."""
        texts = super().gold(item)
        return texts | {FIRST: filled_up(texts[FIRST], TARGET)}


def shown(text: str, strict: bool) -> str:
    """A text without blanks at the ends (and, in strict, with single ones inside); empty if nothing is visible."""
    stripped = " ".join(text.split()) if strict else text.strip()
    return stripped if any(char.isprintable() and not char.isspace() for char in stripped) else ""


def filled_up(text: str, length: int) -> str:
    """``text`` with short words before its full stop, so that it has ``length`` characters; cut when it has more."""
    body = text.rstrip(".")[: length - 1]
    missing = length - 1 - len(body)
    turn = 0
    while missing > 0:
        if missing == 1:
            return f"{body}{'.' * 2}"
        # Words of different lengths in turn, and never one character left, which no word could fill.
        sizes = [n for n in range(1, len(_FILLING) + 1) if n + 1 <= missing and missing - n - 1 != 1]
        size = sizes[-1 - turn % len(sizes)]
        body, missing, turn = f"{body} {_FILLING[size - 1]}", missing - size - 1, turn + 1
    return f"{body}."
