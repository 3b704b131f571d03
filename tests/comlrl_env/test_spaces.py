import copy
import json
import pickle
import time

import numpy as np
import pytest
from gymnasium.spaces import Dict
from gymnasium.vector.utils import batch_space

from comlrl_env import ComlrlError, UnicodeText


@pytest.mark.parametrize("text", ["", " ", "plain", "é漢字🙂\x00\n", "a" * 1_000_000, np.str_("numpy")])
def test_contains_texts(text):
    assert UnicodeText().contains(text)
    assert text in UnicodeText()


@pytest.mark.parametrize("thing", [None, 1, b"bytes", ["a"], "\ud800", "ok \udfff", "a" * 1_000_001])
def test_contains_nothing_else(thing):
    assert not UnicodeText().contains(thing)


def test_bounds_are_inclusive():
    space = UnicodeText(max_length=3, min_length=2)
    assert [space.contains("x" * n) for n in range(5)] == [False, False, True, True, False]


def test_samples_are_members_and_follow_the_seed():
    for space in (UnicodeText(), UnicodeText(5), UnicodeText(120, 100), UnicodeText(0)):
        space.seed(3)
        first = [space.sample() for _ in range(50)]
        assert all(space.contains(text) for text in first)
        space.seed(3)
        assert [space.sample() for _ in range(50)] == first
    assert UnicodeText(seed=1).sample() == UnicodeText(seed=1).sample()
    lengths = {len(UnicodeText(7, 4, seed=n).sample()) for n in range(60)}
    assert lengths == {4, 5, 6, 7}


def test_a_mask_is_refused():
    with pytest.raises(ValueError, match="expected mask=None"):
        UnicodeText().sample(mask=np.ones(3))


def test_equality_and_repr():
    assert UnicodeText() == UnicodeText(seed=4)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != UnicodeText(5, 1)
    assert UnicodeText(5) != "UnicodeText"
    assert repr(UnicodeText(5, 1)) == "UnicodeText(max_length=5, min_length=1)"


def test_json_and_copies():
    space = UnicodeText(9, seed=0)
    texts = [space.sample() for _ in range(5)]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(texts)))) == texts
    expected = copy.deepcopy(space).sample()
    assert pickle.loads(pickle.dumps(space)).sample() == expected
    assert len(pickle.dumps(UnicodeText())) < 2000


def test_is_cheap_where_gymnasiums_text_takes_seconds():
    start = time.perf_counter()
    for _ in range(100):
        UnicodeText().contains("x" * 10_000)
    assert time.perf_counter() - start < 1


def test_fits_into_composite_and_batched_spaces():
    space = Dict({"story": UnicodeText()}, seed=0)
    assert space.contains(space.sample())
    assert not UnicodeText().is_np_flattenable
    batched = batch_space(UnicodeText(5), 3)
    assert batched.contains(("a", "b", "é"))


@pytest.mark.parametrize(("arguments", "name"), [((-1,), "max_length"), ((3, 4), "min_length"), (("x",), "max_length")])
def test_illegal_bounds(arguments, name):
    with pytest.raises(ComlrlError, match=f"UnicodeText {name}: expected an integer"):
        UnicodeText(*arguments)
