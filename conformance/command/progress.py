"""The progress of a run, shown as a bar on a terminal, elsewhere as lines. `main` shows it on stderr: stdout gets the results."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from metadata.common.clock import Clock

EVERY = 10.0
"""The least time between two lines of progress, in seconds."""


class Progress(Protocol):
    """The methods by which a suite reports its progress."""

    def begin(self, suite: str, total: int | None) -> None:
        """Report that a suite begins. `total`: how many steps it has; None if that is unknown."""

    def at(self, what: str) -> None:
        """Report the step that is running now."""

    def advance(self, steps: int = 1) -> None:
        """Add to the number of finished steps."""

    def say(self, text: str) -> None:
        """Print a line that stays in the output."""


class Shown(Progress, AbstractContextManager["Shown"], Protocol):
    """A `Progress` that is displayed. It is a context manager, whose end removes the bar."""


def shown(out: TextIO, clock: Clock) -> Shown:
    """Return a `Bar` if `out` is a terminal, else `Lines`."""
    return Bar(out) if out.isatty() else Lines(out, clock)


class Lines:
    """Plain lines with the seconds since the start of the run, for a file or a pipe."""

    def __init__(self, out: TextIO, clock: Clock) -> None:
        self._out, self._clock = out, clock
        self._began = self._last = clock.monotonic()
        self._suite, self._total, self._done = "", 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._out.flush()

    def begin(self, suite: str, total: int | None) -> None:
        self._suite, self._total, self._done = suite, total or 0, 0
        self.say(f"{suite}: {total} to do" if total else suite)

    def at(self, what: str) -> None:
        self._tell_after_a_while(what)

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        self._tell_after_a_while("")

    def say(self, text: str) -> None:
        self._last = self._clock.monotonic()
        self._out.write(f"{self._last - self._began:6.0f} s  {text}\n")
        self._out.flush()

    def _tell_after_a_while(self, what: str) -> None:
        if self._clock.monotonic() - self._last >= EVERY:
            far = f"{self._done} of {self._total} done" if self._total else f"{self._done} done"
            self.say(f"{self._suite}: {far}" + (f", at {what}" if what else ""))


class Bar:
    """A progress bar for the running suite, drawn by the library rich."""

    def __init__(self, out: TextIO) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._console = Console(file=out, highlight=False, soft_wrap=True)
        self._bars = Bars(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self._console, transient=True)
        self._task: TaskID | None = None
        self._suite = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, suite: str, total: int | None) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._suite, self._task = suite, self._bars.add_task(suite, total=total)

    def at(self, what: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, description=f"{self._suite}: {what}")

    def advance(self, steps: int = 1) -> None:
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)
