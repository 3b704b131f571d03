"""What both sides of a measurement are told, and the inputs that follow from it."""

import dataclasses
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.models import MODELS, Model, text


@dataclass(frozen=True)
class Job:
    """One measurement. ``shapes``: the numbers that fix the work, named by each bench; ``folder``: saved agents."""

    bench: str
    model: str
    folder: str
    seed: int
    shapes: dict[str, int]
    case: str = ""
    short_warm_up: bool = False

    @property
    def about(self) -> Model:
        """The model of both sides."""
        return MODELS[self.model]

    def agent(self, index: int) -> str:
        """Folder with the weights and the tokenizer of one agent."""
        return str(Path(self.folder) / f"agent_{index}")

    def write(self, path: Path) -> Path:
        """Store for the worker processes."""
        path.write_text(json.dumps(dataclasses.asdict(self)))
        return path

    @classmethod
    def read(cls, path: str) -> "Job":
        """What ``write`` stored."""
        return cls(**json.loads(Path(path).read_text()))


@dataclass(frozen=True)
class PairTokens:
    """One agent's side of a pair, as token ids."""

    prompt: list[int]
    winner: list[int]
    loser: list[int]


@dataclass(frozen=True)
class GroupTokens:
    """One agent's answers to an item, as token ids, with the rewards of the joint responses."""

    prompt: list[int]
    completions: list[list[int]]
    rewards: list[float]


def items(job: Job, agents: int = 2) -> list[dict[str, str]]:
    """Rows of the dataset: one random prompt per agent."""
    rng = random.Random(job.seed)
    return [
        {f"prompt_{agent}": text(_tokens(job, rng, job.about.prompt_tokens)) for agent in range(agents)}
        for _ in range(job.shapes["items"])
    ]


def pairs(job: Job, agents: int = 2, *, closed: bool = False) -> list[list[PairTokens]]:
    """Pairs × agents, every sequence drawn anew, so that nothing can be shared between pairs.

    ``closed``: the last token of each completion is the last of the vocabulary, and no other one is.
    """
    rng = random.Random(job.seed + 1)

    def completion() -> list[int]:
        drawn = _tokens(job, rng, job.about.completion_tokens)
        last = job.about.vocabulary - 1
        return [*(token % last for token in drawn[:-1]), last] if closed else drawn

    return [
        [PairTokens(_tokens(job, rng, job.about.prompt_tokens), completion(), completion()) for _ in range(agents)]
        for _ in range(job.shapes["pairs"] * job.shapes["updates"])
    ]


def group_tokens(job: Job, update: int, agent: int) -> list[GroupTokens]:
    """An agent's groups in one update; the rewards are the same for all agents."""
    rng = random.Random(f"{job.seed}/{update}/{agent}")
    rewards = random.Random(f"{job.seed}/{update}")
    about, count = job.about, job.shapes["generations"]
    return [
        GroupTokens(
            _tokens(job, rng, about.prompt_tokens),
            [_tokens(job, rng, about.completion_tokens) for _ in range(count)],
            [rewards.random() for _ in range(count)],
        )
        for _ in range(job.shapes["groups"])
    ]


def batches(job: Job, rows: Sequence[Any]) -> list[list[Any]]:
    """``rows`` in the minibatches of one turn."""
    size = job.shapes["pairs"]
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def formatters(agents: int = 2) -> list[Callable[[dict[str, Any]], str]]:
    """Row → prompt, one function per agent."""

    def formatter(agent: int) -> Callable[[dict[str, Any]], str]:
        return lambda row: str(row[f"prompt_{agent}"])

    return [formatter(agent) for agent in range(agents)]


def reward(*completions: list[str]) -> list[float]:
    """A number in [0, 1) for each joint response that costs nothing to compute and hardly ever ties."""
    return [zlib.crc32("|".join(joint).encode()) / 2**32 for joint in zip(*completions, strict=True)]


def _tokens(job: Job, rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(job.about.vocabulary) for _ in range(count)]
