"""``comlrl/Schelling-v0``: all must say the same option, and nobody can ask.

Purpose: a control. Any rule that everyone follows earns everything (the first of the alphabet, the shortest word);
what it tests is whether a team finds a focal point although the options stand in a private order.

Roles: ``player_0`` … ``player_{n-1}`` (n = 2 to 8), all alike. One simultaneous response.

Example (level 0; the first training item of seed 0)::

    player_0 is told   You are player_0 of 2 players. All of you must write the same one of these words; the others
                       see them in another order: cellar, market.
    player_1 is told   You are player_1 of 2 players. All of you must write the same one of these words; the others
                       see them in another order: cellar, market.
    player_0 answers   cellar
    player_1 answers   cellar
    score              1

Reward: 1 if all name the same option, else 0. An answer that names several of the options, or none, names no option.

Levels: 2, 4 or 8 options.

Figures (``python -m comlrl_env.figures comlrl/Schelling-v0``; level 0, 1, 2 with two players)::

    gold     1.00  1.00  1.00   the first option of the alphabet
    solo      .00   .00   .00   player_0 names it, the others say nothing
    random    .50   .25   .13   one option at random: 1/K for two

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the sum of the places of the options in the list of words is 2·(0 in train, 1 in eval) + (seed modulo
2), modulo 4.

Versions: v0 first version.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

_WORDS = """
river bridge tower garden market harbour castle forest valley island meadow desert mountain station library museum
theatre bakery stable chapel cellar attic balcony fountain orchard vineyard quarry lagoon canyon glacier volcano temple
tunnel pier square alley avenue pasture cave cliff beach marsh pond spring waterfall windmill lighthouse palace
"""
WORDS = tuple(_WORDS.split())
MAX_TEXT = 20_000


class Schelling(ProceduralTask):
    """A focal point; see the page above. ``num_agents``: 2 to 8."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.5}
    role = "player"
    team_sizes = (2, 8)
    cues = ("Option:",)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``orders``: the options as each agent sees them."""
        size = 2 << self.level
        places = rng.permutation(len(WORDS)).tolist()
        chosen = places[: size - 1]
        residue = (self.item_class(split) - sum(chosen)) % 4
        chosen.append(next(place for place in places[size - 1 :] if place % 4 == residue))
        return {"orders": [[WORDS[place] for place in rng.permutation(chosen).tolist()] for _ in self.agents]}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The options in the agent's own order."""
        return {
            agent: (
                f"You are {agent} of {len(self.agents)} players. All of you must write the same one of these words; "
                f"the others see them in another order: {', '.join(order)}."
            )
            for agent, order in zip(self.agents, item.data["orders"], strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts named (agents that name an option) and different."""
        options = set(item.data["orders"][0])
        named = [set(re.findall(r"\w+", responses[agent][:MAX_TEXT].lower())) & options for agent in self.agents]
        clear = [each for each in named if len(each) == 1]
        different = len({next(iter(each)) for each in clear})
        right = len(clear) == len(self.agents) and different == 1
        faults = [f"{len(named) - len(clear)} name no single option"] if len(clear) < len(named) else []
        faults += [f"{different} different options"] if different > 1 else []
        return Score(
            reward=float(right),
            parts={"named": float(len(clear)), "different": float(different)},
            reason=", ".join(faults),
            is_success=right,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first option of the alphabet."""
        return dict.fromkeys(self.agents, min(item.data["orders"][0]))

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """One option at random."""
        return {
            agent: order[int(rng.integers(len(order)))]
            for agent, order in zip(self.agents, item.data["orders"], strict=True)
        }
