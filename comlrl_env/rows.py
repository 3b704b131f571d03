"""Rows of public data sets: from local files, or from the Hub at a pinned revision. No task needs them by default."""

import csv
import gzip
import importlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comlrl_env.errors import TaskError
from comlrl_env.items import SPLITS
from comlrl_env.types import Item

HUB = "hub"
FORMATS = (".json", ".jsonl", ".csv", ".parquet")
_COMMIT = re.compile(r"[0-9a-f]{40}")

Row = dict[str, Any]


@dataclass(frozen=True)
class PublicData:
    """Where a data set is published and which of its rows are ours.

    ``repo``: its name on the Hub, ``config`` its configuration there, with ``{split}`` for the split's name where each
    split has one of its own. ``fields``: what every row must have.
    ``splits``: our split -> theirs. ``eval_rows``: how many rows evaluation uses, the first ones of its split. Where
    both splits are one, or all rows stand in one file, evaluation has the first ``eval_rows`` (at most a quarter) and
    training the rest.
    """

    repo: str
    fields: tuple[str, ...]
    splits: Mapping[str, str]
    eval_rows: int
    config: str | None = None

    def items(self, data: str, revision: str | None = None) -> dict[str, list[Item]]:
        """The items of both splits; ``data`` is ``"hub"``, a file, or a folder with one file (or more) per split.

        A file's name begins with the split's name there (``train.jsonl``, ``test-00000-of-00001.parquet``). Rows
        that stand twice are taken once, and those of evaluation are not in training. Raises :class:`TaskError`
        when there is nothing to read, a field is missing, or the Hub is asked for without a commit.
        """
        theirs = set(self.splits.values())
        found = {name: list(self._read(data, name, revision)) for name in sorted(theirs)}
        if len(theirs) == 1 or found[self.splits["train"]] == found[self.splits["eval"]]:
            (every, *_) = found.values()
            cut = min(self.eval_rows, len(every) // 4)
            parts = {"train": every[cut:], "eval": every[:cut]}
        else:
            parts = {"train": found[self.splits["train"]], "eval": found[self.splits["eval"]][: self.eval_rows]}
        seen: set[str] = set()
        items: dict[str, list[Item]] = {}
        for split in ("eval", "train"):
            items[split] = []
            for index, row in enumerate(parts[split]):
                mark = json.dumps([row[name] for name in self.fields], sort_keys=True, default=str)
                if mark not in seen:
                    seen.add(mark)
                    items[split].append(Item(key=f"{split}/{index}", data=row))
        empty = [split for split in SPLITS if not items[split]]
        if empty:
            raise TaskError(f"data: expected rows for train and eval, actually {data!r} leaves none for {empty[0]}")
        return items

    def _read(self, data: str, split: str, revision: str | None) -> Iterator[Row]:
        rows = self._from_hub(split, revision) if data == HUB else read_files(self._files(Path(data), split))
        for number, row in enumerate(rows):
            missing = [name for name in self.fields if row.get(name) is None]
            if missing:
                raise TaskError(
                    f"data: expected the fields {', '.join(self.fields)} in every row, actually row {number} of "
                    f"{data!r} lacks {', '.join(missing)} and has {', '.join(sorted(map(str, row)))}"
                )
            yield row

    def _files(self, path: Path, split: str) -> list[Path]:
        if path.is_file():
            return [path]
        found = [p for p in sorted(path.glob(f"{split}*")) if _suffix(p) in FORMATS] if path.is_dir() else []
        if not found:
            raise TaskError(
                f"data: expected a file ({', '.join(FORMATS)}, also with .gz), a folder with files named {split}…, or "
                f"'hub' with revision=…, actually {str(path)!r} has none"
            )
        return found

    def _from_hub(self, split: str, revision: str | None) -> list[Row]:
        if revision is None or not _COMMIT.fullmatch(revision):
            raise TaskError(
                f"revision: expected the commit of {self.repo} on the Hub in 40 hexadecimal digits, actually "
                f"{revision!r}; a branch can change under a run. Its page lists the commits"
            )
        try:
            datasets = importlib.import_module("datasets")
        except ImportError:
            raise TaskError(
                f"data: {self.repo} comes from the Hub through the package datasets, which is not installed; "
                "run: pip install datasets, or name a local file"
            ) from None
        config = self.config and self.config.format(split=split)
        return [dict(row) for row in datasets.load_dataset(self.repo, config, split=split, revision=revision)]


def read_files(paths: Sequence[Path]) -> list[Row]:
    """The rows of JSON (a list of objects), JSON lines, CSV or Parquet files, one after the other.

    Raises :class:`TaskError` for anything else, and for Parquet without the package pyarrow.
    """
    rows: list[Any] = []
    for path in paths:
        kind = _suffix(path)
        if kind == ".parquet":
            try:
                parquet = importlib.import_module("pyarrow.parquet")
            except ImportError:
                raise TaskError(f"data: {path} needs the package pyarrow; run: pip install pyarrow") from None
            rows += parquet.read_table(path).to_pylist()
            continue
        try:
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            text = raw.decode("utf-8")
            if kind == ".csv":
                rows += csv.DictReader(io.StringIO(text))
            elif kind == ".jsonl":
                # Not splitlines: it also cuts at characters that JSON allows inside a text.
                rows += [json.loads(line) for line in text.split("\n") if line.strip()]
            elif kind == ".json":
                rows += json.loads(text)
            else:
                raise TaskError(f"data: expected one of {', '.join(FORMATS)}, actually {path}")
        except (OSError, ValueError, TypeError, EOFError) as error:
            raise TaskError(f"data: cannot read {path}: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise TaskError(f"data: expected objects with named fields in {paths[0]}, actually other values")
    return rows


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
