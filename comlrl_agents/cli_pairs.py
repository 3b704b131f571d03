"""``comlrl pairs``: look at stored pairs, choose among them, check them, and hand them on to other trainers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from comlrl_agents.columns import columns
from comlrl_env.errors import ConfigError, RecordError
from comlrl_env.records import RoundFile, export
from comlrl_env.types import PreferencePair

Kind = Literal["agents", "joint"]
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Which pairs: of one round, of one item, with a gap of at least ``min_gap``, with a word in some text."""

    round: int | None = None
    item: str | None = None
    min_gap: float = 0.0
    contains: str | None = None

    def takes(self, pair: PreferencePair) -> bool:
        """Whether the pair is among them; the round is asked of the file."""
        texts = [text for turn in (*pair.winner, *pair.loser) for text in (*turn.prompts, *turn.texts)]
        return (
            (self.item is None or pair.item_key == self.item)
            and pair.winner_reward - pair.loser_reward >= self.min_gap
            and (self.contains is None or any(self.contains in text for text in texts))
        )


def chosen_pairs(files: Sequence[Path], choice: Choice) -> Iterator[tuple[int, PreferencePair]]:
    """(round, pair) of all chosen pairs. Raises RecordError for a file that cannot be read."""
    for path in files:
        file = RoundFile(path)
        if choice.round in (None, file.iteration):
            yield from ((file.iteration, pair) for pair in file if choice.takes(pair))


def summary(pairs: Sequence[tuple[int, PreferencePair]]) -> str:
    """A table with a line per round: pairs, items, rewards and who gave them, gaps, how varied winners are, who won."""
    rows = [["round", "pairs", "items", "scored by", "winner", "loser", "gap", "distinct winners", "comparator won"]]
    for number in sorted({number for number, _ in pairs}):
        own = [pair for one, pair in pairs if one == number]
        winners = [p.winner_reward for p in own]
        losers = [p.loser_reward for p in own]
        compared = [p for p in own if p.raw_rewards is not None and p.comparator_raw_reward is not None]
        theirs = sum(p.comparator_raw_reward == (p.raw_rewards or (None,))[0] for p in compared)
        rows.append([
            str(number),
            str(len(own)),
            str(len({p.item_key for p in own})),
            " and ".join(sorted({"task" if p.by_task else "reward model" for p in own})),
            f"{sum(winners) / len(own):.3g}",
            f"{sum(losers) / len(own):.3g}",
            f"{(sum(winners) - sum(losers)) / len(own):.3g}",
            str(len({(p.item_key, p.winner[0].texts) for p in own})),
            f"{theirs / len(compared):.0%}" if compared else "",
        ])  # fmt: skip
    return columns(rows)


def page(number: int, pair: PreferencePair) -> str:
    """One pair as a person reads it."""
    lines = [f"round {number}  item {pair.item_key or '?'}  {pair.winner_reward:.4g} over {pair.loser_reward:.4g}"]
    names = pair.agents or tuple(f"agent_{k}" for k in range(len(pair.winner[0].prompts)))
    for index, name in enumerate(names):
        lines += [
            f"  {name}",
            f"    prompt  {_short(pair.winner[0].prompts[index])}",
            f"    winner  {_short(pair.winner[0].texts[index])}",
            f"    loser   {_short(pair.loser[0].texts[index])}",
        ]
    return "\n".join(lines)


def findings(files: Sequence[Path]) -> list[str]:
    """What is wrong with the files, in words: what cannot be read, what cannot be learned from, what contradicts."""
    found: list[str] = []
    for path in files:
        try:
            file = RoundFile(path)
        except RecordError as error:
            found.append(str(error))
            continue
        wanted = path.stem.removeprefix("iteration_")
        if wanted.isdecimal() and int(wanted) != file.iteration:
            found.append(f"{path}: its name says round {int(wanted)}, its content round {file.iteration}")
        agents: set[int] = set()
        for index in range(len(file)):
            try:
                pair = file[index]
            except RecordError as error:
                found.append(str(error))
                continue
            agents.add(len(pair.winner[0].prompts))
            if [turn.texts for turn in pair.winner] == [turn.texts for turn in pair.loser]:
                found.append(f"{path}: pairs[{index}]: winner and loser are the same text, so nothing can be learned")
        if len(agents) > 1:
            found.append(f"{path}: pairs of {', '.join(map(str, sorted(agents)))} agents in one file")
    return found


def convert(pairs: Sequence[tuple[int, PreferencePair]], kind: Kind, target: Path) -> str:
    """Write prompt/chosen/rejected rows to ``target``; returns what was written.

    A name that ends in ``.jsonl`` makes a JSON Lines file, any other a ``datasets`` folder.

    Raises:
        ConfigError: ``target`` exists, or the package for a folder is missing.

    """
    if target.exists():
        raise ConfigError(f"--to: {target} exists already; choose another name")
    rows: list[dict[str, Any]] = [dict(row) for row in export((pair for _, pair in pairs), kind)]
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".jsonl":
        with target.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        try:
            from datasets.arrow_dataset import Dataset
        except ImportError as error:
            raise ConfigError(
                f"--to: {target} is no .jsonl file, and a datasets folder needs `pip install 'comlrl-kit[datasets]'`"
            ) from error
        Dataset.from_list(rows).save_to_disk(str(target))
    return f"{len(rows)} rows of prompt, chosen and rejected in {target}"


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= LONGEST_TEXT else one_line[: LONGEST_TEXT - 1] + "…"
