"""Read the marker-based model's part of a backup while writers run (docs/in_stream.md, Backups).

The order of reading makes the backup consistent. The reader locks no log and writes nothing.

1. Read the pending-ack logs. An acknowledgement without a transaction counts only if this step reads it. A consumer acknowledges
   rows after they were written, and often after it has written what it computed from them. The logs with all of these writes
   (the log of topic://, the transaction log, the topics' logs) are read later. So if the backup has an acknowledgement, it also
   has all writes that were made before the acknowledgement.
2. Read the transaction log. The backup contains exactly the transactions that have committed by the last entry read.
3. Read the topics' logs, and the pending-ack logs again. A transaction writes its data and pending acks before it logs COMMITTING,
   so this step finds all of them. Data of a transaction that had not committed at step 2 is left out, whatever its later outcome.

The backup has no pending ack, no open transaction, and no marker of a real transaction. Readers may have read a topic's log beyond
the last data in the backup. Then the backup adds a marker of a transaction that never existed, so that the restored log reaches the
number up to which readers may have read. The snapshots of topics and pending-ack logs state that all transactions before the
restore have ended, so late entries of these transactions do not count.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from metadata.backup.backup_file import Kept
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TopicNotFound
from metadata.cursors.cursors import Where
from metadata.instream import ack_rules, paths, pending_ack, snapshots
from metadata.instream.ack_records import AckEntry, AckSnapshot, SubscriptionRecord
from metadata.instream.ack_rules import AckState
from metadata.instream.backup_rules import Decided, KeptLog, all_ended, kept_cursor, kept_layout, kept_log
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.managed_log import ManagedLog
from metadata.instream.reading import GROUP
from metadata.instream.topics import PersistentTopic, every
from metadata.instream.transaction_log import INLINE_BYTES, TRANSACTION_LOG, TransactionLog
from metadata.instream.txn_records import TxnLogRecord, TxnLogSnapshot
from metadata.records.names import PersistentName
from metadata.records.paths import KeyRange, Prefix
from metadata.records.persistent_records import LogEntry, PersistentLayout, SnapshotPointer, SnapshotRest
from metadata.records.records import Cursor
from metadata.rules.consistent_cut import Moving
from metadata.store.contract import View

NAMESPACES = KeyRange("/persistent/namespaces/", "/persistent/namespaces/~", "")
TRANSACTIONS = paths.log(TRANSACTION_LOG)


@dataclass(frozen=True)
class _Topic:
    """One topic in the backup. `found`: the kept part of its log; None for a deleted topic."""

    name: PersistentName
    layout: PersistentLayout
    found: KeptLog | None


@dataclass(frozen=True)
class _Subscription:
    """One subscription in the backup. `state`: the state after all entries of its log; None for a deleted subscription. `cursor`:
    the cursor that the backup holds.
    """

    where: Where
    record: SubscriptionRecord
    state: AckState | None
    cursor: Cursor


@dataclass(frozen=True)
class InStreamBackup:
    """The marker-based model's part of a backup."""

    now_ms: int
    decided: Decided
    transactions: TxnLogRecord | None
    topics: tuple[_Topic, ...]
    subscriptions: tuple[_Subscription, ...]
    namespaces: tuple[Kept, ...]

    @property
    def any(self) -> bool:
        """Return whether the cluster has any record of the marker-based model."""
        return bool(self.transactions or self.topics or self.subscriptions or self.namespaces)

    @property
    def shown(self) -> int:
        """Return how many topics exist. A migrated topic is not counted, because its successor is."""
        return sum(topic.found is not None and topic.layout.migrated_to is None for topic in self.topics)

    @property
    def highest(self) -> int:
        """Return the highest number that the backup shows in any log of the marker-based model."""
        ends = [max(t.layout.trimmed_log, 0 if t.found is None else t.found.end) for t in self.topics]
        return max(self.decided.state.at, *ends, *(s.state.at for s in self.subscriptions if s.state is not None), 0)

    def kept(self, following: int) -> Iterator[Kept]:
        """Yield the marker-based model's records of the backup. `following`: the first number of each of its logs after a
        restore.
        """
        yield from self.namespaces
        if self.transactions is not None:
            inline = {"txn_log": self.decided.kept(), "txn_log_path": None, "txn_log_crc": None}
            left = self.transactions.model_copy(update=inline)
            yield Kept(paths.topic(TRANSACTION_LOG), left.to_bytes())
        for topic in self.topics:
            yield from self._topic(topic, following)
        for subscription in self.subscriptions:
            yield Kept(paths.subscription(*subscription.where), self._subscription(subscription, following).to_bytes())

    def _topic(self, topic: _Topic, following: int) -> Iterator[Kept]:
        name, found = topic.name, topic.found
        layout = kept_layout(topic.layout, found, following)
        if found is not None:
            for number, entry in found.entries.items():
                yield Kept(paths.log(name).key(number), entry.to_bytes())
            if layout.contains_txn is not False and found.end > 0:
                layout = layout.model_copy(update={"snapshot": self._snapshot(name, found, found.rest(following))})
        yield Kept(paths.topic(name), layout.to_bytes())

    def _snapshot(self, name: PersistentName, found: KeptLog, rest: SnapshotRest) -> SnapshotPointer:
        """Build the snapshot at the end of the topic's log."""
        last = found.entries.get(found.end)
        avro = snapshots.encode(name, (found.end, 0 if last is None or last.write is None else last.write.entries - 1), {})
        encoded = base64.b64encode(avro).decode()
        return SnapshotPointer(at=found.end, made_ms=self.now_ms, avro=encoded, crc=zlib.crc32(avro), rest=rest)

    @staticmethod
    def _subscription(found: _Subscription, following: int) -> SubscriptionRecord:
        if found.state is None:
            return found.record
        low_water, sealed_at = all_ended(following), found.state.sealed_at
        snapshot = AckSnapshot(at=found.state.at, cursor=found.cursor, low_water=low_water, sealed_at=sealed_at)
        return found.record.model_copy(update={"snapshot": snapshot})


Begun = Mapping[Where, tuple[SubscriptionRecord, AckState | None]]
"""The record and state of each subscription before the transaction log was read. A deleted subscription has the state None."""


@dataclass
class InStreamReader:
    """Reads the marker-based model's part of a backup. An attempt fails with `Moving` if records changed while it read them. The
    next attempt uses what the failed attempt has cached.
    """

    cluster: Cluster
    buffer: InStreamBuffer = field(init=False)
    log: TransactionLog = field(init=False)
    _acks: dict[tuple[Where, int], ManagedLog[AckEntry]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.buffer = InStreamBuffer(self.cluster)
        self.log = TransactionLog(self.cluster)

    def begin(self, view: View) -> Begun:
        """Do step 1 of the module's order. Raises Moving."""
        found = {where: SubscriptionRecord.of(record) for where, record in pending_ack.records(view)}
        return {w: (r, None if r.deleted_ms is not None else self._state(view, w, r)) for w, r in found.items()}

    def read(self, view: View, begun: Begun) -> InStreamBackup:
        """Do steps 2 and 3 of the module's order. Raises Moving, CorruptRecord, StorageError."""
        now_ms = view.now_ms()
        decided = Decided(self.log.replay.read(view))
        record = view.get(paths.topic(TRANSACTION_LOG))
        transactions = None if record is None else TxnLogRecord.of(record)
        if transactions is None and decided.state.at:
            transactions = TxnLogRecord(created_ms=now_ms)
        topics = tuple(self._topic(view, topic, decided, now_ms) for topic in every(view))
        subscriptions = tuple(self._subscriptions(view, begun, decided))
        namespaces = tuple(Kept(r.key, r.value) for r in view.scan(NAMESPACES))
        return InStreamBackup(now_ms, decided, transactions, topics, subscriptions, namespaces)

    def _topic(self, view: View, topic: PersistentTopic, decided: Decided, now_ms: int) -> _Topic:
        name = topic.name
        if topic.layout.deleted:
            return _Topic(name, topic.layout, None)
        try:
            opened = self.buffer.open(view, name)
        except TopicNotFound as error:
            raise Moving(f"{name} was deleted meanwhile") from error
        entries: dict[int, LogEntry] = {}
        for i in range(0, len(opened.numbers), GROUP):
            entries |= self.buffer.log(name).entries(view, opened.numbers[i : i + GROUP])[0]
        if len(entries) < len(opened.numbers):
            raise Moving(f"{name} was trimmed meanwhile")
        layout = opened.topic.layout
        found = kept_log(str(name), entries, opened.state, opened.end, decided, trimmed_log=layout.trimmed_log, now_ms=now_ms)
        return _Topic(name, layout, found)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _state(self, view: View, where: Where, seen: SubscriptionRecord) -> AckState:
        record, entries = self._entries(view, where, seen, 0)
        state = ack_rules.restored(record.snapshot)
        for number, entry in entries.items():
            if number > state.at:
                ack_rules.fold(state, number, entry, topic=where[0], subscription=where[1])
        return state

    def _subscriptions(self, view: View, begun: Begun, decided: Decided) -> Iterator[_Subscription]:
        now = {where: SubscriptionRecord.of(record) for where, record in pending_ack.records(view)}
        if {w: _stage(r) for w, r in now.items()} != {w: _stage(r) for w, (r, _) in begun.items()}:
            raise Moving("a subscription was created, deleted or migrated meanwhile")
        for where, (seen, before) in begun.items():
            if before is None:
                yield _Subscription(where, now[where], None, Cursor())
                continue
            record, entries = self._entries(view, where, seen, before.at)
            if record.snapshot.at > before.at:
                raise Moving(f"the pending-ack log of {where[1]!r} of {where[0]} was compacted meanwhile")
            yield _Subscription(where, record, *kept_cursor(where, before, entries, decided))

    def _entries(
        self, view: View, where: Where, seen: SubscriptionRecord, after: int
    ) -> tuple[SubscriptionRecord, dict[int, AckEntry]]:
        """Return the record of a subscription, and the entries of its log above `after`. The record is read after the log was
        listed. The result may lack entries that the record's snapshot covers. Raises Moving if it would lack any other entry, or if
        the subscription was deleted or migrated.
        """
        make = partial(ManagedLog, self.cluster.store, paths.ack_log(*where, seen.life), AckEntry)
        log = self._acks.get((where, seen.life)) or self._acks.setdefault((where, seen.life), make())
        numbers = log.numbers(view, after)
        entries, (found,) = log.entries(view, numbers, then=[paths.subscription(*where)])
        record = None if found is None else SubscriptionRecord.of(found)
        if record is None or _stage(record) != _stage(seen):
            raise Moving(f"the subscription {where[1]!r} of {where[0]} was deleted or migrated meanwhile")
        if any(n > record.snapshot.at and n not in entries for n in numbers):
            raise Moving(f"the pending-ack log of {where[1]!r} of {where[0]} was compacted meanwhile")
        return record, entries


def _stage(record: SubscriptionRecord) -> tuple[object, ...]:
    """Return the fields of a subscription's record that must not change between step 1 and step 3."""
    return record.life, record.deleted_ms, record.moved


def logs(kept: Kept) -> Iterator[Prefix]:
    """Yield the log of a topic or subscription from the record `kept` of the topic or subscription. Yield nothing for other
    records. A restore raises the next number of each log.
    """
    path = kept.key.path
    if path.startswith(paths.TOPICS.first):
        yield paths.log(paths.topic_at(path))
    elif path.startswith(paths.SUBSCRIPTIONS.first):
        where, life = paths.subscription_of(path), SubscriptionRecord.from_bytes(kept.value).life
        yield paths.ack_log(*where, life)


def in_file(kept: Kept, path: str) -> tuple[Kept, bytes] | None:
    """Return None if the record is small enough for the store. Otherwise return the record with the file name `path` in place of
    its large content, and this content.
    """
    if kept.key != paths.topic(TRANSACTION_LOG) or len(kept.value) <= INLINE_BYTES:
        return None
    record = TxnLogRecord.from_bytes(kept.value)
    assert record.txn_log is not None
    content = record.txn_log.to_bytes()
    filed = {"txn_log": TxnLogSnapshot(at=record.txn_log.at), "txn_log_path": path, "txn_log_crc": zlib.crc32(content)}
    return Kept(kept.key, record.model_copy(update=filed).to_bytes()), content


def is_known(path: str) -> bool:
    """Return whether backups handle records of this path, which belongs to the marker-based model."""
    folder = path.split("/")[2]
    return folder in ("topics", "logs", "subscriptions", "acks", "namespaces")
