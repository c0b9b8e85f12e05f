"""The orphan sweep: the only place that deletes files (protocol.md sections 2 and 7).

It lists the files first, then everything that can protect one (live log, registration manifests, snapshot chains and the parts
they list). A part that nothing protects goes once it is older than the orphan age, by its modification time and the store's
clock; an index snapshot file that was superseded goes once it has been seen unprotected for the grace period, because a reader
may have planned from it a moment before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ledgers import snapshots
from metadata import paths
from metadata.cluster import Cluster
from metadata.log import LiveLog, ledger
from metadata.records import Watermark
from metadata.store.contract import View, decide
from metadata.topics import matching

SEEN = "sweep/unprotected.json"
"""When each unprotected snapshot file was first seen (ms). Losing this file only costs delay."""


@dataclass(frozen=True)
class Orphans:
    """What one orphan sweep deleted."""

    files: int
    bytes: int


def sweep_orphans(cluster: Cluster) -> Orphans:
    """Delete files that nothing protects any more. Call it after a timeout pass, so that dead transactions are decided."""
    storage, settings = cluster.storage, cluster.settings
    files = {f.path: f for f in storage.list("")}
    now_ms = cluster.store.view().now_ms()
    protected = decide(cluster.store, lambda view: set(_protected(cluster, view)))
    seen: dict[str, int] = json.loads(storage.read(SEEN)) if SEEN in files else {}
    still: dict[str, int] = {}
    deleted = size = 0
    for path, file in sorted(files.items()):
        if path in protected or path == SEEN:
            continue
        if path.endswith(snapshots.SUFFIX):
            first = seen.get(path, now_ms)
            expired = first + settings.grace_period_ms < now_ms
            if not expired:
                still[path] = first
        else:
            expired = file.mtime_ms + settings.orphan_age_ms < now_ms
        if expired:
            storage.delete(path)
            deleted += 1
            size += file.bytes
    if still != seen:
        storage.delete(SEEN)
        storage.publish(SEEN, json.dumps(still).encode())
    return Orphans(deleted, size)


def _protected(cluster: Cluster, view: View) -> Iterator[str]:
    """Paths that something names: read after the files were listed, the log before watermarks and snapshots."""
    listing = LiveLog().list(view)
    for entry in listing.entries:
        if entry.registration.manifest is not None:
            yield entry.registration.manifest
        for segment in entry.registration.segments:
            yield from (p.path for p in ledger(cluster.storage, entry.number, entry.registration, segment).parts)
    segments = [s for topic in matching(view, None) for s in topic.segments()]
    for record in view.get_many([paths.watermark(s) for s in segments]):
        watermark = None if record is None else Watermark.of(record)
        if watermark is None or watermark.snapshot is None:
            continue
        head = snapshots.read_head(cluster.storage, watermark.snapshot)
        yield watermark.snapshot
        yield from snapshots.files(head)
        for found in snapshots.read_ledgers(cluster.storage, head, after=0, through=watermark.ledger_id):
            yield from (p.path for p in found.parts)
