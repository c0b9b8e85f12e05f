"""Acknowledgements on persistent topics. Each (topic, subscription) has its own pending-ack log. The order of this log determines
which acknowledgements count.

The methods are those of `metadata.cursors.pending_ack`, which acknowledges rows of segments. So callers need not distinguish the
two kinds of topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from metadata.cluster.cluster import Cluster
from metadata.common.errors import AckConflict, BadVersion, SubscriptionExists, SubscriptionNotFound, UnknownOutcome
from metadata.cursors.cursors import Where, not_found
from metadata.instream import ack_rules, paths
from metadata.instream.ack_records import AckEntry, AckKind, AckSnapshot, SubscriptionRecord
from metadata.instream.ack_rules import AckState
from metadata.instream.managed_log import ManagedLog
from metadata.instream.replay import Replay
from metadata.instream.rules import has_ended
from metadata.records import paths as metadata_paths
from metadata.records.names import persistent_name
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Cursor
from metadata.records.row_ranges import NONE, Rows, minus
from metadata.rules import acks
from metadata.rules.acks import Ack
from metadata.store.contract import ABSENT, Put, Record, View, decide, look, time_ms, until, written

T = TypeVar("T")
AckReplay = Replay[AckEntry, AckState, "AckConflict | None"]


class _LifeOver(Exception):
    """The subscription was deleted since its record was read, and perhaps created again."""


@dataclass
class InStreamAcks:
    """The pending-ack logs of a cluster's persistent topics. Safe for several threads and any number of processes.

    After a conflict `blocked` is called with all other transactions with pending acks of the subscription. It returns whether it
    has ended one of them. If it has, the acknowledgement is tried again. `carry` migrates one subscription of a migrated topic. It
    is needed for a subscription that was created during the migration, because the migration may have missed that subscription.
    """

    cluster: Cluster
    blocked: Callable[[Iterable[str]], bool] = lambda txns: False
    carry: Callable[[Where], None] = lambda where: None
    _lives: dict[Where, tuple[int, AckReplay]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def create(self, topic: str, subscription: str, acked: Rows = NONE) -> None:
        """Create a subscription that has acknowledged exactly `acked`. By default it has acknowledged nothing and starts at the
        first row. If the topic is migrated meanwhile, the subscription is migrated, too. Raises SubscriptionExists,
        SubscriptionMigrated (the topic was migrated before).
        """
        persistent_name(topic)
        key = paths.subscription(topic, subscription)
        sent: set[bytes] = set()

        def body(view: View) -> bool | None:
            record = view.get(key)
            old = None if record is None else SubscriptionRecord.of(record)
            if old is not None and old.model_copy(update={"moved": None}).to_bytes() in sent:
                return True
            if old is not None and old.moved:
                raise ack_rules.migrated(topic, subscription)
            if old is not None and old.deleted_ms is None:
                raise SubscriptionExists(
                    f"The topic {topic} has a subscription {subscription!r} already.",
                    advice="Choose another name, or move the subscription by `seek`.",
                )
            begins = AckSnapshot(cursor=acks.with_done(Cursor(), acked))
            made = SubscriptionRecord(created_ms=view.now_ms(), snapshot=begins)
            if old is not None:
                made = made.model_copy(update={"life": old.life + 1, "cleared": old.cleared})
            try:
                self.cluster.store.put(key, made.to_bytes(), expect=ABSENT if record is None else record)
            except BadVersion:
                return None
            except UnknownOutcome:
                sent.add(made.to_bytes())
                return None
            return True

        try:
            until(lambda: decide(self.cluster.store, body))
        except SubscriptionExists:
            self._find_migration((topic, subscription))  # the process that created the subscription may have died before this step
            raise
        self._find_migration((topic, subscription))

    def _find_migration(self, where: Where) -> None:
        """Migrate the subscription if the record of its topic names a successor.

        A migration first names the successor in the record, and then migrates the subscriptions that exist. So this method reads
        the record AFTER a subscription was created, or before its first use. If the record names no successor, a later migration
        finds the subscription. Otherwise this method migrates the subscription.
        """
        topic = look(self.cluster.store, metadata_paths.topic(persistent_name(where[0])))
        if topic is not None and PersistentLayout.of(topic).migrated_to is not None:
            self.carry(where)

    def delete(self, topic: str, subscription: str) -> None:
        """Delete a subscription. Raises SubscriptionNotFound, SubscriptionMigrated."""
        where = topic, subscription

        def step() -> bool | None:
            record = look(self.cluster.store, paths.subscription(*where))
            found = _present(record, where)
            if found.moved:
                raise ack_rules.migrated(*where)
            deleted = found.model_copy(update={"deleted_ms": self._now()})
            try:
                self.cluster.store.put(paths.subscription(*where), deleted.to_bytes(), expect=record)
            except (BadVersion, UnknownOutcome):
                return None if self._is_not_deleted(where) else True
            return True

        until(step)

    def list(self, topic: str) -> Sequence[str]:
        """Return the subscriptions of a topic, sorted by name."""
        return decide(self.cluster.store, lambda view: sorted(w[1] for w, r in every(view, topic) if r.is_there))

    def _is_not_deleted(self, where: Where) -> bool:
        record = look(self.cluster.store, paths.subscription(*where))
        return record is not None and SubscriptionRecord.of(record).deleted_ms is None

    # --- acknowledging ----------------------------------------------------------------------------------------------

    def claim(self, txn_id: str, wanted: Sequence[Ack]) -> None:
        """Acknowledge within a transaction that has registered these subscriptions. Raises AckConflict, SubscriptionNotFound. After
        an error the transaction must abort, which drops the pending acks that it already has.
        """
        self._append(wanted, txn_id)

    def acknowledge(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge without a transaction. After an error some acks may have been done. Raises AckConflict,
        SubscriptionNotFound.
        """
        self._append(acks.merged(wanted), None)

    def advance(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge cumulatively. An ack whose rows are all acknowledged already is skipped, so the call is idempotent. Raises
        AckConflict, SubscriptionNotFound.
        """
        for ack in wanted:
            if not self._left(ack):
                continue
            try:
                self._append([ack], None)
            except AckConflict:
                if self._left(ack):
                    raise  # some rows are still unacknowledged, so this conflict does not come from a concurrent `advance`

    def _left(self, ack: Ack) -> Rows:
        where = ack.segment, ack.subscription
        return minus(ack.rows, acks.done(self.read([where])[where]))

    def seek(self, to: Mapping[Where, Rows]) -> None:
        """Make exactly the given rows of each subscription count as acknowledged. Raises SubscriptionNotFound,
        SubscriptionMigrated.
        """
        self._check_open(to)
        for where, rows in to.items():
            entry = AckEntry(kind=AckKind.SEEK, id=self.cluster.unique(), publish_ms=self._now(), rows=rows)
            conflict = self._append_entry(where, entry)
            if conflict is not None:
                raise conflict

    def _check_open(self, where: Iterable[Where]) -> None:
        """Check that all these subscriptions exist and accept entries. Callers do this before their first append. Raises
        SubscriptionNotFound, SubscriptionMigrated.
        """
        for place in dict.fromkeys(where):
            if self._in_life(place, lambda log: log.now().sealed_at) is not None:
                raise ack_rules.migrated(*place)

    def seal(self, where: Where) -> Cursor | None:
        """Append the SEAL of a subscription whose topic is migrated. Return its final cursor; None if pending acks block the SEAL.
        Idempotent.

        Raises SubscriptionNotFound.
        """
        if self._in_life(where, lambda log: log.now().sealed_at, seals=True) is None:
            entry = AckEntry(kind=AckKind.SEAL, id=self.cluster.unique(), publish_ms=self._now())
            self._in_life(where, lambda log: log.append(entry), seals=True)

        def last(log: AckReplay) -> Cursor | None:
            state = log.now()
            return None if state.sealed_at is None else state.cursor

        return self._in_life(where, last, seals=True)

    def claims(self, where: Where) -> Sequence[str]:
        """Return, for a migration, the ids of the transactions that hold pending acks of the subscription. Raises
        SubscriptionNotFound.
        """
        return list(self._in_life(where, lambda log: log.now().cursor.claims, seals=True))

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]:
        """Return the cursors with the pending acks of open transactions. Raises SubscriptionNotFound."""
        return {place: self._in_life(place, lambda log: log.now().cursor) for place in dict.fromkeys(where)}

    def has_ended(self, where: Where, txn_id: str) -> bool:
        """Return whether the transaction has ended in the subscription's log, or the subscription does not exist."""
        try:
            return self._in_life(where, lambda log: has_ended(log.now(), txn_id))
        except SubscriptionNotFound:
            return True

    def _append(self, wanted: Sequence[Ack], txn: str | None) -> None:
        self._check_open((ack.segment, ack.subscription) for ack in wanted)
        for ack in wanted:
            conflict = self._append_one(ack, txn)
            if conflict is not None and self.blocked(self._claims(ack, txn)):
                conflict = self._append_one(ack, txn)
            if conflict is not None:
                raise conflict

    def _append_one(self, ack: Ack, txn: str | None) -> AckConflict | None:
        entry = AckEntry(
            kind=AckKind.ACK,
            id=self.cluster.unique(),
            publish_ms=self._now(),
            txn=txn,
            rows=ack.rows,
            cumulative=True if ack.cumulative else None,
        )
        return self._append_entry((ack.segment, ack.subscription), entry)

    def _append_entry(self, where: Where, entry: AckEntry) -> AckConflict | None:
        return self._in_life(where, lambda log: log.append(entry).outcome)

    def _claims(self, ack: Ack, txn: str | None) -> Sequence[str]:
        where = ack.segment, ack.subscription
        return [other for other in self.read([where])[where].claims if other != txn]

    # --- logs -------------------------------------------------------------------------------------------------------

    def _in_life(self, where: Where, body: Callable[[AckReplay], T], *, seals: bool = False) -> T:
        """Run `body` with the log of the subscription's current life (`SubscriptionRecord.life`). If that life has ended, run
        `body` again with the log of the next life. `seals`: the caller migrates the subscription.
        """
        while True:
            with self._lock:
                known = self._lives.get(where)
            life, log = self._begin(where, seals=seals) if known is None else known
            try:
                return body(log)
            except _LifeOver:
                with self._lock:
                    self._lives.pop(where, None)
                self._clean_behind(where, life)

    def _clean_behind(self, where: Where, life: int) -> None:
        """Delete all entries of the log of a past life if no later sweep will delete them. (This process may have appended to that
        log.) A sweep skips the log if the subscription's record says that this life is cleared, or if that record is gone.
        """
        record = look(self.cluster.store, paths.subscription(*where))
        if record is None or life <= SubscriptionRecord.of(record).cleared:
            self.empty(where, [life])

    def _begin(self, where: Where, *, seals: bool) -> tuple[int, AckReplay]:
        """Return the current life and its log. If the life ends before the first read of the log, that read raises _LifeOver."""
        life = _present(look(self.cluster.store, paths.subscription(*where)), where).life
        if not seals:
            self._find_migration(where)
        log = self.log(where, life)
        fold = partial(ack_rules.fold, topic=where[0], subscription=where[1])
        replay = Replay(self.cluster, log, paths.subscription(*where), AckState(), fold, partial(_restored, life))
        with self._lock:
            return self._lives.setdefault(where, (life, replay))

    def log(self, where: Where, life: int) -> ManagedLog[AckEntry]:
        """Return the pending-ack log of one life of a subscription."""
        return ManagedLog(self.cluster.store, paths.ack_log(*where, life), AckEntry)

    def close(self, record: Record) -> bool:
        """Mark a subscription's record as moved. Afterwards the subscription can be neither deleted nor created again. Return False
        after a lost race.
        """
        moved = SubscriptionRecord.of(record).model_copy(update={"moved": True})
        return written(self.cluster.store, Put(record.key, moved.to_bytes(), expect=record))

    def compact(self, where: Where) -> int:
        """Store the state of a subscription in its record, and delete the log entries that the state covers. Return how many were
        deleted.
        """

        def write(record: Record | None, state: AckState, _: View) -> bytes | None:
            if record is None:
                return None
            return SubscriptionRecord.of(record).model_copy(update={"snapshot": ack_rules.compacted(state)}).to_bytes()

        return self._in_life(where, lambda log: log.compact(lambda record: SubscriptionRecord.of(record).snapshot.at, write))

    def clear(self, where: Where, found: SubscriptionRecord, record: Record) -> int:
        """Delete all entries in the logs of the subscription's past lives. Return how many were deleted. Idempotent."""
        over = found.life - 1 if found.deleted_ms is None else found.life
        gone = self.empty(where, range(found.cleared + 1, over + 1))
        if over > found.cleared and not gone:  # a log that had entries may get more, so the next sweep checks it again
            self.cluster.store.put(record.key, found.model_copy(update={"cleared": over}).to_bytes(), expect=record)
        return gone

    def empty(self, where: Where, lives: Iterable[int]) -> int:
        """Delete all entries of the logs of these lives. Return how many were deleted. Idempotent."""
        gone = 0
        for life in lives:
            log = self.log(where, life)
            numbers = decide(self.cluster.store, log.numbers)
            log.delete(numbers)
            gone += len(numbers)
        return gone

    def _now(self) -> int:
        return time_ms(self.cluster.store)


def every(view: View, topic: str | None = None) -> list[tuple[Where, SubscriptionRecord]]:
    """Return the subscriptions of a topic, or of all persistent topics if `topic` is None, including tombstones."""
    return [(where, SubscriptionRecord.of(record)) for where, record in records(view, topic)]


def records(view: View, topic: str | None = None) -> list[tuple[Where, Record]]:
    """Return the records of the subscriptions of a topic, or of all persistent topics if `topic` is None, including tombstones."""
    where = [paths.subscription_of(p) for p in view.keys(paths.SUBSCRIPTIONS if topic is None else paths.subscriptions(topic))]
    found = view.get_many([paths.subscription(*w) for w in where]) if where else []
    return [(w, r) for w, r in zip(where, found, strict=True) if r is not None]


def _restored(life: int, record: Record | None) -> AckState | None:
    found = None if record is None else SubscriptionRecord.of(record)
    if found is None or found.deleted_ms is not None or found.life != life:
        raise _LifeOver
    return ack_rules.restored(found.snapshot)


def _present(record: Record | None, where: Where) -> SubscriptionRecord:
    found = None if record is None else SubscriptionRecord.of(record)
    if found is None or found.deleted_ms is not None:
        raise not_found(*where)
    return found
