"""``comlrl/HouseBuild-v0``: a house of several materials, of which no builder has enough.

Purpose: the second building example of the field: neither builder has enough of any material for the whole house, and
one of them must deal with an intruder.

Roles: ``builder_0`` is asked to build the left half (small x) and to kill the intruder, ``builder_1`` the right half.
One simultaneous response of ``/fill`` and ``/kill`` commands.

Example (level 0; the first training item of seed 0)::

    builder_0 is told   You are builder_0 of 2 builders. Together build a house. You have 8 granite, 9 quartz_block,
                        8 purpur_block, and so has the other. Build the cells with x from 0 to 1; the other builds
                        the rest. You also kill the zombie: /kill zombie. Write one command per line, /fill x1 y1 z1
                        x2 y2 z2 block; air makes cells empty.
                        The house: x from 0 to 3, y (height) from 0 to 3, z from 0 to 3. y = 0 is all granite. y = 3
                        is all purpur_block. Between them the outer cells are quartz_block and the inside is empty.
                        The door, x = 1 and 2, y = 1 and 2, z = 0, is empty; so are the windows, x = 0 and 3, y = 2,
                        z = 2.
    builder_1 is told   the same for its own part
    builder_0 answers   /fill 0 0 0 1 0 3 granite
                        /fill 0 1 0 1 2 3 quartz_block
                        /fill 1 1 1 1 2 2 air
                        /fill 1 1 0 1 2 0 air
                        /fill 0 3 0 1 3 3 purpur_block
                        /fill 0 2 2 0 2 2 air
                        /kill zombie
    builder_1 answers   /fill 2 0 0 3 0 3 granite
                        /fill 2 1 0 3 2 3 quartz_block
                        /fill 2 1 1 2 2 2 air
                        /fill 2 1 0 2 2 0 air
                        /fill 2 3 0 3 3 3 purpur_block
                        /fill 3 2 2 3 2 2 air
    score               1.00

Reward, ``reward="strict"`` (default, in [0, 1]): that of ``comlrl/GridBuild-v0``, correct/(target + extra + conflict),
air earns nothing (see :func:`comlrl_env.tasks.building.cells.score_build`), times .9 unless exactly one builder kills
the intruder. Each builder has half of every material, rounded up.

``reward="reference"`` (as published, at most 1)::

    cells that are as in the blueprint / all cells of its box − .1 · min(1, damage/hp) [if nobody kills]

Air counts as a cell that is as in the blueprint. Each builder has three quarters of every material, rounded up; what is
beyond that does not stand, and of two blocks in one cell the later builder's stands. Its hole: doing nothing but
``/kill`` scores the share of air.

Levels: 0, 1, 2: boxes of about 100, 140, 220 cells.

Figures (``python -m comlrl_env.figures comlrl/HouseBuild-v0 reward=… level=…``; level 0, 1, 2)::

    reward      gold              solo              random             nothing but /kill; one builds all it can
    strict      1.00  1.00  1.00  0.50  0.50  0.50  0.05  0.05  0.04   0.00; 0.50
    reference   1.00  1.00  1.00  0.62  0.62  0.65  0.17  0.18  0.20   0.23; 0.82

Solo: builder_0 does its part, builder_1 nothing. Random: each fills two boxes at random, and kills in one case of two.

Data: houses by a rule (floor, walls with a door and windows, roof), written for this project, Apache-2.0; the published
ten are not embedded. Train and eval, and neighbouring seeds, are disjoint: the numbers of the floor's and the roof's
material add up to the split's class modulo 4.

Versions: v0 first version.
"""

import re
from collections import Counter
from typing import Any, ClassVar

import msgspec
import numpy as np

from comlrl_env.reference_task import ReferenceTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.building.cells import MAX_TEXT, Cell, read_commands, score_build
from comlrl_env.types import Item, Score

FLOORS = ("stone", "cobblestone", "oak_planks", "birch_planks", "sandstone", "bricks", "granite", "andesite")
WALLS = ("white_wool", "clay", "spruce_log", "quartz_block", "mud_bricks", "terracotta")
ROOFS = ("red_wool", "dark_oak_planks", "slate", "hay_block", "copper_block", "prismarine", "purpur_block", "thatch")
INTRUDERS = ("spider", "zombie", "skeleton", "creeper")
# Half the width, depth and height of the walls, by level.
SIZES = ((2, 4, 2), (3, 4, 2), (3, 5, 3))
_KILL = re.compile(r"(?<![\w/])/?kill[ \t]+(?:@e\[type=(?:minecraft:)?)?([a-z_]+)", re.IGNORECASE)
Fill = tuple[Cell, Cell, str]


class HouseBuild(ReferenceTask):
    """A house for two builders; see the page above."""

    role = "builder"
    team_sizes = (2, 2)
    cues = ("Commands:",)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.5, "random": 0.05},
        "reference": {"gold": 1.0, "solo": 0.62, "random": 0.17},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``size`` (width, depth, height with roof), three materials, ``intruder``, ``damage`` and ``hp``."""
        half, depth, height = SIZES[self.level]
        draws = rng.integers((len(FLOORS), len(WALLS), 2, len(INTRUDERS), 2, 2, 20), size=7).tolist()
        floor, wall, upper, intruder, wider, deeper, damage = draws
        roof = 4 * upper + (self.item_class(split) - floor) % 4
        return {
            "size": [2 * (half + wider), depth + deeper, height + 2],
            "materials": [FLOORS[floor], WALLS[wall], ROOFS[roof]],
            "intruder": INTRUDERS[intruder],
            "damage": 1 + damage,
            "hp": 20,
        }

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The blueprint as boxes, the stock, and the agent's part."""
        width, depth, height = item.data["size"]
        floor, wall, roof = item.data["materials"]
        middle = width // 2
        rules = (
            f"The house: x from 0 to {width - 1}, y (height) from 0 to {height - 1}, z from 0 to {depth - 1}. y = 0 is "
            f"all {floor}. y = {height - 1} is all {roof}. Between them the outer cells are {wall} and the inside is "
            f"empty. The door, x = {middle - 1} and {middle}, y = 1 and 2, z = 0, is empty; so are the windows, x = 0 "
            f"and {width - 1}, y = 2, z = {depth // 2}."
        )
        stock = ", ".join(f"{count} {block}" for block, count in self._stock(item).items())
        told = {}
        for agent, part in zip(self.agents, self._parts(width), strict=True):
            kill = f" You also kill the {item.data['intruder']}: /kill {item.data['intruder']}." if part[0] == 0 else ""
            told[agent] = (
                f"You are {agent} of 2 builders. Together build a house. You have {stock}, and so has the other. Build "
                f"the cells with x from {part[0]} to {part[1]}; the other builds the rest.{kill} Write one command per "
                f"line, /fill x1 y1 z1 x2 y2 z2 block; air makes cells empty.\n{rules}"
            )
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        target, stock = self.blueprint(item), self._stock(item)
        kills = sum(kills_it(responses[agent], item.data["intruder"]) for agent in self.agents)
        if self.reward == "strict":
            built = score_build(target, {agent: dict(stock) for agent in self.agents}, responses)
            reward = built.reward * (1.0 if kills == 1 else 0.9)
            said = [built.reason] if built.reason else []
            said += [] if kills == 1 else [f"{kills} builders kill the {item.data['intruder']}"]
            return msgspec.structs.replace(
                built,
                reward=reward,
                parts={**built.parts, "kills": float(kills)},
                reason="; ".join(said),
                is_success=bool(built.is_success) and kills == 1,
            )
        world: dict[Cell, str] = {}
        for agent in self.agents:
            left = dict(stock)
            for cell, block in read_commands(responses[agent]).items():
                if left.get(block, 0) > 0:
                    left[block] -= 1
                    world[cell] = block
        width, depth, height = item.data["size"]
        box = [(x, y, z) for x in range(width) for y in range(height) for z in range(depth)]
        matching = sum(world.get(cell) == target.get(cell) for cell in box) / len(box)
        harm = 0.0 if kills else 0.1 * min(1.0, item.data["damage"] / item.data["hp"])
        reason = "" if matching == 1 and kills else f"{matching:.0%} of the cells as drawn, {kills} kills"
        parts = {"matching": matching, "harm": -harm}
        return Score(reward=matching - harm, parts=parts, reason=reason, is_success=matching == 1 and harm == 0)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone fills its half: the boxes from the instructions, without door and windows."""
        width = item.data["size"][0]
        answers = {}
        for agent, part in zip(self.agents, self._parts(width), strict=True):
            lines = [f"/fill {_shown(low)} {_shown(high)} {block}" for low, high, block in self._fills(item, part)]
            answers[agent] = "\n".join(lines)
        answers[self.agents[0]] += f"\n/kill {item.data['intruder']}"
        return answers

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone fills two boxes at random with a random material, and kills in one case of two."""
        width, depth, height = item.data["size"]
        answers = {}
        for agent in self.agents:
            lines = []
            for _ in range(2):
                corners = rng.integers((width, height, depth), size=(2, 3)).tolist()
                block = item.data["materials"][int(rng.integers(3))]
                lines.append(f"/fill {_shown(corners[0])} {_shown(corners[1])} {block}")
            if rng.integers(2):
                lines.append(f"/kill {item.data['intruder']}")
            answers[agent] = "\n".join(lines)
        return answers

    def blueprint(self, item: Item) -> dict[Cell, str]:
        """The block of every cell of the house that is not air."""
        width = item.data["size"][0]
        commands = [f"fill {_shown(a)} {_shown(b)} {m}" for a, b, m in self._fills(item, (0, width - 1))]
        return read_commands("\n".join(commands))

    def _fills(self, item: Item, part: tuple[int, int]) -> list[tuple[Any, Any, str]]:
        """Boxes (two corners and a block) that make the cells with x in ``part``."""
        width, depth, height = item.data["size"]
        floor, wall, roof = item.data["materials"]
        first, last = part
        top, back, middle = height - 1, depth - 1, width // 2
        fills = [
            ((first, 0, 0), (last, 0, back), floor),
            ((first, 1, 0), (last, top - 1, back), wall),
            ((max(first, 1), 1, 1), (min(last, width - 2), top - 1, back - 1), "air"),
            ((max(first, middle - 1), 1, 0), (min(last, middle), 2, 0), "air"),
            ((first, top, 0), (last, top, back), roof),
        ]
        fills += [((x, 2, depth // 2), (x, 2, depth // 2), "air") for x in (0, width - 1) if first <= x <= last]
        return fills

    def _parts(self, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The columns of each builder."""
        return (0, width // 2 - 1), (width // 2, width - 1)

    def _stock(self, item: Item) -> dict[str, int]:
        """What each builder has of every material: half, or three quarters in the published game; rounded up."""
        counts = Counter(self.blueprint(item).values())
        quarters = 2 if self.reward == "strict" else 3
        return {block: -(-quarters * counts[block] // 4) for block in item.data["materials"]}


def kills_it(text: str, intruder: str) -> bool:
    """Whether an answer has the command that kills this intruder."""
    return any(match[1].lower() == intruder for match in _KILL.finditer(text[:MAX_TEXT]))


def _shown(corner: Any) -> str:
    return " ".join(map(str, corner))
