"""Those who read a topic by the name that it had before its migration, or by the new one: Spark's own readers, without the JVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from conformance.history.format import Plan, Poll, Read, Row, Seal
from conformance.simulator.in_stream_readers import GONE
from conformance.simulator.scheduler import Process, World
from metadata.client.client import Client
from metadata.common.errors import DataLoss, OffsetOutOfRange, TxnSegmentError
from metadata.records.names import is_persistent
from spark_txn_source.batch import BatchReader
from spark_txn_source.stream import StreamReader
from spark_txn_source.tasks import ReadTask

COLUMNS = StructType().add("n", "long")
"""Nobody reads the files: it is planning that is looked at."""


class Streaming(StreamReader):
    """Spark's, with the hands of a simulated process."""

    def __init__(self, client: Client, options: dict[str, str]) -> None:
        self._simulated = client
        super().__init__({"serviceUrl": "memory://simulated", "startingOffsets": "earliest", **options}, COLUMNS)

    def _client(self) -> Client:
        return self._simulated


class Batching(BatchReader):
    """The same for a batch."""

    def __init__(self, client: Client, topic: str) -> None:
        self._simulated = client
        super().__init__({"serviceUrl": "memory://simulated", "topic": topic}, COLUMNS)

    def _client(self) -> Client:
        return self._simulated


def rows_of(world: World, tasks: Iterable[InputPartition]) -> tuple[Row, ...]:
    """What the tasks of a plan return: each part is a row. Its file must be there."""
    rows = []
    for task in tasks:
        assert isinstance(task, ReadTask)
        for piece in task.pieces:
            rows.append(Row(piece.part.path, piece.segment, (piece.ledger, piece.base + piece.first, 0), None, piece.txn))
            if piece.part.path not in world.disk.files:
                world.history.bad(f"the part {piece.part.path} of {piece.where} is gone although it is planned", 5)
    return tuple(rows)


def migrated_to(world: World, topic: str) -> str:
    """The topic that this one goes on in since its migration was completed; until then itself."""
    return next((e.topic for e in world.history.events if isinstance(e, Seal) and topic in e.segments), topic)


# --- batches ----------------------------------------------------------------------------------------------------------------


def start_onward_batch(world: World, name: str, topic: str, rounds: int, *, within: int) -> None:
    """Somebody who reads all there is, by either name."""
    process = Process(world, name)

    def run() -> None:
        client = process.client
        for _ in range(rounds):
            try:
                read_onward(world, client, name, topic)
            except (*GONE, OffsetOutOfRange) as error:
                world.history.missed(name, error)
                return
            except TxnSegmentError:
                continue

    world.spawn(process, name, run, delay=world.rng.randrange(within))


def read_onward(world: World, client: Client, who: str, topic: str, *, final: bool = False) -> None:
    """A batch of everything. What it returned is of the topic that goes on once the migration is complete."""
    history, began, to = world.history, world.history.now(), migrated_to(world, topic)
    rows = rows_of(world, Batching(client, topic).partitions())
    if any(row.segment != topic for row in rows):
        to = migrated_to(world, topic)
    log = to if is_persistent(to) else ""
    history.saw(Read(history.now(), began, who, (to,), rows, final=final, log=log))


# --- streams ----------------------------------------------------------------------------------------------------------------


@dataclass
class Query:
    """A streaming query's checkpoint: the offset that it has finished, and the end that it has planned but perhaps not finished.

    `left`: how often Spark still asks for the latest offset.
    """

    name: str
    topic: str
    max_rows: int | None
    left: int
    at: dict[str, Any] | None = None
    planned: dict[str, Any] | None = None
    batch: int = 0
    restarts: int = 0
    lives: int = 0

    def options(self) -> dict[str, str]:
        limit = {} if self.max_rows is None else {"maxRowsPerTrigger": str(self.max_rows)}
        return {"topic": self.topic, **limit}

    def anew(self) -> None:
        """With a new checkpoint, from the first rows that are kept: it is another stream from now on."""
        self.lives += 1
        self.name = f"{self.name.partition('#')[0]}#{self.lives}"
        self.at, self.planned, self.batch = None, None, 0


def start_query(world: World, query: Query, *, within: int) -> None:
    """A query on one topic; it is restarted when it crashes, and reads a planned batch again."""
    process = Process(world, f"{query.name}.{query.restarts}")

    def again() -> None:
        query.restarts += 1
        if query.restarts < 5:
            start_query(world, query, within=within)

    def run() -> None:
        reader: Streaming | None = None
        client = process.client
        while query.left > 0:
            query.left -= 1
            try:
                reader = reader or Streaming(client, query.options())
                micro_batch(world, reader, query)
            except DataLoss as error:
                if not world.history.trimmed:
                    world.history.missed(query.name, error)
                    return
                query.anew()
            except (*GONE, OffsetOutOfRange) as error:
                world.history.missed(query.name, error)
                return
            except TxnSegmentError:
                process.cluster.clock.sleep(0.1)
        if reader is not None:
            reader.stop()

    world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))


def micro_batch(world: World, reader: Streaming, query: Query) -> bool:
    """Plan the next one, read it, now and then again as a replay. Whether it moved."""
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


def _planned(world: World, query: Query, began: int, start: dict[str, Any], end: dict[str, Any]) -> None:
    history = world.history
    left = query.topic not in end and _number(end, "log") > 0  # it was taken whole, and its segment is in no layout any more
    for where in ("log",) if left else ("log", query.topic):
        if _number(end, where) < _number(start, where):
            history.bad(f"{query.name}: the offset went back from {start} to {end}", 5)
    if _number(end, "log") > _number(start, "log") and _number(end, query.topic) > _number(start, query.topic):
        history.bad(f"{query.name}: a micro-batch from {start} to {end} reads the old topic and what goes on from it", 13)
    topic, log, first, last = _range(world, query, start, end)
    history.saw(Plan(history.now(), began, query.name, (topic,), first or 0, last, log=log))


def _polled(world: World, reader: Streaming, query: Query, start: dict[str, Any], end: dict[str, Any]) -> None:
    history, began = world.history, world.history.now()
    rows = rows_of(world, reader.partitions(start, end))
    topic, log, first, last = _range(world, query, start, end)
    history.saw(Poll(history.now(), began, query.name, query.batch, (topic,), rows, first, last, log=log))


def _range(world: World, query: Query, start: dict[str, Any], end: dict[str, Any]) -> tuple[str, str, int | None, int]:
    """Of which topic, by the numbers of which log, a micro-batch reads from where to where. What goes on from a persistent topic
    begins where that ended, which is no number that the offset names (None).
    """
    if is_persistent(query.topic) and not _number(end, "log"):
        return query.topic, query.topic, _number(start, query.topic), _number(end, query.topic)
    first = _number(start, "log")
    beginning = is_persistent(query.topic) and not first
    return migrated_to(world, query.topic), "", None if beginning else first, _number(end, "log")


def _number(offset: dict[str, Any], where: str) -> int:
    """Of the common log, or the ledger of a position in a topic's own."""
    found = offset.get(where, 0)
    return int(found) if isinstance(found, int) else int(found.partition(":")[0])
