"""Reads dumps of Pulsar's metadata store, and finds the class of this project that reads the record at a path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from metadata.records.json_records import JsonRecord
from metadata.records.records import AbortedTxn, Event, Header, Layout, Op, TcSequence, Watermark

FOLDER = Path(__file__).parent / "records"
COUNTER = "__seq_counter__"
"""The end of the name of a counter record. Pulsar takes the number of the next record of a sequence from the sequence's counter."""

CLASSES: list[tuple[str, type[JsonRecord]]] = [
    (r"/txn/id/[^/]+", Header),
    (r"/txn/op/[^/]+-\d{20}", Op),
    (r"/txn/segment-events/[^/]+-\d{20}", Event),
    (r"/txn/subscription-events/[^/]+-\d{20}", Event),
    (r"/txn/segment-state/watermark/[^/]+", Watermark),
    (r"/txn/segment-state/aborted/[^/]+", AbortedTxn),
    (r"/txn/tc-seq/\d+", TcSequence),
    (r"/topics/[^/]+/[^/]+/[^/]+", Layout),
]
FOREIGN = (
    r"/txn/tc/parallelism",  # the number of coordinators, a text
    r"/txn/tc/leader/\d+",  # the broker of a coordinator
    r"/topics/[^/]+/[^/]+/[^/]+/(controller|segments|subscriptions)(/.*)?",  # the load and the consumers of a topic
    r"/managed-ledgers/.*",  # the lists of ledgers and the cursors, in protobuf
)
"""Records that brokers keep for themselves. This project has no class for them, because it has no brokers."""


def captured(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the bytes of each record of a dump. A line has the path, the version, `EPH` if the
    record is ephemeral, and the bytes as Python prints them.
    """
    for line in file.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"(\S+) v\d+ (?:EPH)? ?('.*')", line)
        assert found is not None, line
        value: bytes = ast.literal_eval(f"b{found[2]}")
        yield found[1], value


def class_of(path: str) -> type[JsonRecord] | None:
    """Return the class that reads the record at this path, or None if this project has no such class."""
    return next((kind for pattern, kind in CLASSES if not path.endswith(COUNTER) and re.fullmatch(pattern, path)), None)


def is_foreign(path: str, value: bytes) -> bool:
    """Return whether only brokers use this record. A record without bytes is a folder in the store, and counts as such a record."""
    return not value or path.endswith(COUNTER) or any(re.fullmatch(pattern, path) for pattern in FOREIGN)
