"""Restore a backup into an empty store (operations.md, Backup).

The restored cluster must not allocate a number or id that the lost cluster, from which the backup was made, has allocated. So its
logs continue in the next stride (`metadata.rules.strides`), and its transaction ids at the next multiple of 10^12. The restored
cluster has a new id and takes over the ledger root. The lost cluster then cannot be opened, and its sweepers delete nothing.

The restore first claims the store: it writes the record `/restoring`. Nobody can use the store until the cluster's record exists
and the claim is deleted. If a restore is interrupted at any step, running it again with the same file completes it. The later run
takes over the claim, and a process of the earlier run fails at its next group of records. A repetition of a completed restore
changes nothing.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ledgers.errors import MissingFile
from ledgers.storage import LedgerStorage
from metadata.backup import in_stream
from metadata.backup.backup_file import Backup, Kept
from metadata.cluster import clock_looks
from metadata.cluster.cluster import Cluster, resolve
from metadata.cluster.ledger_root import MARK, Mark, heirs, marked, recorded, wait_for_deletes
from metadata.cluster.places import place_of
from metadata.cluster.reports import keys_without_reports
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import (
    BackupDamaged,
    BadVersion,
    ConfigurationError,
    CorruptRecord,
    CorruptSnapshot,
    RestoreRefused,
    UnknownOutcome,
)
from metadata.instream.model import InStreamModel
from metadata.maintenance import orphans
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord, Founding, Lost, Restoring
from metadata.records.paths import Prefix
from metadata.records.records import AbortedTxn, Application, TcSequence
from metadata.records.stored import IndexEntry
from metadata.store import open_store
from metadata.store.contract import ABSENT, Delete, MetadataStore, Put, Record, View, decide, in_groups, look, skip, time_ms, until
from metadata.store.memory import MemoryStore

TXN_IDS = 10**12
GROUP = 100


@dataclass(frozen=True)
class Restored:
    """The result of a restore. `number`: the log is restored up to this number. `next_number`: new registrations get numbers from
    this one on. `again`: an earlier call had completely restored this backup into this store, and this call changed nothing.
    """

    url: str
    ledgers: str
    number: int
    next_number: int
    records: int
    again: bool = False


def restore(backup: Backup, service_url: str | None, *, ledgers: str | None = None, clock: Clock | None = None) -> Restored:
    """Create the cluster of a backup in an empty store, over the files that the backup names. A repeated call completes an
    interrupted one.

    `ledgers`: the root to which the files were moved or copied; by default the root that the backup names. Raises RestoreRefused if
    the store is in use, the root belongs to another cluster, or files are missing. RestoreRefused means that nothing was changed,
    unless the error says otherwise. Raises ConfigurationError, StorageError, Unavailable.
    """
    service = resolve(service_url)
    clock = clock or SystemClock()
    storage = LedgerStorage(ledgers or backup.heading.ledgers)
    try:
        store = open_store(service.text, clock=clock, create=False)
    except ConfigurationError:
        # There is no store, or it cannot be opened. A refused restore must not create a store, so the checks run on an empty store
        # in memory. If a store exists but cannot be opened, the second `open_store` raises that error again.
        with MemoryStore(clock=clock) as empty:
            Restoration(backup, empty, service.text, storage, clock).check()
        with open_store(service.text, clock=clock, create=True) as store:
            return Restoration(backup, store, service.text, storage, clock, checks_files=False).run()
    with store:
        return Restoration(backup, store, service.text, storage, clock).run()


@dataclass
class Restoration:
    """One restore of a backup into a store. `checks_files`: False if all files are known to exist."""

    backup: Backup
    store: MetadataStore
    url: str
    storage: LedgerStorage
    clock: Clock
    unique: Callable[[], str] = lambda: uuid.uuid4().hex
    checks_files: bool = True
    _files: dict[str, bytes] = field(default_factory=dict)

    def run(self) -> Restored:
        """Check everything, then claim the store, fill it and release it. The store cannot be opened between claim and release."""
        heading, records = self.backup.heading, self._records()
        done = Restored(self.url, self.storage.uri, heading.number, heading.following, len(records))
        if (lost := self._complete(records)) is not None:
            return replace(done, next_number=lost.before, again=True)
        self._check(records)
        claim = self._claim()
        self._publish()
        for some in in_groups(records, GROUP):
            claim = self._put(claim, some)
        for prefix, first in self._logs():
            skip(self.store, prefix, first)
        restoring = Restoring.of(claim)
        self._take_over(restoring)
        wait_for_deletes(self.storage, self.clock)
        self._check_taken(restoring)
        self._check_files(records, changed=True)  # a sweep of the old cluster may have deleted files before its root was taken over
        clock_looks.look(self.store, self.clock)  # the first observation of the clock: elapsed time is measured from here
        claim = self._put(claim, [self._cluster_record(claim)])
        self._release(claim)
        return done

    def check(self) -> None:
        """Raise the error that `run` would raise before its first write, if any."""
        self._check(self._records())

    def _check(self, records: Sequence[Kept]) -> None:
        self._check_empty()
        self._check_root()
        if self.checks_files:
            self._check_files(records)

    def _records(self) -> list[Kept]:
        """Return the records for the store. These are the records of the backup with two changes: applications are marked
        `restored`, and large content is moved to files. The record of the next transaction id is added.
        """
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
        """Write the files for records that are too large (`_records`), also again, because the first write may not be durable."""
        for path, content in self._files.items():
            self.storage.replace(path, content)

    def _logs(self) -> list[tuple[Prefix, int]]:
        """Return each log with its next number after the restore. The transaction log of the marker-based model is always one of
        them, even if the backup has no such log, because the lost cluster may have allocated ids from it after the backup.
        """
        marked = [in_stream.TRANSACTIONS, *(p for kept in self.backup.records for p in in_stream.logs(kept))]
        heading = self.backup.heading
        return [(paths.LOG, heading.following), *((prefix, heading.in_stream_following) for prefix in marked)]

    def _cluster_record(self, claim: Record) -> Kept:
        heading, restoring = self.backup.heading, Restoring.of(claim)
        lost = Lost(
            after=heading.number,
            before=heading.following,
            restored_at_ms=restoring.began_ms,
            backup=self.backup.sha256,
            was=heading.cluster,
            in_stream=heading.in_stream_following,
        )
        record = ClusterRecord(
            id=restoring.id,
            ledgers=recorded(self.storage, resolve(self.url)),
            created_at_ms=heading.created_at_ms,
            settings=heading.settings,
            restored=(*(heading.restored or ()), lost),
        )
        return Kept(paths.CLUSTER, record.to_bytes())

    # --- checks before the first write -----------------------------------------------------------------------------

    def _complete(self, records: Sequence[Kept]) -> Lost | None:
        """Return what the cluster's record says of this restore if this backup was completely restored into this store before, and
        the store has got no other records since. The process that restored it may have crashed before it could report success.
        """

        def body(view: View) -> Lost | None:
            record, restoring = view.get_many([paths.CLUSTER, paths.RESTORING])
            if record is None or restoring is not None:
                return None
            cluster = ClusterRecord.of(record)
            last = cluster.restored[-1] if cluster.restored else None
            if last is None or last.backup != self.backup.sha256 or cluster.ledgers != recorded(self.storage, resolve(self.url)):
                return None
            made = {paths.CLUSTER.path, paths.FOUNDING.path, paths.SWEEP_TIME.path, *(kept.key.path for kept in records)}
            return last if made.issuperset(keys_without_reports(view)) and marked(self.storage) == cluster.id else None

        return decide(self.store, body)

    def _check_empty(self) -> None:
        found = decide(self.store, keys_without_reports)
        if found and not self._begun():
            raise RestoreRefused(
                f"The store {self.url} is not empty: it has {found[0]} and {len(found) - 1} more records.",
                advice="Restore into a new folder or chroot: a backup is never mixed with existing records. Nothing was changed.",
            )

    def _begun(self) -> Restoring | None:
        """Return the incomplete restore of this backup in the store, or None. Raises RestoreRefused for an incomplete restore of
        another backup or into another root.
        """
        record = look(self.store, paths.RESTORING)
        if record is None:
            return None
        begun = Restoring.of(record)
        if begun.backup != self.backup.sha256 or begun.ledgers != self.storage.uri:
            raise RestoreRefused(
                f"{begun.by} has begun to restore another backup into the store {self.url} "
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
                f"The ledger root {self.storage.uri} has no {MARK}: it is not the backup's root, or its volume is missing.",
                advice="If the root was moved, give its new place: --ledgers URI. Copy it completely. Nothing was changed.",
            )
        if found and known.isdisjoint(found):
            raise RestoreRefused(
                f"The ledger root {self.storage.uri} belongs to another cluster than the backup.",
                advice="If the root was moved, give its new place: --ledgers URI. Nothing was changed.",
            )

    def _check_files(self, records: Sequence[Kept], *, changed: bool = False) -> None:
        """Check that every file that the backup names exists. To get the names, this method writes the records into a store in
        memory, and lists the files that the records of this store name. `changed`: the root already belongs to the restored
        cluster.
        """
        with MemoryStore(clock=self.clock) as store:
            for some in in_groups(records, GROUP):
                store.write(*(_put(kept) for kept in some))
            cluster = Cluster("memory://rehearsal", store, self.storage, self.backup.heading.settings, self.clock)
            there = {file.path for file in self.storage.list("")} | self._files.keys()
            try:
                named = set(decide(store, lambda view: set(orphans.named_files(cluster, InStreamModel(cluster), view))))
            except CorruptRecord as error:
                raise BackupDamaged(
                    f"The backup is damaged: {error.message}", advice="Use another copy. Nothing was changed."
                ) from error
            except (CorruptSnapshot, MissingFile) as error:
                raise self._without(error.message, changed) from error
        missing = sorted(named - there)
        if missing:
            raise self._without(f"{len(missing)} are missing, such as {missing[0]}.", changed)

    def _without(self, problem: str, changed: bool) -> RestoreRefused:
        """Return the error for missing files. Its message identifies the backup and gives the grace period."""
        heading, days = self.backup.heading, self.backup.heading.settings.grace_period_ms / 86_400_000
        taken = datetime.fromtimestamp(heading.taken_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        return RestoreRefused(
            f"The backup of {taken} (up to number {heading.number} of the log, SHA-256 {self.backup.sha256[:12]}..) cannot be "
            f"restored over the ledgers in {self.storage.uri}, which no longer have all the files that it names: {problem}",
            advice=f"Files replaced or trimmed since a backup are deleted after the grace period ({days:g} days): restore "
            "a newer backup, or bring these files back from a copy of the root. "
            + (
                f"A sweep of the old cluster deleted them meanwhile. The store {self.url} is not complete and cannot be used."
                if changed
                else "Nothing was changed."
            ),
        )

    # --- writing ---------------------------------------------------------------------------------------------------

    def _claim(self) -> Record:
        """Write the claim `/restoring`. Raises RestoreRefused if another process claims the store or creates a cluster in it."""
        begun = self._begun()
        now_ms = time_ms(self.store)
        owners = heirs(self.storage)
        claim = Restoring(
            backup=self.backup.sha256,
            id=begun.id if begun else self.unique(),
            ledgers=self.storage.uri,
            began_ms=begun.began_ms if begun else now_ms,
            by=f"{socket.gethostname()}:{os.getpid()}:{self.unique()[:8]}",
            was=tuple(owners) if begun is None or begun.was is None else begun.was,
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
        """Write those of the records that the store lacks. The same atomic write also writes the claim again, so it fails if
        another process has taken over the claim. Return the new claim record. Raises RestoreRefused.
        """
        keys = [kept.key for kept in some]

        def step() -> Record | None:
            now, *found = decide(self.store, lambda view: view.get_many([paths.RESTORING, *keys]))
            if now is None or now.value != claim.value:
                raise _overtaken(self.url)
            for kept, record in zip(some, found, strict=True):
                if record is not None and record.value != kept.value:
                    raise RestoreRefused(
                        f"{kept.key.path} in the store {self.url} differs from the backup: another process writes to the store.",
                        advice="The store cannot be used. Restore into another folder or chroot.",
                    )
            missing = [_put(kept) for kept, record in zip(some, found, strict=True) if record is None]
            if not missing:
                return now
            try:
                return self.store.write(Put(paths.RESTORING, now.value, expect=now), *missing)[0]
            except (BadVersion, UnknownOutcome):
                return None  # the write may be done, or another process may have taken over the restore: read again

        return until(step)

    def _take_over(self, restoring: Restoring) -> None:
        """Write the restored cluster's mark into the root.

        The mark keeps the previous owners, because a backup can be restored again only if the mark still names the backup's
        cluster. The record `/restoring` keeps the previous owners, too. This record is needed if a storage cannot replace a file
        atomically: then there is no mark for a moment, and the restore may crash in this moment. A repeated restore writes its mark
        again, because the first one may not be durable.
        """
        was = tuple(one for one in dict.fromkeys([*heirs(self.storage), *(restoring.was or ())]) if one != restoring.id)
        place = place_of(resolve(self.url), self.storage).in_mark()
        self.storage.replace(MARK, Mark(cluster=restoring.id, was=was, place=place).to_bytes())

    def _check_taken(self, restoring: Restoring) -> None:
        """Raise RestoreRefused if another process has replaced the mark of this restore."""
        if marked(self.storage) != restoring.id:
            raise RestoreRefused(
                f"Another process has taken over the ledger root {self.storage.uri} at the same time.",
                advice="To give the root to this restore, run it again; the other cluster can then no longer be used. "
                f"Until then the store {self.url} is not complete and cannot be used.",
            )

    def _release(self, claim: Record) -> None:
        def step() -> bool | None:
            now = look(self.store, paths.RESTORING)
            if now is None:
                return True  # this call has deleted the claim, or a process that took it over has
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
    """Return the index entries of a record. In a backup only aborted records have any."""
    if kept.key.path.startswith("/txn/segment-state/aborted/"):
        return AbortedTxn.from_bytes(kept.value).indexes(paths.decode(kept.key.partition))
    return ()


def _overtaken(url: str) -> RestoreRefused:
    return RestoreRefused(
        f"Another process restores into {url}, or creates a cluster in it.",
        advice="Run only one of them. The store cannot be used until a restore is complete.",
    )
