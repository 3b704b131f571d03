"""``comlrl/SplitSum-v0``: each holds some numbers, the answers are added.

Purpose: a control. The reward is additive, so no convention and no communication is needed; what it tests is credit
assignment and arithmetic.

Roles: ``adder_0`` … ``adder_{n-1}`` (n = 2 to 8), each with numbers of its own. One simultaneous response.

Example (level 0; the first training item of seed 0)::

    adder_0 is told   You are adder_0 of 2. All answers are added, and the result should be the sum of all numbers
                      that you and the others hold. Your numbers: 12, 8. Write one number.
    adder_1 is told   You are adder_1 of 2. All answers are added, and the result should be the sum of all numbers
                      that you and the others hold. Your numbers: 7, 4. Write one number.
    adder_0 answers   20
    adder_1 answers   11
    score             1

Reward: max(0, 1 − |Σ answers − S|/S), in [0, 1], S the sum of all numbers. An agent's answer is the last integer that
it writes, of at most nine digits; none counts 0.

Levels: 0 two numbers each, up to 12; 1 three, up to 48; 2 four, up to 400.

Figures (``python -m comlrl_env.figures comlrl/SplitSum-v0``; level 0, 1, 2 with two agents)::

    gold     1.00  1.00  1.00
    solo      .50   .50   .50   adder_0 adds its numbers, the others say nothing: its share of S
    random    .50   .33   .25   everyone writes one of its own numbers

Everyone writing the sum of adder_0 earns about .75; a control may be soft.

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the first number of adder_0 is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

# How many numbers each holds, and how large they are at most, by level.
PLANS = ((2, 12), (3, 48), (4, 400))
# No answer is read further from its end; models sometimes write a megabyte.
MAX_TEXT = 2_000
_INTEGER = re.compile(r"(?<![0-9.])-?[0-9]{1,9}(?![0-9])")


class SplitSum(ProceduralTask):
    """A sum in parts; see the page above. ``num_agents``: 2 to 8."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.5, "random": 0.5}
    attack_ceiling = 0.8
    role = "adder"
    team_sizes = (2, 8)
    cues = ("Sum:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``numbers``: those of each agent."""
        count, highest = PLANS[self.level]
        numbers = rng.integers(1, highest + 1, size=(len(self.agents), count)).tolist()
        numbers[0][0] = (numbers[0][0] - 1) // 4 * 4 + (self.item_class(split) or 4)
        return {"numbers": numbers}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The agent's own numbers."""
        return {
            agent: (
                f"You are {agent} of {len(self.agents)}. All answers are added, and the result should be the sum of "
                f"all numbers that you and the others hold. Your numbers: {', '.join(map(str, own))}. Write one number."
            )
            for agent, own in zip(self.agents, item.data["numbers"], strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts given, sum and silent."""
        numbers = [_INTEGER.findall(responses[agent][-MAX_TEXT:]) for agent in self.agents]
        given = sum(int(found[-1]) for found in numbers if found)
        total = sum(map(sum, item.data["numbers"]))
        silent = sum(not found for found in numbers)
        faults = [f"the answers add to {given}, not {total}"] if given != total else []
        faults += [f"{silent} without a number"] if silent else []
        return Score(
            reward=max(0.0, 1 - abs(given - total) / total),
            parts={"given": float(given), "sum": float(total), "silent": float(silent)},
            reason=", ".join(faults),
            is_success=given == total,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone adds its own numbers."""
        return {agent: str(sum(own)) for agent, own in zip(self.agents, item.data["numbers"], strict=True)}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone writes one of its own numbers."""
        return {
            agent: str(own[int(rng.integers(len(own)))])
            for agent, own in zip(self.agents, item.data["numbers"], strict=True)
        }
