"""Round files: the preference pairs of one round on disk, written atomically, read in constant memory.

A file is ``{"iteration": 1, "num_pairs": N, "pairs": [...]}`` in UTF-8 with one pair per line, so that each
pair is found by its byte offset. JSON of any other layout is read too, then as a whole.
"""

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, overload

import msgspec

from comlrl_env.errors import RecordError
from comlrl_env.pair_export import export
from comlrl_env.pair_records import (
    decode_pair,
    encode_pair,
    pair_from_json,
    pair_from_line,
    pair_to_line,
    parse_json,
)
from comlrl_env.types import PreferencePair

__all__ = [
    "Round",
    "RoundFile",
    "decode_pair",
    "encode_pair",
    "export",
    "read_round",
    "round_path",
    "write_round",
]

_HEAD = re.compile(rb'\{"iteration": (\d+), "num_pairs": (\d+), "pairs": \[\n')


class Round(msgspec.Struct, frozen=True):
    """The pairs of one round; ``iteration`` counts from 1."""

    iteration: int
    pairs: list[PreferencePair]


def round_path(directory: str | os.PathLike[str], iteration: int) -> Path:
    """Where the round's file lies: ``iteration_0001.json`` and so on."""
    if isinstance(iteration, bool) or not isinstance(iteration, int) or iteration < 1:
        raise RecordError(f"iteration: expected an integer ≥ 1, actually {iteration!r}")
    return Path(directory) / f"iteration_{iteration:04d}.json"


def write_round(directory: str | os.PathLike[str], iteration: int, pairs: Sequence[PreferencePair]) -> Path:
    """Write a round's file, also when it has no pair; a reader sees the old file or the whole new one.

    Raises RecordError, and leaves no trace, when a pair cannot be stored (a reward that is not finite, lists
    of different lengths).
    """
    path = round_path(directory, iteration)
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.part")
    try:
        with staged.open("wb") as file:
            file.write(b'{"iteration": %d, "num_pairs": %d, "pairs": [\n' % (iteration, len(pairs)))
            for number, pair in enumerate(pairs):
                line = pair_to_line(pair, f"{path}: pairs[{number}]")
                file.write(line + (b",\n" if number + 1 < len(pairs) else b"\n"))
            file.write(b"]}\n")
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return path


def read_round(path: str | os.PathLike[str]) -> Round:
    """All pairs of a round's file, whoever wrote it. Raises RecordError when it is malformed."""
    file = RoundFile(path)
    return Round(file.iteration, list(file))


class RoundFile(Sequence[PreferencePair]):
    """A round's file as a sequence that reads each pair when it is asked for.

    Only offsets are kept, eight bytes per pair; a file that is not laid out one pair per line is kept as
    parsed JSON. Raises RecordError at construction when the file as a whole is malformed, and on access when
    a pair is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.iteration = 0
        self._starts: array[int] = array("Q")
        self._parsed: list[Any] = []
        try:
            if not self._index_lines():
                self._parse()
        except OSError as error:
            raise RecordError(f"{self.path}: expected a readable file of pairs, actually {error}") from error

    def __len__(self) -> int:
        return len(self._parsed) or max(0, len(self._starts) - 1)

    @overload
    def __getitem__(self, index: int) -> PreferencePair: ...
    @overload
    def __getitem__(self, index: slice) -> list[PreferencePair]: ...
    def __getitem__(self, index: int | slice) -> PreferencePair | list[PreferencePair]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        with self.path.open("rb") as file:
            return self._read(file, position)

    def __iter__(self) -> Iterator[PreferencePair]:
        with self.path.open("rb") as file:
            for position in range(len(self)):
                yield self._read(file, position)

    def _read(self, file: BinaryIO, position: int) -> PreferencePair:
        where = f"{self.path}: pairs[{position}]"
        if self._parsed:
            return pair_from_json(self._parsed[position], where)
        file.seek(self._starts[position])
        line = file.read(self._starts[position + 1] - self._starts[position])
        return pair_from_line(line.rstrip().removesuffix(b","), where)

    def _index_lines(self) -> bool:
        """Note where each line starts; False if the file is not laid out as :func:`write_round` does it."""
        with self.path.open("rb") as file:
            head = _HEAD.fullmatch(file.readline())
            if head is None:
                return False
            self._starts.append(file.tell())
            for line in file:
                if line == b"]}\n":
                    break
                self._starts.append(self._starts[-1] + len(line))
            else:
                return False
        self.iteration = int(head[1])
        self._check_count(len(self._starts) - 1, int(head[2]))
        return True

    def _parse(self) -> None:
        content = parse_json(self.path.read_bytes(), str(self.path))
        pairs = content.get("pairs") if isinstance(content, dict) else None
        iteration = content.get("iteration") if isinstance(content, dict) else None
        if not isinstance(pairs, list) or not isinstance(iteration, int) or isinstance(iteration, bool):
            raise RecordError(
                f'{self.path}: expected {{"iteration": 1, "num_pairs": N, "pairs": [...]}}, actually '
                f"iteration {iteration!r} and pairs of type {type(pairs).__name__}"
            )
        self.iteration = iteration
        self._check_count(len(pairs), content.get("num_pairs", len(pairs)))
        self._parsed = pairs

    def _check_count(self, found: int, stated: Any) -> None:
        if found != stated:
            raise RecordError(f"{self.path}: num_pairs: expected {stated!r} pairs, actually {found}")


def _sync_directory(directory: Path) -> None:
    """Make the rename itself survive a power cut, where directories can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
