"""The space of texts: any Unicode string within bounds, the empty one included."""

from typing import Any

import numpy as np
from gymnasium.spaces import Space

from comlrl_env.items import check_count

# Samples mix scripts, blanks and punctuation, because that is what a model may write and what code must bear.
_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,;:!?'\"-()\n\t éßñœøλжדع中文日本한🙂🚀"
_SAMPLE_SPAN = 80


class UnicodeText(Space[str]):
    """All strings of ``min_length`` to ``max_length`` characters that can be encoded (no lone surrogates).

    ``gymnasium.spaces.Text`` needs a list of the allowed characters, and for all of Unicode that list costs
    seconds and megabytes; this space keeps two numbers. Samples are short (at most 80 characters above
    ``min_length``).
    """

    def __init__(
        self,
        max_length: int = 1_000_000,
        min_length: int = 0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        self.max_length = check_count("UnicodeText max_length", max_length, 0)
        self.min_length = check_count("UnicodeText min_length", min_length, 0, self.max_length)
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: a text has no fixed array form."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw a random text from ``self.np_random``; masks and probabilities have no meaning here."""
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText.sample: expected mask=None and probability=None, a text space has neither")
        high = min(self.max_length, self.min_length + _SAMPLE_SPAN)
        length = int(self.np_random.integers(self.min_length, high + 1))
        return "".join(_ALPHABET[i] for i in self.np_random.integers(len(_ALPHABET), size=length))

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a str within the bounds and without lone surrogates."""
        if not isinstance(x, str) or not self.min_length <= len(x) <= self.max_length:
            return False
        try:
            x.encode()
        except UnicodeEncodeError:
            return False
        return True

    def to_jsonable(self, sample_n: Any) -> list[str]:
        """Return the samples as they are: strings are JSON."""
        return list(sample_n)

    def from_jsonable(self, sample_n: list[Any]) -> list[str]:
        """Return the samples as they are."""
        return list(sample_n)

    def __repr__(self) -> str:
        return f"UnicodeText(max_length={self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object) -> bool:
        bounds = (self.min_length, self.max_length)
        return isinstance(other, UnicodeText) and bounds == (other.min_length, other.max_length)

    __hash__ = None  # type: ignore[assignment]  # spaces are mutable (their seed), as in gymnasium
