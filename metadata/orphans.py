"""The orphan sweep: the only place that deletes files (protocol.md sections 2 and 7).

It lists the files first, then everything that can protect one (staging manifests, live log, registration manifests, snapshot
chains and the parts they list, and what notes of replaced snapshots spare). A part that nothing protects goes once it is older
than the orphan age, by its modification time and the store's clock; an index snapshot file that was superseded, and the manifest of
a registration that has left the log, go once they have been seen unprotected for the grace period, because a reader may have
planned from them a moment before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ledgers import snapshot_changes, snapshots
from ledgers.compaction import COMPACTED
from ledgers.errors import MissingFile
from metadata import paths, staging_manifests
from metadata.cluster import Cluster
from metadata.errors import BadVersion, UnknownOutcome
from metadata.folders import folder_of
from metadata.instream.client import instream
from metadata.log import LiveLog, ledger
from metadata.names import is_persistent
from metadata.records import Watermark
from metadata.retired import spared
from metadata.staging_manifests import StagingArea
from metadata.store.contract import View, decide, time_ms, until
from metadata.sweeper import Sweeper
from metadata.topics import Topics, every
from metadata.transaction_buffer import TransactionBuffer

SEEN = "sweep/unprotected"
"""Files of this name say when each unprotected snapshot file or manifest was first seen (ms). Losing one only costs delay."""

MANIFESTS = "manifests/"
"""The folder of what was too big for a record."""

_OURS = re.compile(
    r"manifests/[^/]+\.json"  # registration manifests
    r"|staging/[^/.][^/]*\.(opened|begun|manifest|withdrawn|closed|ended)"  # the writes of a transaction, before it commits
    r"|([^/]+/){4}(index/)?[^/.][^/]*\.(parquet|avro)"  # tenant/namespace/topic/segment: parts, and its index snapshots
    r"|(manifests|sweep|staging|([^/]+/){3}[^/]+(/index)?)/\.[^/]+\.tmp"  # what a writer that died left of one
)
"""Names that can be ours. Whatever else lies in the ledger root is nobody's business here."""


@dataclass(frozen=True)
class Orphans:
    """What one orphan sweep deleted."""

    files: int
    bytes: int


def sweep_orphans(cluster: Cluster) -> Orphans:
    """Delete files that nothing protects any more.

    A timeout pass stands between the clock and the protected: whoever could still commit a part that is older than the orphan age
    by that clock has opened long before it (older parts are refused), so its deadline has passed and it is ended here.
    """
    storage, settings = cluster.storage, cluster.settings
    cluster.check_root()  # or we would delete what another cluster has named
    files = {f.path: f for f in storage.list("")}
    now_ms = time_ms(cluster.store)
    Sweeper(cluster, TransactionBuffer(cluster)).timeouts()
    instream(cluster).sweeper.timeouts()
    Topics(cluster).forget_deleted()
    over = staging_manifests.ended(files)
    protected = set(staging_manifests.protected(storage, now_ms, settings.orphan_age_ms, over))
    protected |= decide(cluster.store, lambda view: set(named_files(cluster, view)))
    protected.update(spared(storage, protected))  # after the watermarks: a note is older than the change that it is about
    late = {
        path.rpartition("/")[0]
        for path, file in files.items()
        if path not in protected
        and path.rpartition("/")[2].startswith(COMPACTED)
        and file.mtime_ms + settings.orphan_age_ms < now_ms
    }
    if late:
        _fence(cluster, late)
        protected |= decide(cluster.store, lambda view: set(named_files(cluster, view)))
    notes = [path for path in files if path.startswith(SEEN)]
    seen = _seen(cluster, notes)
    still: dict[str, int] = {}
    deleted = size = 0
    for path, file in sorted(files.items()):
        if path in protected or not _OURS.fullmatch(path):
            continue
        if path.endswith(snapshots.SUFFIX) or path.startswith(MANIFESTS):
            if file.mtime_ms + settings.orphan_age_ms >= now_ms:
                continue  # just published, perhaps not named yet: that moment must not count as the beginning of its end
            first = seen.get(path, now_ms)
            expired = first + settings.grace_period_ms < now_ms
            if not expired:
                still[path] = first
        else:
            expired = file.mtime_ms + settings.orphan_age_ms < now_ms or staging_manifests.token_of(path) in over
        if expired:
            storage.delete(path)
            deleted += 1
            size += file.bytes
    if still != seen or len(notes) > 1:
        # A name of its own for each sweep, and the old ones only then: several sweeps at once lose nothing.
        storage.publish(f"{SEEN}-{cluster.unique()}.json", json.dumps(still).encode())
        for path in notes:
            storage.delete(path)
    return Orphans(deleted, size)


def _fence(cluster: Cluster, folders: Collection[str]) -> None:
    """Renew the watermark records of the segments with these folders: a compaction that has slept since it looked at one can no
    longer name its files there (it looks again, and sees how old they are), and what it has named before is read after this.
    """

    def body(view: View) -> bool | None:
        segments = [topic.segment(info) for topic in every(view) for info in topic.layout.segments.values()]
        mine = [s for s in segments if not is_persistent(s) and folder_of(s) in folders]  # what was migrated is never compacted
        for record in view.get_many([paths.watermark(segment) for segment in mine]):
            if record is not None:
                try:
                    cluster.store.put(record.key, record.value, expect=record)
                except BadVersion:
                    continue  # somebody else has moved it: that is as good
                except UnknownOutcome:
                    return None
        return True

    until(lambda: decide(cluster.store, body))


def sweep_staging(cluster: Cluster, token: str) -> None:
    """Delete the staging manifests of a transaction that has ended: what the sweep would do later. Its parts are no business of
    this: what committed is registered, the rest goes at the orphan age.
    """
    paths = StagingArea(cluster.storage, token).files()
    over = staging_manifests.ended(paths)
    for path in sorted(paths, key=lambda path: path.endswith(staging_manifests.ENDED)):  # broken off, it still says that it ended
        if staging_manifests.token_of(path) in over:
            cluster.storage.delete(path)


def _seen(cluster: Cluster, notes: list[str]) -> dict[str, int]:
    """When each file was first seen unprotected. Several notes (of sweeps at once): what all of them say, and the latest of it."""
    found: list[dict[str, int]] = []
    for path in notes:
        try:
            found.append(json.loads(cluster.storage.read(path)))
        except MissingFile:
            continue  # another sweep has just replaced it by its own
    if not found:
        return {}
    return {name: max(note[name] for note in found) for name in found[0] if all(name in note for note in found)}


def named_files(cluster: Cluster, view: View) -> Iterator[str]:
    """Paths that something names: read after the files were listed, the log before watermarks and snapshots."""
    listing = LiveLog().list(view)
    for entry in listing.entries:
        if entry.registration.manifest is not None:
            yield entry.registration.manifest
        for segment in entry.registration.segments:
            yield from (p.path for p in ledger(cluster.storage, entry.number, entry.registration, segment).parts)
    # Those of deleted topics, too, made again or not: a reader may have planned before. After the grace period no layout has them.
    segments = [topic.segment(info) for topic in every(view) for info in topic.layout.segments.values()]
    for record in view.get_many([paths.watermark(s) for s in segments]):
        watermark = None if record is None else Watermark.of(record)
        if watermark is None or watermark.snapshot is None:
            continue
        head = snapshots.read_head(cluster.storage, watermark.snapshot)
        yield watermark.snapshot
        yield from snapshots.files(head)
        yield from snapshot_changes.listed(cluster.storage, head)
    yield from instream(cluster).sweeper.named_files(view)
