"""All commands put together. Errors of ours are a message and an advice on stderr and exit code 1, never a traceback."""

from __future__ import annotations

from importlib.metadata import entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metadata.common.errors import TxnSegmentError
from txnsegment.cli import backups, operations, segments, storage, subscriptions, topics, txns
from txnsegment.cli.shown import ServiceUrl, say, show_error

ENTRY_POINTS = "txnsegment.commands"
"""Entry points of this group add groups of commands: name = command, object = a `typer.Typer`."""


class Face(TyperGroup):
    """Turns our errors into what a person at a terminal can use."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TxnSegmentError as error:
            show_error(error)
            raise typer.Exit(1) from error


def _version(wanted: bool) -> None:
    if wanted:
        say(f"txnsegment {version('txnsegment')}")
        raise typer.Exit


def _root(
    service_url: ServiceUrl = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Transactional segment topics for Spark: look after a cluster, its topics and its transactions."""


def build() -> typer.Typer:
    """All commands, those of other installed packages among them."""
    app = typer.Typer(name="txnsegment", cls=Face, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    app.command()(operations.init)
    app.add_typer(topics.app, name="topics")
    app.add_typer(subscriptions.app, name="subscriptions")
    app.add_typer(txns.app, name="txns")
    app.add_typer(segments.app, name="segments")
    app.command()(operations.sweep)
    app.command()(operations.verify)
    app.command()(storage.compact)
    app.command()(operations.doctor)
    app.command()(backups.backup)
    app.command()(backups.restore)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name):
        try:
            app.add_typer(point.load(), name=point.name)
        except ImportError as error:
            say(f"The command {point.name} of {point.value} cannot be loaded and is left out: {error}", err=True)
    return app
