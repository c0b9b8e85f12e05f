"""The work after a decision: publish the events, and settle the commits of this process (protocol.md section 5).

No caller waits for this work. After a crash a sweep settles the commits. A lost event only delays a reader.
"""

from __future__ import annotations

from collections.abc import Collection

from metadata.common.errors import BadVersion
from metadata.cursors.pending_ack import PendingAcks
from metadata.log.live_log import Entry, LiveLog
from metadata.records import paths
from metadata.records.records import Event, Op, OpKind, Settled, State
from metadata.store.contract import Append, Delete, MetadataStore, Put, Write, decide, in_groups
from metadata.write.write_set import WriteSet


def finish(store: MetadataStore, log: LiveLog, acks: PendingAcks, txn_id: str, entry: Entry | None, work: WriteSet) -> None:
    """Publish an event for each segment, mark the registration COMMITTED and delete the op records of the segments. The store gets
    these writes as one group (above 500 writes, as several). Then move the claims of the acks into the cursors, delete the op
    records of the acks and publish an event for each ack. After a crash or a lost reply a sweep completes all of this except the
    events.
    """
    segments, ops = sorted(work.parts), paths.ops(txn_id)
    event = Event(txn_id=txn_id, decision=State.COMMITTED).to_bytes()
    writes: list[Write] = [Append(paths.segment_events(s), event, durable=False) for s in segments]
    if entry is not None:
        after = entry.registration.model_copy(update={"state": Settled.COMMITTED})
        writes.append(Put(entry.record.key, after.to_bytes(), expect=entry.record, durable=False))
        writes += [Delete(ops.key(i), durable=False) for i in range(len(segments))]
    try:
        made = [record for group in in_groups(writes) for record in store.write(*group)]
    except BadVersion:  # a sweeper has settled the registration, and deletes the op records
        notify(store, txn_id, State.COMMITTED, segments)
    else:
        settled = None if entry is None else made[len(segments)]
        if settled is not None:
            log.update(Entry(settled.number, settled))  # so the sweep after the commit need not read it again
    if work.acks:
        acks.settle(txn_id, [(a.segment, a.subscription) for a in work.acks], committed=True)
        rest: list[Write] = [Delete(ops.key(len(segments) + i), durable=False) for i in range(len(work.acks))]
        rest += [Append(paths.subscription_events(a.segment, a.subscription), event, durable=False) for a in work.acks]
        for group in in_groups(rest):
            store.write(*group)


def notify_aborted(store: MetadataStore, log: LiveLog, txn_id: str) -> None:
    """Publish an event of the abort for each segment and each ack that the op records of the transaction name. If it has no op
    records, publish one for each segment of its registrations.
    """
    ops = [Op.of(record) for record in decide(store, lambda view: view.scan(paths.ops(txn_id).range()))]
    if ops:
        written = {op.segment for op in ops if op.kind is OpKind.WRITE}
        acked = {(op.segment, op.subscription or "") for op in ops if op.kind is OpKind.ACK}
    else:
        entries = decide(store, log.list).entries
        written = {s for e in entries if e.registration.txn == txn_id for s in e.registration.segments}
        acked = set()
    notify(store, txn_id, State.ABORTED, written, acked)


def notify(
    store: MetadataStore, txn_id: str, decision: State, segments: Collection[str], acked: Collection[tuple[str, str]] = ()
) -> None:
    """Publish one event for each segment, and for each segment and subscription in `acked`. Events only wake readers, so a lost
    event only delays a reader.
    """
    body = Event(txn_id=txn_id, decision=decision).to_bytes()
    events = [*map(paths.segment_events, sorted(segments)), *(paths.subscription_events(*where) for where in sorted(acked))]
    for group in in_groups([Append(prefix, body, durable=False) for prefix in events]):
        store.write(*group)
