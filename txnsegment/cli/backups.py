"""`txnsegment backup|restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txnsegment.cli.operations import duration
from txnsegment.cli.shown import AsJson, ServiceUrl, given_url, moment, opened, say, show_json, size
from txnsegment.cli.working import working


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup file to write; it must not exist.")],
    patience: Annotated[str | None, typer.Option(metavar="5m", help="The longest time to try on a busy cluster.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Write the cluster's metadata into a file, consistent while writers run. The file names the ledger files and holds no rows."""
    seconds = None if patience is None else duration("--patience", patience)
    with opened(context, service_url) as cluster, working("Reading all records"):
        made = cluster.backup(file, patience=seconds)
    if json:
        show_json(made)
        return
    say(
        f"{made.file}: {made.topics} topics up to number {made.number} of the log at {moment(made.taken_ms)}, "
        f"{made.records} records, {size(made.bytes)}."
    )
    days = made.good_for_ms / 86_400_000
    say(f"The backup can be restored for at least {days:g} days: the files in {made.ledgers} are kept that long.")


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")],
    ledgers: Annotated[str | None, typer.Option(metavar="URI", help="The ledger root, if it was moved since the backup.")] = None,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Restore a cluster from a backup into an empty folder or chroot (--service-url). The restored cluster takes over the ledgers
    of the old cluster, which cannot be opened any more. To try a backup, give a copy of the ledgers by --ledgers.
    """
    from txnsegment.backup import restore as restore_backup  # imported late, because pyarrow takes long to load

    with working("Writing all records"):
        made = restore_backup(file, given_url(context, service_url), ledgers=ledgers)
    if json:
        show_json(made)
        return
    if made.again:
        say(f"This backup was restored into {made.url} before, completely. Nothing was changed.")
        return
    say(
        f"Restored {made.records} records into {made.url}, over the ledgers in {made.ledgers}: everything up to log number "
        f"{made.number}. The next number is {made.next_number}. The cluster of the backup cannot be opened any more."
    )
