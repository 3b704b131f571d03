"""Plain values cross unchanged, and nothing else crosses."""

import math
import random

import pytest

from comlrl_env.sandbox import (
    NotPlainError,
    values,
)


def random_plain(rng: random.Random, depth: int) -> object:
    scalars = [
        None,
        True,
        False,
        0,
        -7,
        10**40,
        -(2**63),
        2**63,
        0.5,
        -0.0,
        math.inf,
        1e300,
        "",
        "é\ud800",
        b"\x00\xff",
        2 - 3j,
    ]
    if depth == 0:
        return rng.choice(scalars)
    members = [random_plain(rng, depth - 1) for _ in range(rng.randrange(4))]
    hashable = [rng.choice(scalars) for _ in range(rng.randrange(4))]
    return rng.choice(
        [members, tuple(members), set(hashable), frozenset(hashable), dict(zip(hashable, members, strict=False))]
    )


def test_plain_values_cross_unchanged() -> None:
    rng = random.Random(0)
    for _ in range(500):
        value = random_plain(rng, 3)
        frames = values.Frames(1 << 20)
        (message,) = [m for byte in values.pack(values.encode(value)) for m in frames.feed(bytes([byte]))]
        back = values.decode(message)
        assert back == value
        assert repr(back) == repr(value) or isinstance(value, set | frozenset) or "{" in repr(value)


def test_malformed_values_are_refused() -> None:
    for data in (
        {},
        {"x": 1},
        {"t": 5},
        {"t": 1, "s": 2},
        {"s": [[1]]},
        {"d": [[1]]},
        {"i": "zz"},
        {"c": ["a", 1]},
        {"b": "q"},
    ):
        with pytest.raises(NotPlainError):
            values.decode(data)
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    for bad in (deep, lambda: 0, range(3), object()):
        with pytest.raises(NotPlainError):
            values.encode(bad)
    for broken in (
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01{",
        values.pack([])[:4].replace(b"\x02", b"\x64") + b"[" * 100,
    ):
        frames = values.Frames(1 << 10)
        assert frames.feed(values.pack([7]) + broken + values.pack([8])) == [[7]]
        assert frames.broken
    frames = values.Frames(1 << 30)
    assert frames.feed(values.HEADER.pack(200_000) + b"[" * 200_000) == []
    assert "JSON" in frames.broken
