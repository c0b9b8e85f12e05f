"""`txnsegment segments show`."""

from __future__ import annotations

from typing import Annotated

import typer

from txnsegment.cli.shown import AsJson, ServiceUrl, opened, say, show_json, show_table, size

app = typer.Typer(no_args_is_help=True, help="Show the segments of a topic.")


@app.callback()
def group() -> None:
    """Show the segments of a topic."""


@app.command()
def show(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="topic://tenant/namespace/name, a bare name, or persistent://..")],
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Show the maxReadPosition, watermark, undecided transactions and committed ledgers of each segment."""
    with opened(context, service_url) as cluster:
        found = cluster.segments(topic)
    if json:
        show_json(found)
        return
    say(f"{found.topic}: everything up to {found.cut} is decided, the log ends at {found.end_of_log}.\n")
    rows = [
        (
            s.name,
            s.state,
            s.max_read_position,
            s.watermark,
            ", ".join(f"{number} ({txn})" for number, txn in s.undecided),
            s.ledgers,
            s.parts,
            s.rows,
            size(s.bytes),
        )
        for s in found.segments
    ]
    columns = ("SEGMENT", "STATE", "MAX READ POSITION", "WATERMARK", "UNDECIDED", "LEDGERS", "PARTS", "ROWS", "BYTES")
    show_table(columns, rows, empty="It has no segments.")
