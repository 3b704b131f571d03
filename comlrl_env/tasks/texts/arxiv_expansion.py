"""``comlrl/ArxivExpansion-v0``: two sections of an introduction from one abstract.

Purpose: two authors expand an abstract into sections that belong together: about as many different words in both, a
shared vocabulary, the second somewhat longer.

Roles: ``author_0`` writes background and motivation, ``author_1`` method and implications. Both read the abstract. One
simultaneous response of 128 to 256 words each.

Example (the first training item of seed 0)::

    author_0 is told   You are author_0. Write the background and the motivation of the paper with this abstract, in
                       128 to 170 words of your own. author_1 writes method and implications.
                       We study the coherence of wooden auctions in the Solhalon model of hydrology. Earlier work on
                       Solhalon treats auctions and queries apart, which hides how friction grows with bandwidth.
                       Here we introduce Brenmakel, a spectral algorithm that couples auctions to queries through a
                       potential. Brenmakel needs 3 times less bandwidth than the baseline of Valyoryn, and keeps its
                       coherence under friction. Experiments on 3 data sets from hydrology and on Solhalon
                       simulations confirm the bound. In the regime of strong friction, Valyoryn fails, while
                       Brenmakel recovers the wooden auctions within 21 percent. A potential without queries loses
                       coherence, which shows that the coupling matters. Our results suggest that Brenmakel extends
                       to acoustics, where rank of auctions is measured directly.
    author_1 is told   You are author_1. Write the method and the implications of the paper with this abstract, in
                       180 to 256 words of your own, about 1.5 times as long as the section of author_0, with words
                       that link your sentences. author_0 writes background and motivation.
                       the same abstract
    author_0 answers   Before we can say what auctions is and why it is good to know about solhalon, we need to go
                       back to what was said of friction before our work. For many years nobody knew how valyoryn and
                       potential are the same thing, or where wooden would go when there is too much of bandwidth. It
                       was once said that coherence can do it all by itself; others said that it never could. This is
                       why we want to know more about queries. What we know so far is little: some give hydrology a
                       way out, some take it away again, and most do not say how brenmakel got there. We need
                       experiments now, and we need it to be right. So this is what the work is about, and it should
                       be of use to all who have ever had to do with it and with its many questions, both old and
                       new.
    author_1 answers   First we take experiments as it is, and then we put auctions under it, because only friction
                       can say how much there is of queries. In addition, we let coherence go its own way; however,
                       when it gets too far, we go back to where it was before and give it another wooden to start
                       from. For example, let there be two of them, one with brenmakel and one without. As a result,
                       what was above is now below, and the same thing can be said of bandwidth in every place where
                       we had it. Indeed, if there is no potential at all, the way is still the same; similarly, most
                       of what we do has its use even when nobody knows hydrology. Although it may want more time
                       than others do, it will not need more of solhalon than we have, and it never needs to be told
                       twice. In other words, whoever has valyoryn can have all of this. This can be said of all that
                       we do now, and of all that we did before. Overall, what should be done from here on is to see
                       what it is good for: not only for us but for all who work with experiments.
    score              1.0: 154 and 205 words, ρ = 1.35, 91 and 118 distinct words

Reward: the levels S of ``comlrl/TLDR-v0`` with other numbers: both texts 128 to 256 words; the ratio of characters 1 on
[1.3, 1.6], linear to 0 at .8 and at 2; the ratio of distinct words 1 on [.7, 1.3], linear to 0 at .5 and at 1.7; J
counts up to .23::

    S = .5 + r + .5 d + .4 T + .6 min(J, .23)/.23        outside a range: stop there

``reward="reference"``: S with the published T, in [0, 2.98]. ``reward="strict"`` (default, in [0, 1]): S/3 · min(G_0,
G_1), T = min(1, c/3) by whole words; G as there, with 8 and 8 keywords wanted and a fifth of a text's content words
from the abstract, since an expansion must say more than its source.

What strict can tell and cannot: as for ``comlrl/TLDR-v0``. It does not know background from method.

Levels: 0 as above; 1 a quarter more keywords are wanted.

Figures (``python -m comlrl_env.figures comlrl/ArxivExpansion-v0 reward=…``)::

    reward      gold   solo   random  one good answer for every abstract; copies of it; a salad of its words
    strict      1.00   0.00    .07     .13; 0.00;  .92
    reference   2.98   0.00   1.91    2.98; 2.68; 2.78

Gold is an outline filled with the abstract's keywords. Solo: author_0 writes its section, author_1 nothing. Random:
128 to 256 words each, stop words and words of another abstract. A salad: 140 and 205 random words, stop words and words
of the abstract: that strict cannot tell from a text, since an expansion may say so much of its own.

Data: abstracts from templates and made-up names, written for this project, Apache-2.0; train and eval, and
neighbouring seeds, share no name. About 7 000 items a second: an item is a text of a thousand characters. ``data=…``
reads ``OpenMLRL/arXiv_abstract`` (fields ``article_id`` and ``abstract_text``; training: its split ``train``,
evaluation: the first 1100 rows of ``val``; its card says under which licence).

Versions: v0 first version.
"""

from typing import Any, ClassVar

import numpy as np

from comlrl_env.rows import PublicData
from comlrl_env.tasks.texts.levels import Band, Levels
from comlrl_env.tasks.texts.pair_task import PairTask
from comlrl_env.tasks.texts.sources import write_abstract

_BACKGROUND = """
Before we can say what {} is and why it is good to know about {}, we need to go back to what was said of {} before
our work. For many years nobody knew how {} and {} are the same thing, or where {} would go when there is too much
of {}. It was once said that {} can do it all by itself; others said that it never could. This is why we want to
know more about {}. What we know so far is little: some give {} a way out, some take it away again, and most do not
say how {} got there. We need {} now, and we need it to be right. So this is what the work is about, and it should
be of use to all who have ever had to do with it and with its many questions, both old and new.
"""
_METHOD = """
First we take {} as it is, and then we put {} under it, because only {} can say how much there is of {}. In
addition, we let {} go its own way; however, when it gets too far, we go back to where it was before and give it
another {} to start from. For example, let there be two of them, one with {} and one without. As a result, what was
above is now below, and the same thing can be said of {} in every place where we had it. Indeed, if there is no {}
at all, the way is still the same; similarly, most of what we do has its use even when nobody knows {}. Although it
may want more time than others do, it will not need more of {} than we have, and it never needs to be told twice. In
other words, whoever has {} can have all of this. This can be said of all that we do now, and of all that we did
before. Overall, what should be done from here on is to see what it is good for: not only for us but for all who
work with {}.
"""


class ArxivExpansion(PairTask):
    """Two sections from one abstract; see the page above and :class:`PairTask` for the arguments."""

    source = PublicData(
        "OpenMLRL/arXiv_abstract", ("article_id", "abstract_text"), {"train": "train", "eval": "val"}, 1100
    )
    source_field = "abstract_text"
    cues = ("Section:",)
    wanted = (8, 8)
    loyal_share = 0.2
    structure_levels = Levels(
        words=(128, 256),
        ratio=Band((0.8, 2.0), (1.3, 1.6)),
        distinct=Band((0.5, 1.7), (0.7, 1.3)),
        jaccard_cap=0.23,
    )
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.0, "random": 0.07},
        "reference": {"gold": 2.98, "solo": 0.0, "random": 1.91},
    }
    asked = (
        "Write the background and the motivation of the paper with this abstract, in 128 to 170 words of your own. "
        "author_1 writes method and implications.",
        "Write the method and the implications of the paper with this abstract, in 180 to 256 words of your own, about "
        "1.5 times as long as the section of author_0, with words that link your sentences. author_0 writes background "
        "and motivation.",
    )
    random_words = (128, 256)
    outlines = (_BACKGROUND, _METHOD)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """The fields of a row of the public data set."""
        serial = int(rng.integers(10**8))
        return {
            "article_id": f"{serial // 10**4:04d}.{serial % 10**4:04d}",
            "abstract_text": write_abstract(rng, split, self.seed),
        }
