"""Shows on a terminal that a command works, what it has done so far, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from ledgers.plain_text import shown


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show a line on the standard error while the block runs: `what`, what the block has done, and the time. The line is erased at
    the end. The block gets a function that sets what it has done. If the standard error is no terminal, nothing is shown.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    # imported late, because it takes long to load, and only terminals need it
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(escape(shown(what)))
        yield lambda done: progress.update(task, description=escape(shown(f"{what}: {done}")))
