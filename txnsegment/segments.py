"""Reports the content of a topic's segments at one cut, for `txnsegment segments show`."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers
from metadata.common.html import Shown
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.records import paths
from metadata.records.names import is_persistent
from metadata.records.records import Registration, SegmentState
from metadata.store.contract import decide

Undecided: TypeAlias = tuple[int, str, Set[str]]
"""A log number, the id of the transaction that is undecided there, and the names of the segments that it touches."""


@dataclass(frozen=True)
class SegmentReport:
    """One segment at a cut.

    `max_read_position`, `watermark`: positions as `ledger:entry`; None before the first row or fold. `undecided`: the undecided
    registrations of the segment as (log number, transaction id). `ledgers`: how many committed ledgers the segment has. `parts`: in
    how many files the rows of these ledgers are. `bytes`: the size of the rows as written.
    """

    name: str
    state: SegmentState
    max_read_position: str | None
    watermark: str | None
    undecided: tuple[tuple[int, str], ...]
    ledgers: int
    parts: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class TopicReport(Shown):
    """A topic's segments at one cut.

    `cut`: the log number up to which every transaction that touches the topic is decided. `end_of_log`: the newest log number.
    """

    topic: str
    cut: int
    end_of_log: int
    segments: tuple[SegmentReport, ...]


def report(client: Client, topic: str) -> TopicReport:
    """Report a topic. Reads the topic's index snapshots and counts every committed ledger. Raises TopicNotFound."""
    name = str(Providers(client).resolve(topic))
    reading = log_of(client, name).now()
    undecided = [(n, txn, {name}) for n, txn in reading.undecided] if is_persistent(name) else undecided_of(client, reading)
    return TopicReport(name, reading.cut, reading.end_of_log, tuple(_segment(reading, s, undecided) for s in reading.segments))


def undecided_of(client: Client, reading: Reading) -> list[Undecided]:
    """Return the registrations that the reading found undecided. A registration that has left the log since the reading is omitted,
    because it is decided and folded.
    """
    numbers = [number for number, _ in reading.undecided]
    records = decide(client.cluster.store, lambda view: view.get_many([paths.LOG.key(n) for n in numbers])) if numbers else []
    found = [(n, Registration.of(r)) for n, r in zip(numbers, records, strict=True) if r is not None]
    return [(n, registration.txn or "", registration.segments.keys()) for n, registration in found]


def _segment(reading: Reading, segment: SegmentView, undecided: Sequence[Undecided]) -> SegmentReport:
    ledgers = parts = rows = size = 0
    file = None
    for ledger in segment.ledgers(0, reading.cut):
        ledgers += 1
        for part in ledger.parts:
            parts += part.path != file  # a compacted file counts once, because its parts follow each other
            file = part.path
        rows += ledger.rows
        size += ledger.bytes
    position = segment.last(reading.cut)
    return SegmentReport(
        name=segment.name,
        state=SegmentState.SEALED if segment.sealed_at is not None else segment.info.state,
        max_read_position=None if position is None else f"{position[0]}:{position[1]}",
        watermark=None if segment.watermark is None else str(segment.watermark),
        undecided=tuple((number, txn) for number, txn, segments in undecided if segment.name in segments),
        ledgers=ledgers,
        parts=parts,
        rows=rows,
        bytes=size,
    )
