"""What policies hand to collection and learners."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

Prompt: TypeAlias = str | Sequence[Mapping[str, str]]
"""Plain text, or a chat as a list of ``{"role": …, "content": …}``."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One sampled answer.

    ``token_ids`` are exactly the sampled tokens, with the closing EOS if there was one; ``finished`` is False when the
    token limit cut the answer. ``prompt_ids`` are the tokens the model was fed. Policies without local tokens (remote
    models, scripts) leave both tuples empty.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    finished: bool = True
    prompt_ids: tuple[int, ...] = ()


class Policy(Protocol):
    """Anything that answers prompts: a local model, a remote one, a scripted player."""

    def generate(self, prompts: Sequence[Prompt], n: int, rng: np.random.Generator) -> list[list[Generation]]:
        """``n`` answers for each prompt, in the order of the prompts. All randomness comes from ``rng``."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a policy draws tokens. ``top_k`` None and ``top_p`` 1.0 switch the cut off; ``temperature`` 0 is greedy."""

    max_new_tokens: int = 256
    temperature: float = 0.6
    top_p: float = 0.6
    top_k: int | None = 50
