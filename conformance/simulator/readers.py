"""Readers in a simulated world: batch reads, and streams that follow their topics as Spark's long-lived stream reader does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.simulator.observer import Row, Seen
from conformance.simulator.scheduler import Process, World
from conformance.simulator.writers import hands_on
from ledgers.errors import CorruptSnapshot, MissingFile
from metadata import transitions
from metadata.errors import OffsetOutOfRange, TxnSegmentError
from metadata.transaction_buffer import Reading, Selection, TransactionBuffer
from spark_txn_source.following import Following


def start_batch_reader(
    world: World, name: str, selection: Selection, rounds: int, process: Process | None = None, *, within: int = 100
) -> None:
    process = process or Process(world, name)

    def run() -> None:
        cut = 0
        for _ in range(rounds):
            before = _newest(world, selection)
            try:
                reading = process.buffer.read(selection)
                rows = collect(world, reading, 0, reading.cut)
            except (CorruptSnapshot, MissingFile) as error:
                world.history.bad(f"{name} misses a file: {error}")
                return
            except TxnSegmentError:
                continue
            _expect_fresh(world, name, reading, before)
            if reading.cut < cut:
                world.history.bad(f"{name}: the cut went back from {cut} to {reading.cut}")
            cut = reading.cut
            saw(world, name, "batch", selection, reading, 0, reading.cut, rows)

    world.spawn(process, name, run, delay=world.rng.randrange(within))


@dataclass
class Stream:
    """A streaming query's checkpoint: the offset it has finished, and the end it has planned but perhaps not finished.

    `left`: how often Spark still asks for the latest offset.
    """

    name: str
    selection: Selection
    max_rows: int | None
    offset: int = 0
    planned: int | None = None
    left: int = 4
    rows: list[Row] = field(default_factory=list)
    restarts: int = 0
    cut: int = 0


def start_stream(world: World, stream: Stream, *, within: int = 40) -> None:
    process = Process(world, f"{stream.name}.{stream.restarts}")

    def again() -> None:
        stream.restarts += 1
        if stream.restarts < 5:
            start_stream(world, stream, within=within)

    delay = world.rng.randrange(within)
    world.spawn(process, process.name, lambda: _stream(world, process, stream), on_crash=again, delay=delay)


def _stream(world: World, process: Process, stream: Stream) -> None:
    following = Following(hands_on(world, process), stream.selection)
    while stream.left > 0:
        stream.left -= 1
        try:
            _micro_batch(world, process.buffer, following, stream)
        except (CorruptSnapshot, MissingFile) as error:
            world.history.bad(f"{stream.name} misses a file: {error}")
            return
        except OffsetOutOfRange as error:
            world.history.bad(f"{stream.name} cannot plan its own offset: {error}")
            return
        except TxnSegmentError:
            continue
    following.close()


def _micro_batch(world: World, buffer: TransactionBuffer, following: Following, stream: Stream) -> None:
    begin = stream.offset
    if stream.planned is None:
        before = _newest(world, stream.selection)
        reading = following.read()
        _expect_fresh(world, stream.name, reading, before)
        if reading.cut < stream.cut:
            world.history.bad(f"{stream.name}: the cut went back from {stream.cut} to {reading.cut}")
        stream.cut = reading.cut
        last = max(begin, reading.last_change(begin))
        end = transitions.limited(reading.weights(begin, last), last, max_rows=stream.max_rows, seals=reading.seals(begin, last))
        _expect_progress(world, stream, reading, begin, end)
        stream.planned = end
    end = stream.planned
    if end < begin:
        world.history.bad(f"{stream.name}: a micro-batch from {begin} to {end}")
    if end > begin:  # else Spark has nothing to run
        for _ in range(1 if world.rng.random() < 0.7 else 2):  # the second time a replay
            reading = buffer.read_to(stream.selection, end)
            rows = collect(world, reading, begin, end)
            saw(world, stream.name, "stream", stream.selection, reading, begin, end, rows)
        stream.rows += rows
    stream.offset, stream.planned = end, None


def _newest(world: World, selection: Selection) -> int:
    """The newest registration of these topics that is committed by now."""
    numbers = (n for n, rows in world.history.truth.items() if any(_of(s, selection.names) for _, s, _ in rows))
    return max(numbers, default=0)


def _expect_fresh(world: World, who: str, reading: Reading, before: int) -> None:
    """What was committed before a read began is in it, unless something before it is undecided."""
    if reading.cut < before and not any(n <= before for n, _ in reading.undecided):
        world.history.bad(f"{who} sees nothing above {reading.cut} although {before} was committed before it looked")


def _expect_progress(world: World, stream: Stream, reading: Reading, begin: int, end: int) -> None:
    if end > reading.cut and end > begin:
        world.history.bad(f"{stream.name}: planned up to {end}, beyond the cut {reading.cut}")
    names = stream.selection.names
    waiting = [n for n, rows in world.history.truth.items() if begin < n <= reading.cut and any(_of(s, names) for _, s, _ in rows)]
    if waiting and end <= begin:
        world.history.bad(f"{stream.name} stands still at {begin} although {min(waiting)} is visible (cut {reading.cut})")


def collect(world: World, reading: Reading, start: int, end: int) -> list[Row]:
    rows: list[Row] = []
    for segment in reading.segments:
        for ledger in reading.ledgers(segment, start, end):
            for part in ledger.parts:
                rows.append((ledger.id, segment.name, part.path))
                if part.path not in world.disk.files:
                    world.history.bad(f"the part {part.path} of {ledger.id} is gone although it is visible")
    return rows


def saw(world: World, who: str, kind: str, selection: Selection, reading: Reading, start: int, end: int, rows: list[Row]) -> None:
    known = frozenset(s.name for s in reading.segments)
    world.history.seen.append(Seen(who, kind, selection.names, known, start, end, reading.cut, tuple(rows)))
    for row in rows:
        if row[0] not in world.history.truth:
            world.history.bad(f"{who} read {row} before it was committed, or although it never was")
    for segment in reading.segments:
        top = reading.max_read_position(segment)
        if top is not None and top[0] > reading.cut:
            world.history.bad(f"{who}: maxReadPosition {top} of {segment.name} lies beyond the cut {reading.cut}")


def _of(segment: str, topics: Sequence[str]) -> bool:
    return "topic://" + segment.removeprefix("segment://").rpartition("/")[0] in topics
