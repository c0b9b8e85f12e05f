"""Functions that the commands for development servers share."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path | None, typer.Option(help="Folder of its data; default: a temporary one, deleted at the end.")]


def stopped() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def data_folder(given: Path | None, server: str) -> Iterator[Path]:
    """Yield the folder for a server's data: the folder `given`, or, if that is None, a temporary folder, which is deleted at the
    end. The name of the temporary folder contains `server`.
    """
    if given is not None:
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix=f"txnsegment-{server}-") as folder:
        yield Path(folder)
