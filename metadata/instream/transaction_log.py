"""The coordinator's log, read and appended to: its state by replay, and what became of one's own entry."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ledgers.errors import MissingFile
from metadata.cluster.cluster import Cluster
from metadata.common.errors import CorruptRecord
from metadata.instream import paths
from metadata.instream.managed_log import ManagedLog
from metadata.instream.replay import Replay
from metadata.instream.txn_records import Txn, TxnEntry, TxnLogRecord, TxnLogSnapshot, Written
from metadata.instream.txn_rules import COORDINATOR, Effect, TxnLogState, compacted, fold, forget, restored
from metadata.records.names import SYSTEM, PersistentName
from metadata.store.contract import Record, View

TRANSACTION_LOG = PersistentName(*SYSTEM, "__transaction_log_0")
"""The persistent topic that the log of the coordinator is, named as Pulsar names that of its first."""

INLINE_BYTES = 256 * 1024
"""What a compaction leaves is a file above this many bytes."""


class Appended(NamedTuple):
    """An entry that is in the log: its number, what it did there, and its transaction right after it (None: forgotten)."""

    number: int
    effect: Effect
    txn: Txn | None


@dataclass
class TransactionLog:
    """The log of a cluster's coordinator as this process knows it. Safe for several threads.

    `most`: the high part of the ids that it gives.
    """

    most: ClassVar[int] = COORDINATOR

    cluster: Cluster
    replay: Replay[TxnEntry, TxnLogState, tuple[Effect, Txn | None]] = field(init=False)
    _kept: int = 0

    def __post_init__(self) -> None:
        log = ManagedLog(self.cluster.store, paths.log(TRANSACTION_LOG), TxnEntry)
        key = paths.topic(TRANSACTION_LOG)
        self.replay = Replay(self.cluster, log, key, TxnLogState(), _fold, self._restored)

    @property
    def gathered(self) -> int:
        """About how many entries the log has since its last compaction, as far as this process has read it."""
        return self.replay.at - self._kept

    def txns(self) -> list[Txn]:
        """All transactions as they stand, by sequence number; final ones until a compaction forgets them."""
        self.replay.now()
        with self.replay.lock:
            return list(self.replay.state.txns.values())

    def live(self) -> list[Txn]:
        """The transactions that are not final, by sequence number."""
        self.replay.now()
        with self.replay.lock:
            state = self.replay.state
            return [state.txns[least] for least in sorted(state.live)]

    def txn(self, least: int) -> Txn | None:
        """The transaction of this sequence number as it stands; None: it never began, or is forgotten."""
        self.replay.now()
        return self.replay.state.txns.get(least)

    def began_ms(self, least: int) -> int:
        """When a transaction began, as of the last look at the log; 0: it is not known there."""
        txn = self.replay.state.txns.get(least)
        return 0 if txn is None else txn.created_ms

    def written(self, app: str) -> Written | None:
        """What an application has committed last, as of the last look at the log."""
        return self.replay.state.apps.get(app)

    def applications(self) -> dict[str, Written]:
        """What every application has committed last."""
        state = self.replay.now()
        with self.replay.lock:
            return dict(state.apps)

    def knows(self, app: str) -> bool:
        """Whether a transaction of an application is not forgotten, as of the last look at the log. Looks at all there are."""
        with self.replay.lock:
            return any(txn.app == app for txn in self.replay.state.txns.values())

    def low_water(self) -> int:
        """As `TxnLogState.low_water`, as of the last look at the log: an older one is lower, and as true."""
        with self.replay.lock:
            return self.replay.state.low_water

    def append(self, entry: TxnEntry) -> Appended:
        """Append an entry and read the log up to it: what it did there. (A NEW that was appended twice is a second transaction,
        which nobody uses: its timeout ends it.) Raises what the store raises; then it may be in the log, also later.
        """
        number, outcome = self.replay.append(entry)
        if outcome is not None:
            return Appended(number, *outcome)
        # A compaction has passed it before we read it: what it left tells as much as anybody can know.
        txn = self.txn(entry.txn or number)
        same = txn is not None and (entry.state is None or entry.state is txn.state)
        return Appended(number, Effect.SAME if same else Effect.VOID, txn)

    def compact(self) -> int:
        """Forget what is final for longer than the retention, and delete what the log says of it; how many entries."""

        def write(record: Record | None, state: TxnLogState, view: View) -> bytes:
            old = TxnLogRecord(created_ms=view.now_ms()) if record is None else TxnLogRecord.of(record)
            kept = compacted(state, view.now_ms(), self.cluster.settings.header_retention_ms)
            if len(kept.to_bytes()) <= INLINE_BYTES:
                return old.model_copy(update={"txn_log": kept, "txn_log_path": None, "txn_log_crc": None}).to_bytes()
            path = f"manifests/txn-log-{self.cluster.unique()}.json"
            self.cluster.storage.publish(path, kept.to_bytes())
            in_file = {"txn_log": TxnLogSnapshot(at=kept.at), "txn_log_path": path, "txn_log_crc": zlib.crc32(kept.to_bytes())}
            return old.model_copy(update=in_file).to_bytes()

        return self.replay.compact(_kept_at, write)

    def kept_in(self, view: View) -> str | None:
        """The file that what the last compaction left lies in, if it was too big for the record."""
        record = view.get(paths.topic(TRANSACTION_LOG))
        return None if record is None else TxnLogRecord.of(record).txn_log_path

    def _in_file(self, found: TxnLogRecord, path: str) -> TxnLogSnapshot:
        """Raises CorruptRecord, StorageError."""
        try:
            data = self.cluster.storage.read(path)
        except MissingFile as error:
            raise _corrupt(path, "does not exist, where the transaction log is kept") from error
        if found.txn_log_crc is not None and zlib.crc32(data) != found.txn_log_crc:
            raise _corrupt(path, "is damaged: its checksum is another")
        return TxnLogSnapshot.from_bytes(data)

    def _restored(self, record: Record | None) -> TxnLogState | None:
        """What the last compaction left, once for each; what we know besides forgets what it forgot. Raises CorruptRecord,
        StorageError.
        """
        found = None if record is None else TxnLogRecord.of(record)
        if found is None or found.txn_log is None or found.txn_log.at <= self._kept:
            return None
        kept = found.txn_log if found.txn_log_path is None else self._in_file(found, found.txn_log_path)
        if kept.at != found.txn_log.at:
            raise _corrupt(found.txn_log_path, f"is the transaction log up to {kept.at}, not {found.txn_log.at}")
        self._kept = kept.at
        if kept.at > self.replay.at:
            return restored(kept)
        forget(self.replay.state, kept)
        return None


def _corrupt(path: str | None, what: str) -> CorruptRecord:
    return CorruptRecord(
        f"{path} {what}.", advice="Restore it from a copy: it alone says which transactions are under way, and what has committed."
    )


def _kept_at(record: Record) -> int:
    found = TxnLogRecord.of(record).txn_log
    return 0 if found is None else found.at


def _fold(state: TxnLogState, number: int, entry: TxnEntry) -> tuple[Effect, Txn | None]:
    effect = fold(state, number, entry)
    return effect, state.txns.get(entry.txn or number)
