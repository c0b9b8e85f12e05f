"""Verifies every page of every committed part of a topic against its registration, for `txnsegment verify`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ledgers.errors import CorruptPart, CorruptSnapshot
from ledgers.parts import verify_part
from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from spark_txn_source.pieces import large_pieces
from spark_txn_source.planned import Piece

AT_ONCE = 256
"""Number of parts that the threads get at a time. It bounds the memory for a topic of any length."""


@dataclass(frozen=True)
class Damage:
    """A damaged part or index snapshot.

    `first`, `last`: the positions of the part's rows, `ledger:entry`, both inclusive; empty for an index snapshot. `problem`:
    what is wrong.
    """

    segment: str
    first: str
    last: str
    path: str
    rows: int
    problem: str


@dataclass
class Verified:
    """The outcome for a topic: the counts of all parts that were read, damaged ones included, and the list of the damages."""

    topic: str
    cut: int
    parts: int = 0
    rows: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)


def verify(client: Client, topic: str, *, told: Callable[[Verified], None] = lambda _: None) -> Verified:
    """Verify every committed part of a topic at the current cut. `told`: a function that is called with the progress.

    Raises TopicNotFound. Raises StorageError if the storage cannot be reached; this error does not mean that a part is damaged.
    """
    name = str(Providers(client).resolve(topic))
    reading = log_of(client, name).now()
    found = Verified(name, reading.cut)
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="txnsegment-verify") as threads:
        for segment in reading.segments:
            for some in _some(reading, segment, found):
                for piece, damage in zip(some, threads.map(lambda p: _damage(client, p), some), strict=True):
                    found.parts += 1
                    found.rows += piece.part.rows
                    found.bytes += piece.part.bytes
                    if damage is not None:
                        found.damaged.append(damage)
                told(found)
    return found


def _some(reading: Reading, segment: SegmentView, found: Verified) -> Iterator[list[Piece]]:
    """Yield the parts of a segment in groups. If the index snapshot cannot be read, add it to `found.damaged`, and end with the
    parts that were listed before the error.
    """
    group: list[Piece] = []
    try:
        for piece in large_pieces(segment, 0, reading.cut, marks=True):
            group.append(piece)
            if len(group) == AT_ONCE:
                yield group
                group = []
    except CorruptSnapshot as error:
        path = "" if segment.watermark is None else segment.watermark.snapshot or ""
        found.damaged.append(Damage(segment.name, "", "", path, 0, error.message))
    if group:
        yield group


def _damage(client: Client, piece: Piece) -> Damage | None:
    first, last = f"{piece.ledger}:{piece.base}", f"{piece.ledger}:{piece.base + len(piece.part.entries) - 1}"
    if piece.marks is not None:
        last = f"{piece.marks.ledgers[-1]}:{piece.marks.entries[-1]}"
    try:
        verify_part(client.cluster.storage, piece.part, where=f"{piece.segment}, {first} to {last}")
    except CorruptPart as error:
        return Damage(piece.segment, first, last, piece.part.path, piece.part.rows, error.message)
    return None
