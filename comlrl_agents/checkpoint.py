"""Checkpoints: the whole state of a run, written so that a half-written one is never taken for whole.

A checkpoint is a folder ``checkpoints/step_00000042``: ``state.json`` (counters, random streams, replay index, item
schedule, positions of the logs, configuration), ``weights/agent_0.safetensors`` …, ``learner.pt``, the round files in
``pairs/`` and saved policies in ``policies/``. It is staged under another name, flushed, listed in ``manifest.json``
with all sizes and checksums, and renamed: the rename is the commit.
"""

import json
import os
import pickle
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from comlrl_env.errors import CheckpointError

MANIFEST = "manifest.json"


def write_checkpoint(folder: Path, name: str, fill: Callable[[Path], None], limit: int | None) -> Path:
    """Stage what ``fill`` writes, commit it as ``folder/name`` and delete what is older than the last ``limit``."""
    for abandoned in folder.glob(".staged-*"):
        shutil.rmtree(abandoned)
    staged = folder / f".staged-{name}"
    staged.mkdir(parents=True)
    try:
        fill(staged)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)  # a full disk needs the room
        raise
    files = [path for path in sorted(staged.rglob("*")) if path.is_file()]
    listed = {str(p.relative_to(staged)): {"bytes": p.stat().st_size, "crc32": _checksum(p)} for p in files}
    (staged / MANIFEST).write_text(json.dumps(listed))
    for path in [*files, staged / MANIFEST]:
        _flush(path)
    target = folder / name
    if target.exists():
        shutil.rmtree(target)
    staged.rename(target)
    _flush(folder)
    if limit is not None:
        oldest_kept = complete_checkpoints(folder)[-limit:][0]
        for old in folder.glob("step_*"):  # half-deleted ones too
            if old.name < oldest_kept.name:
                shutil.rmtree(old)
    return target


def complete_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first; staged and damaged ones are not among them."""
    found = sorted(folder.glob("step_*")) if folder.is_dir() else []
    return [path for path in found if is_complete(path)]


def is_complete(path: Path) -> bool:
    """Whether every file that the manifest lists is there with its size."""
    try:
        listed = json.loads((path / MANIFEST).read_text())
        return all((path / name).stat().st_size == file["bytes"] for name, file in listed.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # whatever is no manifest
        return False


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint, or None."""
    whole = complete_checkpoints(folder)
    return whole[-1] if whole else None


def read_state(path: Path) -> dict[str, Any]:
    """The ``state.json`` of a checkpoint, after every file of it has been compared with its checksum.

    Raises:
        CheckpointError: the folder is not a whole checkpoint, or a file in it is damaged.

    """
    if not is_complete(path):
        raise CheckpointError(
            f"{path}: is not a whole checkpoint (its manifest is missing or does not match its files); name "
            "another one, or resume from the run folder, which takes the newest whole one"
        )
    for name, file in json.loads((path / MANIFEST).read_text()).items():
        if _checksum(path / name) != file["crc32"]:
            raise CheckpointError(
                f"{path / name}: is damaged: its checksum is not the one that was written; restore the file from a "
                f"copy, or delete {path} to resume from the checkpoint before it"
            )
    state: dict[str, Any] = json.loads((path / "state.json").read_text())
    return state


def refuse_misfit(saved: Mapping[str, Any], now: Mapping[str, Any], free: frozenset[str], path: Path) -> None:
    """Compare what a checkpoint was written with to what the run asks for, before anything changes.

    Raises:
        CheckpointError: a field outside ``free`` differs; it is named with both values.

    """
    for name in sorted(set(saved) | set(now)):
        if name not in free and saved.get(name) != now.get(name):
            raise CheckpointError(
                f"{path}: {name} was {saved.get(name)!r} when the checkpoint was written and is {now.get(name)!r} now; "
                "give the old value, or start a new run in another output_dir"
            )


def save_tensors(state: Any, path: Path) -> None:
    """Optimizer state: tensors and plain values. Raises OSError when the file cannot be written."""
    try:
        torch.save(state, path)
    except RuntimeError as error:  # torch's own way of saying that a disk is full
        raise OSError(f"{path}: {str(error).splitlines()[0]}") from error


def load_tensors(path: Path) -> Any:
    """What :func:`save_tensors` wrote; nothing in the file can run code.

    Raises:
        CheckpointError: the file is damaged.

    """
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: is damaged ({error}); resume from another checkpoint") from error


def mirror(source: Path, target: Path, *, linked: bool = False, names: str = "**/*") -> None:
    """Bring the files of these ``names`` into ``target``; ``linked``: as links where the file system allows it, for
    files that nobody opens in an editor, which may change them in place.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob(names)):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            if not (linked and _link(path, copy)):
                shutil.copy2(path, copy)


def _link(path: Path, copy: Path) -> bool:
    try:
        os.link(path, copy)
    except OSError:
        return False
    return True


def _checksum(path: Path) -> int:
    """CRC-32: it finds accidents, not malice, and is the fastest that Python brings."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
