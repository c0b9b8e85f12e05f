"""The transaction log of a cluster. A process replays the log to learn the state of all transactions, and the effect of each entry
that the process itself appends.
"""

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
"""The name of the transaction log, which is a persistent topic. Pulsar's first transaction log has the same name."""

INLINE_BYTES = 256 * 1024
"""If the state that a compaction keeps has more bytes than this, it is stored in a file."""


class Appended(NamedTuple):
    """The number and the effect of an appended entry. `txn`: the entry's transaction, in the state right after the entry; None if
    the log does not have the transaction.
    """

    number: int
    effect: Effect
    txn: Txn | None


@dataclass
class TransactionLog:
    """The transaction log of a cluster, with this process's cache. Safe for several threads.

    `most`: the high part of the ids of its transactions.
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
        """How many entries the log has since the last compaction, approximately, as far as this process has read the log."""
        return self.replay.at - self._kept

    def txns(self) -> list[Txn]:
        """Return all transactions in their current state, by sequence number. Final transactions are included until a compaction
        drops them.
        """
        self.replay.now()
        with self.replay.lock:
            return list(self.replay.state.txns.values())

    def live(self) -> list[Txn]:
        """Return the transactions that are not final, by sequence number."""
        self.replay.now()
        with self.replay.lock:
            state = self.replay.state
            return [state.txns[least] for least in sorted(state.live)]

    def txn(self, least: int) -> Txn | None:
        """Return the transaction of this sequence number in its current state; None if it never began or has expired."""
        self.replay.now()
        return self.replay.state.txns.get(least)

    def began_ms(self, least: int) -> int:
        """Return the time (ms) at which a transaction began, as of the last read of the log; 0 if the transaction is unknown."""
        txn = self.replay.state.txns.get(least)
        return 0 if txn is None else txn.created_ms

    def written(self, app: str) -> Written | None:
        """Return the last committed version of an application, as of the last read of the log."""
        return self.replay.state.apps.get(app)

    def applications(self) -> dict[str, Written]:
        """Return the last committed version of every application."""
        state = self.replay.now()
        with self.replay.lock:
            return dict(state.apps)

    def knows(self, app: str) -> bool:
        """Return whether the log, as last read, still has a transaction of the application. Scans all transactions."""
        with self.replay.lock:
            return any(txn.app == app for txn in self.replay.state.txns.values())

    def low_water(self) -> int:
        """Return the low-water mark (`TxnLogState.low_water`) as of the last read of the log. The log may have grown since. The
        mark is still correct, because the transactions up to it stay final.
        """
        with self.replay.lock:
            return self.replay.state.low_water

    def append(self, entry: TxnEntry) -> Appended:
        """Append an entry, read the log up to it, and return the entry's number and effect, and its transaction.

        If the reply of an append is lost, the entry may be appended twice. A second NEW entry begins a second transaction. No
        caller learns the id of this transaction, and it ends by its timeout. Raises StoreError; the entry may nevertheless be in
        the log, or appear there later.
        """
        number, outcome = self.replay.append(entry)
        if outcome is not None:
            return Appended(number, *outcome)
        # A compaction has covered the entry before it was read, so only the current state of the transaction is known.
        txn = self.txn(entry.txn or number)
        same = txn is not None and (entry.state is None or entry.state is txn.state)
        return Appended(number, Effect.SAME if same else Effect.VOID, txn)

    def compact(self) -> int:
        """Drop transactions that became final longer ago than the retention, and delete the log entries that the stored state
        covers. Return how many entries were deleted.
        """

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
        """Return the path of the file with the last compaction's state; None if the state is in the record."""
        record = view.get(paths.topic(TRANSACTION_LOG))
        return None if record is None else TxnLogRecord.of(record).txn_log_path

    def _in_file(self, found: TxnLogRecord, path: str) -> TxnLogSnapshot:
        """Read the state in a file. Raises CorruptRecord, StorageError."""
        try:
            data = self.cluster.storage.read(path)
        except MissingFile as error:
            raise _corrupt(path, "does not exist, but holds the state of the transaction log") from error
        if found.txn_log_crc is not None and zlib.crc32(data) != found.txn_log_crc:
            raise _corrupt(path, "is damaged: its checksum differs")
        return TxnLogSnapshot.from_bytes(data)

    def _restored(self, record: Record | None) -> TxnLogState | None:
        """Return the state of the last compaction if it is newer than the cached state. Otherwise return None, and drop from the
        cached state the transactions and applications that the compaction has dropped. Each compaction is loaded once. Raises
        CorruptRecord, StorageError.
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
        f"{path} {what}.", advice="Restore it from a copy: only this file has the open transactions and the committed versions."
    )


def _kept_at(record: Record) -> int:
    found = TxnLogRecord.of(record).txn_log
    return 0 if found is None else found.at


def _fold(state: TxnLogState, number: int, entry: TxnEntry) -> tuple[Effect, Txn | None]:
    effect = fold(state, number, entry)
    return effect, state.txns.get(entry.txn or number)
