"""The value types of all events of a recorded history: times, positions, rows (`conformance.history.format`)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

Time = float
"""On the recorder's clock (`conformance.history.format`, Time); compared, never calculated with."""
Position = tuple[int, int]
"""ledgerId, entryId."""
Place = tuple[int, int] | tuple[int, int, int]
"""A whole entry, or one row of it: ledgerId, entryId, batchIndex."""


class Written(NamedTuple):
    """One row (or part) as its writer gave it. `id` is unique in the history: a retry that writes the same row gives the same id.

    `segment`: where it was registered, as far as the recorder knows: the segment or the topic (None: the commit's topic).
    Rows of one `key` of one commit are listed in written order.
    """

    id: str
    key: str | None = None
    segment: str | None = None


class Row(NamedTuple):
    """One row (or part) as a reader received it. `position`: ledgerId, entryId, batchIndex. `txn`: the transaction named by the
    row's metadata; None: no transaction, or not recorded.
    """

    id: str
    segment: str
    position: tuple[int, int, int]
    key: str | None = None
    txn: str | None = None


@lru_cache(maxsize=4096)
def topic_of(place: str) -> str:
    """The topic of a segment. A topic, also a persistent one, is returned as it is."""
    return (
        place
        if place.startswith(("topic://", "persistent://"))
        else "topic://" + place.removeprefix("segment://").rpartition("/")[0]
    )
