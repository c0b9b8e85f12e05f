"""The value types of all events of a recorded history: times, positions, rows (`conformance.history.format`)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

Time = float
"""A time on the recorder's clock (`conformance.history.format`, Time). Times are only compared."""
Position = tuple[int, int]
"""The position of an entry: (ledgerId, entryId)."""
Place = tuple[int, int] | tuple[int, int, int]
"""A whole entry (ledgerId, entryId), or one row of an entry (ledgerId, entryId, batchIndex)."""


class Written(NamedTuple):
    """One row (or part) as its writer gave it. `id`: unique in the history; a retry that writes the same row gives the same id.
    `segment`: the segment or the topic in which it was registered; None: the topic of the commit. A commit lists the rows of one
    `key` in written order.
    """

    id: str
    key: str | None = None
    segment: str | None = None


class Row(NamedTuple):
    """One row (or part) as a reader received it. `position`: (ledgerId, entryId, batchIndex). `txn`: the transaction that the row's
    metadata names; None if there is none or if it was not recorded.
    """

    id: str
    segment: str
    position: tuple[int, int, int]
    key: str | None = None
    txn: str | None = None


@lru_cache(maxsize=4096)
def topic_of(place: str) -> str:
    """Return the topic of a segment. A topic, also a persistent one, is returned as it is."""
    return (
        place
        if place.startswith(("topic://", "persistent://"))
        else "topic://" + place.removeprefix("segment://").rpartition("/")[0]
    )
