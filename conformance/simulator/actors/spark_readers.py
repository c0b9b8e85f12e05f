"""Readers of a topic of either model, also while the topic is migrated. They call the source's `BatchReader` and `StreamReader` as
Spark would call them. No JVM runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from conformance.history.format import Plan, Poll, Read, Row, Seal
from conformance.simulator.actors.readers import Checkpoint
from conformance.simulator.actors.working import missed, start_rounds
from conformance.simulator.world.scheduler import Actor, Process, World
from metadata.client.client import Client
from metadata.records.names import is_persistent
from spark_txn_source.batch import BatchReader
from spark_txn_source.planned import ReadTask
from spark_txn_source.stream import StreamReader

COLUMNS = StructType().add("n", "long")
"""The columns of the reads. Any columns would do, since these readers only plan, and read no file."""


class Streaming(StreamReader):
    """Spark's stream reader with the client of a simulated process."""

    def __init__(self, client: Client, options: dict[str, str]) -> None:
        self._simulated = client
        super().__init__({"serviceUrl": "memory://simulated", "startingOffsets": "earliest", **options}, COLUMNS)

    def _client(self) -> Client:
        return self._simulated


class Batching(BatchReader):
    """Spark's batch reader with the client of a simulated process."""

    def __init__(self, client: Client, topic: str) -> None:
        self._simulated = client
        super().__init__({"serviceUrl": "memory://simulated", "topic": topic}, COLUMNS)

    def _client(self) -> Client:
        return self._simulated


def rows_of(world: World, tasks: Iterable[InputPartition]) -> tuple[Row, ...]:
    """Return the rows of a plan's tasks: one row for each piece. Record a violation if the file of a piece is gone."""
    rows = []
    for task in tasks:
        assert isinstance(task, ReadTask)
        for piece in task.pieces:
            rows.append(Row(piece.part.path, piece.segment, (piece.ledger, piece.base + piece.first, 0), None, piece.txn))
            if piece.part.path not in world.disk.files:
                world.history.bad(f"the part {piece.part.path} of {piece.where} is gone although it is planned", 5)
    return tuple(rows)


def migrated_to(world: World, topic: str) -> str:
    """Return the successor of a topic if its migration is complete; otherwise the topic itself."""
    return next((e.topic for e in world.history.events if isinstance(e, Seal) and topic in e.segments), topic)


# --- batches ----------------------------------------------------------------------------------------------------------------


def start_spark_batch(world: World, name: str, topic: str, rounds: int, *, within: int) -> Actor:
    """Start a reader that runs batch reads of all rows of a topic. `topic`: the name of the topic before or after its migration."""

    def read(process: Process) -> None:
        read_current(world, process.client, name, topic)

    return start_rounds(world, name, rounds, read, within=within, judge=missed)


def read_current(world: World, client: Client, who: str, topic: str, *, final: bool = False) -> None:
    """Plan a batch read of all rows of a topic, and record the read. If the migration of the topic is complete, the read is
    recorded as one of the successor.
    """
    history, began, to = world.history, world.history.now(), migrated_to(world, topic)
    rows = rows_of(world, Batching(client, topic).partitions())
    if any(row.segment != topic for row in rows):
        to = migrated_to(world, topic)
    log = to if is_persistent(to) else ""
    history.saw(Read(history.now(), began, who, (to,), rows, final=final, log=log))


# --- streams ----------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class SparkStream(Checkpoint):
    """A query on one topic of either model, which Spark's own stream reader plans."""

    topic: str
    at: dict[str, Any] | None = None
    planned: dict[str, Any] | None = None
    rest: float = 0.1

    def options(self) -> dict[str, str]:
        limit = {} if self.max_rows is None else {"maxRowsPerTrigger": str(self.max_rows)}
        return {"topic": self.topic, **limit}

    def anew(self) -> None:
        super().anew()
        self.at, self.planned = None, None

    def open(self, world: World, process: Process) -> Running:
        return Running(world, process.client, self)


class Running:
    """A streaming query while one process runs it."""

    def __init__(self, world: World, client: Client, stream: SparkStream) -> None:
        self._world, self._client, self._stream = world, client, stream
        self._reader: Streaming | None = None

    def run_batch(self) -> bool:
        """Run one micro-batch. Return whether the stream moved."""
        self._reader = self._reader or Streaming(self._client, self._stream.options())
        return micro_batch(self._world, self._reader, self._stream)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.stop()


def micro_batch(world: World, reader: Streaming, query: SparkStream) -> bool:
    """Plan the next micro-batch, read it, and sometimes read it again as a replay. Return whether the stream moved."""
    if query.at is None:
        query.at = reader.initialOffset()
    began, start = world.history.now(), query.at
    if query.planned is None:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        _planned(world, query, began, start, end)
        query.planned = end
    end = query.planned
    if end != start:
        for _ in range(1 if world.rng.random() < 0.7 else 2):
            _polled(world, reader, query, start, end)
        query.batch += 1
    query.at, query.planned = end, None
    return end != start


def _planned(world: World, query: SparkStream, began: int, start: dict[str, Any], end: dict[str, Any]) -> None:
    history = world.history
    # If `end` has no number for the query's topic, the stream has read all rows of this persistent topic, and the topic's segment
    # has left the successor's layout. The numbers of the topic are not compared in this case.
    left = query.topic not in end and _number(end, "log") > 0
    for where in ("log",) if left else ("log", query.topic):
        if _number(end, where) < _number(start, where):
            history.bad(f"{query.name}: the offset went back from {start} to {end}", 5)
    if _number(end, "log") > _number(start, "log") and _number(end, query.topic) > _number(start, query.topic):
        history.bad(f"{query.name}: a micro-batch from {start} to {end} reads the old topic and what goes on from it", 13)
    topic, log, first, last = _range(world, query, start, end)
    history.saw(Plan(history.now(), began, query.name, (topic,), first or 0, last, log=log))


def _polled(world: World, reader: Streaming, query: SparkStream, start: dict[str, Any], end: dict[str, Any]) -> None:
    history, began = world.history, world.history.now()
    rows = rows_of(world, reader.partitions(start, end))
    topic, log, first, last = _range(world, query, start, end)
    history.saw(Poll(history.now(), began, query.name, query.batch, (topic,), rows, first, last, log=log))


def _range(world: World, query: SparkStream, start: dict[str, Any], end: dict[str, Any]) -> tuple[str, str, int | None, int]:
    """Return the range of a micro-batch as (topic, log to which the numbers belong, start, end). The log is empty for the cluster's
    log. In the first micro-batch on the successor of a persistent topic, the start is None, since the start offset has no number in
    the cluster's log.
    """
    if is_persistent(query.topic) and not _number(end, "log"):
        return query.topic, query.topic, _number(start, query.topic), _number(end, query.topic)
    first = _number(start, "log")
    beginning = is_persistent(query.topic) and not first
    return migrated_to(world, query.topic), "", None if beginning else first, _number(end, "log")


def _number(offset: dict[str, Any], where: str) -> int:
    """Return a number of an offset; 0 if the offset does not have it. `where`: "log" for the number in the cluster's log, or the
    name of a persistent topic for the ledger id of the position in this topic.
    """
    found = offset.get(where, 0)
    return int(found) if isinstance(found, int) else int(found.partition(":")[0])
