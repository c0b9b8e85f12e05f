"""Compaction of a segment: many small files of its snapshot become few large ones (protocol.md sections 1 and 7).

Any number of processes may compact at once, beside writers, readers and sweepers. The new files count as soon as a CAS of the
watermark record names a snapshot that lists them. The watermark itself does not move. A crash leaves unnamed files for the orphan
sweep. The replaced files stay for the grace period (`metadata.maintenance.retired`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ledgers import snapshot_changes, snapshots
from ledgers.compaction import Merge, Moved, Policy, groups, merged
from ledgers.snapshots import SnapshotHead
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, TxnConflict, UnknownOutcome
from metadata.maintenance.retired import retire
from metadata.records import paths
from metadata.records.folders import folder_of
from metadata.records.names import is_persistent
from metadata.records.records import Watermark
from metadata.store.contract import look, time_ms

log = logging.getLogger("txnsegment.compaction")

ATTEMPTS = 20
"""Maximum number of CAS attempts. An attempt fails if the watermark has moved meanwhile, and folding moves it every few seconds."""


@dataclass
class Compacted:
    """The result of compaction: files and bytes (of files) before and after, and the number of moved parts and rows. `left_out`:
    migrated segments, which are never compacted, because the logs of their persistent topics name the files permanently.
    """

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    parts: int = 0
    rows: int = 0
    left_out: tuple[str, ...] = ()

    def add(self, moved: Moved) -> None:
        self.files_before += moved.files_before
        self.files_after += moved.files_after
        self.bytes_before += moved.bytes_before
        self.bytes_after += moved.bytes_after
        self.parts += len(moved.parts)
        self.rows += sum(part.rows for part in moved.parts.values())


@dataclass
class Compactor:
    """Compacts segments. `merge`: the function that joins the rows of small files in large ones (`ledgers.compaction.merged`)."""

    cluster: Cluster
    merge: Merge = field(default=merged)

    def compact(self, segment: str, policy: Policy, done: Compacted, *, told: Callable[[Compacted], None] = lambda _: None) -> None:
        """Compact the folded part of one segment. After each group of files the counts are added to `done`, and `told` is called
        with `done`. A migrated segment is skipped and added to `done.left_out`.

        Raises CorruptPart, CorruptSnapshot, StorageError; TxnConflict if the watermark changes too often, or if the compaction
        took so long that the orphan sweep may delete the new files.
        """
        if is_persistent(segment):
            done.left_out += (segment,)
            return
        mark = look(self.cluster.store, paths.watermark(segment))
        path = None if mark is None else Watermark.of(mark).snapshot
        if path is None:
            return
        folder, storage = folder_of(segment), self.cluster.storage
        head = snapshots.read_head(storage, path)
        for units in groups(snapshots.read_ledgers(storage, head, -1, head.watermark[0]), policy):
            began_ms = time_ms(self.cluster.store)
            moved = self.merge(storage, folder, units, name=self.cluster.unique())
            if moved is None:
                continue
            if not self.cluster.has_statistics:
                moved = moved.bare()
            if self._name(segment, moved, began_ms):
                done.add(moved)
                log.info("compacted %s: %s files into %s", segment, moved.files_before, moved.files_after)
                told(done)

    def _name(self, segment: str, moved: Moved, began_ms: int) -> bool:
        """CAS the watermark record, so that it names a snapshot with the parts at their new places. Return False if other processes
        have moved or trimmed all of these parts meanwhile.
        """

        def change(head: SnapshotHead) -> str | None:
            settings = self.cluster.settings
            if time_ms(self.cluster.store) - began_ms > settings.orphan_age_ms // 2:
                raise TxnConflict(
                    f"Compacting {segment} has taken longer than half the orphan age: its files may be taken away.",
                    advice="Compact again, with a smaller target size if the storage is slow.",
                )
            return snapshot_changes.moved(
                self.cluster.storage, head, moved.parts, moved.first, moved.last, name=self.cluster.unique()
            )

        return change_snapshot(self.cluster, segment, change)


def change_snapshot(
    cluster: Cluster,
    segment: str,
    change: Callable[[SnapshotHead], str | None],
    *,
    update: Callable[[Watermark], dict[str, object]] = lambda _: {},
) -> bool:
    """Replace the snapshot of a segment by the snapshot that `change` writes. A CAS of the watermark record does this. `update`
    returns changes of other fields of this record. Return False if there is nothing to change. Files that only the old snapshot
    lists stay for the grace period.

    Raises TxnConflict if other processes change the watermark in every attempt.
    """
    for _ in range(ATTEMPTS):
        record = look(cluster.store, paths.watermark(segment))
        mark = None if record is None else Watermark.of(record)
        if record is None or mark is None or mark.snapshot is None:
            return False
        path = change(snapshots.read_head(cluster.storage, mark.snapshot))
        if path is None:
            return False
        retire(cluster, mark.snapshot)
        after = mark.model_copy(update={"snapshot": path, **update(mark)})
        try:
            cluster.store.put(record.key, after.to_bytes(), expect=record)
            return True
        except BadVersion:
            continue
        except UnknownOutcome:
            now = look(cluster.store, paths.watermark(segment))
            if now is not None and Watermark.of(now).snapshot == path:
                return True
            # The CAS may have taken effect, and another process may have replaced the snapshot since. Then the next attempt finds
            # nothing to change.
    raise TxnConflict(
        f"The snapshot of {segment} was replaced by other processes in each of {ATTEMPTS} attempts to change it.",
        advice="Try again when fewer sweepers run; nothing was lost.",
    )
