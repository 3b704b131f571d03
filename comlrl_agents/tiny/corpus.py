"""What the embedded model reads: prose that every Python ships, and random valid answers to the tasks' prompts.

Nothing here is a good answer on purpose: a task's ``sample_answers`` draws them whatever the role and the partners do,
so that the form is learned and coordination is not. A new task is one line in ``SOURCES``. The prose differs a little
between versions of Python; the shipped model was made with 3.11.
"""

import pydoc_data.topics
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from comlrl_agents.tiny.functions import write_function, write_parts
from comlrl_env.tasks.code.team_task import AUTHOR, HELPER, TeamTask
from comlrl_env.tasks.partition.partition import Partition
from comlrl_env.tasks.stories.grammar import LONGEST, write_story
from comlrl_env.tasks.stories.length_ratio import LengthRatio
from comlrl_env.types import Item


class Document(NamedTuple):
    """One training text: what a policy is told (may be empty) and what it answers."""

    prompt: str
    answer: str


Draw = Callable[[np.random.Generator], list[Document]]


def topics(rng: np.random.Generator) -> list[Document]:
    """One to three neighbouring paragraphs of Python's documentation."""
    first = rng.integers(len(paragraphs()))
    return [Document("", "\n".join(paragraphs()[first : first + rng.integers(1, 4)]))]


@cache
def paragraphs() -> tuple[str, ...]:
    """The paragraphs of ``pydoc_data.topics`` that read as prose, lines joined: 276 000 characters in Python 3.11."""
    found = []
    for name in sorted(pydoc_data.topics.topics):
        for block in re.split(r"\n\s*\n", pydoc_data.topics.topics[name]):
            text = " ".join(block.split()).replace("’", "'")
            if _is_prose(text):
                found.append(text)
    return tuple(found)


def _is_prose(text: str) -> bool:
    starts_and_ends = re.fullmatch(r"[A-Z].*[.:]", text) is not None
    is_code = any(mark in text for mark in ("::=", ">>>", "***", "==="))
    return starts_and_ends and not is_code and len(re.findall(r"[A-Za-z]{2,}", text)) >= 8


def answers(*tasks: Any) -> Draw:
    """Random valid answers to the prompts of single-turn tasks: one document for each agent."""

    def draw(rng: np.random.Generator) -> list[Document]:
        task = tasks[rng.integers(len(tasks))]
        items = task.items("train")
        item = items[int(rng.integers(len(items)))]
        prompts, texts = task.prompts(item, ()), task.sample_answers(item, rng)
        return [Document(prompts[agent], texts[agent]) for agent in task.agents]

    return draw


def stories(rng: np.random.Generator) -> list[Document]:
    """Stories of the grammar of ``LengthRatio``, cut at every sentence with the same chance, whatever the role.

    Their lengths spread over 20 to 400 characters under sharp sampling too, where log-uniform lengths would leave only
    the shortest story: an end is as likely as any other way to go on, early and late.
    """
    task = RATIOS[rng.integers(len(RATIOS))]
    item = task.items("train")[int(rng.integers(ITEMS))]
    documents = []
    for prompt in task.prompts(item, ()).values():
        sentences = re.split(r"(?<=[.]) ", write_story(item.data["subject"], rng, LONGEST))
        kept = int(rng.geometric(END_CHANCE))
        closing = sentences[-1:] if 2 <= kept < len(sentences) and rng.random() < CLOSING_CHANCE else []
        documents.append(Document(prompt, " ".join(sentences[:kept] + closing)))
    return documents


def functions(rng: np.random.Generator) -> list[Document]:
    """A small function under its header and doc string."""
    function = write_function(rng)
    return [Document(f"{function.head}\n", function.body)]


def programs(rng: np.random.Generator) -> list[Document]:
    """Two parts of a program, as a helper and an author are asked for them."""
    problem, helper, author = write_parts(rng)
    item = Item(key="", data={"prompt": f"{problem.head}\n", "entry_point": problem.name})
    prompts = TeamTask().prompts(item, ())
    return [Document(prompts[HELPER], helper), Document(prompts[AUTHOR], author)]


class Source(NamedTuple):
    """One kind of text and its share of the draws."""

    share: float
    draw: Draw


ITEMS = 1_000_000
END_CHANCE, CLOSING_CHANCE = 0.33, 0.25
RATIOS = [LengthRatio(level=level, num_items=ITEMS) for level in (0, 0, 1, 2)]
SIZES = ((4, 2), (6, 2), (8, 2), (9, 3), (12, 3), (12, 4))
PARTITIONS = [
    Partition(num_things=things, num_agents=agents, level=level, num_items=ITEMS)
    for things, agents in SIZES
    for level in range(3)
]
SOURCES: Sequence[Source] = (
    Source(0.09, topics),
    Source(0.05, functions),
    Source(0.01, programs),
    Source(0.50, stories),
    Source(0.35, answers(*PARTITIONS)),
)


def documents(seed: int) -> Iterator[Document]:
    """An endless stream of training texts, the same for the same seed."""
    rng = np.random.default_rng(seed)
    shares = np.array([source.share for source in SOURCES])
    while True:
        yield from SOURCES[rng.choice(len(SOURCES), p=shares / shares.sum())].draw(rng)
