"""The folder of one run: whose it is, what it was started with, and where its parts lie."""

import fcntl
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from comlrl_env.errors import ConfigError

PACKAGES = (
    "comlrl-kit",
    "torch",
    "transformers",
    "numpy",
    "gymnasium",
    "pettingzoo",
    "msgspec",
    "safetensors",
)


class RunFolder:
    """Names of everything inside an ``output_dir``; raises ConfigError when nothing can be written there."""

    def __init__(self, output_dir: str | Path) -> None:
        self.path = usable_folder("output_dir", output_dir)
        self.config = self.path / "config.yaml"
        self.command = self.path / "command.txt"
        self.checkpoints = self.path / "checkpoints"
        self.pairs = self.path / "pairs"
        self.policies = self.path / "policies"
        self.model = self.path / "model"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Within, nobody else trains here. Raises ConfigError when somebody does already."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"output_dir: another run is under way in {self.path}; wait for it, or choose another folder"
                ) from None
            except OSError:  # a file system without locks
                pass
            try:
                yield
            finally:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)  # also where a process that was forked meanwhile holds it open

    def refuse_if_used(self) -> None:
        """Raises ConfigError when another run lies here: nothing of it is touched."""
        if self.config.exists():
            raise ConfigError(
                f"output_dir: {self.path} already holds a run; choose another folder, or continue that run with "
                "resume_from_checkpoint=True (--resume on the command line)"
            )

    def write_command(self, command: str | None, *, resumed: bool) -> None:
        """Keep the command line, if there was one, in ``command.txt``; a resume adds its own."""
        if command is not None:
            with self.command.open("a" if resumed else "w", encoding="utf-8") as file:
                file.write(command + "\n")

    def write_config(self, config: Mapping[str, Any], run: Mapping[str, Any]) -> None:
        """``config.yaml`` (the run's own keys, then all fields) and ``versions.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_settings({**run, **config})
        versions = {"python": platform.python_version(), "platform": platform.platform()}
        for name in PACKAGES:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:  # a source tree that was never installed
                versions[name] = "not installed"
        (self.path / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")

    def renew_config(self, config: Mapping[str, Any]) -> None:
        """What a resume has changed, so that the next one without any keys goes on with it."""
        if self.config.is_file():
            before = yaml.safe_load(self.config.read_text(encoding="utf-8"))
            self._write_settings({**before, **config})

    def _write_settings(self, settings: Mapping[str, Any]) -> None:
        staged = self.config.with_suffix(".staged")
        staged.write_text(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True), encoding="utf-8")
        staged.replace(self.config)


def own_folder(algorithm: str) -> str:
    """A folder for one run that nobody named: ``runs/<algorithm>-<date>-<time>``, to the microsecond."""
    return f"runs/{algorithm}-{datetime.now():%Y%m%d-%H%M%S-%f}"


def usable_folder(field: str, folder: str | Path) -> Path:
    """``folder`` as an absolute path; that it can be made and written to is tried out, and nothing stays behind.

    Raises ConfigError, naming the ``field``, when a file is in the way or nothing can be written.
    """
    if str(folder) == "":
        raise ConfigError(f"{field}: must name a folder, actually ''")
    try:
        path = Path(folder).expanduser().resolve()
        nearest = next(place for place in (path, *path.parents) if place.exists())
        # Asking for permission is not enough: root has every one, also on a file system that takes no folder.
        Path(tempfile.mkdtemp(prefix=".trial-", dir=nearest)).rmdir()
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a null character, RuntimeError: ~ of nobody
        raise ConfigError(
            f"{field}: must be a folder that can be made and written to, actually {str(folder)!r}: {error}; name "
            "another one"
        ) from error
    return path


def set_aside(folder: Path, names: str) -> Path | None:
    """Move what an earlier run left under ``names`` into a folder beside it, so that a new run overwrites nothing."""
    old = sorted(folder.glob(names)) if folder.is_dir() else []
    if not old:
        return None
    number = 1 + sum(1 for _ in folder.glob("earlier_*"))
    target = folder / f"earlier_{number:04d}"
    target.mkdir()
    for path in old:
        shutil.move(path, target / path.name)
    return target
