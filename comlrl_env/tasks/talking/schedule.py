"""``comlrl/Schedule-v0``: private calendars, one common free slot, one note each.

Purpose: to say what matters in few words, and to agree. No agent can know the slot that is free for all without the
others' notes, and knowing it is worth nothing unless all name it.

Roles: ``member_0`` … ``member_{n-1}`` (n = 2, 3 or 4), each with a calendar of its own. Two turns: a note that the
others read (so many words of it), then a slot.

Example (level 0; the first training item of seed 0)::

    turn 1
    member_0 is told   You are member_0 of 2. Find the one slot that is free for all.
                       Slots: mon9, mon10, mon11, mon12, tue9, tue10. You are free at mon9, mon11, mon12.
                       Write a note to the others; they read its first 4 words. Then all name a slot.
    member_1 is told   You are member_1 of 2. Find the one slot that is free for all.
                       Slots: mon9, mon10, mon11, mon12, tue9, tue10. You are free at mon10, mon12, tue9.
                       Write a note to the others; they read its first 4 words. Then all name a slot.
    member_0 answers   mon9, mon11, mon12
    member_1 answers   mon10, mon12, tue9
    score              0
    turn 2
    member_0 is told   You are member_0 of 2. Find the one slot that is free for all.
                       Slots: mon9, mon10, mon11, mon12, tue9, tue10. You are free at mon9, mon11, mon12.
                       member_1 wrote: mon10, mon12, tue9
                       Name one slot, the same as the others.
    member_1 is told   You are member_1 of 2. Find the one slot that is free for all.
                       Slots: mon9, mon10, mon11, mon12, tue9, tue10. You are free at mon10, mon12, tue9.
                       member_0 wrote: mon9, mon11, mon12
                       Name one slot, the same as the others.
    member_0 answers   mon12
    member_1 answers   mon12
    score              1

Reward: the note earns 0; then 1 if all name the same slot and it is free for all, .2 if all name the same but
somebody is busy, else 0. An answer that names several slots, or none, names no slot.

Levels: 0 six slots, of which three are free, and notes of 4 words; 1 ten slots, five free, 5 words; 2 sixteen slots,
eight free, 6 words: too few for all.

Figures (``python -m comlrl_env.figures comlrl/Schedule-v0``; level 0, 1, 2 with two members)::

    gold     1.00  1.00  1.00   everyone tells its free slots; then the common one
    solo      .00   .00   .00   member_0 does so, the others say nothing
    random    .11   .04   .02   everyone names one of its own free slots: 1/free² for two

A team that always names the same slot, whatever the calendars say, gets .2 + .8/slots: .33, .28, .25.

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the number of the common slot plus the sum of the numbers of the free slots of member_0 is
2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.talking.notes import delivered, find_named, message_score
from comlrl_env.types import Item, Score

DAYS = ("mon", "tue", "wed", "thu")
# Slots are named by day and hour: mon9, mon10, … Slots, free slots and words of a note, by level.
PLANS = ((6, 3, 4), (10, 5, 5), (16, 8, 6))


class Schedule(ProceduralTask):
    """One free slot for all; see the page above. ``num_agents``: 2, 3 or 4."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.0, "random": 0.11}
    attack_ceiling = 1 / 3
    role = "member"
    cues = ("Note:", "Slot:")
    num_turns = 2

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``slots``: all names in order; ``free``: for each agent the numbers of its free slots."""
        size, share, _ = PLANS[self.level]
        wanted = self.item_class(split)
        while True:
            order = rng.permutation(size).tolist()
            common, rest = order[0], order[1:]
            first = rest[: share - 1]
            if (2 * common + sum(first)) % 4 == wanted:
                break
        frees = [first]
        for i in range(1, len(self.agents)):
            # The last agent is busy whenever the first is free, so there is one slot for all.
            pool = rest[share - 1 :] if i == len(self.agents) - 1 else rest
            frees.append([pool[k] for k in rng.permutation(len(pool))[: share - 1].tolist()])
        return {
            "slots": [f"{DAYS[k // 4]}{9 + k % 4}" for k in range(size)],
            "free": [sorted([common, *free]) for free in frees],
        }

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The slots, the agent's own calendar and, in the second turn, the others' notes."""
        slots, words = item.data["slots"], PLANS[self.level][2]
        told = {}
        for agent, free in zip(self.agents, item.data["free"], strict=True):
            lines = [
                f"You are {agent} of {len(self.agents)}. Find the one slot that is free for all.",
                f"Slots: {', '.join(slots)}. You are free at {', '.join(slots[k] for k in free)}.",
            ]
            if not history:
                lines.append(f"Write a note to the others; they read its first {words} words. Then all name a slot.")
            else:
                notes = history[0].responses.items()
                lines += [f"{name} wrote: {delivered(text, words)}" for name, text in notes if name != agent]
                lines.append("Name one slot, the same as the others.")
            told[agent] = "\n".join(lines)
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts named (agents that name a slot), same and free."""
        if not history:
            return message_score(responses)
        slots = item.data["slots"]
        named = [find_named(responses[agent], slots) for agent in self.agents]
        same = all(len(each) == 1 and each == named[0] for each in named)
        free = same and all(slots.index(named[0][0]) in frees for frees in item.data["free"])
        parts = {
            "named": float(sum(len(each) == 1 for each in named)),
            "same": float(same),
            "free": float(free),
        }
        reason = "" if free else "the slot is busy for somebody" if same else "not all name the same one slot"
        return Score(reward=1.0 if free else 0.2 if same else 0.0, parts=parts, reason=reason, is_success=free)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Everyone tells its free slots, then the common one."""
        slots, frees = item.data["slots"], item.data["free"]
        if history:
            (common,) = set.intersection(*map(set, frees))
            return dict.fromkeys(self.agents, slots[common])
        return {agent: ", ".join(slots[k] for k in free) for agent, free in zip(self.agents, frees, strict=True)}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Everyone names one of its own free slots, in the note too."""
        slots = item.data["slots"]
        return {
            agent: slots[free[int(rng.integers(len(free)))]]
            for agent, free in zip(self.agents, item.data["free"], strict=True)
        }
