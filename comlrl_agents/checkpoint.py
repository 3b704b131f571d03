"""Checkpoints: the whole state of a run, written so that a half-written one is never taken for whole.

A checkpoint is a folder ``checkpoints/step_00000042``: ``state.json`` (counters, random streams, replay index, item
schedule, positions of the logs, configuration), ``weights/agent_0.safetensors`` …, ``learner.pt``, the round files in
``pairs/`` and saved policies in ``policies/``. It is staged under another name, flushed, listed in ``manifest.json``
with all sizes, and renamed: the rename is the commit.
"""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from comlrl_env.errors import CheckpointError

MANIFEST = "manifest.json"


def write_checkpoint(folder: Path, name: str, fill: Callable[[Path], None], limit: int | None) -> Path:
    """Stage what ``fill`` writes, commit it as ``folder/name`` and delete the oldest beyond ``limit``."""
    staged = folder / f".staged-{name}"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    fill(staged)
    files = [path for path in sorted(staged.rglob("*")) if path.is_file()]
    (staged / MANIFEST).write_text(json.dumps({str(p.relative_to(staged)): p.stat().st_size for p in files}))
    for path in [*files, staged / MANIFEST]:
        _flush(path)
    target = folder / name
    if target.exists():
        shutil.rmtree(target)
    staged.rename(target)
    _flush(folder)
    if limit is not None:
        for old in complete_checkpoints(folder)[:-limit]:
            shutil.rmtree(old)
    return target


def complete_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first; staged and damaged ones are not among them."""
    found = sorted(folder.glob("step_*")) if folder.is_dir() else []
    return [path for path in found if is_complete(path)]


def is_complete(path: Path) -> bool:
    """Whether every file that the manifest lists is there with its size."""
    try:
        sizes = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return all((path / f).is_file() and (path / f).stat().st_size == size for f, size in sizes.items())


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint, or None."""
    whole = complete_checkpoints(folder)
    return whole[-1] if whole else None


def read_state(path: Path) -> dict[str, Any]:
    """The ``state.json`` of a checkpoint.

    Raises:
        CheckpointError: the folder is not a whole checkpoint.

    """
    if not is_complete(path):
        raise CheckpointError(
            f"{path}: is not a whole checkpoint (its manifest is missing or does not match its files); name "
            "another one, or resume from the run folder, which takes the newest whole one"
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
    """Optimizer state: tensors and plain values."""
    torch.save(state, path)


def load_tensors(path: Path) -> Any:
    """What :func:`save_tensors` wrote; nothing in the file can run code.

    Raises:
        CheckpointError: the file is damaged.

    """
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path}: is damaged ({error}); resume from another checkpoint") from error


def mirror(source: Path, target: Path) -> None:
    """Bring files (that are never changed in place) into ``target``, as links where the file system allows it."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(source).parts):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.unlink(missing_ok=True)
            try:
                os.link(path, copy)
            except OSError:
                shutil.copy2(path, copy)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
