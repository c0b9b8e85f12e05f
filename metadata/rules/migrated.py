"""The rules of migrated topics: which topic the old name stands for, which numbers the rows have in the cluster's log, and
retention (docs/in_stream.md, Migration).

Pure: no I/O, no clock. The persistent topic becomes a segment of its successor topic://. The ledgers of that segment keep their
ids, which are numbers of the persistent topic's own log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ledgers.model import Ledger
from metadata.records.names import PersistentName
from metadata.records.records import Layout
from metadata.records.row_ranges import Row
from metadata.rules import retention


def is_its_own(layout: Layout, name: PersistentName) -> bool:
    """Return whether the topic of this layout is the successor of the persistent topic `name`. Another topic may have been created
    independently under the successor's name.
    """
    return layout.migration is not None and layout.migration.topic == str(name)


def went_with(name: PersistentName, successor: Layout | None) -> bool:
    """Return whether the successor is deleted, and the rows of the persistent topic with it. False if the successor was created
    again.
    """
    return successor is not None and bool(successor.deleted) and is_its_own(successor, name)


def holds(layout: Layout, name: PersistentName) -> bool:
    """Return whether the successor still has the segment with the rows of the persistent topic. The successor loses the
    segment when it is deleted (a new topic of the same name does not get it back), and when retention has trimmed all rows.
    """
    return any(info.legacy_topic_name == str(name) for info in layout.kept())


def let_go(name: PersistentName, successor: Layout | None) -> bool:
    """Return whether the successor no longer has the segment that is the persistent topic. When the successor is deleted, it keeps
    the segment until the grace period ends.
    """
    if successor is None or not is_its_own(successor, name):
        return False
    return all(info.legacy_topic_name != str(name) for info in successor.segments.values())


def shift(sealed_at_log: int, seal: int) -> int:
    """Return the offset that, added to the id of a migrated ledger, gives the ledger's number in the cluster's log. With this
    offset the SEAL of the persistent topic gets the number just before the seal of the segment.
    """
    return sealed_at_log - 1 - seal


def to_cluster(number: int, shift: int) -> int:
    """Convert a ledger id of a migrated topic to the number of this ledger in the cluster's log. The id 0, which means before the
    first ledger, stays 0.
    """
    return number and number + shift


def to_own(number: int, shift: int) -> int:
    """Convert a number in the cluster's log to the highest ledger id of a migrated topic that can lie at or below it (0: none)."""
    return max(0, number - shift)


def whole_transactions(ledgers: Iterable[Ledger]) -> Iterator[list[Ledger]]:
    """Yield groups of ledgers, in the order of the log, so that each group has whole transactions. A group also has the ledgers
    that lie between those of its transactions. Micro-batch limits and trims never split a group (section 8.9). All ledgers are
    listed first, because the last ledger may belong to the transaction of the first ledger.
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
    """Group the ledgers by `whole_transactions`. Return the id of the first ledger of the first group that has a row at or after
    `needed`, the first needed row. Return None if there is no such group.
    """
    for one in whole_transactions(ledgers):
        if not all(retention.is_done(found.id, found.last_entry, needed) for found in one):
            return one[0].id
    return None


def gone_to(stays: int | None, seal: int) -> int:
    """Return the number in the persistent topic's own log up to which a trim removes all entries. It is the number before the first
    kept ledger (`stays`). If no ledger is kept (`stays` is None), the trim removes all entries below the SEAL, also markers and
    aborted entries.
    """
    return (seal if stays is None else stays) - 1
