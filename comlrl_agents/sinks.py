"""Where metrics go besides the run folder's own files: TensorBoard, experiment trackers, a class of yours."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from comlrl_env.errors import ConfigError

CONSOLE = "console"


class Sink(Protocol):
    """Takes metrics. ``report_to="my_module:MySink"`` makes one by calling ``MySink(folder, purge_step)``.

    ``purge_step`` is None in a fresh run; on resume it is the first step that will be logged again.
    """

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step; called in the order of the steps, more than once for one step."""
        ...

    def close(self) -> None:
        """Send what is still buffered; called once at the end."""
        ...


class TensorBoardSink:
    """Scalars in ``<folder>/tensorboard``."""

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        # Imported here because it costs about two seconds.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar per metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and stop the writer's thread."""
        self._writer.close()


class WandbSink:
    """A run in Weights & Biases, named after the run folder; all else comes from wandb's environment variables."""

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        self._wandb = importlib.import_module("wandb")
        self._wandb.init(project="comlrl", name=folder.resolve().name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step."""
        self._wandb.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._wandb.finish()


BUILT_IN: dict[str, tuple[str, Callable[[Path, int | None], Sink]]] = {
    "tensorboard": ("tensorboard", TensorBoardSink),
    "wandb": ("wandb", WandbSink),
}
"""Name in ``report_to`` → (the package it needs, how it is made)."""


def find_sinks(report_to: Sequence[str]) -> list[Callable[[Path, int | None], Sink]]:
    """The makers of the sinks named in ``report_to``; ``"console"`` is no sink and is passed over.

    Raises ConfigError, before anything is imported, for an unknown name and for a package that is missing.
    """
    if isinstance(report_to, str):
        raise ConfigError(
            f"report_to: expected a list of names, actually the text {report_to!r}; write [{report_to!r}]"
        )
    makers = []
    for name in report_to:
        if name == CONSOLE:
            continue
        if ":" in name:
            makers.append(_custom(name))
            continue
        if name not in BUILT_IN:
            known = ", ".join([CONSOLE, *BUILT_IN])
            raise ConfigError(
                f"report_to: expected names from {known} or 'module:Class', actually {name!r}; [] (report_to=none on "
                "the command line) for none at all"
            )
        package, maker = BUILT_IN[name]
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"report_to: {name!r} needs the package {package}, which is not installed; "
                f"`pip install {package}`, or leave {name!r} out"
            )
        makers.append(maker)
    return makers


def _custom(name: str) -> Callable[[Path, int | None], Sink]:
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"report_to: {name!r} cannot be imported: {error}") from error

    def make(folder: Path, purge_step: int | None) -> Sink:
        sink: Sink = found(folder, purge_step)
        return sink

    return make
