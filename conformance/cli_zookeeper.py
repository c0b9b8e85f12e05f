"""The command `txnsegment zookeeper start`. It runs a development server from the jars that come with pyspark."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from conformance.servers import ZooKeeperServer

app = typer.Typer(no_args_is_help=True, help="A ZooKeeper server for development, on this machine only.")


@app.callback()
def group() -> None:
    """A ZooKeeper server for development, on this machine only."""


@app.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen on 127.0.0.1 (0: a free port).")] = 2181,
    data: Annotated[Path | None, typer.Option(help="Folder of its data; default: a temporary one, deleted at the end.")] = None,
) -> None:
    """Start one server and keep it until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _folder(data) as folder, ZooKeeperServer(folder, port=port or None) as server:
        typer.echo(f"ZooKeeper serves on {server.hosts}; its data is in {folder}.")
        typer.echo(f"Make a cluster on it: txnsegment init zk://{server.hosts}/txnsegment --ledgers file:///path/of/ledgers")
        stop.wait()


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="txnsegment-zookeeper-") as folder:
        yield Path(folder)
