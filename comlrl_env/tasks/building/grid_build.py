"""``comlrl/GridBuild-v0``: a blueprint whose colours are divided among the builders.

Purpose: a division of labour that the items prescribe: each colour belongs to one builder, so nobody can build the
whole, and whoever builds what belongs to another does harm.

Roles: ``builder_0`` … ``builder_{n-1}`` (n = 2, 3 or 4), each with its own colours. One simultaneous response of text
commands.

Example (level 0; the first training item of seed 0)::

    builder_0 is told   You are builder_0 of 2 builders. Build the blueprint together. Only you have the colours
                        blue and red: build all cells of them, and leave the others' colours to them. Write one
                        command per cell, /setblock x y z colour, and build nothing elsewhere.
                        The blueprint: 0 0 0 green; 0 3 0 green; 2 0 0 blue; 2 2 0 red; 2 3 0 green; 3 0 0 red.
    builder_1 is told   You are builder_1 of 2 builders. Build the blueprint together. Only you have the colours
                        green and yellow: build all cells of them, and leave the others' colours to them. Write one
                        command per cell, /setblock x y z colour, and build nothing elsewhere.
                        The blueprint: 0 0 0 green; 0 3 0 green; 2 0 0 blue; 2 2 0 red; 2 3 0 green; 3 0 0 red.
    builder_0 answers   /setblock 2 0 0 blue
                        /setblock 2 2 0 red
                        /setblock 3 0 0 red
    builder_1 answers   /setblock 0 0 0 green
                        /setblock 0 3 0 green
                        /setblock 2 3 0 green
    score               1

Reward: correct/(target + extra + conflict), in [0, 1]; see :func:`comlrl_env.tasks.building.cells.score_build`. A
cell is correct when the only builder that placed something there owns the colour, and it is the right one. Extra:
cells outside the blueprint. Conflict: cells where several builders placed something. Air earns nothing.

Levels: 0 a flat blueprint on 4 x 4 cells, three for each builder, always the same palettes; 1 palettes are drawn, the
blueprint is symmetric, and each builder sees only its left (even numbers) or right half; 2 the same with two layers;
3 also one colour that all have, in a stock of two: who builds which of these cells is a convention.

Figures (``python -m comlrl_env.figures comlrl/GridBuild-v0``; level 0, 1, 2, 3 with two builders)::

    gold     1.00  1.00  1.00  1.00
    solo      .50   .50   .50   .50   builder_0 builds all that is its own, the others say nothing: 1/n
    random    .05   .06   .04   .04   everyone builds its number of cells in random places and own colours

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the number of cells in the second colour (of the alphabet) of builder_0 is even in train and odd in
eval; for the last builder it is even for even seeds and odd for odd ones (in the half blueprint, where it is
symmetric).

Versions: v0 first version.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.building.cells import UNLIMITED, score_build
from comlrl_env.types import Item, Score

COLOURS = ("red", "blue", "green", "yellow", "black", "orange", "purple", "pink", "brown", "gray", "cyan", "lime")
SHARED = "white"
SHARED_STOCK = 2
# Width and depth of the blueprint, layers, and cells of each builder (in one half of the symmetric ones), by level.
PLANS = ((4, 4, 1, 3), (6, 3, 1, 2), (6, 3, 2, 3), (6, 3, 2, 3))


class GridBuild(ProceduralTask):
    """Blueprint cells with owners; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.5, "random": 0.05}
    role = "builder"
    levels = (0, 3)
    cues = ("Commands:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``cells``: [x, y, z, colour, owner], the owner -1 for a shared one; ``palettes``: colours by agent."""
        width, depth, layers, share = PLANS[self.level]
        symmetric = self.level > 0
        columns = width // 2 if symmetric else width
        count = len(self.agents)
        names = [COLOURS[i] for i in rng.permutation(len(COLOURS)).tolist()] if symmetric else COLOURS
        palettes = [sorted(names[2 * i : 2 * i + 2]) for i in range(count)]
        bits = rng.integers(2, size=count * share).tolist()
        wanted = self.item_class(split)
        for owner, parity in ((0, wanted // 2), (count - 1, wanted % 2)):
            mine = bits[owner * share : (owner + 1) * share]
            bits[owner * share] ^= sum(mine) % 2 ^ parity
        colours = [(palettes[i // share][bit], i // share) for i, bit in enumerate(bits)]
        if self.level == 3:
            colours += [(SHARED, -1)] * (count * SHARED_STOCK // 2)
        cells = []
        for place, (colour, owner) in zip(rng.permutation(columns * depth * layers).tolist(), colours, strict=False):
            x, y, z = place % columns, place // columns % depth, place // (columns * depth)
            cells.append([x, y, z, colour, owner])
            if symmetric:
                cells.append([width - 1 - x, y, z, colour, owner])
        return {"cells": sorted(cells), "palettes": dict(zip(self.agents, palettes, strict=True))}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The rules, the agent's colours, and the blueprint or the half of it that the agent sees."""
        width = PLANS[self.level][0]
        told = {}
        for number, agent in enumerate(self.agents):
            seen = item.data["cells"]
            view = "The blueprint"
            if self.level > 0:
                left = number % 2 == 0
                seen = [cell for cell in seen if (cell[0] < width // 2) == left]
                view = f"The blueprint's {'left' if left else 'right'} half"
            shown = "; ".join(f"{x} {y} {z} {colour}" for x, y, z, colour, _ in seen)
            rules = [
                f"You are {agent} of {len(self.agents)} builders. Build the blueprint together.",
                f"Only you have the colours {' and '.join(item.data['palettes'][agent])}: build all cells of them, "
                "and leave the others' colours to them.",
            ]
            if self.level == 3:
                rules.append(f"Everyone has {SHARED_STOCK} cells of {SHARED}: divide these cells among you.")
            rules.append("Write one command per cell, /setblock x y z colour, and build nothing elsewhere.")
            if self.level > 0:
                rules.append(f"Each sees one half; the other has the same colours at {width - 1} - x.")
            told[agent] = f"{' '.join(rules)}\n{view}: {shown}."
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts correct, missing, wrong, extra, conflict and refused."""
        target = {(x, y, z): colour for x, y, z, colour, _ in item.data["cells"]}
        stock = {agent: dict.fromkeys(colours, UNLIMITED) for agent, colours in item.data["palettes"].items()}
        if self.level == 3:
            for colours in stock.values():
                colours[SHARED] = SHARED_STOCK
        return score_build(target, stock, responses)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone builds its own cells, and the shared ones in their order, two by two."""
        commands: dict[int, list[str]] = {number: [] for number in range(len(self.agents))}
        shared = 0
        for x, y, z, colour, owner in item.data["cells"]:
            if owner < 0:
                shared += 1
            commands[owner if owner >= 0 else (shared - 1) // SHARED_STOCK].append(f"/setblock {x} {y} {z} {colour}")
        return {agent: "\n".join(commands[number]) for number, agent in enumerate(self.agents)}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone builds its number of cells at random places in random colours of its own."""
        width, depth, layers, _ = PLANS[self.level]
        answers = {}
        for agent, colours in item.data["palettes"].items():
            share = len(item.data["cells"]) // len(self.agents)
            places = rng.permutation(width * depth * layers)[:share].tolist()
            chosen = [colours[bit] for bit in rng.integers(2, size=share).tolist()]
            answers[agent] = "\n".join(
                f"/setblock {p % width} {p // width % depth} {p // (width * depth)} {colour}"
                for p, colour in zip(places, chosen, strict=True)
            )
        return answers
