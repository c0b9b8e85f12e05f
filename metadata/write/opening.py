"""Opening of a transaction: fence the earlier attempt of its application, and create its header (protocol.md section 5)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import cast

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, OutcomeUnknown, UnknownOutcome
from metadata.common.tracing import traced
from metadata.log import ending
from metadata.records import paths
from metadata.records.names import segment_name
from metadata.records.records import Application, Header, Nanos, State
from metadata.rules import transitions
from metadata.rules.transitions import Gone, Opening
from metadata.store.contract import ABSENT, Put, Record, View, decide, time_ms, until
from metadata.write.observed import resolves
from metadata.write.txn_ids import TxnIds
from metadata.write.write_set import Committed, WriteSet, refuse_old, refuse_stale

MAX_DECIDED = 1000
"""A process remembers at most this many decided headers of its own transactions."""


@dataclass(frozen=True)
class Opened:
    """An OPEN transaction of this process. `record`: the store's record of `header`."""

    txn_id: str
    record: Record
    header: Header


@dataclass
class Opener:
    """Opens the transactions of one coordinator."""

    cluster: Cluster
    ids: TxnIds
    _decided: OrderedDict[str, Header] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @traced("open")
    def open(self, work: WriteSet) -> Opened | Committed:
        """Fence the earlier attempt of the application, and create an OPEN header, which the application record then names as
        `current`. Return Committed if the version is committed already. An empty write set is committed by this call, without a
        header. Then also return Committed.
        """
        topics = sorted({segment_name(s).topic for s in work.parts})
        app_key = paths.application(work.app, work.app_topic)
        taken = iter(() if work.txn_id is None else (work.txn_id,))

        def body(view: View) -> Opened | Committed | None:
            app_record, *layouts = view.get_many([app_key, *(paths.topic(t) for t in topics)])
            app = Application.of(app_record) if app_record is not None else self._unknown(work)
            if app_record is None and work.random and work.retried:
                # The application record belongs to this write alone, and is deleted when the header expires. The record is missing,
                # so the earlier commit never opened its transaction, or the header has expired. The outcome is unknown.
                raise OutcomeUnknown(
                    f"An earlier commit of {work.app} was left without an answer, and what became of it is forgotten by now.",
                    advice="Nothing was done now. Check whether its rows exist before you write them again. (With an "
                    "application and a version of its own a transaction can be repeated at any time.)",
                )
            predecessor: Header | Gone = Gone.UNREAD
            if app.current is not None:
                predecessor = self._remembered(app.current.txn_id)
            what, app = transitions.opening(app, work.claim, predecessor)
            if what is Opening.READ_PREDECESSOR:
                assert app.current is not None
                record = view.get(paths.header(app.current.txn_id))
                predecessor = Gone.GONE if record is None else Header.of(record)
                what, app = transitions.opening(app, work.claim, predecessor)
                if what is Opening.ABORT_PREDECESSOR:
                    assert record is not None
                    self._abort(record)
                    return None
            if what is Opening.SKIP:
                return Committed(None, None, 0, 0, skipped=True)
            refuse_old(work, view.now_ms(), self.cluster.settings)
            refuse_stale(work, dict(zip(topics, layouts, strict=True)))
            if not work.parts and not work.acks:
                return self._commit_empty(work, app, app_record)
            return self._begin(view, work, app, app_record, next(taken, None) or self.ids.next())

        return cast("Opened | Committed", until(lambda: decide(self.cluster.store, body)))

    def _unknown(self, work: WriteSet) -> Application:
        """Return the first record of an application that the store does not have yet. On a restored cluster the application may
        have committed after the backup was made, so `restored` is set.
        """
        return Application(random=work.random or None, restored=True if self.cluster.restored else None)

    def _commit_empty(self, work: WriteSet, app: Application, record: Record | None) -> Committed | None:
        """Commit a version without rows. Nothing is registered. The CAS of the application record to this version commits it."""
        key = paths.application(work.app, work.app_topic)
        if work.random and record is None:
            # No record is written: there is no predecessor to fence, and no sweep would delete the record (failure A13).
            return Committed(None, None, 0, 0)
        try:
            after = transitions.committed_empty(app, work.claim).to_bytes()
            self.cluster.store.put(key, after, expect=ABSENT if record is None else record)
        except (BadVersion, UnknownOutcome):
            return None  # read again: if the put was done, the next read finds the version committed
        return Committed(None, None, 0, 0)

    def _begin(self, view: View, work: WriteSet, app: Application, record: Record | None, txn_id: str) -> Opened | None:
        header = Header(
            state=State.OPEN,
            timeout=Nanos(work.timeout_ms * 1_000_000),
            created_at=Nanos(view.now_ms() * 1_000_000),
            owner=self.cluster.owner,
            app=paths.application(work.app, work.app_topic).partition,
            version=work.claim.version,
            attempt=work.claim.attempt,
        )
        key = paths.application(work.app, work.app_topic)
        after = transitions.opened(app, work.claim, txn_id).to_bytes()
        put_app = Put(key, after, expect=ABSENT if record is None else record, durable=False)
        try:
            made, _ = self.cluster.store.write(
                Put(paths.header(txn_id), header.to_bytes(), expect=ABSENT, indexes=header.indexes(), durable=False), put_app
            )
            assert made is not None
        except (BadVersion, UnknownOutcome):
            return self._resolve_begin(txn_id, header, key)
        return Opened(txn_id, made, header)

    @resolves("open")
    def _resolve_begin(self, txn_id: str, header: Header, key: paths.Key) -> Opened | None:
        """Read the header and the application record after a lost race or a lost reply. Return the transaction if it was opened.
        Otherwise abort an OPEN header of this attempt, if any, and return None, so that the caller starts over.
        """
        made, now = decide(self.cluster.store, lambda view: view.get_many([paths.header(txn_id), key]))
        current = None if now is None else Application.of(now).current
        if made is not None and current is not None and current.txn_id == txn_id:
            if Header.of(made).state is State.OPEN:
                return Opened(txn_id, made, header)
            return None
        if made is not None and Header.of(made).state is State.OPEN:
            self._abort(made)
        return None

    def remember(self, txn_id: str, header: Header) -> None:
        """Remember the final header of one of this process's transactions, so that the next opening need not read it."""
        with self._lock:
            self._decided[txn_id] = header
            while len(self._decided) > MAX_DECIDED:
                self._decided.popitem(last=False)

    def _remembered(self, txn_id: str) -> Header | Gone:
        """Return the header of a transaction that this process has recently committed, or UNREAD for another transaction. A decided
        header never changes.
        """
        with self._lock:
            return self._decided.get(txn_id, Gone.UNREAD)

    def _abort(self, record: Record) -> None:
        ending.end(self.cluster.store, record, State.ABORTED, now_ms=time_ms(self.cluster.store))
