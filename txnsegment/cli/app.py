"""Builds the command `txnsegment`. A TxnSegmentError is shown as its message and advice on stderr, with exit code 1 and no
traceback.
"""

from __future__ import annotations

from importlib.metadata import entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metadata.common.errors import TxnSegmentError
from txnsegment.cli import backups, look, operations, segments, storage, subscriptions, topics, txns
from txnsegment.cli.shown import ServiceUrl, say, show_error

ENTRY_POINTS = "txnsegment.commands"
"""The entry-point group in which other packages register their command groups. The name of an entry point is the name of the
command group. The entry point's object is a `typer.Typer`.
"""


class Face(TyperGroup):
    """The root command group. It shows a TxnSegmentError as text in place of a traceback."""

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
    """Transactional segment topics for Spark: manage a cluster, its topics and its transactions."""


def build() -> typer.Typer:
    """Return the whole command, including groups of other installed packages."""
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
    app.command()(look.ui)
    app.command()(look.top)
    app.command()(backups.backup)
    app.command()(backups.restore)
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name):
        try:
            app.add_typer(point.load(), name=point.name)
        except ImportError as error:
            say(f"The command {point.name} of {point.value} cannot be loaded and is left out: {error}", err=True)
    return app
