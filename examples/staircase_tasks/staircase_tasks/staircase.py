"""``acme/Staircase-v0``: numbers that must rise from one agent to the next.

Purpose: the example of a task in a package of its own. Nobody knows the others' numbers, so a team needs a rule such as
"the first takes its least, the last its greatest".

Roles: ``climber_0`` … ``climber_{n-1}`` (n = 2, 3 or 4), each with a few numbers of its own. Everyone names one.

Reward: the share of neighbours whose numbers rise, in [0, 1]; 0 where somebody names none of its own numbers.

Figures (``python -m comlrl_env.figures acme/Staircase-v0``; level 0, 1): gold 1.0, 1.0; solo 0.0, 0.0; random .61, .58.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env import Item, Score
from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse


class Staircase(ProceduralTask):
    """Rising numbers; see the page above."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.61}
    role = "climber"
    levels = (0, 1)
    cues = ("Number:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``numbers``: those of each agent. One number of each makes a staircase; the rest are anything."""
        size = 3 + self.level
        steps = np.sort(rng.permutation(np.arange(1, 100))[: len(self.agents)]).tolist()
        others = rng.integers(1, 100, size=(len(self.agents), size - 1)).tolist()
        numbers = [[step, *rest] for step, rest in zip(steps, others, strict=True)]
        # The sum of the first agent's numbers tells training and evaluation apart.
        numbers[0][-1] += (self.item_class(split) - sum(numbers[0])) % 4
        return {"numbers": [sorted(set(own)) for own in numbers]}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The agent's own numbers."""
        return {
            agent: (
                f"You are {agent} of {len(self.agents)}. Everyone names one of its own numbers, and they must rise "
                f"from {self.agents[0]} to {self.agents[-1]}. Your numbers: {', '.join(map(str, own))}."
            )
            for agent, own in zip(self.agents, item.data["numbers"], strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts named and rising."""
        named = []
        for agent, own in zip(self.agents, item.data["numbers"], strict=True):
            found = {int(number) for number in re.findall(r"\b[0-9]{1,3}\b", responses[agent][:1000])}
            named += found if len(found) == 1 and found <= set(own) else []
        if len(named) < len(self.agents):
            return Score(
                reward=0.0,
                parts={"named": float(len(named))},
                reason="not everyone names one of its numbers",
                is_success=False,
            )
        rising = sum(one < other for one, other in itertools.pairwise(named)) / (len(named) - 1)
        return Score(
            reward=rising,
            parts={"named": float(len(named)), "rising": rising},
            reason="" if rising == 1 else f"{named} do not rise",
            is_success=rising == 1,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Each takes its least number above the one before: if there is a staircase, this finds one."""
        chosen: list[int] = []
        for own in item.data["numbers"]:
            chosen.append(min(number for number in own if not chosen or number > chosen[-1]))
        return dict(zip(self.agents, map(str, chosen), strict=True))

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """One of its numbers for everyone."""
        return {
            agent: str(own[int(rng.integers(len(own)))])
            for agent, own in zip(self.agents, item.data["numbers"], strict=True)
        }
