"""What a task proves, measured: the mean return of gold, solo and random answers.

``python -m comlrl_env.figures comlrl/Partition-v0 num_things=8`` prints the figures that stand in the task's page.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from comlrl_env.errors import ConfigError, TaskError
from comlrl_env.players import Player, players
from comlrl_env.registry import load_task
from comlrl_env.task import History, Task
from comlrl_env.types import Item, Turn

KINDS = ("gold", "solo", "random")


def measure(
    task: Task, split: str = "train", *, num_items: int = 256, draws: int = 16, seed: int = 0
) -> dict[str, float]:
    """Return the mean return of the task's ``gold``, ``solo`` and ``sample_answers`` over its first items.

    ``random`` plays each item ``draws`` times. A kind that the task has no method for is left out.
    Raises :class:`TaskError` when the oracle fails: such a figure would be a number made up.
    """
    items = task.items(split)
    chosen = [items[index] for index in range(min(num_items, len(items)))]
    returns: dict[str, list[float]] = {name: [] for name in KINDS if name in players(task)}
    for draw in range(draws):
        for name, player in players(task, seed * draws + draw).items():
            if name in returns and (draw == 0 or name == "random"):
                returns[name] += [episode_return(task, item, player) for item in chosen]
    return {name: float(np.mean(values)) for name, values in returns.items()}


def episode_return(task: Task, item: Item, answer: Player) -> float:
    """Play one item and return the sum of its rewards. Raises :class:`TaskError` when the oracle fails."""
    history: History = ()
    while len(history) < task.num_turns:
        prompts = task.prompts(item, history)
        responses = answer(item, history)
        score = task.score(item, history, responses)
        if score.status != "ok":
            raise TaskError(f"item {item.key!r}: expected a score, actually {score.status}: {score.reason}")
        history = (*history, Turn(prompts, responses, score))
    return math.fsum(turn.score.reward for turn in history)


def main(arguments: Sequence[str]) -> None:
    """Print the figures of an id with task arguments ``key=value``, and optionally ``split=eval``."""
    if not arguments:
        raise ConfigError("figures: expected an id and task arguments, such as comlrl/Partition-v0 num_things=8")
    given: dict[str, Any] = {}
    for argument in arguments[1:]:
        key, _, text = argument.partition("=")
        try:
            given[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:  # a word, not a number
            given[key] = text
    split = given.pop("split", "train")
    figures = measure(load_task(arguments[0], **given), split)
    sys.stdout.write("  ".join(f"{name} {value:.4f}" for name, value in figures.items()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
