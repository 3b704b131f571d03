"""``comlrl/TLDR-v0``: a short and a longer summary of one post.

Purpose: two summaries that fit each other: the second about twice as long, with twice as many different words and
with links between its sentences. The published reward never reads the post; the strict one does.

Roles: ``author_0`` writes a short summary, ``author_1`` a longer one. Both read the post. One simultaneous response.

Example (the first training item of seed 0; the post has 150 words)::

    author_0 is told   You are author_0. Summarise this post in one or two sentences of your own; author_1 writes a
                       summary about twice as long.
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
    author_1 is told   You are author_1. Summarise this post in several sentences of your own, about twice as long as
                       the summary of author_0, with more different words and with words that link your sentences.
                       the same post
    author_0 answers   It is about yorvenur, valyoryn and brenmakel: winter and library want to know what I should do
                       now.
    author_1 answers   First there was yesterday, but also yorvenur; because of brenmakel, and as a result hallway, I
                       am, in short, with mirror. Indeed, if aunt is, for example, solhalon, then similarly reunion,
                       although, in other words, it is only library.
    score              1.0: 18 and 39 words, ρ = 2.36, 17 and 37 distinct words

Reward. With ρ = characters of the second / of the first, u = distinct words of the second / of the first, J = common
words / all words without stop words, c = kinds of transition words (of twelve) in the second::

    S = .5 [both have 8 to 256 words, else stop]
      + r  [1 on ρ in [1.6, 3.2], linear to 0 at 1.1 and at 5, else stop]
      + .5 d  [d: 1 from u = 2, linear to 0 at 1.3, below that stop]
      + .4 T + .6 min(J, .03)/.03

``reward="reference"``: S with T = 0 if c = 0, else min(1, .4 + min(.05 (c − 1), .6)), and a transition word counts
anywhere in the letters; in [0, 2.98]. The word lists behind the twelve kinds, and the list of stop words, are our own.
``reward="strict"`` (default, in [0, 1]): S/3 · min(G_0, G_1), with T = min(1, c/3), whole words, and lengths without
repeated blanks. G_i is the product of four factors of text i (see :mod:`comlrl_env.tasks.texts.grounding`): *cover*
(keywords of the post, 4 and 7 wanted), *loyal* (half of its content words stand in the post), *own* (no copied runs of
six words, from the post or from the other summary) and *varied* (no repetition).

What strict can tell: a text about another post, nonsense, a copy of the post, one text twice, repetition. What it
cannot: a list of the right words from a summary, or a false sentence from a true one; that needs a judge model.

Levels: 0 as above; 1 a quarter more keywords are wanted.

Figures (``python -m comlrl_env.figures comlrl/TLDR-v0 reward=…``)::

    reward      gold   solo   random  one good answer for every post; copies of the post; a salad of its words
    strict      1.00   0.00   0.00     .02; 0.00;  .27
    reference   2.98   0.00   1.09    2.98; 2.68; 2.30

Gold is an outline filled with the post's keywords. Solo: author_0 writes its summary, author_1 nothing. Random: 8 to
64 words each, stop words and words of another post. A salad: 18 and 42 random words, stop words and words of the post.

Data: posts from templates and made-up names, written for this project, Apache-2.0; train and eval, and neighbouring
seeds, share no name. About 7 000 items a second: an item is a text of a thousand characters. ``data=…`` reads
``trl-lib/tldr`` (Reddit posts, field ``prompt``, no stated licence; training: its split ``train``, evaluation: the
first 1100 rows of ``test``).

Versions: v0 first version.
"""

import math
from typing import Any, ClassVar

import numpy as np

from comlrl_env.rows import PublicData
from comlrl_env.tasks.texts.levels import Band, Levels
from comlrl_env.tasks.texts.pair_task import PairTask
from comlrl_env.tasks.texts.sources import write_post


class TLDR(PairTask):
    """Two summaries of one post; see the page above and :class:`PairTask` for the arguments."""

    source = PublicData("trl-lib/tldr", ("prompt",), {"train": "train", "eval": "test"}, 1100)
    source_field = "prompt"
    cues = ("Summary:",)
    wanted = (4, 7)
    loyal_share = 0.5
    structure_levels = Levels(
        words=(8, 256),
        ratio=Band((1.1, 5.0), (1.6, 3.2)),
        distinct=Band((1.3, math.inf), (2.0, math.inf)),
        jaccard_cap=0.03,
    )
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.0, "random": 0.0},
        "reference": {"gold": 2.98, "solo": 0.0, "random": 1.09},
    }
    asked = (
        "Summarise this post in one or two sentences of your own; author_1 writes a summary about twice as long.",
        "Summarise this post in several sentences of your own, about twice as long as the summary of author_0, with "
        "more different words and with words that link your sentences.",
    )
    random_words = (8, 64)
    outlines = (
        "It is about {}, {} and {}: {} and {} want to know what I should do now.",
        "First there was {}, but also {}; because of {}, and as a result {}, I am, in short, with {}. Indeed, if {} "
        "is, for example, {}, then similarly {}, although, in other words, it is only {}.",
    )

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """The fields of a row of the public data set."""
        return {"prompt": write_post(rng, split, self.seed)}
