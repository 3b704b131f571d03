"""What a run says while it runs: lines of text, and one live line when the output is a terminal."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

BAR = 16
REDRAW_SECONDS = 0.1
HEARTBEAT_SECONDS = 15.0


class Terminal:
    """Prints lines, and shows progress: redrawn in place on a terminal, as plain lines elsewhere.

    Elsewhere (a pipe, a CI log) a line comes at the end of each phase and every 15 seconds inside a long one.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = False
        self._start = time.monotonic()
        self._last = -HEARTBEAT_SECONDS

    def line(self, text: str, style: str = "") -> None:
        """Print ``text`` above the live line; square brackets are text, not markup."""
        self._clear()
        self._console.print(Text(text, style=style), soft_wrap=True)

    def progress(self, round: int, rounds: int, phase: str, done: int, total: int, shown: Mapping[str, float]) -> None:
        """Show that ``done`` of ``total`` steps of ``phase`` are finished, with the values in ``shown``."""
        now = time.monotonic()
        finished = done >= total
        pause = REDRAW_SECONDS if self._console.is_terminal else HEARTBEAT_SECONDS
        if not finished and now - self._last < pause:
            return
        self._last = now
        elapsed = f"{int(now - self._start) // 60}:{int(now - self._start) % 60:02d}"
        values = "".join(f"  {name} {format_number(value)}" for name, value in shown.items())
        where = f"{elapsed}  round {round}/{rounds}  {phase}"
        if not self._console.is_terminal:
            self._console.print(Text(f"{where} {done}/{total}{values}"), soft_wrap=True)
            return
        self._clear()
        filled = BAR * done // max(total, 1)
        bar = "━" * filled + "╌" * (BAR - filled)
        self._console.print(Text(f"{where} {bar} {done}/{total}{values}"), end="", no_wrap=True)
        self._live = True

    def close(self) -> None:
        """Take the live line away."""
        self._clear()

    def _clear(self) -> None:
        if self._live:
            self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))
            self._live = False


def format_number(value: float) -> str:
    """Four significant digits, whole numbers as they are."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def quiet_loading() -> None:
    """Keep transformers' own progress bars away: they would tear the live line. Imports transformers."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
