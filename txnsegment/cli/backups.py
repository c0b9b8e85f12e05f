"""`txnsegment backup|restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txnsegment.backup import restore as restore_backup
from txnsegment.cli.operations import duration
from txnsegment.cli.shown import AsJson, ServiceUrl, given_url, moment, opened, say, show_json, size


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    patience: Annotated[str | None, typer.Option(metavar="5m", help="How long it may take on a busy cluster.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Write the cluster's metadata into a file, consistent while writers run. Rows stay in the ledgers' files, which it names."""
    seconds = None if patience is None else duration("--patience", patience)
    with opened(context, service_url) as cluster:
        made = cluster.backup(file, patience=seconds)
    if json:
        show_json(made)
        return
    say(
        f"{made.file}: {made.topics} topics up to number {made.number} of the log at {moment(made.taken_ms)}, "
        f"{made.records} records, {size(made.bytes)}."
    )
    days = made.good_for_ms / 86_400_000
    say(f"It can be restored for {days:g} days at the least: so long the files in {made.ledgers} are kept.")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What backup wrote.")],
    ledgers: Annotated[str | None, typer.Option(metavar="URI", help="Where the ledgers' files were moved to.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Make the cluster of a backup in an empty folder or chroot (--service-url). It takes the ledgers over from the old cluster."""
    made = restore_backup(file, given_url(context, service_url), ledgers=ledgers)
    if json:
        show_json(made)
        return
    if made.again:
        say(f"This backup was restored into {made.url} before, completely. Nothing was changed.")
        return
    say(
        f"Restored {made.records} records into {made.url}, over the ledgers in {made.ledgers}: all up to number {made.number} of "
        f"the log. It goes on at {made.next_number}. The cluster of the backup can be opened no more."
    )
