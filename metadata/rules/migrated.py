"""The rules of migrated topics: who owns the old name, where its rows stand, what retention takes (docs/in_stream.md, Migration).

PURE: no I/O, no clock. The persistent topic is a segment of the topic:// that it became. Its ledgers keep their ids, which are
numbers of the persistent topic's own log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ledgers.model import Ledger
from metadata.records.names import PersistentName
from metadata.records.records import Layout
from metadata.records.row_ranges import Row
from metadata.rules import retention


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
