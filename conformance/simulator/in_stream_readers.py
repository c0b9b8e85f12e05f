"""Those who read persistent topics in a simulated world: batch reads, committed and uncommitted, and streams."""

from __future__ import annotations

from conformance.history.format import Entry, Horizon, Plan, Poll, Read, Row
from conformance.simulator.in_stream_clients import Party
from conformance.simulator.readers import Stream, rows_of
from conformance.simulator.scheduler import Process, World
from ledgers.errors import CorruptSnapshot, MissingFile
from metadata.common.errors import CorruptRecord, DataLoss, OffsetOutOfRange, SweepIncomplete, TxnSegmentError
from metadata.instream.reading import TopicReading
from metadata.records.names import persistent_name
from metadata.rules import transitions

GONE = (CorruptSnapshot, CorruptRecord, MissingFile)
"""What no fault of a world explains."""


def unexplained(error: TxnSegmentError) -> bool:
    """Whether no fault of a world explains it; of a sweep that is incomplete, any of what kept it."""
    return any(isinstance(one, GONE) for one in (error.causes if isinstance(error, SweepIncomplete) else (error,)))


def start_in_stream_reader(
    world: World, name: str, topics: tuple[str, ...], rounds: int, process: Process | None = None, *, within: int = 150
) -> None:
    """One process that goes on from what it has replayed; some of its reads are uncommitted, some begin afresh."""
    process = process or Process(world, name)

    def run() -> None:
        party = Party(world, process)
        for _ in range(rounds):
            topic = world.rng.choice(topics)
            reader = Party(world, process, afresh=True) if world.rng.random() < 0.25 else party
            try:
                if world.rng.random() < 0.2:
                    read_uncommitted(world, reader, name, topic)
                else:
                    read_all(world, reader, name, topic)
            except GONE as error:
                world.history.missed(name, error)
                return
            except DataLoss as error:
                if not world.history.trimmed:
                    world.history.missed(name, error)
                    return
            except TxnSegmentError:
                continue

    world.spawn(process, name, run, delay=world.rng.randrange(within))


def read_all(world: World, party: Party, who: str, topic: str, *, final: bool = False) -> None:
    """A committed read of everything, and its horizon."""
    history, began = world.history, world.history.now()
    reading = party.buffer.read(persistent_name(topic))
    rows = collect(world, reading, 0, reading.cut)
    top, cut = reading.max_read_position(), reading.cut
    history.saw(Read(history.now(), began, who, (topic,), rows, 0, cut, cut, None, final, log=topic))
    positions = () if top is None or final else ((topic, top),)
    history.saw(Horizon(history.now(), began, who, (topic,), cut, positions, log=topic))


def read_uncommitted(world: World, party: Party, who: str, topic: str) -> None:
    """Every entry with data up to the end, whatever became of its transaction."""
    history = world.history
    reading = party.buffer.read(persistent_name(topic), uncommitted=True)
    got = [(row.position[0], row.id) for row in collect(world, reading, 0, reading.end)]
    there = [
        (event.number, row.id)
        for event in history.events
        if isinstance(event, Entry) and event.log == topic and event.kind == "DATA" and event.number <= reading.end
        for row in event.rows
    ]
    wanted = [cell for cell in there if cell[0] > reading.trimmed_to]
    if got != wanted:
        history.bad(f"{who}: an uncommitted read of {topic} up to {reading.end} gave {got}, there was {wanted}", 5)


def collect(world: World, reading: TopicReading, start: int, end: int) -> tuple[Row, ...]:
    return tuple(row for ledger in reading.ledgers(start, end) for row in rows_of(world, reading.name, ledger))


def start_in_stream_stream(world: World, stream: Stream, topic: str, *, within: int = 60) -> None:
    """A streaming query on one persistent topic; it is restarted when it crashes, and reads a planned batch again."""
    process = Process(world, f"{stream.name}.{stream.restarts}")

    def again() -> None:
        stream.restarts += 1
        if stream.restarts < 5:
            start_in_stream_stream(world, stream, topic, within=within)

    def run() -> None:
        party = Party(world, process)
        while stream.left > 0:
            stream.left -= 1
            try:
                _micro_batch(world, party, stream, topic)
            except DataLoss as error:
                if not world.history.trimmed:
                    world.history.missed(stream.name, error)
                    return
                stream.anew()
            except (*GONE, OffsetOutOfRange) as error:
                world.history.missed(stream.name, error)
                return
            except TxnSegmentError:
                continue

    world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))


def _micro_batch(world: World, party: Party, stream: Stream, topic: str) -> None:
    history, name, begin = world.history, persistent_name(topic), stream.offset
    if stream.planned is None:
        began = history.now()
        reading = party.buffer.read(name)
        if stream.known is None:
            stream.known = {topic: reading.trimmed_to}
        last = max(begin, reading.last_change(begin))
        end = transitions.limited(reading.weights(begin, last), last, max_rows=stream.max_rows)
        history.saw(Plan(history.now(), began, stream.name, (topic,), begin, end, reading.cut, log=topic))
        stream.planned = end
    end = stream.planned
    if end > begin:
        for _ in range(1 if world.rng.random() < 0.7 else 2):  # the second time a replay
            began = history.now()
            reading = party.buffer.read_to(name, end)
            if reading.trimmed_to > max(begin, (stream.known or {}).get(topic, 0)):
                raise DataLoss("Rows that this stream had still to get were trimmed.")
            rows = collect(world, reading, begin, end)
            history.saw(Poll(history.now(), began, stream.name, stream.batch, (topic,), rows, begin, end, log=topic))
        stream.batch += 1
    stream.offset, stream.planned = end, None
