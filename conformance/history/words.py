"""The value types of all events of a recorded history: times, positions, rows (`conformance.history.format`)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

Time = float
"""A time on the recorder's clock (`conformance.history.format`, Time). Checks only compare times."""
Position = tuple[int, int]
"""The position of an entry: (ledgerId, entryId)."""
Place = tuple[int, int] | tuple[int, int, int]
"""A whole entry (ledgerId, entryId), or one row of an entry (ledgerId, entryId, batchIndex)."""


class Written(NamedTuple):
    """One row (or part) as its writer wrote it. `id`: unique in the history; if a retry writes the same row again, the row keeps
    its id. `segment`: the segment or the topic in which the row was registered; None: the topic of the commit. A commit lists the
    rows of one `key` in the order in which they are written.
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
    """Return the topic of a segment. If `place` is itself a topic, also a persistent one, return it unchanged."""
    return (
        place
        if place.startswith(("topic://", "persistent://"))
        else "topic://" + place.removeprefix("segment://").rpartition("/")[0]
    )
