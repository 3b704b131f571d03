"""``comlrl/Partition-v0``: divide M things among n agents without talking.

Purpose: whether a team finds a convention. Nobody sees the others' answers, every order of the list is
private, and only the union of the claims counts, so each agent must know what the others will leave to it.

Roles: ``helper_0`` … ``helper_{n-1}``, all alike. Each sees the same M names in an order of its own and may
claim at most cap = ⌈M/n⌉ of them. One simultaneous response.

Example (M = 6, n = 2, level 0; the first training item of seed 0)::

    helper_0 is told   You are helper_0 of 2 helpers. Together claim all 6 things, none twice. Each helper
                       claims at most 3. Things: map, pen, cup, hat, box, key. Write only the names of
                       your things, with commas.
                       Answer:
    helper_1 is told   the same with its own name and "Things: key, hat, box, pen, map, cup."
    helper_0 answers   cup, key, map
    helper_1 answers   Hat, pen and box.
    score              1.0 = 1 - 2·(0 missed + 0 duplicate)/6

Reward: max(0, 1 - 2·(missed + duplicate)/M), in [0, 1].

- An answer is split at commas, semicolons, line breaks and the word "and"; case, blanks, list marks ("1.",
  "-"), what stands before a colon ("Answer:"), a leading "the", quotes and a trailing full stop are
  ignored. Every name of the item that remains is one claim. Other words are no claims; the part ``unknown``
  counts them.
- Only the first cap claims of an agent can cover things. With C claims in all answers together,
  missed = M - covered and duplicate = C - covered: things claimed twice, a name that an agent repeats, and
  every claim over the cap (part ``over_cap``). So nothing is gained by listing everything: each claim either
  covers a new thing or costs as much as a missed one, and the reward is 1 exactly when every thing is claimed
  once and nobody is over the cap. Dropping the extra claims would let an agent list all M names, and voiding
  the whole answer would hide from a learner how close it was.

Levels: 0 the same first M names in every item, so a convention by name can be learned; 1 names drawn per
item from 48; 2 from 86 names in training and 86 others in evaluation, so only a rule such as the alphabet
carries over.

Figures (``python -m comlrl_env.figures comlrl/Partition-v0 num_things=8``; the same at all levels)::

    (M, n)    (4, 2)  (6, 2)  (8, 2)  (12, 3)
    gold       1.00    1.00    1.00    1.00
    solo       0.00    0.00    0.00    0.00     one helper claims its share, the others say nothing
    random      .17     .20     .13     .05     everyone claims cap things at random (exact: 1/6, 1/5, 9/70, .0502)

For n = 2 and odd M one helper alone may claim (M+1)/2 things and scores 1/M.

Data: written for this project, Apache-2.0. Items of train and eval are disjoint by construction: the last
agent's order is an even permutation of the sorted names in train and an odd one in eval; likewise the first
agent's order is even for even seeds and odd for odd ones.

Versions: v0 first version.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.items import check_count
from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.partition.names import COMMON, HALVES
from comlrl_env.types import Item, Score

_SEPARATORS = re.compile(r"[,;\r\n]+|\band\b", re.IGNORECASE)
_LIST_MARK = re.compile(r"^(?:[-*•]|\(?\d{1,3}[.):])\s*")
_TRIMMINGS = " \t\f\v.!?:'\"`*"


class Partition(ProceduralTask):
    """M things for n helpers; see the page above. Raises :class:`TaskError` for arguments out of range."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.2}
    team_sizes = (2, len(COMMON))

    def __init__(self, *, num_things: int = 6, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.num_things = check_count("num_things", num_things, 2, len(COMMON))
        count = len(self.agents)
        if count > self.num_things:
            raise TaskError(f"num_agents: expected at most num_things ({self.num_things}), actually {count}")
        self.cap = -(-self.num_things // count)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``orders``: one list of the M names per agent."""
        pools: dict[int, Sequence[str]] = {0: COMMON[: self.num_things], 1: COMMON, 2: HALVES[split]}
        pool = pools[self.level]
        names = sorted(pool[i] for i in rng.permutation(len(pool))[: self.num_things])
        orders = [rng.permutation(self.num_things).tolist() for _ in self.agents]
        for order, odd in ((orders[0], self.seed % 2 == 1), (orders[-1], split == "eval")):
            if is_odd(order) != odd:
                order[-2], order[-1] = order[-1], order[-2]
        return {"orders": [[names[i] for i in order] for order in orders]}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The rules and the agent's own order of the names."""
        return {
            agent: (
                f"You are {agent} of {len(self.agents)} helpers. "
                f"Together claim all {self.num_things} things, none twice. "
                f"Each helper claims at most {self.cap}. Things: {', '.join(order)}. "
                "Write only the names of your things, with commas."
            )
            for agent, order in zip(self.agents, item.data["orders"], strict=True)
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts covered, missed, duplicate, over_cap and unknown."""
        names = set(item.data["orders"][0])
        covered: set[str] = set()
        total = over_cap = unknown = 0
        for agent in self.agents:
            claims, strange = parse_claims(responses[agent], names)
            covered.update(claims[: self.cap])
            total += len(claims)
            over_cap += max(0, len(claims) - self.cap)
            unknown += strange
        missed, duplicate = self.num_things - len(covered), total - len(covered)
        reward = max(0.0, 1 - 2 * (missed + duplicate) / self.num_things)
        parts = {"covered": len(covered), "missed": missed, "duplicate": duplicate}
        parts |= {"over_cap": over_cap, "unknown": unknown}
        return Score(
            reward=reward,
            parts={name: float(value) for name, value in parts.items()},
            reason=", ".join(f"{count} {name}" for name, count in parts.items() if count and name != "covered"),
            is_success=reward == 1,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Consecutive shares of the names in alphabetical order."""
        names = sorted(item.data["orders"][0])
        things, helpers = self.num_things, len(self.agents)
        return {
            agent: ", ".join(names[i * things // helpers : (i + 1) * things // helpers])
            for i, agent in enumerate(self.agents)
        }

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first helper claims as much as it may, the others say nothing."""
        names = sorted(item.data["orders"][0])[: self.cap]
        return {agent: ", ".join(names) if agent == self.agents[0] else "" for agent in self.agents}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every agent claims cap different things at random."""
        orders = zip(self.agents, item.data["orders"], strict=True)
        return {agent: ", ".join(rng.permutation(order)[: self.cap]) for agent, order in orders}


def is_odd(order: Sequence[int]) -> bool:
    """Whether a permutation of 0 … n-1 needs an odd number of swaps."""
    inversions = sum(order[i] > later for i in range(len(order)) for later in order[i + 1 :])
    return inversions % 2 == 1


def parse_claims(text: str, names: set[str]) -> tuple[list[str], int]:
    """Return the names that an answer claims (in order, repeated ones too) and the count of other entries."""
    claims: list[str] = []
    unknown = 0
    for entry in _SEPARATORS.split(text):
        tail = entry.strip(_TRIMMINGS).rpartition(":")[2].strip()
        word = _LIST_MARK.sub("", tail).strip(_TRIMMINGS).casefold().removeprefix("the ").strip()
        if word in names:
            claims.append(word)
        elif word:
            unknown += 1
    return claims, unknown
