"""`txnsegment txns list|show|abort`."""

from __future__ import annotations

from typing import Annotated

import typer

from txnsegment.cli.shown import (
    AsJson,
    Namespace,
    ServiceUrl,
    moment,
    opened,
    place,
    say,
    show_facts,
    show_json,
    show_table,
    within,
)

app = typer.Typer(no_args_is_help=True, help="List, show and abort transactions.")

Id = Annotated[str, typer.Argument(metavar="ID", help="A transaction's id, such as 0_977.")]


@app.command("list")
def list_transactions(
    context: typer.Context,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="OPEN, COMMITTED or ABORTED; of persistent:// topics COMMITTING or ABORTING, too."),
    ] = None,
    namespace: Namespace = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """List transactions: OPEN ones, then recently ended ones, then those over persistent:// topics."""
    with opened(context, service_url) as cluster:
        found = cluster.transactions.list(state, **within(cluster, namespace))
        where = place(cluster, namespace)
    if json:
        show_json(found)
        return
    columns = ["ID", "STATE", "APPLICATION", "TOPIC", "VERSION", "CREATED"]
    rows: list[list[object]] = [[t.id, t.state, t.app, t.topic, t.version, moment(t.created_ms)] for t in found]
    if any(t.finalized_ms is not None or t.commit is not None for t in found):  # Pulsar tells neither of the two
        columns += ["ENDED", "LOG NUMBER"]
        rows = [[*row, moment(t.finalized_ms), t.commit] for row, t in zip(rows, found, strict=True)]
    show_table(
        columns, rows, empty=f"There are no transactions{where}." if state is None else f"No transaction{where} is {state.upper()}."
    )


@app.command()
def show(
    context: typer.Context, txn_id: Id, namespace: Namespace = None, json: AsJson = False, service_url: ServiceUrl = None
) -> None:
    """Show one transaction."""
    with opened(context, service_url) as cluster:
        found = cluster.transactions.get(txn_id, **within(cluster, namespace))
    if json:
        show_json(found)
        return
    show_facts(
        [
            ("id", found.id),
            ("state", found.state),
            ("application", found.app),
            ("topic", found.topic or ("several" if found.topic == "" else None)),
            ("version", found.version),
            ("owner", found.owner),
            ("created", moment(found.created_ms)),
            ("deadline", moment(found.deadline_ms)),
            ("ended", moment(found.finalized_ms)),
            ("log number", found.commit),
            (
                "takes part" if found.has_participants else "op records",
                ", ".join(found.segments) or "none (settled, or nothing recorded yet)",
            ),
        ]
    )


@app.command()
def abort(context: typer.Context, txn_id: Id, service_url: ServiceUrl = None) -> None:
    """Abort an OPEN transaction. The commit of its owner then fails."""
    with opened(context, service_url) as cluster:
        cluster.transactions.abort(txn_id)
    say(f"Transaction {txn_id} is ABORTED.")
