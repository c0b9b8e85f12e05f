"""Readers of topic:// topics: batch reads, and streams that follow their topics as Spark's long-lived stream reader does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from conformance.history.format import Horizon, Plan, Poll, Read, Row
from conformance.simulator.actors.working import missed, start_rounds
from conformance.simulator.store import keyed, origins
from conformance.simulator.world.scheduler import Actor, Process, World
from ledgers.model import CompactedPart, Ledger
from metadata.common.errors import DataLoss, TxnSegmentError
from metadata.read.backlog import all_rows
from metadata.read.log_reader import ClusterLog
from metadata.read.reading import LogSelection, Reading
from metadata.read.selection import Earliest
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records.row_ranges import NONE, minus
from spark_txn_source.following import Following
from spark_txn_source.log_ranges import LogRange, limited
from spark_txn_source.losses import check_trims, hidden, known_trims


def start_batch_reader(
    world: World, name: str, selection: LogSelection, rounds: int, process: Process | None = None, *, within: int = 100
) -> Actor:
    def read(process: Process) -> None:
        began = world.history.now()
        reading = process.buffer.read(selection)
        rows = collect(world, reading, 0, reading.cut, known_trims(reading, Earliest()))
        saw(world, name, began, selection.names, reading, rows)

    return start_rounds(world, name, rounds, read, process=process, within=within, judge=missed)


class Query(Protocol):
    """A streaming query that runs in one process."""

    def run_batch(self) -> object: ...

    def close(self) -> None: ...


@dataclass
class Checkpoint(ABC):
    """The durable state of a streaming query. Subclasses add the offset, and the end of the micro-batch that is planned but perhaps
    not finished.

    `left`: how often Spark will still ask for the latest offset. `batch`: the number of the next micro-batch. `restarts`: how often
    the query was restarted after a crash. `lives`: how often it began with a new checkpoint (`anew`). `rest`: the seconds that it
    waits after a failure.
    """

    name: str
    max_rows: int | None
    left: int = 4
    batch: int = 0
    restarts: int = 0
    lives: int = 0
    rest: float = 0.0

    @abstractmethod
    def open(self, world: World, process: Process) -> Query: ...

    def anew(self) -> None:
        """Continue with a new checkpoint, from the first rows that are left. The query gets a new name, since it becomes a new
        stream.
        """
        self.lives += 1
        self.name, self.batch = f"{self.name.partition('#')[0]}#{self.lives}", 0


def start_stream(world: World, stream: Checkpoint, *, within: int = 40) -> Actor:
    """Start a streaming query. After a crash it is restarted, up to four times. It then reads its planned micro-batch again."""
    process = Process(world, f"{stream.name}.{stream.restarts}")

    def again() -> None:
        stream.restarts += 1
        if stream.restarts < 5:
            start_stream(world, stream, within=within)

    def run() -> None:
        query = stream.open(world, process)
        while stream.left > 0:
            stream.left -= 1
            try:
                query.run_batch()
            except TxnSegmentError as error:
                if missed(world, stream.name, error):
                    return
                if isinstance(error, DataLoss):
                    stream.anew()
                elif stream.rest:
                    process.cluster.clock.sleep(stream.rest)
        query.close()

    return world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))


@dataclass(kw_only=True)
class Stream(Checkpoint):
    """A query on topic:// topics. It follows these topics by the same classes as Spark's long-lived stream reader. `known`: the
    trims that the metadata showed when the query was planned for the first time; None before that.
    """

    selection: LogSelection
    offset: int = 0
    planned: int | None = None
    known: Mapping[str, int] | None = None

    def anew(self) -> None:
        super().anew()
        self.offset, self.planned, self.known = 0, None, None

    def open(self, world: World, process: Process) -> Query:
        return _Following(world, process, self)


class _Following:
    def __init__(self, world: World, process: Process, stream: Stream) -> None:
        self._world, self._buffer, self._stream = world, process.buffer, stream
        self._following = Following(ClusterLog(process.buffer, stream.selection))

    def run_batch(self) -> None:
        _micro_batch(self._world, self._buffer, self._following, self._stream)

    def close(self) -> None:
        self._following.close()


def _micro_batch(world: World, buffer: TransactionBuffer, following: Following[Reading], stream: Stream) -> None:
    history, topics = world.history, stream.selection.names
    begin = stream.offset
    if stream.planned is None:
        began = history.now()
        reading = following.read()
        if stream.known is None:
            stream.known = known_trims(reading, Earliest())
        last = max(begin, reading.last_change(begin))
        end = limited([LogRange(reading, begin, last)], max_rows=stream.max_rows, max_bytes=None)[reading.log]
        history.saw(Plan(history.now(), began, stream.name, topics, begin, end, reading.cut))
        stream.planned = end
    end = stream.planned
    if end > begin:  # otherwise Spark runs no micro-batch
        for _ in range(1 if world.rng.random() < 0.7 else 2):  # the second run is a replay
            began = history.now()
            reading = buffer.read_to(stream.selection, end)
            check_trims(LogRange(reading, begin, end), stream.known or {})
            rows = collect(world, reading, begin, end, stream.known or {})
            known = tuple(s.name for s in reading.segments)
            history.saw(Poll(history.now(), began, stream.name, stream.batch, topics, rows, begin, end, segments=known))
        stream.batch += 1
    stream.offset, stream.planned = end, None


def collect(world: World, reading: Reading, start: int, end: int, known: Mapping[str, int]) -> tuple[Row, ...]:
    """Return the rows of a reading with start < number <= end, as rows of the history. Record a violation if a file of these rows
    is gone. In worlds that delete files, reading each ledger is a step. `known`: the trims that the reader knows. Ledgers of which
    these trims have removed all rows are left out.
    """
    rows: list[Row] = []
    left_out = hidden(reading, known)
    planned = [
        (segment.name, ledger)
        for segment in reading.segments
        for ledger in segment.ledgers(start, end)
        if minus(all_rows(ledger), left_out.get(segment.name, NONE))
    ]
    for segment, ledger in planned:
        if world.files_go:
            reading.cluster.storage.read(ledger.parts[0].path)
        rows += rows_of(world, segment, ledger)
    return tuple(rows)


def rows_of(world: World, segment: str, ledger: Ledger) -> Iterator[Row]:
    """Yield the rows of a ledger. Each of its parts counts as one entry. A row in a compacted file keeps its name and key."""
    for i, part in enumerate(ledger.parts):
        data, _ = world.disk.files.get(part.path, (b"", 0))
        if isinstance(part, CompactedPart):
            named = [(row.name, row.key) for row in origins.rows_of(data, part)] if data else []
        else:
            named = list(keyed.rows_of(part.path, data))
        for j, (name, key) in enumerate(named):
            yield Row(name, segment, (ledger.id, i, j), key, ledger.txn)
        if not data:
            world.history.bad(f"the part {part.path} of {ledger.id} is gone although it is visible", 5)


def saw(
    world: World,
    who: str,
    began: int,
    topics: tuple[str, ...],
    reading: Reading,
    rows: tuple[Row, ...],
    *,
    final: bool = False,
    log: str = "",
) -> None:
    """Record a batch read of all rows up to the cut. Record also the cut and the maxReadPosition of each segment (`Horizon`).
    `log`: the persistent topic whose log was read; empty: the cluster's log was read.
    """
    history, cut = world.history, reading.cut
    known = None if log else tuple(s.name for s in reading.segments)
    history.saw(Read(history.now(), began, who, topics, rows, 0, cut, cut, known, final, log=log))
    tops = ((s.name, s.last(cut)) for s in reading.segments)
    positions = tuple((name, top) for name, top in tops if top is not None)
    history.saw(Horizon(history.now(), began, who, topics, cut, positions, log=log))
