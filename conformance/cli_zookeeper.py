"""The command `txnsegment zookeeper start`. It runs a development server from the jars that come with pyspark."""

from __future__ import annotations

from typing import Annotated

import typer

from conformance.cli_servers import Data, data_folder, stopped

app = typer.Typer(no_args_is_help=True, help="A ZooKeeper server for development, on this machine only.")


@app.callback()
def group() -> None:
    """A ZooKeeper server for development, on this machine only."""


@app.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen on 127.0.0.1 (0: a free port).")] = 2181,
    data: Data = None,
) -> None:
    """Start one server and keep it until SIGTERM or SIGINT."""
    from conformance.zookeeper_server import ZooKeeperServer  # imported late, because no other command needs it

    stop = stopped()
    with data_folder(data, "zookeeper") as folder, ZooKeeperServer(folder, port=port or None) as server:
        typer.echo(f"ZooKeeper serves on {server.hosts}; its data is in {folder}.")
        typer.echo(f"Make a cluster on it: txnsegment init zk://{server.hosts}/txnsegment --ledgers file:///path/of/ledgers")
        stop.wait()
