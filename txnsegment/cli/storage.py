"""`txnsegment compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from ledgers.model import TARGET_BYTES
from txnsegment.cli.shown import AsJson, ServiceUrl, opened, say, show_json, size
from txnsegment.cli.working import working


def compact(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic, or one segment://...")],
    target_bytes: Annotated[int, typer.Option(min=1, help="The approximate size of a new file.")] = TARGET_BYTES,
    min_files: Annotated[int, typer.Option(min=2, help="The least number of small files in a row that are joined.")] = 2,
    json: AsJson = False,
    service_url: ServiceUrl = None,
) -> None:
    """Join small files into large ones. Rows, order and positions stay the same; replaced files are deleted after the grace
    period.
    """
    with opened(context, service_url) as cluster, working(f"Compacting {name}") as told:
        done = cluster.compact(
            name,
            target_bytes=target_bytes,
            min_files=min_files,
            told=lambda so_far: told(f"{so_far.files_before} files became {so_far.files_after}"),
        )
    if json:
        show_json(done)
    elif not done.files_before:
        say(f"{name}: no small files to join.")
    else:
        say(
            f"{name}: {done.files_before} files ({size(done.bytes_before)}) became {done.files_after} ({size(done.bytes_after)}): "
            f"{done.parts} parts with {done.rows} rows."
        )
    for left in () if json else done.left_out:
        say(f"{left} is a migrated log and is not compacted: its entries name its files until retention deletes them.")
