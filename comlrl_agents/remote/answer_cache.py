"""Answers on disk, so that a round that is collected again costs nothing and gives the same."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


class AnswerCache:
    """One file per request. ``draw`` is a number of the run's random stream, so that rounds differ and resumes do not.

    Neither the key nor any header is part of what is stored.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, target: str, body: bytes, draw: int, number: int) -> Path:
        """Where the answer to the request lies; ``number`` tells equal requests of one call apart."""
        name = hashlib.sha256(b"\0".join([target.encode(), body, str(draw).encode(), str(number).encode()]))
        return self.folder / f"{name.hexdigest()}.json"

    def read(self, path: Path) -> Any:
        """The stored answer, None where there is none or it is damaged."""
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, path: Path, payload: Any) -> None:
        """Keep an answer: staged and renamed, so that a half-written one is never read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(f".{os.getpid()}.part")
        staged.write_text(json.dumps(payload), encoding="utf-8")
        staged.replace(path)
