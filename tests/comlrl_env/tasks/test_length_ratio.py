import itertools
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from comlrl_env import TaskError
from comlrl_env.figures import measure
from comlrl_env.tasks.stories import length_ratio, subjects
from comlrl_env.tasks.stories.grammar import LONGEST, write_story
from comlrl_env.tasks.stories.length_ratio import LengthRatio, visible_length
from comlrl_env.tasks.stories.subjects import describe, draw_subject, subject_class, with_article

PAGE = " ".join(length_ratio.__doc__.split())


def score(short, long, level=0):
    task = LengthRatio(level=level)
    return task.score(task.items("train")[0], (), {"author_0": short, "author_1": long})


def test_the_page_shows_the_first_item():
    task = LengthRatio()
    item = task.items("train")[0]
    for prompt in task.prompts(item, ()).values():
        assert " ".join(prompt.split()) in PAGE
    short, long = "The goat built a lantern.", "The goat built a lantern in the garden. The moon came out."
    assert (len(short), len(long)) == (25, 58)
    assert short in PAGE
    assert long in PAGE
    assert score(short, long).parts["ratio"] == pytest.approx(2.32)


@pytest.mark.parametrize(
    ("lengths", "reward"),
    [
        ((10, 20), 1.0),
        ((10, 25), 1.0),
        ((10, 30), 1.0),
        ((10, 19), math.exp(-0.1)),
        ((10, 31), math.exp(-0.1)),
        ((10, 10), math.exp(-1)),
        ((10, 1), math.exp(-1.9)),
        ((1, 100), math.exp(-97)),
        ((0, 10), 0.0),
        ((10, 0), 0.0),
        ((0, 0), 0.0),
    ],
)
def test_rewards_by_hand(lengths, reward):
    got = score("x" * lengths[0], "y" * lengths[1])
    assert got.reward == pytest.approx(reward)
    assert got.is_success == (reward == 1)


def test_windows_of_the_levels():
    assert score("x" * 10, "y" * 25, level=1).reward == 1
    assert score("x" * 10, "y" * 26, level=1).reward == pytest.approx(math.exp(-0.1))
    items = LengthRatio(level=2).items("train")[:200]
    assert {item.data["low"] for item in items} == {1.5, 2.0, 2.5, 3.0, 3.5, 4.0}
    task = LengthRatio(level=2)
    for item in items[:10]:
        low, high = item.data["low"], item.data["high"]
        assert high == low + 0.5
        assert all(f"{low:g} to {high:g} times as long" in prompt for prompt in task.prompts(item, ()).values())
        just_right = {"author_0": "x" * 100, "author_1": "y" * int(100 * low)}
        assert task.score(item, (), just_right).reward == 1


def test_blanks_at_the_ends_and_invisible_texts():
    assert visible_length("  ab c\n") == 4
    assert [visible_length(text) for text in ("", " \n\u3000", "\x00\x07", "\u200b\u200b")] == [0, 0, 0, 0]
    assert visible_length("🙂") == 1
    assert score("x" * 10, " " * 90).reward == 0
    assert score("x" * 10 + " " * 50, "y" * 25).reward == 1
    assert score("", "long").reason == "author_0 wrote nothing"
    assert score("", " ").reason == "author_0 and author_1 wrote nothing"
    assert score("x" * 10, "y" * 50).reason == "the ratio 5.00 is outside [2, 3]"


def test_huge_answers_are_fast_and_finite():
    got = score("x" * 1_000_000, "\x00" * 1_000_000)
    assert got.reward == 0
    assert score("x", "y" * 1_000_000).reward == pytest.approx(0)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_gold_solo_and_random_figures(level):
    task = LengthRatio(level=level, num_items=100)
    stated = re.search(r"random ([\d. ]+) stories", PAGE)[1].split()[level]
    for split in ("train", "eval"):
        figures = measure(task, split, num_items=100, draws=8)
        assert (figures["gold"], figures["solo"]) == (1, 0)
        assert figures["random"] == pytest.approx(float(stated), abs=0.04)
    if level == 0:
        assert LengthRatio.figures["random"] == float(stated)


def test_gold_is_the_same_each_time():
    task = LengthRatio()
    item = task.items("eval")[5]
    assert task.gold(item) == task.gold(item)
    assert task.gold(item) != task.gold(task.items("eval")[6])


def test_samples_vary_in_length_whatever_the_role():
    task = LengthRatio()
    rng = np.random.default_rng(0)
    samples = [task.sample_answers(item, rng) for item in task.items("train")[:500]]
    lengths = np.array([[len(sample[agent]) for agent in task.agents] for sample in samples])
    assert lengths.min() >= 18
    assert lengths.max() <= LONGEST
    assert (lengths < 40).mean() > 0.1
    assert (lengths > 250).mean() > 0.1
    means = np.log(lengths).mean(axis=0)
    assert abs(means[0] - means[1]) < 0.15
    assert abs(np.corrcoef(lengths.T)[0, 1]) < 0.15


def test_stories_read_well():
    rng = np.random.default_rng(1)
    for _ in range(300):
        subject = draw_subject(rng, "train", 0)
        story = write_story(subject, rng, int(rng.integers(20, 400)))
        assert subject["character"] in story
        assert subject["thing"] in story
        assert re.fullmatch(r"[A-Za-z ,.?'\"]+", story), story
        assert story[0].isupper() or story[0] == '"'
        assert story[-1] in '."'
        assert "  " not in story
        assert not re.search(r"\ba [aeiou]|\ban (?!hour)[^aeiou]", story, re.IGNORECASE), story
        sentences = re.split(r"(?<=[.])\s", story)
        assert len(set(sentences)) == len(sentences)


def test_story_length_is_what_was_asked():
    rng = np.random.default_rng(2)
    for length in range(20, 400, 3):
        story = write_story(draw_subject(rng, "eval", 0), rng, length)
        assert -40 < len(story) - length < 40


def test_articles():
    assert with_article("old owl") == "an old owl"
    assert with_article("fox") == "a fox"


def test_train_and_eval_and_neighbouring_seeds_never_share_a_subject():
    """By construction: every split and parity of the seed has classes of its own."""
    rng = np.random.default_rng(0)
    classes = {
        (split, seed): {subject_class(draw_subject(rng, split, seed)) for _ in range(300)}
        for split in ("train", "eval")
        for seed in (0, 1)
    }
    assert classes == {("train", 0): {0, 1, 2}, ("train", 1): {3, 4, 5}, ("eval", 0): {6}, ("eval", 1): {7}}
    assert len(subjects.THINGS) % subjects.CLASSES == 0
    seen = [
        {describe(item.data["subject"]) for item in LengthRatio(seed=seed, num_items=300).items(split)}
        for seed in (0, 1)
        for split in ("train", "eval")
    ]
    for one, two in itertools.combinations(seen, 2):
        assert not one & two
    assert all(len(contents) > 250 for contents in seen)


def test_every_word_is_used_in_both_splits():
    for split in ("train", "eval"):
        drawn = [item.data["subject"] for item in LengthRatio(num_items=2000).items(split)]
        for name, words in [("adjective", subjects.ADJECTIVES), ("thing", subjects.THINGS), ("place", subjects.PLACES)]:
            assert {subject[name] for subject in drawn} == set(words)


def test_word_lists():
    lists = (subjects.ADJECTIVES, subjects.CHARACTERS, subjects.DEEDS, subjects.THINGS, subjects.PLACES)
    assert [len(words) for words in lists] == [24, 32, 12, 24, 24]
    assert all(len(set(words)) == len(words) for words in lists)
    assert math.prod(len(words) for words in lists) == subjects.NUM_SUBJECTS == 5_308_416


def test_prompts_are_short_and_name_role_and_subject():
    task = LengthRatio()
    for item in task.items("train")[:20]:
        prompts = task.prompts(item, ())
        for agent in task.agents:
            assert len(prompts[agent].split()) <= 45
            assert prompts[agent].startswith(f"You are {agent}.")
            assert describe(item.data["subject"]) in prompts[agent]
            assert task.messages(item, ())[agent][0]["content"] == prompts[agent].removesuffix("\nStory:")
        assert "short story" in prompts["author_0"]
        assert "long story" in prompts["author_1"]


def test_items_are_the_same_in_every_process():
    code = (
        "from comlrl_env.tasks.stories.length_ratio import LengthRatio\n"
        "print([LengthRatio(seed=9).items(s)[i].data for s in ('train', 'eval') for i in (0, 47)])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        )
        for seed in ("0", "1")
    ]
    here = [LengthRatio(seed=9).items(s)[i].data for s in ("train", "eval") for i in (0, 47)]
    assert runs[0].stdout == runs[1].stdout == f"{here}\n"


def test_known_items():
    """A change of this breaks every saved run: raise the task's version then."""
    item = LengthRatio().items("train")[0]
    assert item.key == "train/0/0/0"
    assert describe(item.data["subject"]) == "a patient goat builds a lantern in the garden"


@pytest.mark.parametrize("arguments", [{"level": 3}, {"seed": 1.5}, {"num_items": -2}, {"num_items": {"dev": 3}}])
def test_illegal_arguments(arguments):
    with pytest.raises(TaskError, match=f"{next(iter(arguments))}: expected"):
        LengthRatio(**arguments)
