"""The orphan sweep. No other code deletes parts, snapshots and registration manifests (protocol.md sections 2 and 7).
A transaction that has ended deletes its staging files without waiting for the sweep (`sweep_staging`).

The sweep lists the files first. Then it reads everything that protects a file: staging manifests, the live log, registration
manifests, snapshot chains with the parts that they list, and notes that name replaced snapshots (`metadata.maintenance.retired`).
An unprotected part is deleted once it is older than the orphan age, by its modification time and the time that sweeps have seen
pass (`metadata.rules.elapsed`). A reader may have planned from a superseded index snapshot file, or from the manifest of a
registration that left the log. So these files are deleted only after they have been seen unprotected for the grace period. The
ledger root is checked again before each batch of deletes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ledgers import snapshot_changes, snapshots
from ledgers.compaction import COMPACTED
from ledgers.errors import MissingFile
from ledgers.json_text import read_json
from ledgers.storage import FileEntry
from metadata.cluster import clock_looks
from metadata.cluster.cluster import Cluster
from metadata.cluster.ledger_root import DELETING
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.log.live_log import LiveLog, ledger
from metadata.maintenance.deleting import Deleter
from metadata.maintenance.expired import end_expired
from metadata.maintenance.retired import spared
from metadata.read.marker_model import MarkerModel
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import is_persistent
from metadata.records.records import Watermark
from metadata.rules.elapsed import now_for
from metadata.store.contract import View, decide, until
from metadata.topics.topics import Topics, every
from metadata.write import staging_manifests
from metadata.write.staging_manifests import StagingArea

log = logging.getLogger("txnsegment.orphans")

SEEN = "sweep/unprotected"
"""Files with this prefix record when each snapshot file or manifest was first seen unprotected (ms since 1970). If such a file is
lost, deletions are only delayed.
"""

MANIFESTS = "manifests/"
"""The folder of registration manifests."""

_OURS = re.compile(
    r"manifests/[^/]+\.json"  # registration manifests
    r"|staging/[^/.][^/]*\.(opened|begun|manifest|withdrawn|persistent|closed|ended)"  # a transaction's staging files
    r"|([^/]+/){4}(index/)?[^/.][^/]*\.(parquet|avro)"  # tenant/namespace/topic/segment: parts, and its index snapshots
    r"|(manifests|sweep|staging|([^/]+/){3}[^/]+(/index)?)/\.[^/]+\.tmp"  # temporary files of writers that crashed
    r"|" + re.escape(DELETING) + r"-[^/]+"  # files `sweep/deleting-..` of sweeps that crashed
    r"|\.cluster\.json(\.[^/]+)?\.tmp"  # temporary marks of a bootstrap or restore that crashed
)
"""Matches the paths that txnsegment gives to files. The sweep ignores all other files in the ledger root."""


@dataclass(frozen=True)
class Orphans:
    """The number and bytes of the files that one orphan sweep deleted."""

    files: int
    bytes: int


def sweep_orphans(cluster: Cluster, markers: MarkerModel) -> Orphans:
    """Delete files that no record, snapshot or note protects.

    The sweep reads the clock, aborts expired transactions, and then lists the protected files. A transaction opens only while its
    parts are younger than half the orphan age, and its timeout is shorter than the other half. So if a part is older than the
    orphan age and its transaction is still OPEN, the deadline has passed, and this sweep aborts the transaction. Therefore no OPEN
    transaction needs a part that the sweep deletes.
    """
    storage, settings = cluster.storage, cluster.settings
    cluster.check_root()  # otherwise the sweep could delete another cluster's files
    files = {f.path: f for f in storage.list("")}
    clocks = clock_looks.look(cluster.store, cluster.clock)
    now_ms = now_for(clocks, max(settings.orphan_age_ms, settings.grace_period_ms))
    end_expired(cluster)
    markers.timeouts()
    Topics(cluster).forget_deleted()
    over = staging_manifests.ended(files)
    protected = set(staging_manifests.protected(storage, now_ms, settings.orphan_age_ms, over, files))
    protected |= decide(cluster.store, lambda view: set(named_files(cluster, markers, view)))
    gone: list[str] = []
    # The notes of replaced snapshots are read after the watermarks, because a note is published before the watermark changes.
    protected.update(spared(cluster, protected, files.values(), now_ms, gone))
    late = {
        path.rpartition("/")[0]
        for path, file in files.items()
        if path not in protected
        and path.rpartition("/")[2].startswith(COMPACTED)
        and file.mtime_ms + settings.orphan_age_ms < now_ms
    }
    if late:
        _fence(cluster, late)
        protected |= decide(cluster.store, lambda view: set(named_files(cluster, markers, view)))
    notes = [path for path in files if path.startswith(SEEN)]
    seen = _seen(cluster, notes, now_ms)
    still: dict[str, int] = {}
    orphans: list[FileEntry] = []
    for path, file in sorted(files.items()):
        if path in protected or not _OURS.fullmatch(path):
            continue
        if path.endswith(snapshots.SUFFIX) or path.startswith(MANIFESTS):
            if file.mtime_ms + settings.orphan_age_ms >= now_ms:
                continue  # the file was just published and is perhaps not named yet, so its grace period must not start now
            first = (seen or {}).get(path, now_ms)
            expired = first + settings.grace_period_ms < now_ms
            if not expired:
                still[path] = first
        else:
            expired = file.mtime_ms + settings.orphan_age_ms < now_ms or staging_manifests.token_of(path) in over
        if expired:
            orphans.append(file)
    with Deleter(cluster) as deleter:
        for path in gone:
            deleter.delete(path)
        for file in orphans:
            deleter.delete(file.path)
        if still != seen or len(notes) != 1:
            # Each sweep publishes a `SEEN` file under a new name before it deletes the old ones, so that concurrent sweeps lose
            # nothing. The first sweep publishes one in any case, so that the folder exists when the disk is full.
            storage.publish(f"{SEEN}-{cluster.unique()}.json", json.dumps(still).encode())
            for path in notes:
                deleter.delete(path)
    return Orphans(len(orphans), sum(file.bytes for file in orphans))


def _fence(cluster: Cluster, folders: Collection[str]) -> None:
    """Make a running compaction fail if its new files are so old that a sweep may delete them. To do so, rewrite the watermark
    records of the segments whose folders are in `folders`. A compaction that read such a record before this call then fails in its
    CAS, reads the record again, and checks the age of its files again. After this call the caller reads again which files are
    named, because a compaction may have named its files just before this call.
    """

    def body(view: View) -> bool | None:
        segments = [topic.segment(info) for topic in every(view) for info in topic.layout.segments.values()]
        mine = [s for s in segments if not is_persistent(s) and folder_of(s) in folders]  # migrated segments are never compacted
        for record in view.get_many([paths.watermark(segment) for segment in mine]):
            if record is not None:
                try:
                    cluster.store.put(record.key, record.value, expect=record)
                except BadVersion:
                    continue  # another process changed the record, which fences as well
                except UnknownOutcome:
                    return None
        return True

    until(lambda: decide(cluster.store, body))


def sweep_staging(cluster: Cluster, token: str) -> None:
    """Delete the staging files of a transaction that has ended, without waiting for the orphan sweep. The parts are left alone:
    those of a committed transaction are registered, and the orphan sweep deletes all others.
    """
    paths = StagingArea(cluster.storage, token).files()
    over = staging_manifests.ended(paths)
    # the file `.ended` is deleted last, so that a later call can complete an interrupted one
    for path in sorted(paths, key=lambda path: path.endswith(staging_manifests.ENDED)):
        if staging_manifests.token_of(path) in over:
            cluster.storage.delete(path)


def _seen(cluster: Cluster, notes: list[str], now_ms: int) -> dict[str, int] | None:
    """Return the time (ms) at which each file was first seen unprotected. `notes`: the `SEEN` files.
    If concurrent sweeps have left several notes, only files in all notes are returned, each with its latest time.

    Return None if a note is damaged. Then every file counts as first seen now, which only delays its deletion.
    """
    found: list[dict[str, int]] = []
    damaged = False
    for path in notes:
        try:
            found.append(_note(cluster.storage.read(path), now_ms))
        except MissingFile:
            continue  # another sweep has just replaced the note
        except (ValueError, RecursionError) as error:
            damaged = True
            log.warning(
                "%s/%s is damaged and is renewed: %s. Superseded files stay for another grace period.",
                cluster.storage.uri,
                path,
                error,
            )
    if damaged:
        return None
    if not found:
        return {}
    return {name: max(note[name] for note in found) for name in found[0] if all(name in note for note in found)}


def _note(data: bytes, now_ms: int) -> dict[str, int]:
    """Parse a note. A time in the future comes from a clock that was set back later, and is replaced by the present time. Raises
    ValueError.
    """
    found = read_json(data)
    if not isinstance(found, dict) or not all(type(ms) is int and ms >= 0 for ms in found.values()):
        raise ValueError("it is not a JSON object of times in ms by path")
    return {path: min(ms, now_ms) for path, ms in found.items()}


def named_files(cluster: Cluster, markers: MarkerModel, view: View) -> Iterator[str]:
    """Yield the paths that records and snapshots name. The caller lists the files before this call. The log is read before
    watermarks and snapshots.
    """
    listing = LiveLog().list(view)
    for entry in listing.entries:
        if entry.registration.manifest is not None:
            yield entry.registration.manifest
        for segment in entry.registration.segments:
            yield from (p.path for p in ledger(cluster.storage, entry.number, entry.registration, segment).parts)
    # Segments of deleted topics count, too, because a reader may have planned before the deletion. After the grace period no layout
    # has them.
    segments = [topic.segment(info) for topic in every(view) for info in topic.layout.segments.values()]
    for record in view.get_many([paths.watermark(s) for s in segments]):
        watermark = None if record is None else Watermark.of(record)
        if watermark is None or watermark.snapshot is None:
            continue
        head = snapshots.read_head(cluster.storage, watermark.snapshot)
        yield watermark.snapshot
        yield from snapshots.files(head)
        yield from snapshot_changes.listed(cluster.storage, head)
    yield from markers.named_files(view)
