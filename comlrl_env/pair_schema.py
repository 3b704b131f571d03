"""The stored form of a preference pair: the fields of its JSON object, and the rules that types do not say.

The first nine fields and their order are those of existing round files; the others are ours and are left out
where there is nothing to say.
"""

import math
from typing import Annotated

import msgspec

from comlrl_env.errors import RecordError

TokenIds = list[Annotated[int, msgspec.Meta(ge=0)]]


class TurnRecord(msgspec.Struct, omit_defaults=True):
    """One side of a later turn; every list has one entry per agent."""

    prompts: list[str]
    completions: list[str]
    token_ids: list[TokenIds | None] | None = None
    finished: list[bool | None] | None = None
    prompt_token_ids: list[TokenIds] | None = None


class LaterTurn(msgspec.Struct, omit_defaults=True):
    """A turn after the first: the sides no longer share prompts, and one may have ended before the other."""

    winner: TurnRecord | None = None
    loser: TurnRecord | None = None


class PairRecord(msgspec.Struct, omit_defaults=True):
    """The stored form of a pair; every list has one entry per agent, but for ``raw_rewards`` (winner, loser)."""

    prompts: list[str]
    winner_completions: list[str]
    loser_completions: list[str]
    winner_reward: float
    loser_reward: float
    candidate_reward_mean: float
    raw_rewards: Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)] | None = None
    target_raw_reward: float | None = None
    comparator_raw_reward: float | None = None
    item_key: str | None = None
    agents: list[str] | None = None
    prompt_token_ids: list[TokenIds] | None = None
    winner_token_ids: list[TokenIds | None] | None = None
    loser_token_ids: list[TokenIds | None] | None = None
    winner_finished: list[bool | None] | None = None
    loser_finished: list[bool | None] | None = None
    later_turns: list[LaterTurn] | None = None
    by_task: bool = True


def check_record(record: PairRecord, where: str) -> None:
    """One entry per agent everywhere, finite rewards, the winner above the loser; else RecordError.

    ``where`` names the pair in the error.
    """
    agents = len(record.prompts)
    if agents == 0:
        raise RecordError(f"{where}: prompts: expected one text per agent, actually none")
    _check_lengths(record, agents, where)
    ended = set()
    for number, later in enumerate(record.later_turns or ()):
        for name, side in (("winner", later.winner), ("loser", later.loser)):
            if side is None:
                ended.add(name)
            elif name in ended:
                raise RecordError(f"{where}: later_turns[{number}].{name}: a side that has ended cannot go on")
            else:
                _check_lengths(side, agents, f"{where}: later_turns[{number}].{name}")
    rewards = {name: getattr(record, name) for name in ("winner_reward", "loser_reward", "candidate_reward_mean")}
    rewards["target_raw_reward"] = record.target_raw_reward
    rewards["comparator_raw_reward"] = record.comparator_raw_reward
    for name, value in (*rewards.items(), *(("raw_rewards", value) for value in record.raw_rewards or ())):
        if value is not None and not math.isfinite(value):
            raise RecordError(f"{where}: {name}: expected a finite number, actually {value!r}")
    if not record.winner_reward > record.loser_reward:
        raise RecordError(
            f"{where}: expected winner_reward above loser_reward, actually {record.winner_reward!r} and "
            f"{record.loser_reward!r}: ties are no pairs"
        )


def _check_lengths(record: PairRecord | TurnRecord, agents: int, where: str) -> None:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, list) and name not in ("later_turns", "raw_rewards") and len(value) != agents:
            raise RecordError(f"{where}: {name}: expected one entry per agent ({agents}), actually {len(value)}")
