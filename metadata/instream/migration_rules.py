"""The rules of migrations of persistent topics (docs/in_stream.md, Migration). PURE: no I/O, no clock, no threads.

The SEAL names the successor topic://. No entry after the SEAL counts. The CAS that creates the successor's layout record decides
the migration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metadata.instream.txn_records import Txn, TxnState, Written
from metadata.instream.txn_rules import FINAL
from metadata.records import paths
from metadata.records.names import RING, PersistentName, TopicName
from metadata.records.persistent_records import CONTAINS_TXN, LogEntry, PersistentLayout
from metadata.records.records import Application, Layout, Migration, Range, SegmentInfo, SegmentState


def successor(layout: PersistentLayout, seal: LogEntry | None) -> str | None:
    """Return the successor topic:// of a persistent topic; None if it was not migrated. If the topic's record has a successor's
    name, this name counts, and not the name in the SEAL. The two names differ if another topic had taken the name in the SEAL.
    """
    if layout.migrated_to is not None:
        return layout.migrated_to
    return None if seal is None or seal.why != "migrate" else seal.to


def first_layout(name: PersistentName, old: PersistentLayout, seal: int, segments: int) -> Layout:
    """Return the layout of the successor topic: the persistent topic is its first segment, over the whole ring."""
    legacy = SegmentInfo(
        segment_id=0,
        hash_range=Range(start=0, end=RING - 1),
        state=SegmentState.ACTIVE,
        created_at_epoch=0,
        created_at_ms=old.created_ms,
        legacy_topic_name=str(name),
    )
    return Layout(
        epoch=0,
        next_segment_id=1,
        segments={"0": legacy},
        properties={key: value for key, value in old.properties.items() if key != CONTAINS_TXN},
        schema_id=old.schema_id,
        compatibility=old.compatibility,
        policies=old.policies,
        migration=Migration(topic=str(name), seal=seal, segments=segments),
    )


def in_the_way(txns: Iterable[Txn], ongoing: Iterable[int], name: PersistentName) -> list[Txn]:
    """Return those of the transactions `txns` that a migration of the topic must not split. They are not final, and each of them
    has written to the topic, or has registered the topic or one of its subscriptions. `ongoing`: the sequence numbers of the
    transactions that are open in the topic's log.
    """
    wrote = set(ongoing)
    return [t for t in txns if t.state not in FINAL and (t.least in wrote or touches(t, name))]


def stalled(before: Iterable[Txn], after: Iterable[Txn]) -> list[Txn]:
    """Return the transactions that stall. `before`, `after`: the transactions in the way of a migration before and after a try to
    finish the decided ones. A transaction stalls if it was decided before the try and is still in the way after it.
    """
    decided = {txn.least for txn in before if txn.state in (TxnState.COMMITTING, TxnState.ABORTING)}
    return [txn for txn in after if txn.least in decided]


def touches(txn: Txn, name: PersistentName) -> bool:
    return str(name) in txn.topics or any(topic == str(name) for topic, _ in txn.subscriptions)


def of_its_applications(txns: Iterable[Txn], name: PersistentName) -> list[Txn]:
    """Return those of the transactions `txns` that would commit a version of an application of this topic, whether they write to
    the topic or not. None of them may commit after the committed versions were copied to the successor, so the caller aborts them
    first. A transaction that begins later finds the SEAL, and does not commit.
    """
    return [t for t in txns if t.app is not None and paths.decode(t.app.partition(":")[2]) == str(name)]


def application_of(app: str, name: PersistentName, to: TopicName) -> str | None:
    """Return the name of the application record that the successor uses for the application `app` of the transaction log. Return
    None if the application belongs to another topic. The name of an application has two parts, `appId` and topic, and the successor
    takes the place of the topic. Applications of explicit transactions over several topics have no topic in their name. Their name
    stays the same.
    """
    app_id, _, topic = app.partition(":")
    if not topic:
        return app
    return f"{app_id}:{paths.encode(str(to))}" if paths.decode(topic) == str(name) else None


def carried(there: Application | None, written: Written) -> Application | None:
    """Return the successor's application record with the last version that was committed before the migration (8.8). Return None if
    the existing record `there` needs no change.

    Return None also for an application with a random id. Such an id serves one write only, and a retry of this write reads the
    transaction log.
    """
    if written.random:
        return None
    if there is None:
        return Application(last_committed=written.version, by=written.by, restored=written.restored)
    if there.last_committed >= written.version:
        return None
    return there.model_copy(update={"last_committed": written.version, "by": written.by, "restored": written.restored})


def carry(
    apps: Mapping[str, Written], there: Mapping[str, Application | None], name: PersistentName, to: TopicName
) -> dict[str, Application]:
    """Return the application records to write for the successor, by name. `apps`: the applications of the transaction log. `there`:
    the application records that the successor uses already, by name (`application_of`).
    """
    found = {}
    for app, written in sorted(apps.items()):
        key = application_of(app, name, to)
        after = None if key is None else carried(there.get(key), written)
        if key is not None and after is not None:
            found[key] = after
    return found
