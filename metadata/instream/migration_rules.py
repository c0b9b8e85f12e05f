"""What becomes of a persistent topic that is migrated (docs/in_stream.md, Migration). PURE: no I/O, no clock, no threads.

Its SEAL is its last word and names the topic:// that goes on; the layout record of that topic, made once, is the one CAS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ledgers.model import Ledger
from metadata.instream.records import CONTAINS_TXN, LogEntry, PersistentLayout
from metadata.instream.txn_records import Txn, Written
from metadata.instream.txn_rules import FINAL
from metadata.records import paths
from metadata.records.names import RING, PersistentName, TopicName
from metadata.records.records import Application, Layout, Migration, Range, SegmentInfo, SegmentState
from metadata.records.row_ranges import Row
from metadata.rules import retention


def goes_on(layout: PersistentLayout, seal: LogEntry | None) -> str | None:
    """The topic:// that a persistent topic goes on in; None: it was not migrated. The record is asked first: it may name another
    topic than the seal, whose one was made by somebody else before it could be ours.
    """
    if layout.migrated_to is not None:
        return layout.migrated_to
    return None if seal is None or seal.why != "migrate" else seal.to


def is_its_own(layout: Layout, name: PersistentName) -> bool:
    """Whether this is the topic that the persistent one became. (Who made it for another purpose has made it for ever.)"""
    return layout.migration is not None and layout.migration.topic == str(name)


def went_with(name: PersistentName, onward: Layout | None) -> bool:
    """Whether all that the persistent topic had went with the topic that it became, which was deleted and not made again."""
    return onward is not None and bool(onward.deleted) and is_its_own(onward, name)


def holds(layout: Layout, name: PersistentName) -> bool:
    """Whether rows of the persistent topic are rows of the one that goes on: not once that was deleted, made again or not, nor once
    retention has taken all of them.
    """
    return any(info.legacy_topic_name == str(name) for info in layout.kept())


def let_go(name: PersistentName, onward: Layout | None) -> bool:
    """Whether the topic that goes on has no use for anything of the persistent one any more: none of its segments is it, not even
    for the grace period of a deletion.
    """
    if onward is None or not is_its_own(onward, name):
        return False
    return all(info.legacy_topic_name != str(name) for info in onward.segments.values())


def first_layout(name: PersistentName, old: PersistentLayout, seal: int, segments: int) -> Layout:
    """The layout of the topic that goes on: the persistent one is its first segment, over the whole ring."""
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


def shift(sealed_at_log: int, seal: int) -> int:
    """What is added to the id of a migrated ledger for its place in the cluster's log: the SEAL of the persistent topic's log then
    stands just before the seal of the segment.
    """
    return sealed_at_log - 1 - seal


def to_cluster(number: int, shift: int) -> int:
    """Where a ledger of a migrated topic stands in the cluster's log (0: before the first)."""
    return number and number + shift


def to_own(number: int, shift: int) -> int:
    """The id of the last ledger of a migrated topic that can stand at or below a number of the cluster's log (0: none)."""
    return max(0, number - shift)


def whole_transactions(ledgers: Iterable[Ledger]) -> Iterator[list[Ledger]]:
    """What one transaction appended is one, together with what lies between, in the order of the log: no limit of a micro-batch and
    no trim splits it (8.9). All of the ledgers are listed first: the last one may be of the transaction of the first.
    """
    found = list(ledgers)
    last = {ledger.txn: ledger.id for ledger in found if ledger.txn is not None}
    until, group = 0, list[Ledger]()
    for ledger in found:
        until = max(until, ledger.id if ledger.txn is None else last[ledger.txn])
        group.append(ledger)
        if ledger.id == until:
            yield group
            group = []


def first_needed(ledgers: Iterable[Ledger], needed: Row) -> int | None:
    """The first ledger of the first transaction of which somebody needs a row (`needed`: the first that somebody needs)."""
    for one in whole_transactions(ledgers):
        if not all(retention.is_done(found.id, found.last_entry, needed) for found in one):
            return one[0].id
    return None


def gone_to(stays: int | None, seal: int) -> int:
    """Up to which number of its own log a trim takes a migrated topic away: to before the first ledger that stays. With the last of
    them (None: none stays) goes all else below the SEAL: markers, and what was aborted.
    """
    return (seal if stays is None else stays) - 1


def in_the_way(txns: Iterable[Txn], ongoing: Iterable[int], name: PersistentName) -> list[Txn]:
    """The transactions that have not ended everywhere and have registered this topic or a subscription of it, or wrote to it
    (`ongoing`: by sequence number). None of them may be cut through.
    """
    wrote = set(ongoing)
    return [t for t in txns if t.state not in FINAL and (t.least in wrote or touches(t, name))]


def touches(txn: Txn, name: PersistentName) -> bool:
    return str(name) in txn.topics or any(topic == str(name) for topic, _ in txn.subscriptions)


def of_its_applications(txns: Iterable[Txn], name: PersistentName) -> list[Txn]:
    """The transactions that commit a version of an application of this topic, whether they write to it or not: above its SEAL none
    may do so any more, since what was committed by then is carried over. One that begins later sees the SEAL.
    """
    return [t for t in txns if t.app is not None and paths.decode(t.app.partition(":")[2]) == str(name)]


def application_of(app: str, name: PersistentName, to: TopicName) -> str | None:
    """The name of the application record that goes on where this one of the transaction log ends: (`appId`, topic) with the new
    topic, or the same of an explicit transaction over several topics; None: it has nothing to do with this topic.
    """
    app_id, _, topic = app.partition(":")
    if not topic:
        return app
    return f"{app_id}:{paths.encode(str(to))}" if paths.decode(topic) == str(name) else None


def carried(there: Application | None, written: Written) -> Application | None:
    """The application record that knows what was committed before the migration (8.8); None: it is as it should be.

    Random ones are not carried: their names are used for one write, which asks the old log if it is tried again.
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
    """The application records to write, by name; `there`: those that exist, by the names that `application_of` gives."""
    found = {}
    for app, written in sorted(apps.items()):
        onward = application_of(app, name, to)
        after = None if onward is None else carried(there.get(onward), written)
        if onward is not None and after is not None:
            found[onward] = after
    return found
