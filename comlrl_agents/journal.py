"""Append-only JSON Lines files that can be cut back to a checkpoint.

JSON knows no NaN and no infinity. They are written as the texts ``"NaN"``, ``"Infinity"`` and
``"-Infinity"``, never as ``null``; :func:`read_numbers` turns them back into floats.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comlrl_env.errors import CheckpointError, RecordError

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it; a number of NumPy or torch becomes a Python number.

    Raises TypeError for anything that has no obvious JSON form.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _spell(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return plain(value.tolist())
    raise TypeError(
        "expected text, numbers, lists or dictionaries for a JSON Lines file, "
        f"actually {type(value).__name__}: {value!r}"
    )


def _spell(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


class Journal:
    """One JSON Lines file to append to; a record is one write, so that a killed run tears at most one.

    The file is made at once and held open by nobody.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record as one line. Lone surrogates are kept as JSON escapes."""
        line = json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode("utf-8", errors="backslashreplace"))

    def position(self) -> int:
        """The length of the file in bytes, after everything written has reached the disk."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def require(self, position: int) -> None:
        """Raise CheckpointError when the file is shorter than ``position``."""
        length = self.position()
        if length < position:
            raise CheckpointError(
                f"{self.path}: the checkpoint needs its first {position} bytes, but the file has {length}; "
                "it was cut or replaced after the checkpoint was written: "
                "restore it, or start in a new output_dir"
            )

    def truncate(self, position: int) -> None:
        """Drop what was written after ``position``."""
        self.require(position)
        os.truncate(self.path, position)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON Lines file; a last line without its newline (a torn write) is left out.

    A missing file has no records. Raises RecordError, naming the line, when another line is no JSON object.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_record(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _record(line: bytes, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise RecordError(f"{place}: expected a JSON object, actually {line[:80]!r}; mend or remove the line")
    return record


def read_numbers(path: Path) -> list[dict[str, float]]:
    """The records of a file of numbers, e.g. ``metrics.jsonl``, with NaN and infinity back as floats."""
    return [
        {name: SPECIAL[value] if isinstance(value, str) else value for name, value in record.items()}
        for record in read_journal(path)
    ]
