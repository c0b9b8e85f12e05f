"""Putting a backup into an empty store (operations.md, Backup).

Numbers and ids go on above everything that the lost cluster can have given out since: the log in the next era of 10^10 numbers,
transaction ids in the next 10^12. The restored cluster has a new id and takes the ledger root over: whoever opens the old store
afterwards is refused, and its sweepers delete nothing any more.

The store is claimed first (`/restoring`) and nobody may use it until the cluster's record is there and the claim is gone. A restore
that died is finished by running it again with the same file; who comes later takes the claim over, and whoever had it before fails
at his next group of records.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ledgers.storage import LedgerStorage
from metadata import orphans, paths
from metadata.backup_file import Backup, Kept
from metadata.clock import Clock, SystemClock
from metadata.cluster import MARK, Cluster, heirs, resolve
from metadata.cluster_records import ClusterRecord, Founding, Lost, Restoring
from metadata.errors import BadVersion, RestoreRefused, UnknownOutcome
from metadata.instream import backup as in_stream
from metadata.paths import Prefix
from metadata.records import AbortedTxn, Application, TcSequence
from metadata.store import open_store
from metadata.store.contract import ABSENT, Delete, MetadataStore, Put, Record, decide, in_groups, look, skip, time_ms, until
from metadata.store.memory import MemoryStore
from metadata.stored import IndexEntry

TXN_IDS = 10**12
GROUP = 100


@dataclass(frozen=True)
class Restored:
    """`number`: the log is as it was up to there; new registrations get numbers from `next_number` on."""

    url: str
    ledgers: str
    number: int
    next_number: int
    records: int


def restore(backup: Backup, service_url: str | None, *, ledgers: str | None = None, clock: Clock | None = None) -> Restored:
    """Make the cluster of a backup in an empty store, over the files that it names. Running it again finishes what was begun.

    `ledgers`: the root to which its files were moved or copied; without it the root is where the backup says.
    Raises RestoreRefused (the store is in use, the root is another cluster's, files are missing; nothing was changed then, unless
    it says so), ConfigurationError, StorageError, Unavailable.
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    storage = LedgerStorage(ledgers or backup.heading.ledgers)
    with open_store(service.text, clock=clock, create=True) as store:
        return Restoration(backup, store, service.text, storage, clock).run()


@dataclass
class Restoration:
    """One restore of a backup into a store."""

    backup: Backup
    store: MetadataStore
    url: str
    storage: LedgerStorage
    clock: Clock
    unique: Callable[[], str] = lambda: uuid.uuid4().hex
    _files: dict[str, bytes] = field(default_factory=dict)

    def run(self) -> Restored:
        """Look for everything first, then claim the store, fill it, and release it: whoever opens it before is refused."""
        number, following, records = self.backup.heading.number, self.backup.heading.following, self._records()
        self._check_empty()
        self._check_root()
        self._check_files(records)
        claim = self._claim()
        self._publish()
        for some in in_groups(records, GROUP):
            claim = self._put(claim, some)
        for prefix in self._logs():
            skip(self.store, prefix, following)
        _take_over(self.storage, Restoring.of(claim).id)
        claim = self._put(claim, [self._cluster_record(claim, following)])
        self._release(claim)
        return Restored(self.url, self.storage.uri, number, following, len(records))

    def _records(self) -> list[Kept]:
        """What the store gets: as in the backup, but for what tells that it is restored, and ids go on above."""
        found = []
        for kept in self.backup.records:
            if kept.key.path.startswith("/txn/app/"):
                app = Application.from_bytes(kept.value).model_copy(update={"restored": True})
                kept = Kept(kept.key, app.to_bytes())
            path = f"manifests/restored-{self.backup.sha256}.json"
            filed = in_stream.in_file(kept, path)
            if filed is not None:
                kept, self._files[path] = filed
            found.append(kept)
        ids = TcSequence(next=(self.backup.heading.next_txn // TXN_IDS + 1) * TXN_IDS)
        return [*found, Kept(paths.tc_sequence(), ids.to_bytes())]

    def _publish(self) -> None:
        """The file of what is too big for a record. Its name is that of the backup: who finishes a restore finds it there."""
        for path, content in self._files.items():
            if self.storage.info(path) is None:
                self.storage.publish(path, content)

    def _logs(self) -> list[Prefix]:
        """What must go on above. The older model's transaction log also if the backup has none: ids may be lost."""
        return [paths.LOG, in_stream.TRANSACTIONS, *(p for kept in self.backup.records for p in in_stream.logs(kept))]

    def _cluster_record(self, claim: Record, following: int) -> Kept:
        heading, restoring = self.backup.heading, Restoring.of(claim)
        lost = Lost(after=heading.number, before=following, restored_at_ms=restoring.began_ms)
        record = ClusterRecord(
            id=restoring.id,
            ledgers=self.storage.uri,
            created_at_ms=heading.created_at_ms,
            settings=heading.settings,
            restored=(*(heading.restored or ()), lost),
        )
        return Kept(paths.CLUSTER, record.to_bytes())

    # --- what must be true before anything is written --------------------------------------------------------------

    def _check_empty(self) -> None:
        found = decide(self.store, lambda view: view.keys(paths.EVERYTHING))
        if found and not self._begun():
            raise RestoreRefused(
                f"The store {self.url} is not empty: it has {found[0]} and {len(found) - 1} more records.",
                advice="Restore into a new folder or chroot; what is there is never mixed with a backup. Nothing was changed.",
            )

    def _begun(self) -> Restoring | None:
        """The restore of this file that is not complete. Raises RestoreRefused for one of another file or root."""
        record = look(self.store, paths.RESTORING)
        if record is None:
            return None
        begun = Restoring.of(record)
        if begun.backup != self.backup.sha256 or begun.ledgers != self.storage.uri:
            raise RestoreRefused(
                f"In the store {self.url} {begun.by} has begun to restore another backup "
                f"(SHA-256 {begun.backup[:12]}.., ledgers in {begun.ledgers}).",
                advice="Finish that one with its own file, or restore into another folder or chroot. Nothing was changed.",
            )
        return begun

    def _check_root(self) -> None:
        begun = self._begun()
        known = {self.backup.heading.cluster, *([begun.id] if begun else [])}
        found = heirs(self.storage)
        if not found and begun is None:
            raise RestoreRefused(
                f"The ledger root {self.storage.uri} has no {MARK}: it is not the one of the backup, or its volume is missing.",
                advice="If the root was moved, say where it is now: --ledgers URI. Copy it whole. Nothing was changed.",
            )
        if found and known.isdisjoint(found):
            raise RestoreRefused(
                f"The ledger root {self.storage.uri} belongs to another cluster than the backup.",
                advice="If the root was moved, say where it is now: --ledgers URI. Nothing was changed.",
            )

    def _check_files(self, records: Sequence[Kept]) -> None:
        """That every file that the backup names is there: the restore is done in memory first, and asked what it names."""
        with MemoryStore(clock=self.clock) as store:
            for some in in_groups(records, GROUP):
                store.write(*(_put(kept) for kept in some))
            cluster = Cluster("memory://rehearsal", store, self.storage, self.backup.heading.settings, self.clock)
            there = {file.path for file in self.storage.list("")} | self._files.keys()
            missing = sorted(set(decide(store, lambda view: set(orphans.named_files(cluster, view)))) - there)
        if missing:
            raise RestoreRefused(
                f"{len(missing)} files that the backup names are missing in {self.storage.uri}, such as {missing[0]}.",
                advice="A backup is good for the grace period; then files that were replaced or trimmed since are deleted. Bring "
                "them back from a copy of the root, or restore a newer backup. Nothing was changed.",
            )

    # --- writing ---------------------------------------------------------------------------------------------------

    def _claim(self) -> Record:
        """Make the store ours. Raises RestoreRefused if somebody makes a cluster of it just now."""
        begun = self._begun()
        now_ms = time_ms(self.store)
        claim = Restoring(
            backup=self.backup.sha256,
            id=begun.id if begun else self.unique(),
            ledgers=self.storage.uri,
            began_ms=begun.began_ms if begun else now_ms,
            by=f"{socket.gethostname()}:{os.getpid()}:{self.unique()[:8]}",
        )

        def step() -> bool | None:
            before = look(self.store, paths.RESTORING)
            if before is not None and before.value == claim.to_bytes():
                return True
            if begun is None and before is not None:
                raise _overtaken(self.url)
            try:
                self.store.put(paths.RESTORING, claim.to_bytes(), expect=ABSENT if before is None else before)
            except BadVersion as error:
                raise _overtaken(self.url) from error
            except UnknownOutcome:
                return None
            return True

        until(step)
        mine = look(self.store, paths.RESTORING)
        if mine is None or mine.value != claim.to_bytes():
            raise _overtaken(self.url)
        return self._put(mine, [Kept(paths.FOUNDING, Founding(id=claim.id).to_bytes())])

    def _put(self, claim: Record, some: Sequence[Kept]) -> Record:
        """Write records that are not there yet, while the claim is ours: one group with it. Raises RestoreRefused."""
        keys = [kept.key for kept in some]

        def step() -> Record | None:
            now, *found = decide(self.store, lambda view: view.get_many([paths.RESTORING, *keys]))
            if now is None or now.value != claim.value:
                raise _overtaken(self.url)
            for kept, record in zip(some, found, strict=True):
                if record is not None and record.value != kept.value:
                    raise RestoreRefused(
                        f"{kept.key.path} in the store {self.url} is not what the backup has: somebody else writes to it.",
                        advice="Nobody can use the store as it is. Restore into another folder or chroot.",
                    )
            missing = [_put(kept) for kept, record in zip(some, found, strict=True) if record is None]
            if not missing:
                return now
            try:
                return self.store.write(Put(paths.RESTORING, now.value, expect=now), *missing)[0]
            except (BadVersion, UnknownOutcome):
                return None  # looked at again: done by now, or somebody else has taken the restore over

        return until(step)

    def _release(self, claim: Record) -> None:
        def step() -> bool | None:
            now = look(self.store, paths.RESTORING)
            if now is None:
                return True  # done, or by who took over and finished
            if now.value != claim.value:
                raise _overtaken(self.url)
            try:
                self.store.write(Delete(paths.RESTORING, expect=now))
            except (BadVersion, UnknownOutcome):
                return None
            return True

        until(step)


def _put(kept: Kept) -> Put:
    return Put(kept.key, kept.value, expect=ABSENT, indexes=_indexes(kept))


def _indexes(kept: Kept) -> tuple[IndexEntry, ...]:
    """Of all that a backup has only aborted records are indexed."""
    if kept.key.path.startswith("/txn/segment-state/aborted/"):
        return AbortedTxn.from_bytes(kept.value).indexes(paths.decode(kept.key.partition))
    return ()


def _take_over(storage: LedgerStorage, new_id: str) -> None:
    """Mark the root as the restored cluster's. Its mark keeps whose it was: the same backup may be restored once more."""
    was = heirs(storage)
    if was[:1] == [new_id]:
        return
    storage.delete(MARK)  # (a restore that dies here is known by its claim, and goes on without a mark)
    storage.publish(MARK, json.dumps({"cluster": new_id, "was": was}).encode())


def _overtaken(url: str) -> RestoreRefused:
    return RestoreRefused(
        f"Somebody else restores into {url}, or makes a cluster of it.",
        advice="Let one of you do it. Until a restore is complete nobody can use the store.",
    )
