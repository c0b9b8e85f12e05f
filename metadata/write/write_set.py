"""The write set of one transaction, and the checks that refuse it (protocol.md section 5, Sealing)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgers.model import Part
from metadata.cluster.cluster import Cluster
from metadata.cluster.ledger_root import MARK
from metadata.common.errors import PartsGone, SegmentSealed, StorageError, TxnConflict
from metadata.common.html import Shown
from metadata.records.cluster_records import Settings
from metadata.records.names import TopicName, segment_name
from metadata.records.records import Layout, SegmentState, SegmentWrite
from metadata.rules.acks import Ack
from metadata.rules.transitions import Claim
from metadata.store.contract import Record


@dataclass(frozen=True)
class WriteSet:
    """Everything that one transaction commits.

    `app`, `app_topic`: the application id, and the topic of the application record (protocol.md section 5). `random`: the
    application id was generated for this write alone. `parts`: the parts of each segment in order, by the segment's full name.
    `staged_ms`: the store's time before the first part was written.
    """

    app: str
    app_topic: str
    claim: Claim
    parts: Mapping[str, Sequence[Part]]
    staged_ms: int
    timeout_ms: int
    random: bool = False
    txn_id: str | None = None
    """The id that the caller has allocated for the transaction (`TxnIds.next`), and may have shown to the user. None: no id yet."""
    keys: Mapping[str, str | None] = field(default_factory=dict)
    """The key column by which the rows of each topic were routed. The keys of this mapping are the full names of the topics. None
    or missing: the rows were routed without a key.
    """
    retried: bool = False
    """Whether an earlier commit of this write set may have succeeded, because the caller does not know its outcome."""
    acks: Sequence[Ack] = ()
    """The acknowledgements, of any segments and subscriptions. A transaction may have acknowledgements alone."""


@dataclass(frozen=True)
class Committed(Shown):
    """The result of a commit. `number`: the registration's number; None if this commit registered no rows. `txn_id`: None if this
    commit created no header. `skipped`: the version had committed before, so this commit wrote nothing.
    """

    txn_id: str | None
    number: int | None
    rows: int
    bytes: int
    skipped: bool = False


def segment_write(parts: Sequence[Part]) -> SegmentWrite:
    return SegmentWrite(
        parts=tuple(parts),
        rows=sum(p.rows for p in parts),
        bytes=sum(p.bytes for p in parts),
        entries=sum(len(p.entries) for p in parts),
    )


def weight(work: WriteSet) -> tuple[int, int]:
    parts = [p for found in work.parts.values() for p in found]
    return sum(p.rows for p in parts), sum(p.bytes for p in parts)


class Sealed(Exception):
    """Segments of the write set were split or merged, so its rows must be routed to their children."""


def topic_deleted(segments: Sequence[str]) -> SegmentSealed:
    return SegmentSealed(
        f"The topic of {', '.join(segments)} was deleted while this write was under way.",
        advice="Nothing was committed; run the write again to create the topic again.",
    )


def refuse_missing(cluster: Cluster, app: str, parts: Mapping[str, Sequence[Part]]) -> None:
    """Raise PartsGone for parts whose files are missing or truncated, because every read of the committed transaction would fail.

    Each commit checks every file, because other programs may have deleted files, and because a sweep may have deleted parts before
    their commit while a clock was wrong by days. If that clock was corrected before the commit, nothing but the missing files shows
    the error.

    Raise StorageError if the ledger root has no mark. In this case the root's volume is not mounted. The parts are in the folder of
    the mount point, and are hidden once the volume is mounted.
    """
    named = [(segment, part) for segment, found in parts.items() for part in found]
    if not named:
        return
    mark, *infos = cluster.storage.infos([MARK, *(part.path for _, part in named)])
    if cluster.id is not None and mark is None:
        raise StorageError(
            f"The ledger root {cluster.storage.uri} has no {MARK}, so it is not the root that the cluster was opened with.",
            advice="Nothing was committed. Check that its volume is mounted, then run the write again.",
        )
    wrong = [
        f"{part.path} of {segment} " + ("is not there" if info is None else f"has {info[0]} bytes and not {part.bytes}")
        for (segment, part), info in zip(named, infos, strict=True)
        if info is None or info[0] != part.bytes
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise PartsGone(
            f"{len(wrong)} of the {len(named)} files that {app} staged are missing or incomplete: {'; '.join(wrong[:3])}{more}.",
            advice="Nothing was committed: run the write again. The orphan sweep deletes a file only when it is older than the "
            "orphan age, by the file's modification time and the store's clock: compare both clocks before the sweep runs again.",
        )


def refuse_old(work: WriteSet, now_ms: int, settings: Settings) -> None:
    """Raise TxnConflict for parts that are so old that the orphan sweep may delete them before they are committed (protocol.md
    section 5, late commit). `now_ms`: the store's time.
    """
    if work.staged_ms + settings.orphan_age_ms // 2 < now_ms:
        raise TxnConflict(
            f"The parts of version {work.claim.version} of {work.app} were staged more than half the orphan age ago.",
            advice="The orphan sweep may delete them. Run the write again.",
        )


def refuse_stale(work: WriteSet, records: Mapping[TopicName, Record | None]) -> None:
    """Raise an error for rows that were staged for an older layout: Sealed if a segment was sealed since then, SegmentSealed if the
    topic was deleted since then, TxnConflict if the rows were routed by another key than the topic has now.
    """
    layouts = {topic: None if record is None else Layout.of(record) for topic, record in records.items()}
    sealed = []
    for segment in work.parts:
        name = segment_name(segment)
        layout = layouts[name.topic]
        info = None if layout is None or layout.deleted else layout.segments.get(str(name.segment_id))
        if info is None or info.deleted_at_log is not None:
            raise topic_deleted([segment])
        if info.state is not SegmentState.ACTIVE:
            sealed.append(segment)
    refuse_rerouted(work, layouts)
    if sealed:
        raise Sealed(f"{', '.join(sealed)} were sealed after parts were staged for them")


def refuse_rerouted(work: WriteSet, layouts: Mapping[TopicName, Layout | None]) -> None:
    """Raise TxnConflict for rows that were routed by another key than the topic has now. A commit makes this check before and after
    the registration. If the topic gets a key after the second check, all rows that are routed by this key come later in the log. So
    the rows of each key stay in order.
    """
    for topic, layout in layouts.items():
        key = work.keys.get(str(topic))
        if layout is not None and layout.key != key:
            was, now = ("without a key" if k is None else f"by {k!r}" for k in (key, layout.key))
            raise TxnConflict(
                f"These rows of {topic} were routed {was}, but the topic now routes {now}.",
                advice="Nothing was committed; run the write again, its rows are then routed as the topic requires.",
            )
