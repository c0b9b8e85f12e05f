"""Readers of a Pulsar topic beside a job: batch reads and the micro-batches of one stream, in threads, with the real source."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from conformance.harness.spark_driver import MicroBatchExecution, read_batch
from conformance.pulsar_chaos.seen import Got, Look, Segment
from conformance.scenarios.history import now
from conformance.scenarios.reading import position_of
from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import PulsarClient

PAUSE_SECONDS = 0.3
"""The pause between two reads, which leaves the cores to the job."""
AWAY_SECONDS = 180.0
"""The time for which all reads of a reader may fail, because the broker is away."""


def rows_of(batches: Iterable[pa.RecordBatch]) -> tuple[Got, ...]:
    """Convert record batches to rows. The batches have the metadata columns, and the columns `key` and `seq`; `seq` names the
    row.
    """
    return tuple(
        Got(str(row["seq"]), row["key"], row["__segment"], *position_of(row["__messageId"]), row["__txnId"])
        for batch in batches
        for row in batch.to_pylist()
    )


def segments_of(client: PulsarClient, topic: str) -> list[Segment]:
    """Return the segments of a topic."""
    found = client.layout(topic).segments
    return [
        Segment(one.name, one.id, tuple(found[parent].name for parent in one.parents if parent in found)) for one in found.values()
    ]


class Headers:
    """The states of transactions, as the broker's metadata store has them. The product never reads these records."""

    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts)
        self._client.start(30)
        self._committed: set[str] = set()

    def undecided(self, txns: Iterable[str]) -> set[str]:
        """Return those of the given transactions that are not committed now. A transaction whose header is deleted counts as
        committed.
        """
        found = set()
        for txn in set(txns) - self._committed:
            try:
                state = json.loads(self._client.get(f"/txn/id/{txn}")[0])["state"]
            except NoNodeError:
                state = "deleted"
            if state in ("OPEN", "ABORTED"):
                found.add(txn)
            else:
                self._committed.add(txn)
        return found

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class Reader:
    """A thread that reads a topic again and again until `finish` is called. Then it reads once more; a stream reads until a
    micro-batch is empty. `look`: makes one read, and returns the rows and the number of the micro-batch (None for a batch read).

    `dirty`: the transactions whose rows the reader got although they were not committed right after the read. `failed`: the number
    of reads that raised an error, as reads do while the broker is away.
    """

    def __init__(self, name: str, headers: Headers, look: Callable[[], tuple[tuple[Got, ...], int | None]]) -> None:
        self.name, self.looks, self.failed = name, list[Look](), 0
        self.dirty: set[str] = set()
        self._headers, self._look = headers, look
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._read_on()
        except BaseException as error:
            self._error = error

    def _read_on(self) -> None:
        away = None
        while True:
            ending, began = self._ending.is_set(), now()
            try:
                rows, batch = self._look()
            except TxnSegmentError:
                self.failed += 1
                away = away or time.monotonic()
                if time.monotonic() - away > AWAY_SECONDS:
                    raise
                self._ending.wait(PAUSE_SECONDS)
                continue
            away = None
            at = now()
            self.dirty |= self._headers.undecided(row.txn for row in rows)
            if rows or batch is None:
                self.looks.append(Look(at, began, self.name, rows, batch))
            if ending and (batch is None or not rows):
                return
            if not rows or batch is None:
                self._ending.wait(PAUSE_SECONDS)

    def rows(self) -> int:
        """Return the number of different rows that the reader got."""
        return len({row.id for one in [*self.looks] for row in one.rows})

    def finish(self) -> None:
        """Let the reader read to the end, and wait for it. Raises the error that ended its thread."""
        self._ending.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def batch_reader(options: Mapping[str, str], headers: Headers, name: str = "batch reader") -> Reader:
    given = {**options, "includeMetadata": "true"}
    return Reader(name, headers, lambda: (rows_of(read_batch(given)), None))


def stream_reader(options: Mapping[str, str], headers: Headers, checkpoint: Path, name: str = "stream") -> Reader:
    """Return a reader of micro-batches. After an error the query starts again from its checkpoint."""
    given = {**options, "includeMetadata": "true", "startingOffsets": "earliest"}
    running: list[MicroBatchExecution] = []

    def look() -> tuple[tuple[Got, ...], int | None]:
        if not running:
            query = MicroBatchExecution(checkpoint)
            query.start(given)
            running.append(query)
        try:
            found: list[pa.RecordBatch] = []
            number = running[0].batch
            if running[0].construct():
                number = running[0].batch
                found = running[0].run() or []
                running[0].done()
            return rows_of(found), number
        except TxnSegmentError:
            running.clear()
            raise

    return Reader(name, headers, look)


def final_look(options: Mapping[str, str], ids: set[str], seconds: float = 120.0) -> Look:
    """Read until all rows of `ids` are visible, or until `seconds` have passed. Return the last read. Raises the error of the last
    read if it failed.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = now()
        try:
            rows = rows_of(read_batch({**options, "includeMetadata": "true"}))
        except TxnSegmentError:
            if time.monotonic() > deadline:
                raise
            continue
        if ids <= {row.id for row in rows} or time.monotonic() > deadline:
            return Look(now(), began, "last reader", rows, None, True)
        time.sleep(0.2)
