"""The reference rewards of two texts by hand arithmetic, and what the strict ones make of texts that read nothing."""

import itertools

import numpy as np
import pytest

from comlrl_env import registry
from comlrl_env.tasks.texts.arxiv_expansion import ArxivExpansion
from comlrl_env.tasks.texts.grounding import Wanted, copied_share, grounding
from comlrl_env.tasks.texts.pair_task import FIRST, SECOND
from comlrl_env.tasks.texts.sources import name_class, write_abstract, write_post
from comlrl_env.tasks.texts.tldr import TLDR
from comlrl_env.tasks.texts.tldr_ratio import TARGET, TLDRRatio, filled_up
from comlrl_env.tasks.texts.words import keywords, transitions

TASKS = (TLDR, ArxivExpansion, TLDRRatio)
LETTERS = [a + b for a, b in itertools.product("qxzwkv", repeat=2)]
DISTINCT = ["".join(pair) for pair in itertools.product(LETTERS, repeat=2)]
TWELVE = "also but because therefore namely first indeed likewise if despite overall rather"


def text(count, start=0, ends=()):
    """``count`` distinct words of four letters without a vowel (5·count − 1 characters), then the words ``ends``."""
    return " ".join([*DISTINCT[start : start + count], *ends])


def reward(task, one, two):
    return task.score(task.items("train")[0], (), {FIRST: one, SECOND: two})


A = text(10)  # 49 characters
SHARED = A.split()
TLDR_CASES = [
    (A, "", 0),
    ("", A, 0),
    (A, text(7, 100), 0),
    (text(257), text(20), 0),
    (A, text(257, 100), 0),
    (A, text(10, 100), 0.5),  # ρ = 1
    (A, text(50, 100), 0.5),  # ρ = 249/49 > 5
    (text(20), A, 0.5),
    (A, text(20, 100), 0.5 + 1 + 0.5),  # ρ = 99/49, u = 2
    (A, text(30, 100), 0.5 + 1 + 0.5),  # ρ = 149/49 = 3.04
    (A, text(16, 100), 0.5 + 1 + 0.5 * 0.3 / 0.7),  # ρ = 79/49 = 1.61, u = 1.6
    (A, text(18, 100), 0.5 + 1 + 0.5 * 0.5 / 0.7),
    (A, text(14, 100), 0.5 + (69 / 49 - 1.1) / 0.5 + 0.5 * 0.1 / 0.7),
    (A, text(12, 100), 0.5 + (59 / 49 - 1.1) / 0.5),  # u = 1.2: stop
    (A, text(40, 100), 0.5 + 1 - (199 / 49 - 3.2) / 1.8 + 0.5),
    (A, text(40, 100, ["Also"]), 0.5 + 1 - (204 / 49 - 3.2) / 1.8 + 0.5 + 0.4 * 0.4),
    (A, text(19, 100, ["however"]), 2 + 0.4 * 0.4),
    (A, text(18, 100, ["however", "also"]), 2 + 0.4 * 0.45),
    (A, text(18, 100, ["however", "but"]), 2 + 0.4 * 0.4),  # one kind
    (A, text(19, 100, ["butter"]), 2 + 0.4 * 0.4),  # in the letters
    (A, text(17, 100, ["first", "indeed", "likewise"]), 2 + 0.4 * 0.5),
    (A, text(12, 100, TWELVE.split()), 2 + 0.4 * 0.95),
    (A, text(19, 100, SHARED[:1]), 2 + 0.6),  # J = 1/29
    (A, text(39, 100, SHARED[:1]), 2 - (199 / 49 - 3.2) / 1.8 + 0.6 * (1 / 49) / 0.03),
    (A, text(11, 100, [*TWELVE.split(), SHARED[0]]), 2.98),
    (A, A + " " + text(10, 100), 2 + 0.6),  # a copy scores well
]
B = text(128)  # 639 characters
ARXIV_CASES = [
    (B, "", 0),
    (A, B, 0),
    (text(127), B, 0),
    (B, text(257, 200), 0),
    (text(256), text(128, 300), 0.5),  # ρ = 639/1279 < .8
    (B, text(256, 300) + "q" * 100, 0.5),  # ρ = 1379/639 > 2
    (B, text(128, 200), 0.5 + (1 - 0.8) / 0.5 + 0.5),
    (B, text(160, 200), 0.5 + (799 / 639 - 0.8) / 0.5 + 0.5),
    (B, text(166, 200) + "q" * 20, 0.5 + 1 + 0.5),  # ρ = 849/639 = 1.33, u = 1.297
    (B, text(192, 200), 0.5 + 1 + 0.5 * (1.7 - 1.5) / 0.4),  # ρ = 959/639 = 1.5007
    (B, text(200, 200), 0.5 + 1 + 0.5 * (1.7 - 200 / 128) / 0.4),
    (B, text(224, 200), 0.5 + 1 - (1119 / 639 - 1.6) / 0.4),  # u = 1.75: stop
    (B, text(240, 200), 0.5 + 1 - (1199 / 639 - 1.6) / 0.4),
    (B, text(208, 200), 0.5 + 1 - (1039 / 639 - 1.6) / 0.4 + 0.5 * (1.7 - 1.625) / 0.4),
    (B, text(128, 200) + " also" * 35, 0.5 + (814 / 639 - 0.8) / 0.5 + 0.5 + 0.4 * 0.4),
    (B, text(32, 200) + " vvvv" * 128, 0.5 + (799 / 639 - 0.8) / 0.5),  # u = 33/128: stop
    (B, text(64, 200) + " vvvv" * 128, 0.5 + 1 + 0.5 * (65 / 128 - 0.5) / 0.2),
    (B, text(77, 200) + " vvvv" * 115, 0.5 + 1 + 0.5 * (78 / 128 - 0.5) / 0.2),
    (B, text(180, 200, TWELVE.split()), 0.5 + 1 + 0.25 + 0.4 * 0.95),  # ρ = 981/639, u = 192/128
    (B, B, 0.5 + 0.4 + 0.5 + 0.6),  # identical texts
    (B, text(128, 64), 0.5 + 0.4 + 0.5 + 0.6),  # J = 64/192 > .23
    (B, text(128, 112), 0.5 + 0.4 + 0.5 + 0.6 * (16 / 240) / 0.23),
    (B, text(128, 127), 0.5 + 0.4 + 0.5 + 0.6 * (1 / 255) / 0.23),
    (B, text(166, 100) + "q" * 20, 0.5 + 1 + 0.5 + 0.6 * (28 / 266) / 0.23),
]


RATIO_CASES = [
    ((220, 440), (1 + 1) / 2),
    ((220, 550), 1),
    ((220, 660), 1),
    ((110, 220), (1 + 0) / 2),
    ((330, 660), (1 + 0) / 2),
    ((165, 330), (1 + 0.5) / 2),
    ((275, 550), (1 + 0.5) / 2),
    ((209, 418), (1 + 0.9) / 2),
    ((220, 330), (0.5 + 1) / 2),  # ρ = 1.5
    ((220, 220), (0 + 1) / 2),
    ((220, 110), (-0.5 + 1) / 2),
    ((220, 770), (0.5 + 1) / 2),
    ((220, 880), (0 + 1) / 2),
    ((220, 1100), (-1 + 1) / 2),
    ((220, 4000), (-1 + 1) / 2),
    ((440, 1000), (1 - 1) / 2),
    ((1000, 2500), (1 - 1) / 2),  # the floor of −1
    ((1000, 10), (-0.99 - 1) / 2),
    ((10, 1000), (-1 + (1 - 210 / 110)) / 2),
    ((55, 110), (1 - 0.5) / 2),
    ((0, 500), -1),
    ((220, 0), -1),
    ((0, 0), -1),
]


@pytest.mark.parametrize(("one", "two", "expected"), TLDR_CASES)
def test_published_tldr_reward_by_hand(one, two, expected):
    assert reward(TLDR("reference"), one, two).reward == pytest.approx(expected)


@pytest.mark.parametrize(("one", "two", "expected"), [case for case in ARXIV_CASES if case[2] is not None])
def test_published_arxiv_reward_by_hand(one, two, expected):
    assert reward(ArxivExpansion("reference"), one, two).reward == pytest.approx(expected)


@pytest.mark.parametrize(("lengths", "expected"), RATIO_CASES)
def test_published_ratio_reward_by_hand(lengths, expected):
    one, two = ("x" * length for length in lengths)
    assert reward(TLDRRatio("reference"), f"  {one}", f"{two}\n").reward == pytest.approx(expected)


def test_there_are_twenty_cases_for_each():
    assert min(map(len, (TLDR_CASES, ARXIV_CASES, RATIO_CASES))) >= 20


def test_strict_tldr_by_hand():
    task = TLDR()
    item = task.items("train")[0]
    keys = keywords(item.data["prompt"])
    assert len(keys) == 12

    def strict(one, two):
        return task.score(item, (), {FIRST: one, SECOND: two})

    # 10 and 20 words, all from the post or short: S = .5 + 1 + .5 + .6 of 3, without links.
    short = " ".join(["to", "be", "or", "no", "it", "is", *keys[:4]])
    long = " ".join(
        ["as", "at", "by", "do", "go", "he", "in", "me", "my", "of", "on", "so", *keys[4:], "up", "we", "us"]
    )
    score = strict(short, long)
    ratio, distinct = len(long) / len(short), 23 / 10
    assert 1.6 <= ratio <= 3.2
    assert distinct >= 2
    assert score.reward == pytest.approx((0.5 + 1 + 0.5) / 3)  # J = 0
    score = strict(short, f"{long} {keys[0]}")
    assert score.reward == pytest.approx((0.5 + 1 + 0.5 + 0.6) / 3)  # J = 1/12
    # Three of the four keywords: 3/4; a link more: .4/3 of T.
    fewer = short.replace(keys[0], "a")
    assert strict(fewer, f"{long} {keys[1]} first").reward == pytest.approx(0.75 * (0.5 + 1 + 0.5 + 0.6 + 0.4 / 3) / 3)
    # Blanks count once.
    assert strict(short, long.replace(" ", "   ")).reward == strict(short, long).reward


def test_grounding_by_hand():
    source = "The lantern of Corvalen fell into the river near Dorfen."
    wanted = Wanted(2, 0.5)
    assert keywords(source) == ("corvalen", "lantern", "dorfen", "river", "fell", "near")
    assert grounding("", source, wanted) == {"cover": 0, "loyal": 0, "own": 0, "varied": 0}
    good = grounding("A lantern was lost by Corvalen.", source, wanted)
    assert good == {"cover": 1, "loyal": 1, "own": 1, "varied": 1}
    other = grounding("A goat found some bread and Dorfen.", source, wanted)
    assert other["cover"] == 1 / 2
    assert other["loyal"] == pytest.approx((1 / 4) / 0.5)  # goat, found, bread, dorfen
    assert grounding("the lantern of Corvalen fell into the river", source, wanted)["own"] == 0
    assert grounding("lantern " * 10, source, wanted)["varied"] == pytest.approx(0.1 / 0.4)
    assert grounding(source, "", wanted)["cover"] == 1  # a source without words asks for nothing


def test_copied_runs():
    words = list("abcdefgh")
    assert copied_share(words, [words]) == 1
    assert copied_share(words[:5], [words]) == 1  # one short run
    assert copied_share(["x", *words[:6], "y"], [words]) == 6 / 8
    assert copied_share(["a", "c", "e", "g", "b", "d"], [words]) == 0


def test_transitions_are_whole_words_in_strict():
    assert transitions("Butter on the modified whiff.") == 0
    assert transitions("Butter on the modified whiff.", whole_words=False) == 2  # but, if
    assert transitions("In   fact, but also IF") == 4
    assert transitions(TWELVE) == 12


@pytest.mark.parametrize("task_class", TASKS)
@pytest.mark.parametrize("chosen", ["strict", "reference"])
def test_gold_reaches_the_maximum_on_two_hundred_items(task_class, chosen):
    for level, count in ((0, 100), (1, 10)):
        task = task_class(chosen, level=level, num_items=count)
        scores = [task.score(item, (), task.gold(item)) for split in ("train", "eval") for item in task.items(split)]
        maximum = task_class.reward_figures[chosen]["gold"]
        assert {round(score.reward, 9) for score in scores} == {maximum}
        assert all(score.is_success for score in scores)


@pytest.mark.parametrize("task_class", TASKS)
def test_texts_that_read_nothing_or_only_copy(task_class):
    """The published reward pays them in full, the strict one does not; figures as in the pages."""
    strict, reference = task_class(), task_class("reference")
    items = strict.items("train")
    answer = strict.gold(task_class(seed=77).items("eval")[0])
    best = reference.figures["gold"]
    assert all(reference.score(item, (), answer).reward == pytest.approx(best) for item in items)
    assert sum(strict.score(item, (), answer).reward for item in items) / len(items) < 0.2
    for item in items[:20]:
        source = item.data[strict.source_field].split("POST:")[-1].split()
        sizes = {TLDR: (20, 50), ArxivExpansion: (130, 195), TLDRRatio: (40, 100)}[task_class]
        copies = [" ".join((source * 3)[:size]) for size in sizes]
        assert reward_of(strict, item, copies) == 0
        assert reward_of(reference, item, copies) > 0.8 * best
        same = [strict.gold(item)[FIRST]] * 2
        assert reward_of(strict, item, same) == 0


def reward_of(task, item, texts):
    return task.score(item, (), dict(zip(task.agents, texts, strict=True))).reward


def test_names_belong_to_splits_and_seeds():
    for write in (write_post, write_abstract):
        classes = {}
        for split, seed in itertools.product(("train", "eval"), (0, 1)):
            rng = np.random.default_rng(3)
            texts = [write(rng, split, seed) for _ in range(100)]
            names = {word.strip(".,") for t in texts for word in t.split()}
            classes[split, seed] = {name_class(name) for name in names if is_name(name)}
        assert classes == {("train", 0): {0, 1, 2}, ("train", 1): {3, 4, 5}, ("eval", 0): {6}, ("eval", 1): {7}}


def is_name(word):
    try:
        name_class(word)
    except StopIteration:
        return False
    return word[:1].isupper() and word not in ("March",)


def test_filling_up_is_exact():
    for length in range(60, 240):
        assert len(filled_up("It is about one thing, and what I should do.", length)) == length
    assert TARGET == 220


@pytest.mark.parametrize("name", ["TLDR", "ArxivExpansion", "TLDRRatio"])
def test_rows_of_the_public_data(name, tmp_path):
    rows = [
        {"prompt": f"POST: the lantern number {i} of Corvalen", "article_id": f"{i}", "abstract_text": "On graphs."}
        for i in range(8)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(str(row).replace("'", '"') for row in rows))
    task = registry.load_task(f"comlrl/{name}-v0", data=str(file))
    assert [len(task.items(split)) for split in ("train", "eval")] == [6, 2]
    item = task.items("train")[0]
    assert task.source_field in item.data
    assert item.data[task.source_field] in task.prompts(item, ())[FIRST]
    assert task.score(item, (), task.gold(item)).status == "ok"
