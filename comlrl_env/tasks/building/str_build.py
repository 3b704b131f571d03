"""``comlrl/StrBuild-v0``: a word of blocks, written by two builders with different blocks.

Purpose: the building example of the field: neither has all blocks, and blocks that touch should differ.

Roles: ``builder_0`` builds the cells in which x + y is even, ``builder_1`` the others, each with two blocks of its own
in turn: the first where (x + y) // 2 is even. One simultaneous response of ``/setblock`` commands.

Example (level 0; the first training item of seed 0)::

    builder_0 is told   You are builder_0 of 2 builders. Together write the word RUG in blocks at z = 0. x goes from
                        0 to the right, y from 0 upwards. Only you have white_wool and clay. Build the cells marked #
                        in which x + y is even, with white_wool where it is 0, 4, 8, ... and clay where it is 2, 6,
                        10, ...; the other builder builds the rest. Write one command per cell, /setblock x y 0
                        block.
                        ####..#...#..####
                        #...#.#...#.#....
                        ####..#...#.#..##
                        #..#..#...#.#...#
                        #...#..###...####
    builder_1 is told   the same for its own part
    builder_0 answers   /setblock 0 0 0 white_wool
                        /setblock 0 2 0 clay
                        /setblock 0 4 0 white_wool
                        /setblock 2 2 0 white_wool
                        /setblock 2 4 0 clay
                        /setblock 3 1 0 white_wool
                        /setblock 4 0 0 white_wool
                        /setblock 6 2 0 white_wool
                        /setblock 6 4 0 clay
                        /setblock 8 0 0 white_wool
                        /setblock 10 2 0 white_wool
                        /setblock 10 4 0 clay
                        /setblock 12 2 0 clay
                        /setblock 14 0 0 clay
                        /setblock 14 4 0 clay
                        /setblock 16 0 0 white_wool
                        /setblock 16 2 0 clay
                        /setblock 16 4 0 white_wool
    builder_1 answers   /setblock 0 1 0 gold_block
                        /setblock 0 3 0 blue_wool
                        /setblock 1 2 0 blue_wool
                        /setblock 1 4 0 gold_block
                        /setblock 3 2 0 gold_block
                        /setblock 3 4 0 blue_wool
                        /setblock 4 3 0 blue_wool
                        /setblock 6 1 0 blue_wool
                        /setblock 6 3 0 gold_block
                        /setblock 7 0 0 blue_wool
                        /setblock 9 0 0 gold_block
                        /setblock 10 1 0 blue_wool
                        /setblock 10 3 0 gold_block
                        /setblock 12 1 0 gold_block
                        /setblock 12 3 0 blue_wool
                        /setblock 13 0 0 gold_block
                        /setblock 13 4 0 gold_block
                        /setblock 15 0 0 blue_wool
                        /setblock 15 2 0 gold_block
                        /setblock 15 4 0 blue_wool
                        /setblock 16 1 0 gold_block
    score               1.00

Reward, ``reward="strict"`` (default, in [0, 1]): that of ``comlrl/GridBuild-v0``, correct/(target + extra + conflict),
with the block and the owner that the rule gives each cell; see :func:`comlrl_env.tasks.building.cells.score_build`.

``reward="reference"`` (as published, at most 2)::

    2 · coverage − 1.5 · extra/background − equal/adjacent − .25 · incomplete

*coverage*: the share of the word's cells in which a block stands; *extra*: blocks outside the word, over the
*background*, the other cells of its rectangle; *equal*: pairs of neighbouring cells of the word with the same block,
over the pairs in which both have a block; *incomplete*: builders that do not use all their blocks. A block counts when
its builder has it; of two in one cell the later builder's stands. Its hole: a builder alone scores 1.75, by alternating
its blocks.

Levels: 0, 1, 2: words of three, four, five letters.

Figures (``python -m comlrl_env.figures comlrl/StrBuild-v0 reward=… level=…``; level 0, 1, 2)::

    reward      gold              solo              random               one builder alone, alternating; both so
    strict      1.00  1.00  1.00  0.52  0.49  0.50  0.06  0.06   0.06    0.29; 0.00
    reference   2.00  2.00  2.00  0.79  0.73  0.75  0.00 -0.04  -0.02    1.75; 2.00

Solo: builder_0 builds its cells, builder_1 nothing. Random: each builds a quarter of the rectangle at random.

Data: 40 words of each length and a 5 x 5 font, written for this project, Apache-2.0. Train and eval, and neighbouring
seeds, are disjoint: the number of the word plus that of builder_0's first block is the split's class modulo 4.

Versions: v0 first version.
"""

from typing import Any, ClassVar

import numpy as np

from comlrl_env.reference_task import ReferenceTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.building.cells import UNLIMITED, Cell, read_commands, score_build
from comlrl_env.tasks.building.font import HEIGHT, WORDS, cells, drawn, width
from comlrl_env.types import Item, Score

BLOCKS = (
    "stone",
    "oak_planks",
    "white_wool",
    "red_wool",
    "blue_wool",
    "glass",
    "bricks",
    "gold_block",
    "sandstone",
    "clay",
    "coal_block",
    "moss_block",
)
BEST = 2.0
_PARITIES = (("even", "0, 4, 8", "2, 6, 10"), ("odd", "1, 5, 9", "3, 7, 11"))


class StrBuild(ReferenceTask):
    """A word in two builders' blocks; see the page above."""

    role = "builder"
    team_sizes = (2, 2)
    cues = ("Commands:",)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.52, "random": 0.06},
        "reference": {"gold": 2.0, "solo": 0.79, "random": 0.0},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``word`` and ``palettes``, two blocks for each builder."""
        words = WORDS[self.level]
        number = int(rng.integers(len(words)))
        order = rng.permutation(len(BLOCKS)).tolist()
        # The first block of builder_0 makes the class: the next one of its kind in the order comes first.
        wanted = (self.item_class(split) - number) % 4
        order.insert(0, order.pop(next(i for i, block in enumerate(order) if block % 4 == wanted)))
        blocks = [BLOCKS[i] for i in order]
        return {"word": words[number], "palettes": {a: blocks[2 * i : 2 * i + 2] for i, a in enumerate(self.agents)}}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The word, the rule, and the agent's blocks."""
        word = item.data["word"]
        told = {}
        for agent, parity in zip(self.agents, _PARITIES, strict=True):
            first, second = item.data["palettes"][agent]
            told[agent] = (
                f"You are {agent} of 2 builders. Together write the word {word} in blocks at z = 0. x goes from 0 to "
                f"the right, y from 0 upwards. Only you have {first} and {second}. Build the cells marked # in which "
                f"x + y is {parity[0]}, with {first} where it is {parity[1]}, ... and {second} where it is "
                f"{parity[2]}, ...; the other builder builds the rest. "
                f"Write one command per cell, /setblock x y 0 block.\n{drawn(word)}"
            )
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        palettes = item.data["palettes"]
        if self.reward == "strict":
            stock = {agent: dict.fromkeys(palettes[agent], UNLIMITED) for agent in self.agents}
            return score_build({cell: block for cell, (_, block) in self._plan(item).items()}, stock, responses)
        word = {(x, y, 0) for x, y in cells(item.data["word"])}
        world: dict[Cell, str] = {}
        incomplete = 0
        for agent in self.agents:
            mine = {cell: b for cell, b in read_commands(responses[agent]).items() if b in palettes[agent]}
            world |= mine
            incomplete += set(mine.values()) != set(palettes[agent])
        pairs = [
            (world[cell], world[near])
            for cell in sorted(word & world.keys())
            for near in ((cell[0] + 1, cell[1], 0), (cell[0], cell[1] + 1, 0))
            if near in word and near in world
        ]
        extra = sum(cell not in word for cell in world)
        parts = {
            "coverage": 2 * len(word & world.keys()) / len(word),
            "extra": -1.5 * extra / (width(item.data["word"]) * HEIGHT - len(word)),
            "equal": -sum(one == other for one, other in pairs) / len(pairs) if pairs else 0.0,
            "incomplete": -0.25 * incomplete,
        }
        reward = sum(parts.values())
        missing = len(word - world.keys())
        reason = f"{missing} cells missing, {extra} outside, {incomplete} palettes incomplete"
        return Score(
            reward=reward, parts=parts, reason="" if reward >= BEST else reason, is_success=reward > BEST - 1e-9
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone builds its own cells."""
        lines: dict[str, list[str]] = {agent: [] for agent in self.agents}
        for (x, y, z), (agent, block) in sorted(self._plan(item).items()):
            lines[agent].append(f"/setblock {x} {y} {z} {block}")
        return {agent: "\n".join(commands) for agent, commands in lines.items()}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone fills a quarter of the word's rectangle at random."""
        columns = width(item.data["word"])
        answers = {}
        for agent in self.agents:
            places = rng.permutation(columns * HEIGHT)[: columns * HEIGHT // 4].tolist()
            bits = rng.integers(2, size=len(places)).tolist()
            answers[agent] = "\n".join(
                f"/setblock {place % columns} {place // columns} 0 {item.data['palettes'][agent][bit]}"
                for place, bit in zip(places, bits, strict=True)
            )
        return answers

    def _plan(self, item: Item) -> dict[Cell, tuple[str, str]]:
        """Owner and block of every cell of the word."""
        plan = {}
        for x, y in cells(item.data["word"]):
            agent = self.agents[(x + y) % 2]
            plan[x, y, 0] = (agent, item.data["palettes"][agent][(x + y) // 2 % 2])
        return plan
