"""Stored pairs as the prompt / chosen / rejected rows that single-model trainers read."""

from collections.abc import Iterable, Iterator
from typing import Literal

from comlrl_env.errors import ConfigError, RecordError
from comlrl_env.types import JointTurn, PreferencePair

ExportKind = Literal["agents", "joint"]


def export(pairs: Iterable[PreferencePair], kind: ExportKind) -> Iterator[dict[str, str | None]]:
    """Rows with ``prompt``, ``chosen``, ``rejected`` and ``item_key``, in the order of the pairs.

    ``kind="agents"``: one row per pair and agent, with the agent's name in ``agent``. ``kind="joint"``: one
    row per pair; prompts stand under a heading per agent, responses in ``<agent_0>…</agent_0>`` sections.

    Raises ConfigError for another kind, and RecordError for pairs of several turns, whose sides do not share
    their later prompts.
    """
    if kind not in ("agents", "joint"):
        raise ConfigError(f"export: expected kind 'agents' or 'joint', actually {kind!r}")
    return _agent_rows(pairs) if kind == "agents" else _joint_rows(pairs)


def _agent_rows(pairs: Iterable[PreferencePair]) -> Iterator[dict[str, str | None]]:
    for pair in pairs:
        winner, loser = _only_turn(pair)
        rows = zip(_names(pair), winner.prompts, winner.texts, loser.texts, strict=True)
        for name, prompt, chosen, rejected in rows:
            yield {
                "agent": name,
                "prompt": prompt,
                "chosen": chosen,
                "rejected": rejected,
                "item_key": pair.item_key,
            }


def _joint_rows(pairs: Iterable[PreferencePair]) -> Iterator[dict[str, str | None]]:
    for pair in pairs:
        winner, loser = _only_turn(pair)
        prompts = zip(_names(pair), winner.prompts, strict=True)
        yield {
            "prompt": "\n\n".join(f"Prompt of {name}:\n{prompt}" for name, prompt in prompts),
            "chosen": _sections(winner.texts),
            "rejected": _sections(loser.texts),
            "item_key": pair.item_key,
        }


def _sections(texts: tuple[str, ...]) -> str:
    return "\n".join(f"<agent_{k}>\n{text}\n</agent_{k}>" for k, text in enumerate(texts))


def _names(pair: PreferencePair) -> tuple[str, ...]:
    return pair.agents or tuple(f"agent_{k}" for k in range(len(pair.winner[0].prompts)))


def _only_turn(pair: PreferencePair) -> tuple[JointTurn, JointTurn]:
    if len(pair.winner) != 1 or len(pair.loser) != 1:
        raise RecordError(
            f"export: expected pairs of one turn, actually {len(pair.winner)} and {len(pair.loser)} turns "
            f"for item {pair.item_key!r}: rows of prompt, chosen and rejected cannot hold prompts that differ"
        )
    return pair.winner[0], pair.loser[0]
