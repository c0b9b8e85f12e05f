"""A coordinator's log, read and appended to: its state by replay, and what became of one's own entry.

Read in this order: the log's list, then the record with its snapshot, then the entries. What has left the log by the time it was
listed is in the snapshot that is read after it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from metadata.cluster import Cluster
from metadata.instream import paths
from metadata.instream.managed_log import ManagedLog
from metadata.instream.txn_records import Txn, TxnEntry, TxnLogRecord, TxnLogSnapshot
from metadata.instream.txn_rules import Effect, TxnLogState, fold, restored
from metadata.names import PersistentName
from metadata.store.contract import Record, View, decide

FIRST_COORDINATOR = 1_000_000
"""The high part of transaction ids is this + the coordinator's number: no id is ever one of topic://, whose high part is small."""


def log_name(coordinator: int) -> PersistentName:
    """The persistent topic that a coordinator's log is."""
    return PersistentName("pulsar", "system", f"__transaction_log_{coordinator}")


class Appended(NamedTuple):
    """An entry that is in the log: its number, what it did there, and its transaction right after it (None: forgotten)."""

    number: int
    effect: Effect
    txn: Txn | None


class _Moved(Exception):
    """Entries left the log between two reads: start over."""


@dataclass
class TransactionLog:
    """The log of one coordinator as this process knows it. Safe for several threads."""

    cluster: Cluster
    coordinator: int = 0
    log: ManagedLog[TxnEntry] = field(init=False)
    _state: TxnLogState = field(default_factory=TxnLogState)
    _awaited: dict[str, tuple[int, Effect, Txn | None] | None] = field(default_factory=dict)
    """Ids of entries that threads of ours have appended, and what became of the first of each once it is read."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.name = log_name(self.coordinator)
        self.log = ManagedLog(self.cluster.store, paths.log(self.name), TxnEntry)

    @property
    def most(self) -> int:
        """The high part of the ids that it gives."""
        return FIRST_COORDINATOR + self.coordinator

    def read(self, view: View) -> TxnLogState:
        """The state by all that was appended before the view. Others must not change it; it goes on with later reads."""
        while True:
            try:
                return self._read(view)
            except _Moved:
                continue

    def now(self) -> TxnLogState:
        return decide(self.cluster.store, self.read)

    def txn(self, least: int) -> Txn | None:
        """The transaction of this sequence number as it stands."""
        return self.now().txns.get(least)

    def _read(self, view: View) -> TxnLogState:
        with self._lock:
            state = self._state
            numbers = self.log.numbers(view, state.at)
            wanted, (record,) = self.log.entries(view, numbers, then=[paths.topic(self.name)])
            snapshot = snapshot_of(record)
            if snapshot is not None and snapshot.at > state.at:
                state = self._state = restored(snapshot)
            for number in numbers:
                if number <= state.at:
                    continue
                if number not in wanted:
                    raise _Moved
                entry = wanted[number]
                effect = fold(state, number, entry)
                if entry.id in self._awaited and self._awaited[entry.id] is None:
                    self._awaited[entry.id] = number, effect, state.txns.get(entry.txn or number)
            return state

    def append(self, entry: TxnEntry) -> Appended:
        """Append an entry and read the log up to it: what it did there. A lost reply is resolved by looking for its id; if it is
        not there it is appended again: the first of them counts, and a second NEW is a transaction that nobody uses.

        Raises what the store raises; then it may be in the log, also later.
        """
        with self._lock:
            self._awaited[entry.id] = None
        try:
            number = self.log.append_again(entry, after=self._state.at)
            return decide(self.cluster.store, lambda view: self._outcome(view, entry, number))
        finally:
            with self._lock:
                del self._awaited[entry.id]

    def _outcome(self, view: View, entry: TxnEntry, number: int) -> Appended:
        with self._lock:
            state = self.read(view)
            found = self._awaited[entry.id]
            if found is not None:
                return Appended(*found)
            # A compaction has passed it before we read it: what it left tells as much as anybody can know.
            txn = state.txns.get(entry.txn or number)
            same = txn is not None and (entry.state is None or entry.state is txn.state)
            return Appended(number, Effect.SAME if same else Effect.VOID, txn)


def snapshot_of(record: Record | None) -> TxnLogSnapshot | None:
    """What the last compaction left, from the log's topic record. Raises CorruptRecord."""
    return None if record is None else TxnLogRecord.of(record).txn_log
