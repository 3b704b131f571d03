"""Building by text commands: what a joint answer places, and how it compares with a blueprint.

Commands are ``/setblock x y z block`` and ``/fill x1 y1 z1 x2 y2 z2 block`` (both corners included), with or without
the slash, anywhere in an answer; everything else in it is ignored. ``air`` takes an agent's own block away again.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping

from comlrl_env.task import JointResponse
from comlrl_env.types import Score

Cell = tuple[int, int, int]
UNLIMITED = 10**9
# What one answer may place: a fill that would go beyond it does nothing.
MAX_CELLS = 20_000
MAX_TEXT = 200_000
_COMMAND = re.compile(
    r"\b(?:setblock((?:[ \t]+-?[0-9]{1,4}){3})|fill((?:[ \t]+-?[0-9]{1,4}){6}))[ \t]+(?:minecraft:)?([a-z][a-z0-9_]*)",
    re.IGNORECASE,
)


def read_commands(text: str) -> dict[Cell, str]:
    """The block that stands in each cell after the commands of one answer, in the order of their first mention."""
    placed: dict[Cell, str] = {}
    volume = 0
    for match in _COMMAND.finditer(text[:MAX_TEXT]):
        numbers = [int(number) for number in (match[1] or match[2]).split()]
        corners = zip(numbers[:3], numbers[-3:], strict=True)
        ranges = [range(min(pair), max(pair) + 1) for pair in corners]
        volume += len(ranges[0]) * len(ranges[1]) * len(ranges[2])
        if volume > MAX_CELLS:
            break
        for x, y, z in itertools.product(*ranges):
            if match[3].lower() == "air":
                placed.pop((x, y, z), None)
            else:
                placed[x, y, z] = match[3].lower()
    return placed


def score_build(target: Mapping[Cell, str], stock: Mapping[str, Mapping[str, int]], responses: JointResponse) -> Score:
    """``correct / (target + extra + conflict)``, in [0, 1].

    ``target``: the block of each cell of the blueprint (no air). ``stock``: how many of each block an agent has,
    :data:`UNLIMITED` or a number; what it does not list, the agent does not have. A cell is correct when exactly one
    agent placed a block there, has that block, and it is the target's. ``extra``: cells outside the blueprint.
    ``conflict``: cells where several agents placed something, whatever it was. A block that an agent does not have,
    or of which it has used all (in the order of its commands), is ``refused``: it stands in the way and is never
    correct. So writing everybody's commands earns nothing.
    """
    placed = {agent: read_commands(responses[agent]) for agent in stock}
    touched = Counter(cell for cells in placed.values() for cell in cells)
    correct = refused = 0
    for agent, cells in placed.items():
        left = dict(stock[agent])
        for cell, block in cells.items():
            if left.get(block, 0) < 1:
                refused += 1
                continue
            left[block] -= 1
            correct += touched[cell] == 1 and target.get(cell) == block
    extra = sum(cell not in target for cell in touched)
    conflict = sum(count > 1 for count in touched.values())
    parts = {
        "correct": correct,
        "missing": sum(cell not in touched for cell in target),
        "extra": extra,
        "conflict": conflict,
        "refused": refused,
    }
    parts["wrong"] = len(target) - correct - parts["missing"] - sum(touched[cell] > 1 for cell in target)
    silent = [f"no command of {agent}" for agent, cells in placed.items() if not cells]
    faults = [f"{count} {name}" for name, count in parts.items() if count and name != "correct"]
    return Score(
        reward=correct / (len(target) + extra + conflict),
        parts={name: float(value) for name, value in parts.items()},
        reason=", ".join(silent + faults),
        is_success=correct == len(target) and not extra and not conflict,
    )
