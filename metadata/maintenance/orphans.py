"""The orphan sweep: the only place that deletes files (protocol.md sections 2 and 7).

It lists the files first, then everything that can protect one (staging manifests, live log, registration manifests, snapshot
chains and the parts they list, and what notes of replaced snapshots spare). A part that nothing protects goes once it is older
than the orphan age, by its modification time and the store's clock; an index snapshot file that was superseded, and the manifest of
a registration that has left the log, go once they have been seen unprotected for the grace period, because a reader may have
planned from them a moment before. The ledger root is looked at again before each batch of deletes.
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
"""Files of this name say when each unprotected snapshot file or manifest was first seen (ms). Losing one only costs delay."""

MANIFESTS = "manifests/"
"""The folder of what was too big for a record."""

_OURS = re.compile(
    r"manifests/[^/]+\.json"  # registration manifests
    r"|staging/[^/.][^/]*\.(opened|begun|manifest|withdrawn|persistent|closed|ended)"  # a transaction's writes until it commits
    r"|([^/]+/){4}(index/)?[^/.][^/]*\.(parquet|avro)"  # tenant/namespace/topic/segment: parts, and its index snapshots
    r"|(manifests|sweep|staging|([^/]+/){3}[^/]+(/index)?)/\.[^/]+\.tmp"  # what a writer that died left of one
    r"|" + re.escape(DELETING) + r"-[^/]+"  # what a sweep that died while it deleted left
    r"|\.cluster\.json(\.[^/]+)?\.tmp"  # what a founder or a restore that died left of the root's mark
)
"""Names that can be ours. Whatever else lies in the ledger root is nobody's business here."""


@dataclass(frozen=True)
class Orphans:
    """What one orphan sweep deleted."""

    files: int
    bytes: int


def sweep_orphans(cluster: Cluster, markers: MarkerModel) -> Orphans:
    """Delete files that nothing protects any more.

    A timeout pass stands between the clock and the protected: whoever could still commit a part that is older than the orphan age
    by that clock has opened long before it (older parts are refused), so its deadline has passed and it is ended here.
    """
    storage, settings = cluster.storage, cluster.settings
    cluster.check_root()  # or we would delete what another cluster has named
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
    # After the watermarks: a note is older than the change that it is about.
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
                continue  # just published, perhaps not named yet: that moment must not count as the beginning of its end
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
            # A name of its own for each sweep, and the old ones only then: several sweeps at once lose nothing. (The first sweep
            # leaves one in any case: on a disk that is full later the folder must be there.)
            storage.publish(f"{SEEN}-{cluster.unique()}.json", json.dumps(still).encode())
            for path in notes:
                deleter.delete(path)
    return Orphans(len(orphans), sum(file.bytes for file in orphans))


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


def _seen(cluster: Cluster, notes: list[str], now_ms: int) -> dict[str, int] | None:
    """When each file was first seen unprotected. Several notes (of sweeps at once): what all of them say, and the latest of it.

    None: one of them is damaged. What it said is unknown, so every file counts as seen now for the first time, which is a delay.
    """
    found: list[dict[str, int]] = []
    damaged = False
    for path in notes:
        try:
            found.append(_note(cluster.storage.read(path), now_ms))
        except MissingFile:
            continue  # another sweep has just replaced it by its own
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
    """What a note says. A time to come was written by a clock that has been set back since: it counts as now. Raises ValueError."""
    found = read_json(data)
    if not isinstance(found, dict) or not all(type(ms) is int and ms >= 0 for ms in found.values()):
        raise ValueError("it is no object of times in ms by path")
    return {path: min(ms, now_ms) for path, ms in found.items()}


def named_files(cluster: Cluster, markers: MarkerModel, view: View) -> Iterator[str]:
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
    yield from markers.named_files(view)
