"""Batch reads of persistent topics in a simulated world: reads of the committed rows, and reads of all rows."""

from __future__ import annotations

from conformance.history.format import Entry
from conformance.simulator.actors.readers import collect, rows_of, saw
from conformance.simulator.actors.working import missed, start_rounds
from conformance.simulator.world.scheduler import Actor, Process, World
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.client import instream
from metadata.instream.view import as_reading
from metadata.records.names import persistent_name


def start_in_stream_reader(
    world: World, name: str, topics: tuple[str, ...], rounds: int, process: Process | None = None, *, within: int = 150
) -> Actor:
    """Start a reader that keeps the replayed state of each log between its reads. Some of its reads replay the log from an empty
    cache instead. Some return the rows of all transactions, whatever their outcome (`read_uncommitted`).
    """

    def read(process: Process) -> None:
        rng = world.rng
        topic = rng.choice(topics)
        buffer = (instream(process.cluster) if rng.random() < 0.25 else process.client.instream).buffer
        if rng.random() < 0.2:
            read_uncommitted(world, buffer, name, topic)
        else:
            read_all(world, buffer, name, topic)

    return start_rounds(world, name, rounds, read, process=process, within=within, judge=missed)


def read_all(world: World, buffer: InStreamBuffer, who: str, topic: str, *, final: bool = False) -> None:
    """Read all committed rows of the topic. Record the read, its cut and the segment's maxReadPosition."""
    began = world.history.now()
    reading = as_reading(buffer.read(persistent_name(topic)))
    rows = collect(world, reading, 0, reading.cut, reading.whole_from())
    saw(world, who, began, (topic,), reading, rows, final=final, log=topic)


def read_uncommitted(world: World, buffer: InStreamBuffer, who: str, topic: str) -> None:
    """Read the rows of all entries up to the end of the log, whatever the outcomes of their transactions. Record a violation if the
    rows are not exactly those that were appended and not trimmed.
    """
    history = world.history
    reading = buffer.read(persistent_name(topic), uncommitted=True)
    rows = [row for ledger in reading.ledgers(0, reading.end) for row in rows_of(world, reading.name, ledger)]
    got = [(row.position[0], row.id) for row in rows]
    there = [
        (event.number, row.id)
        for event in history.events
        if isinstance(event, Entry) and event.log == topic and event.kind == "DATA" and event.number <= reading.end
        for row in event.rows
    ]
    wanted = [cell for cell in there if cell[0] > reading.trimmed_to]
    if got != wanted:
        history.bad(f"{who}: an uncommitted read of {topic} up to {reading.end} gave {got}, there was {wanted}", 5)
