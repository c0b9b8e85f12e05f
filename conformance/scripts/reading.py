"""Commands of readers (protocol.md section 6). The classes of the real source plan the reads. Spark itself does not run.

read a b [from=2] [to=5] [from-time=+10s] [to-time=+20s] [uncommitted] [failOnDataLoss=false] [subscription=s]
read pattern=.*/f.*                  run a batch read; the answer shows its cut, the last position of each segment, then its rows
r1: stream a b [rows=3] [bytes=20] [start=latest | subscription=s]   begin a streaming query (by default at the earliest offset)
r1: next                             plan a micro-batch and read it: `plan` and `run`
r1: plan                             only plan a micro-batch
r1: run                              read the planned micro-batch; the next one begins at its end
r1: replay                           read the last micro-batch again, as Spark does after a restart
r1: restart [a b] [topicsChanged=continue]   start a new process, which continues the query from its last offsets
r1: move-cursor                      tell the source that Spark has committed the last micro-batch; the source moves the cursors
r1: available-now                    do what Trigger.AvailableNow does: later plans end at the rows that are visible now
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StringType, StructField, StructType

from conformance.scripts import answers
from conformance.scripts.names import segment, short
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.world import BEGIN_MS, URL, Process, Work, World
from conformance.simulator.store.origins import rows_of
from ledgers.model import CompactedPart
from metadata.client.client import Client
from metadata.read.reading import Reading
from spark_txn_source.columns import METADATA_FIELDS, Columns
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import read_batch, tasks
from spark_txn_source.planned import Piece, ReadTask
from spark_txn_source.stream import StreamReader

_TYPES = StructType([StructField("value", StringType())])
"""The schema with which scripts read all topics. The parts of scripts contain no real rows, so any schema will do."""
_SHOWN = StructType([*_TYPES.fields, *METADATA_FIELDS])
"""The columns of a read: the schema and the metadata columns, which give the place of each row."""
_OPTIONS = ("failOnDataLoss", "topicsChanged", "maxPartitionBytes", "minPartitions", "subscription")


def _selected(world: World, cmd: Command) -> dict[str, str]:
    given = [segment(world.state, word) if "." in word else word for word in cmd.words]
    pattern = cmd.get("pattern")
    if pattern is not None:
        return {"topicsPattern": pattern}
    if not given:
        raise ScriptError(f"{cmd.line!r}: read what?")
    return {"topics": ",".join(given)}


def _options(cmd: Command) -> dict[str, str]:
    found = {"serviceUrl": URL}
    for name in _OPTIONS:
        if (value := cmd.get(name)) is not None:
            found[name] = value
    for name, option in (("from-time", "startingTimestamp"), ("to-time", "endingTimestamp")):
        if (value := cmd.get(name)) is not None:
            found[option] = str(BEGIN_MS + duration_ms(value))
    return found


def _offset(text: str) -> str:
    return f'{{"log": {text}}}' if text.isdigit() else text


def read(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("r1"))
    given = _options(cmd)
    if cmd.flag("uncommitted"):
        given["isolationLevel"] = "read_uncommitted"
    for name, option in (("from", "startingOffsets"), ("to", "endingOffsets")):
        if (value := cmd.get(name)) is not None:
            given[option] = _offset(value)
    ranged = len(given.keys() & {"startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"}) > 0
    options = ReadOptions.parse(given | _selected(world, cmd), streaming=False)

    def run() -> tuple[LogRange, list[ReadTask]]:
        (found,) = read_batch(process.client, options)
        return found, tasks([found], options, Columns(_TYPES, _TYPES, _SHOWN))

    def answer(result: tuple[LogRange, list[ReadTask]]) -> list[str]:
        found, planned = result
        lines = [seen(world, found.reading)]
        if ranged:
            lines.append(f"from {found.start} to {found.end}")
        return [*lines, planned_rows(world, planned)]

    return world.drive(Work(process, run, answer))


def seen(world: World, reading: Reading) -> str:
    """Return a reading as text, such as `cut 976, a up to 970:4, b up to 976:0; undecided 977 (0_12)`."""
    tops = []
    for view in reading.segments:
        top = view.last(reading.cut)
        tops.append(f"{short(world.state, view.name)} " + ("has nothing" if top is None else f"up to {top[0]}:{top[1]}"))
    waiting = ", ".join(f"{n} ({txn})" for n, txn in reading.undecided)
    return ", ".join([f"cut {reading.cut}", *tops]) + (f"; undecided {waiting}" if waiting else "")


def planned_rows(world: World, planned: Iterable[Any]) -> str:
    """Return, as text, the rows that the tasks read."""
    return rows(world, (p for task in planned for p in task.pieces))


def rows(world: World, pieces: Iterable[Piece]) -> str:
    """Return the entries of the pieces as text, in order. In `rows a/970:0..4 b/976:0 b/976:1:2..3`, the last word means only rows
    2 and 3 of b's entry 976:1. The text also names missing files, and entries that have wrong rows in a compacted file
    (`_mistaken`).
    """
    found: list[str] = []
    last: tuple[str, int, int, int] | None = None
    for piece in pieces:
        if piece.part.path not in world.disk.files:
            found.append(f"(file {answers.file_name(piece.part.path)} is MISSING)")
            last = None
        if piece.stop is not None:
            last = None
            last_row = f"..{piece.stop - 1}" if piece.stop - 1 > piece.row else ""
            found.append(f"{short(world.state, piece.segment)}/{piece.ledger}:{piece.base + piece.first}:{piece.row}{last_row}")
            continue
        for ledger, first, to in _entries(piece):
            if last is not None and last[:2] == (piece.segment, ledger) and first == last[3] + 1:
                found.pop()
                first = last[2]
            last = (piece.segment, ledger, first, to)
            found.append(answers.span(short(world.state, piece.segment), ledger, first, to))
        for name, wrong in _mistaken(world, piece):
            found.append(f"({name} holds {wrong} instead)")
            last = None
    return f"rows {' '.join(found)}" if found else "no rows"


def _entries(piece: Piece) -> Iterable[tuple[int, int, int]]:
    """Return (ledger, first entry, last entry) for the entries of the piece."""
    if piece.marks is None:
        return [(piece.ledger, piece.base + piece.first, piece.base + piece.last)]
    return [(ledger, n, n) for ledger, n in zip(piece.marks.ledgers.tolist(), piece.marks.entries.tolist(), strict=True)]


def _mistaken(world: World, piece: Piece) -> Iterator[tuple[str, str]]:
    """Yield (name of the entry, origin of its rows) for each entry that has wrong rows in a compacted file. The origin is the file
    from which compaction took the rows. The rows are wrong if an earlier read found the entry in another file than that.
    """
    if piece.marks is None:
        for entry in range(piece.first, piece.last + 1):
            world.written_in.setdefault((piece.segment, piece.ledger, piece.base + entry), piece.part.path)
        return
    assert isinstance(piece.part, CompactedPart)
    if piece.part.path not in world.disk.files:
        return
    rows = rows_of(world.disk.files[piece.part.path][0], piece.part)
    for row, (ledger, entry, _) in zip(piece.marks.starts.tolist(), _entries(piece), strict=True):
        known, found = world.written_in.get((piece.segment, ledger, entry)), rows[row - piece.part.first_row].path
        if known not in (None, found):
            yield answers.span(short(world.state, piece.segment), ledger, entry, entry), answers.file_name(found)


# --- streams ---------------------------------------------------------------------------------------------------------


class ScriptedStream(StreamReader):
    """The product's stream reader. It uses the client of a process of the script, instead of opening one by the service URL."""

    def __init__(self, client: Client, options: dict[str, str]) -> None:
        self._scripted = client
        super().__init__(options | {"includeMetadata": "true"}, _SHOWN)

    def _client(self) -> Client:
        return self._scripted


@dataclass
class Query:
    """A streaming query. `at`: the end offset of the last micro-batch that was read, or the initial offset. `before`: the start
    offset of that micro-batch. `planned`: the end offset of a micro-batch that is planned and not read yet.
    """

    options: dict[str, str]
    reader: ScriptedStream
    at: dict[str, Any]
    before: dict[str, Any] | None = None
    planned: dict[str, Any] | None = None


def stream(world: World, cmd: Command) -> list[str]:
    name = cmd.who("r1")
    process = world.process(name)
    given = _options(cmd)
    for word, option in (("rows", "maxRowsPerTrigger"), ("bytes", "maxBytesPerTrigger")):
        if (value := cmd.get(word)) is not None:
            given[option] = value
    if "startingTimestamp" not in given and "subscription" not in given:
        given["startingOffsets"] = _offset(cmd.get("start") or "earliest")
    given |= _selected(world, cmd)

    def run() -> Query:
        reader = ScriptedStream(process.client, given)
        return Query(given, reader, reader.initialOffset())

    def answer(query: Query) -> list[str]:
        world.streams[name] = query
        return [f"{name} starts at {_at(world, query.at)}"]

    return world.drive(Work(process, run, answer))


def _at(world: World, offset: dict[str, Any]) -> str:
    guard = f", deletions known up to {offset['deletedTo']}" if "deletedTo" in offset else ""
    guard += f", trims known: {', '.join(f'{name} {n}' for name, n in offset['from'].items())}" if "from" in offset else ""
    acked = "".join(f", acked {' '.join(rows)} of {short(world.state, s)}" for s, rows in offset.get("acked", {}).items())
    return f"{offset['log']}{guard}{acked}"


def _query(world: World, cmd: Command) -> tuple[Process, Query]:
    name = cmd.who("r1")
    if name not in world.streams:
        raise ScriptError(f"{cmd.line!r}: {name} has no stream")
    query: Query = world.streams[name]
    return world.process(name), query


def plan(world: World, cmd: Command) -> list[str]:
    process, query = _query(world, cmd)

    def answer(end: dict[str, Any]) -> list[str]:
        query.planned = end
        if end["log"] == query.at["log"]:
            return [f"nothing new after {_at(world, end)}"]
        return [f"planned {_at(world, query.at)} to {_at(world, end)}"]

    limit: ReadLimit = query.reader.getDefaultReadLimit()
    return world.drive(Work(process, lambda: query.reader.latestOffset(query.at, limit), answer))


def run_planned(world: World, cmd: Command) -> list[str]:
    process, query = _query(world, cmd)
    end = query.planned
    if end is None:
        raise ScriptError(f"{cmd.line!r}: nothing is planned")

    def answer(found: Any) -> list[str]:
        lines = [f"batch {_at(world, query.at)} to {_at(world, end)}: {planned_rows(world, found)}"]
        query.before, query.at, query.planned = query.at, end, None
        return lines

    return world.drive(Work(process, lambda: query.reader.partitions(query.at, end), answer))


def next_batch(world: World, cmd: Command) -> list[str]:
    _, query = _query(world, cmd)
    lines = plan(world, cmd)
    return run_planned(world, cmd) if query.planned is not None and lines[0].startswith("planned ") else lines


def replay(world: World, cmd: Command) -> list[str]:
    process, query = _query(world, cmd)
    begin, end = query.before, query.at
    if begin is None:
        raise ScriptError(f"{cmd.line!r}: there was no micro-batch yet")
    return world.drive(
        Work(
            process,
            lambda: query.reader.partitions(begin, end),
            lambda found: [f"batch {_at(world, begin)} to {_at(world, end)}: {planned_rows(world, found)}"],
        )
    )


def restart(world: World, cmd: Command) -> list[str]:
    _, query = _query(world, cmd)
    name = cmd.who("r1")
    if world.processes[name].alive:
        world.crash(world.processes[name])
    process = world.process(name)
    given = query.options | _options(cmd)
    if cmd.words:
        given |= _selected(world, cmd)

    def answer(reader: ScriptedStream) -> list[str]:
        query.reader, query.options = reader, given
        return [f"{name} goes on at {_at(world, query.at)}"]

    return world.drive(Work(process, lambda: ScriptedStream(process.client, given), answer))


def available_now(world: World, cmd: Command) -> list[str]:
    process, query = _query(world, cmd)
    return world.drive(
        Work(process, query.reader.prepareForTriggerAvailableNow, lambda _: [f"{process.name} reads up to what is visible now"])
    )


def move_cursor(world: World, cmd: Command) -> list[str]:
    process, query = _query(world, cmd)
    return world.drive(answers.changing(world, process, lambda: query.reader.commit(query.at)))


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "read": read,
    "stream": stream,
    "next": next_batch,
    "plan": plan,
    "run": run_planned,
    "replay": replay,
    "restart": restart,
    "available-now": available_now,
    "move-cursor": move_cursor,
}
