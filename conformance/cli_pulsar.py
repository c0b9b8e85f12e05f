"""The command `txnsegment pulsar start`. It runs a broker for development, whose jars Maven downloads."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from conformance.cli_servers import Data, data_folder, stopped

_LOOK_SECONDS: Final = 1.0
"""How often the command looks whether the broker still runs."""
app = typer.Typer(no_args_is_help=True, help="A Pulsar 5 broker for development, on this machine only.")


@app.callback()
def group() -> None:
    """A Pulsar 5 broker for development, on this machine only."""


@app.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen on 127.0.0.1 (0: a free port).")] = 6650,
    web_port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the REST interface (0: a free port).")] = 8080,
    data: Data = None,
) -> None:
    """Start one broker, with its bookie and ZooKeeper, and keep it until SIGTERM or SIGINT. Maven downloads the jars once."""
    from conformance.pulsar_jars import VERSION  # imported late, because no other command needs it
    from conformance.pulsar_server import PulsarBroker  # imported late for the same reason

    stop = stopped()
    with data_folder(data, "pulsar") as folder:
        typer.echo(f"Pulsar {VERSION} starts, which takes some 20 s; the first start on a machine downloads 230 MB.")
        with PulsarBroker(folder, port=port, web_port=web_port) as broker:
            typer.echo(f"Pulsar serves on {broker.url}, its REST interface on {broker.admin_url}; its data is in {folder}.")
            while not stop.wait(_LOOK_SECONDS):
                if not broker.running:
                    typer.echo(f"The broker has ended. The end of its log, {broker.log}:", err=True)
                    typer.echo(broker.log.read_text(errors="replace")[-2000:], err=True)
                    raise typer.Exit(1)
