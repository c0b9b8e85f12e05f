"""The rules of a persistent topic's log: which entries count, and which rows are visible. PURE: no I/O, no clock, no threads.

The function `fold` applies the entries of the log in order. Every process gets the same state, whichever processes wrote the
entries and however often. An entry that violates the rules is void for all readers. Pulsar's broker refuses such an append; here
there is no broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, Protocol

from metadata.common.errors import CorruptRecord
from metadata.records.persistent_records import EntryKind, LogEntry


class TxnId(NamedTuple):
    """A transaction id of 128 bits. `most`: the number of the coordinator. `least`: the sequence number that it allocated."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"{self.most}_{self.least}"


@lru_cache(maxsize=10_000)
def txn_id(text: str) -> TxnId:
    """Return the transaction id of the text `<most>_<least>`, two decimal numbers. Raises CorruptRecord."""
    most, _, least = text.partition("_")
    if not (most.isascii() and most.isdigit() and least.isascii() and least.isdigit()):
        raise CorruptRecord(f"{text!r} is not a transaction id (<coordinator>_<sequence>).")
    return TxnId(int(most), int(least))


class Counts(Enum):
    """Whether an entry took effect at its place in the log."""

    YES = auto()
    VOID = auto()


@dataclass
class TopicState:
    """The state of a topic after the entries up to the number `at`. `ongoing` and `aborted` are the two indexes of Pulsar's
    transaction buffer. The other fields tell which entries are void. Later entries of a transaction are void if the transaction is
    in `ended`, or lies at or below the low-water mark. An arrow leads from the key of a dict to the value.

        ongoing    open transaction with entries in this log -> the number of its first entry, and the ids of all its entries
        aborted    transaction whose data is filtered -> the number of the marker that aborted the transaction here
        ended      transaction above the low-water mark that a marker in this log has ended -> the number of this marker
        low_water  coordinator -> its low-water mark: its transactions up to this sequence number have ended in all logs
        void       numbers of DATA entries that never count, even if their transaction has committed or expired
        sealed_at  the number of the SEAL that counts; everything above it is void
    """

    at: int = 0
    ongoing: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict)
    aborted: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    low_water: dict[int, int] = field(default_factory=dict)
    void: set[int] = field(default_factory=set)
    sealed_at: int | None = None

    def copy(self) -> TopicState:
        return TopicState(
            self.at,
            dict(self.ongoing),
            dict(self.aborted),
            dict(self.ended),
            dict(self.low_water),
            set(self.void),
            self.sealed_at,
        )


def fold(state: TopicState, number: int, entry: LogEntry) -> Counts:
    """Apply the next entry of the log to the state. Return whether it counts. Numbers must ascend."""
    assert number > state.at, f"entry {number} comes after {state.at}"
    state.at = number
    if state.sealed_at is not None:
        if entry.kind is EntryKind.DATA:
            state.void.add(number)
        return Counts.VOID
    match entry.kind:
        case EntryKind.DATA:
            counts = entry.txn is None or _data(state, number, entry.txn, entry.id)
            if not counts:
                state.void.add(number)
        case EntryKind.SEAL:
            # A migration must not split a transaction. So the SEAL of a migration is void while a transaction is open, and the
            # migration appends another SEAL later. Other seals always count. A transaction that is open at such a seal can never
            # end in this topic.
            counts = entry.why != "migrate" or not state.ongoing
            if counts:
                state.sealed_at = number
        case _:
            counts = _marker(state, number, entry)
    return Counts.YES if counts else Counts.VOID


class Ends(Protocol):
    """The fields of a log's state that tell which transactions have ended."""

    ended: dict[str, int]
    low_water: dict[int, int]


def has_ended(state: Ends, txn: str) -> bool:
    """Return whether the transaction has ended in this log. Its later entries are void."""
    ident = txn_id(txn)
    return txn in state.ended or ident.least <= state.low_water.get(ident.most, -1)


def _data(state: TopicState, number: int, txn: str, entry_id: str) -> bool:
    if has_ended(state, txn):
        return False  # a late append: the transaction has a marker in this log, or lies at or below the low-water mark
    first, ids = state.ongoing.get(txn, (number, frozenset()))
    if entry_id in ids:
        return False  # a repeated append of an entry that is in the log
    state.ongoing[txn] = first, ids | {entry_id}
    return True


def _marker(state: TopicState, number: int, entry: LogEntry) -> bool:
    assert entry.txn is not None
    counts = not has_ended(state, entry.txn)
    if counts:
        _end(state, number, entry.txn, committed=entry.kind is EntryKind.COMMIT)
    if entry.low_water is not None:
        _raise_low_water(state, number, txn_id(entry.txn).most, entry.low_water)
    return counts


def _end(state: TopicState, number: int, txn: str, *, committed: bool) -> None:
    wrote = state.ongoing.pop(txn, None)
    state.ended[txn] = number
    if wrote is not None and not committed:
        state.aborted[txn] = number


def _raise_low_water(state: TopicState, number: int, coordinator: int, least: int) -> None:
    """Raise the low-water mark of a coordinator to `least`. All transactions of the coordinator up to `least` have ended in every
    topic and subscription that they had registered. If such a transaction is still open in this topic, it had not registered the
    topic, so its data here is aborted (PIP-163).
    """
    if least <= state.low_water.get(coordinator, -1):
        return
    state.low_water[coordinator] = least
    for txn in [t for t in state.ongoing if _below(t, coordinator, least)]:
        del state.ongoing[txn]
        state.aborted[txn] = number
    for txn in [t for t in state.ended if _below(t, coordinator, least)]:
        del state.ended[txn]


def _below(txn: str, coordinator: int, least: int) -> bool:
    ident = txn_id(txn)
    return ident.most == coordinator and ident.least <= least


def first_ongoing(state: TopicState) -> int | None:
    """Return the number of the first entry of a transaction that is open in this topic; None if no transaction is open."""
    return min((first for first, _ in state.ongoing.values()), default=None)


def max_read(state: TopicState, end: int) -> int:
    """Return the number up to which everything is decided. This is the number before the first entry of an open transaction. If no
    transaction is open, it is `end`, the number of the last entry of the log.
    """
    first = first_ongoing(state)
    return end if first is None else min(first - 1, end)


def visible(state: TopicState, number: int, txn: str | None) -> bool:
    """Return whether a reader of committed rows gets the rows of a DATA entry at or below maxReadPosition."""
    return number not in state.void and (txn is None or txn not in state.aborted)


def trimmed(state: TopicState, to: int) -> None:
    """Drop from the state what concerns only the trimmed entries, which are those up to `to`. An aborted transaction with a marker
    above `to` stays, because some of its data may lie above `to`, too.
    """
    for txn in [t for t, number in state.aborted.items() if number <= to]:
        del state.aborted[txn]
    state.void = {number for number in state.void if number > to}


def low_water(live: Iterable[int], last: int) -> int:
    """Return the low-water mark of a coordinator: the number before the first of its transactions that are not final (`live`). If
    all transactions are final, the low-water mark is `last`, the last allocated number.
    """
    return min(live, default=last + 1) - 1
