"""One preference pair as one flat JSON object, and back."""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from comlrl_env.errors import RecordError
from comlrl_env.pair_schema import LaterTurn, PairRecord, TurnRecord, check_record
from comlrl_env.types import Completion, JointTurn, PreferencePair


def encode_pair(pair: PreferencePair) -> dict[str, Any]:
    """The pair as the JSON object that round files hold. Raises RecordError for what no file may hold."""
    builtins: dict[str, Any] = msgspec.to_builtins(_to_record(pair, "pair"))
    return builtins


def decode_pair(record: Mapping[str, Any]) -> PreferencePair:
    """The pair behind a JSON object; unknown fields are ignored. Raises RecordError when it is malformed."""
    return pair_from_json(record, "pair")


def pair_to_line(pair: PreferencePair, where: str) -> bytes:
    r"""The pair as one line of UTF-8 JSON without a line break; ``where`` names it in errors.

    A lone surrogate, which UTF-8 cannot hold, is written as its JSON escape (``\ud800``) and read back as
    itself. Two in a row that form a character are read back as that character.
    """
    record = _to_record(pair, where)
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False, separators=(",", ":"))
        return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def pair_from_line(line: bytes, where: str) -> PreferencePair:
    """Inverse of :func:`pair_to_line`."""
    try:
        record = msgspec.json.decode(line, type=PairRecord)
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {error}") from error
    except msgspec.DecodeError:  # lone surrogates are beyond msgspec, and json has the better words for the rest
        return pair_from_json(parse_json(line, where), where)
    return _to_pair(record, where)


def parse_json(data: bytes, where: str) -> Any:
    """Standard JSON in UTF-8. Raises RecordError, also for NaN and Infinity, which are not JSON."""

    def refuse(constant: str) -> NoReturn:
        raise RecordError(f"{where}: expected finite numbers, actually {constant}, which is not JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: expected JSON in UTF-8, actually {data[:60]!r}… ({error})") from error


def pair_from_json(record: Any, where: str) -> PreferencePair:
    """:func:`decode_pair` with ``where`` to name the pair in errors."""
    try:
        return _to_pair(msgspec.convert(record, PairRecord), where)
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {error}") from error


def _to_record(pair: PreferencePair, where: str) -> PairRecord:
    if not pair.winner or not pair.loser:
        raise RecordError(f"{where}: expected at least one turn on either side, actually none")
    winner, loser = pair.winner[0], pair.loser[0]
    if winner.prompts != loser.prompts:
        raise RecordError(
            f"{where}: expected winner and loser to answer the same prompts in turn 1, actually "
            f"{winner.prompts!r} and {loser.prompts!r}"
        )
    if winner.prompt_ids != loser.prompt_ids and None not in (winner.prompt_ids, loser.prompt_ids):
        raise RecordError(
            f"{where}: expected the agents' own token ids of the shared prompts on both sides, actually "
            "different ones: a side that was written by another tokenizer must not carry token ids"
        )
    ours, theirs = _turn_record(winner), _turn_record(loser)
    later = [
        LaterTurn(*(_turn_record(side[t]) if t < len(side) else None for side in (pair.winner, pair.loser)))
        for t in range(1, max(len(pair.winner), len(pair.loser)))
    ]
    record = PairRecord(
        prompts=ours.prompts,
        winner_completions=ours.completions,
        loser_completions=theirs.completions,
        winner_reward=pair.winner_reward,
        loser_reward=pair.loser_reward,
        candidate_reward_mean=pair.candidate_reward_mean,
        raw_rewards=None if pair.raw_rewards is None else list(pair.raw_rewards),
        target_raw_reward=pair.target_raw_reward,
        comparator_raw_reward=pair.comparator_raw_reward,
        item_key=pair.item_key,
        agents=None if pair.agents is None else list(pair.agents),
        prompt_token_ids=theirs.prompt_token_ids if ours.prompt_token_ids is None else ours.prompt_token_ids,
        winner_token_ids=ours.token_ids,
        loser_token_ids=theirs.token_ids,
        winner_finished=ours.finished,
        loser_finished=theirs.finished,
        later_turns=later or None,
        by_task=pair.by_task,
    )
    check_record(record, where)
    return record


def _turn_record(turn: JointTurn) -> TurnRecord:
    ids = [None if answer.token_ids is None else list(answer.token_ids) for answer in turn.completions]
    finished = [answer.finished for answer in turn.completions]
    return TurnRecord(
        prompts=list(turn.prompts),
        completions=list(turn.texts),
        token_ids=None if all(entry is None for entry in ids) else ids,
        finished=None if all(entry is None for entry in finished) else finished,
        prompt_token_ids=None if turn.prompt_ids is None else [list(entry) for entry in turn.prompt_ids],
    )


def _to_pair(record: PairRecord, where: str) -> PreferencePair:
    check_record(record, where)
    prompts, prompt_ids = record.prompts, record.prompt_token_ids
    winner = TurnRecord(prompts, record.winner_completions, record.winner_token_ids, record.winner_finished, prompt_ids)
    loser = TurnRecord(prompts, record.loser_completions, record.loser_token_ids, record.loser_finished, prompt_ids)
    later = record.later_turns or []
    return PreferencePair(
        winner=tuple(_joint_turn(turn) for turn in (winner, *(turn.winner for turn in later)) if turn),
        loser=tuple(_joint_turn(turn) for turn in (loser, *(turn.loser for turn in later)) if turn),
        winner_reward=record.winner_reward,
        loser_reward=record.loser_reward,
        candidate_reward_mean=record.candidate_reward_mean,
        raw_rewards=None if record.raw_rewards is None else (record.raw_rewards[0], record.raw_rewards[1]),
        target_raw_reward=record.target_raw_reward,
        comparator_raw_reward=record.comparator_raw_reward,
        item_key=record.item_key,
        agents=None if record.agents is None else tuple(record.agents),
        by_task=record.by_task,
    )


def _joint_turn(turn: TurnRecord) -> JointTurn:
    agents = len(turn.prompts)
    ids = turn.token_ids or [None] * agents
    finished = turn.finished or [None] * agents
    return JointTurn(
        prompts=tuple(turn.prompts),
        completions=tuple(
            Completion(text=text, token_ids=None if entry is None else tuple(entry), finished=ended)
            for text, entry, ended in zip(turn.completions, ids, finished, strict=True)
        ),
        prompt_ids=None if turn.prompt_token_ids is None else tuple(tuple(entry) for entry in turn.prompt_token_ids),
    )
