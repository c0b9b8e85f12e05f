"""Which entries of a persistent topic's log count, and what a reader may see of them. PURE: no I/O, no clock, no threads.

The log is read in its order, entry by entry; every process that reads it comes to the same state, whoever wrote what and however
often. An entry against the rules is void for everybody. Pulsar's broker refuses such an append; here there is no broker to do it.
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
    """The 128 bits of a transaction id: its coordinator, and the sequence number that this gave it."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"{self.most}_{self.least}"


@lru_cache(maxsize=10_000)
def txn_id(text: str) -> TxnId:
    """Parse `<most>_<least>` in decimal. Raises CorruptRecord."""
    most, _, least = text.partition("_")
    if not (most.isascii() and most.isdigit() and least.isascii() and least.isdigit()):
        raise CorruptRecord(f"{text!r} is not a transaction id (<coordinator>_<sequence>).")
    return TxnId(int(most), int(least))


class Counts(Enum):
    """Whether an entry took effect where it stands."""

    YES = auto()
    VOID = auto()


@dataclass
class TopicState:
    """What the entries up to `at` amount to: the two indexes of Pulsar's buffer, and what keeps late entries from counting.

    ongoing    transactions that have written here and not ended: the number of their first entry, the ids of all
    aborted    transactions whose data is filtered: the number of their abort marker, above all their data that counts
    ended      transactions that a marker has ended here, above the low-water mark of their coordinator: the marker's number
    low_water  of each coordinator: every transaction up to this one has ended everywhere
    void       numbers of DATA entries that never count, though their transaction may have committed or be forgotten
    sealed_at  the number of the seal that counts: all above it is void
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
    """Take the next entry of the log into the state; whether it counts. Numbers must come in ascending order."""
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
            # A migration must not cut through a transaction: who meets one tries again. Terminating asks nobody (and stalls them).
            counts = entry.why != "migrate" or not state.ongoing
            if counts:
                state.sealed_at = number
        case _:
            counts = _marker(state, number, entry)
    return Counts.YES if counts else Counts.VOID


class Ends(Protocol):
    """What any log of a participant keeps of transactions that have ended."""

    ended: dict[str, int]
    low_water: dict[int, int]


def has_ended(state: Ends, txn: str) -> bool:
    """Whether nothing of this transaction counts here any more."""
    ident = txn_id(txn)
    return txn in state.ended or ident.least <= state.low_water.get(ident.most, -1)


def _data(state: TopicState, number: int, txn: str, entry_id: str) -> bool:
    if has_ended(state, txn):
        return False  # a zombie: its marker stands before this, here or (below the low-water mark) wherever it had registered
    first, ids = state.ongoing.get(txn, (number, frozenset()))
    if entry_id in ids:
        return False  # its first append had arrived after all
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
    """All transactions up to `least` have ended everywhere they had registered: one that is ongoing here had not (PIP-163)."""
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
    """The number of the first entry that is not decided; None if all are."""
    return min((first for first, _ in state.ongoing.values()), default=None)


def max_read(state: TopicState, end: int) -> int:
    """The number up to which all is decided: before the first ongoing transaction, else `end`, the last entry of the log."""
    first = first_ongoing(state)
    return end if first is None else min(first - 1, end)


def visible(state: TopicState, number: int, txn: str | None) -> bool:
    """Whether a committed read returns the rows of a DATA entry at or below maxReadPosition."""
    return number not in state.void and (txn is None or txn not in state.aborted)


def trimmed(state: TopicState, to: int) -> None:
    """Forget what is about entries up to `to` alone: they are gone. What aborted above it stays: its data may lie above, too."""
    for txn in [t for t, number in state.aborted.items() if number <= to]:
        del state.aborted[txn]
    state.void = {number for number in state.void if number > to}


def low_water(live: Iterable[int], last: int) -> int:
    """The low-water mark of a coordinator: below the first of its transactions that is not final, else the `last` it gave out."""
    return min(live, default=last + 1) - 1
