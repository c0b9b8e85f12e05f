"""The plans that readers of Pulsar topics make, over a model of a broker and with random schedules.

The model changes between any two requests of a plan. Transactions send rows, commit and abort. Each segment applies a decision at
another time. Segments split and merge. The log in which writers record the rows of their transactions (`pulsar_protocol.sent_log`)
splits, and writers record in it which of its records are settled. A stream is started again from its offsets, with limits and with
`Trigger.AvailableNow`. In every schedule each committed row is read exactly once, each transaction that a writer has recorded is in
one micro-batch, and all rows of a segment are read before those of its children.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from metadata.common.errors import DataLoss
from pulsar_protocol import sent_reader, whole_cuts
from pulsar_protocol.client import TxnId
from pulsar_protocol.cut import Cut, Found
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import TimedOut, TopicMissing
from pulsar_protocol.layout import EARLIEST, Layout, Position
from pulsar_protocol.layout import Segment as LayoutSegment
from pulsar_protocol.sent_log import Sent, encode, log_name
from pulsar_protocol.whole_cuts import settled
from spark_txn_source.pulsar import batch, places, stream
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.columns import Part, PulsarColumns
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.stream import StreamReader
from spark_txn_source.pulsar.tasks import OneAfterAnother, PulsarTask

TOPIC = "topic://public/default/t"
LOG = log_name(TOPIC)
VALUE = StructType([StructField("value", BinaryType())])
SEEDS = 100
STEPS = 60


@dataclass
class Entry:
    place: Position
    txn: TxnId | None
    value: bytes

    def messages(self) -> Iterator[Message]:
        yield Message(self.value)


@dataclass
class Line:
    """A segment of the model. `shown`: the transactions whose decisions the segment has applied."""

    id: int
    topic: str
    parents: tuple[int, ...] = ()
    children: tuple[int, ...] = ()
    active: bool = True
    entries: list[Entry] = field(default_factory=list)
    first: int = 0
    """How many entries at the beginning the broker has deleted."""
    newest_ledger: int = 0
    cursor: Position | None = None
    """The position up to which the subscription has acknowledged. None: it has no cursor here."""
    deleted: bool = False
    shown: set[TxnId] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.topic.replace('topic', 'segment', 1)}/{self.id}"

    @property
    def ledger(self) -> int:
        return max(self.newest_ledger, self.entries[-1].place.ledger if self.entries else 100 * (self.id + 1))

    @property
    def kept_from(self) -> int:
        """The first ledger that the broker has."""
        return self.entries[self.first].place.ledger if self.first < len(self.entries) else self.ledger

    @property
    def is_drained(self) -> bool:
        return self.cursor is not None and bool(self.entries) and self.entries[-1].place <= self.cursor


@dataclass
class Transaction:
    id: TxnId
    recorded: bool
    committed: bool | None = None
    places: dict[str, list[Position]] = field(default_factory=dict)


class World:
    """The broker, the writers, and a client for the readers."""

    def __init__(self, rng: random.Random, segments: int) -> None:
        self.rng = rng
        self.lines = {TOPIC: [Line(number, TOPIC) for number in range(segments)], LOG: [Line(0, LOG)]}
        self.transactions: dict[TxnId, Transaction] = {}
        self.rows = 0
        self.is_moving = False

    # --- what writers do --------------------------------------------------------------------------------------------------

    def moves(self) -> None:
        """Sometimes take steps of the writers. This is called at each request of a reader."""
        if self.is_moving and self.rng.random() < 0.3:
            for _ in range(self.rng.choice([1, 3, 12])):
                self.step()

    def step(self) -> None:
        rng, open_ones = self.rng, [one for one in self.transactions.values() if one.committed is None]
        match rng.choice(
            ["begin", "send", "send", "send", "plain", "end", "end", "show", "show", "show", "split", "merge", "log", "settle"]
        ):
            case "begin":
                txn = TxnId(1, len(self.transactions))
                self.transactions[txn] = Transaction(txn, recorded=rng.random() < 0.8)
            case "send" if open_ones:
                self.send(rng.choice(self.active(TOPIC)), rng.choice(open_ones))
            case "plain":
                self.send(rng.choice(self.active(TOPIC)), None)
            case "end" if open_ones:
                self.end(rng.choice(open_ones), commit=rng.random() < 0.7)
            case "show":
                self.show(rng.choice(self.lines[TOPIC]))
            case "split" if len(self.lines[TOPIC]) < 12 and rng.random() < 0.4:
                self.change(TOPIC, [rng.choice(self.active(TOPIC)[-2:])], 2)
                if rng.random() < 0.3:
                    self.change(TOPIC, [self.active(TOPIC)[-1]], 2)
            case "merge" if len(self.active(TOPIC)) > 1 and len(self.lines[TOPIC]) < 12 and rng.random() < 0.3:
                self.change(TOPIC, rng.sample(self.active(TOPIC), 2), 1)
            case "log" if len(self.lines[LOG]) < 4 and rng.random() < 0.1:
                self.change(LOG, [self.active(LOG)[0]], 2)
            case "settle" if self.is_moving and rng.random() < 0.5:
                self.is_moving = False
                self.append(self.active(LOG)[0], None, encode(settled(self, TOPIC)))
                self.is_moving = True

    def active(self, topic: str) -> list[Line]:
        return [one for one in self.lines[topic] if one.active]

    def append(self, line: Line, txn: TxnId | None, value: bytes) -> Position:
        ledger, entry = line.ledger, line.entries[-1].place.entry + 1 if line.entries else 0
        entry = entry if line.entries and line.entries[-1].place.ledger == ledger else 0
        place = Position(ledger + 1, 0) if line.entries and self.rng.random() < 0.1 else Position(ledger, entry)
        line.entries.append(Entry(place, txn, value))
        return place

    def send(self, line: Line, txn: Transaction | None) -> None:
        self.rows += 1
        place = self.append(line, txn.id if txn else None, str(self.rows).encode())
        if txn is not None:
            txn.places.setdefault(line.name, []).append(place)

    def end(self, txn: Transaction, *, commit: bool) -> None:
        if txn.recorded and txn.places and (commit or self.rng.random() < 0.5):
            segments = {name: (found[0], found[-1]) for name, found in txn.places.items()}
            self.append(self.active(LOG)[0], None, encode(Sent(txn.id, segments)))
        txn.committed = commit

    def show(self, line: Line) -> None:
        line.shown |= {one.id for one in self.transactions.values() if one.committed is not None and self.rng.random() < 0.6}

    def change(self, topic: str, parents: list[Line], count: int) -> None:
        number = len(self.lines[topic])
        made = [Line(number + one, topic, parents=tuple(parent.id for parent in parents)) for one in range(count)]
        for parent in parents:
            parent.active, parent.children = False, tuple(one.id for one in made)
        self.lines[topic] += made

    # --- what the broker deletes ----------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Close ledgers, and delete the ledgers and sealed segments that the subscription has passed."""
        for line in self.lines[TOPIC]:
            if not line.deleted and line.cursor is not None and self.rng.random() < 0.5:
                line.newest_ledger = line.ledger + (line.active and self.rng.random() < 0.5)
                self.drop_ledgers(line)
                line.deleted = not line.active and line.is_drained

    def drop_ledgers(self, line: Line) -> None:
        """As a broker does, move a cursor at the end of a closed ledger to the beginning of the next one before the deletion."""
        assert line.cursor is not None
        left = next((one.place.ledger for one in line.entries if one.place > line.cursor), line.ledger)
        if left > line.cursor.ledger:
            line.cursor = Position(left, -1)
        line.first = sum(1 for one in line.entries if one.place.ledger < left)

    def finish(self) -> None:
        """Commit all open transactions, and let each segment apply all decisions."""
        self.is_moving = False
        for txn in self.transactions.values():
            if txn.committed is None:
                self.end(txn, commit=True)
        for line in self.lines[TOPIC]:
            line.shown |= self.transactions.keys()

    # --- what a reader can ask --------------------------------------------------------------------------------------------

    def layout(self, topic: str) -> Layout:
        if topic not in self.lines:
            raise TopicMissing(f"There is no topic {topic}.")
        self.moves()
        found = [one for one in self.lines[topic] if not one.deleted]
        return Layout(
            topic,
            len(self.lines[topic]),
            {one.id: LayoutSegment(one.id, one.name, 0, 0xFFFF, one.active, one.parents, one.children) for one in found},
        )

    def line(self, name: str) -> Line:
        return next(one for lines in self.lines.values() for one in lines if one.name == name)

    def decided(self, line: Line) -> list[Entry]:
        """Return the entries before the first undecided entry. An entry is undecided while the segment has not applied the decision
        of its transaction.
        """
        found = []
        for entry in line.entries:
            if entry.txn is not None and entry.txn not in line.shown:
                break
            found.append(entry)
        return found

    def delivered(self, line: Line) -> list[Entry]:
        return [one for one in self.decided(line) if one.txn is None or self.transactions[one.txn].committed]

    def entries(self, _: object, segment: str, after: Position, to: Position) -> Iterator[tuple[Position, Entry]]:
        found = self.delivered(self.line(segment))
        if to > after and not any(one.place >= to for one in found) and to != EARLIEST:
            raise TimedOut(f"{segment}: {to.text} was not reached.", advice="")
        for one in found:
            if after < one.place <= to:
                yield one.place, one


class Segment:
    """A segment of the model, with the methods of `pulsar_protocol.cut.Segment`."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._line = world, world.line(name)

    def last(self) -> Position:
        return self._line.entries[-1].place if self._line.entries else Position(self._line.ledger, -1)

    def before_first(self) -> Position:
        return Position(self._line.kept_from, -1)

    def before(self, position: Position) -> Position:
        found = [one.place for one in self._line.entries if one.place < position]
        return found[-1] if found else self.before_first()

    def first_after(self, position: Position) -> Found:
        self._world.moves()
        for one in self._world.delivered(self._line):
            if one.place > position:
                return Found(one.place, 0, 1, len(one.value))
        raise TimedOut(f"{self._line.name}: nothing after {position.text}", advice="")

    def cut(self, floor: Position = EARLIEST, *, sealed: bool = False) -> Cut:
        self._world.moves()
        found = [one.place for one in self._world.delivered(self._line)]
        position, last = max(floor, found[-1] if found else EARLIEST), self.last()
        every = len(self._world.decided(self._line)) == len(self._line.entries)
        return Cut(position, last, not self._line.entries or position >= last or (sealed and every), sealed)


class Subscription:
    """The subscription of a model, with the methods of `pulsar_protocol.subscription.Subscription`."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name

    def hold(self, segments: list[str]) -> None:
        self.acknowledge(dict.fromkeys(segments, EARLIEST))

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        for name, position in positions.items():
            line = self._world.line(name)
            assert not line.deleted
            line.cursor = max(position, line.cursor or EARLIEST)

    def close(self) -> None:
        pass


# --- readers and what they have read ----------------------------------------------------------------------------------------


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    worlds: list[World] = []
    for module in (places, sent_reader, whole_cuts):
        monkeypatch.setattr(module, "Segment", lambda client, name, patience=0.0: Segment(worlds[-1], name))
    monkeypatch.setattr(sent_reader, "entries", lambda *given: worlds[-1].entries(*given))
    monkeypatch.setattr(places, "each", lambda names, ask: {name: ask(name) for name in sorted(names)})
    monkeypatch.setattr(stream, "Subscription", lambda client, topic, name, admin_url: Subscription(worlds[-1], name))
    for module in (stream, batch):
        monkeypatch.setattr(module, "shared_client", lambda url: worlds[-1])
        monkeypatch.setattr(module, "layout", lambda client, topic: worlds[-1].layout(topic))
        monkeypatch.setattr(module, "divide", lambda client, found, least, most: list(found))
    return worlds


def part(start: str, *, streaming: bool, **more: str) -> Part:
    given = {"serviceUrl": "pulsar://127.0.0.1:1", "topic": TOPIC, "startingOffsets": start, "valueFormat": "binary"}
    limit = {"maxRowsPerTrigger": "1"} if streaming else {}
    return Part(PulsarReadOptions.parse(given | limit | more, streaming=streaming), PulsarColumns(VALUE, VALUE, None))


def rows_of(world: World, tasks: Iterable[object]) -> list[list[Entry]]:
    """Return the visible entries of each task. Check that all entries of the task's ranges are decided."""
    found = []
    for task in tasks:
        assert isinstance(task, PulsarTask | OneAfterAnother)
        entries: list[Entry] = []
        for one in task.ranges if isinstance(task, OneAfterAnother) else [task]:
            line = world.line(one.segment)
            inside = [entry for entry in line.entries if one.after < entry.place <= one.to]
            assert inside == [entry for entry in world.decided(line) if one.after < entry.place <= one.to]
            entries += [entry for entry in inside if entry.txn is None or world.transactions[entry.txn].committed]
        found.append(entries)
    return found


def check_whole(world: World, rows: set[bytes], *, among: set[bytes]) -> None:
    """Check that `rows` has all rows or no row of each recorded transaction. Rows that are not in `among` are left out."""
    for txn in world.transactions.values():
        if txn.recorded:
            own = {
                entry.value for line in world.lines[TOPIC] for entry in line.entries if entry.txn == txn.id and entry.value in among
            }
            assert not own & rows or own <= rows, f"{txn} is split"


def check_order(world: World, batches: list[list[list[Entry]]], read: set[bytes]) -> None:
    """Check that the rows of a segment were read before those of its children, in an earlier batch or earlier in the same task."""
    at = {
        entry.value: (number, task, index)
        for number, tasks in enumerate(batches)
        for task, entries in enumerate(tasks)
        for index, entry in enumerate(entries)
    }
    for line in world.lines[TOPIC]:
        own = [at[one.value] for one in line.entries if one.value in at]
        assert own == sorted(own), "the rows of a segment are in order"
        for child in (one for one in world.lines[TOPIC] if line.id in one.parents):
            for entry in child.entries:
                if entry.value in at and own:
                    later, earlier = at[entry.value], max(own)
                    assert earlier[0] < later[0] or (earlier[:2] == later[:2] and earlier < later), "a child came too early"
    assert read == set(at)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_stream_reads_each_committed_row_once_and_in_whole_transactions(model: list[World], start: str) -> None:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        world = World(rng, rng.choice([1, 2, 3]))
        model.append(world)
        for _ in range(rng.randrange(STEPS)):
            world.step()
        world.is_moving = True
        options = part(start, streaming=True)
        reader = StreamReader({}, VALUE, options)
        offset = reader.initialOffset()
        skipped = {
            entry.value
            for line in world.lines[TOPIC]
            for entry in line.entries
            if entry.place <= Position.parse(offset["segments"].get(line.name, "-1:-1"))
        }
        batches: list[list[list[Entry]]] = []
        while True:
            if world.is_moving and rng.random() < 0.05:
                world.finish()
                reader = StreamReader({}, VALUE, options)
            if world.is_moving:
                for _ in range(rng.randrange(4)):
                    world.step()
                if rng.random() < 0.15:
                    reader = StreamReader({}, VALUE, options)
                    if rng.random() < 0.5:  # as Spark does until the first batch is done
                        reader.initialOffset()
                    if rng.random() < 0.6:
                        reader.prepareForTriggerAvailableNow()
            limit: ReadLimit = rng.choice([ReadAllAvailable(), ReadMaxRows(1)])
            end: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(offset, limit)))
            if end == offset and not world.is_moving:
                break
            if end != offset:
                rows = rows_of(world, reader.partitions(offset, end))
                assert rows_of(world, reader.partitions(offset, end)) == rows
                check_whole(world, {one.value for task in rows for one in task}, among=committed(world) - skipped)
                batches.append(rows)
            offset = end
        read = [entry.value for tasks in batches for task in tasks for entry in task]
        assert len(read) == len(set(read)), f"seed {seed}: rows were read twice"
        assert set(read) == committed(world) - skipped, f"seed {seed}: rows were lost"
        check_order(world, batches, set(read))


def committed(world: World) -> set[bytes]:
    return {
        entry.value
        for line in world.lines[TOPIC]
        for entry in line.entries
        if entry.txn is None or world.transactions[entry.txn].committed
    }


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_stream_with_a_subscription_takes_nothing_that_it_has_read_for_lost(model: list[World], start: str) -> None:
    """Between batches the broker closes ledgers, and deletes ledgers and sealed segments that the subscription has passed. But it
    keeps sealed segments without entries: after a restart a stream from `latest` cannot know that they had none.
    """
    options, trimmed, deleted = part(start, streaming=True, subscription="s"), 0, 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        world = World(rng, rng.choice([1, 2, 3]))
        model.append(world)
        for _ in range(rng.randrange(STEPS)):
            world.step()
        reader = StreamReader({}, VALUE, options)
        offset = reader.initialOffset()
        reader.latestOffset(offset, ReadMaxRows(1))
        skipped = {
            entry.value
            for line in world.lines[TOPIC]
            for entry in line.entries
            if entry.place <= Position.parse(offset["segments"].get(line.name, "-1:-1"))
        }
        read: list[bytes] = []
        for number in range(60):
            if number < 30:
                for _ in range(rng.randrange(8)):
                    world.step()
            else:
                world.finish()
            if rng.random() < 0.2:
                reader = StreamReader({}, VALUE, options)
            end = json.loads(json.dumps(reader.latestOffset(offset, rng.choice([ReadAllAvailable(), ReadMaxRows(1)]))))
            if end != offset:
                read += [one.value for task in rows_of(world, reader.partitions(offset, end)) for one in task]
                reader.commit(end)
            offset = end
            world.trim()
        while (end := json.loads(json.dumps(reader.latestOffset(offset, ReadAllAvailable())))) != offset:
            read += [one.value for task in rows_of(world, reader.partitions(offset, end)) for one in task]
            reader.commit(end)
            offset = end
        assert len(read) == len(set(read)), f"seed {seed}: rows were read twice"
        assert set(read) == committed(world) - skipped, f"seed {seed}: rows were lost"
        trimmed += sum(line.first > 0 for line in world.lines[TOPIC])
        deleted += sum(line.deleted for line in world.lines[TOPIC])
    assert min(trimmed, deleted) > SEEDS // 4, "the broker deletes something in many schedules"


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_sealed_segment_that_a_plan_without_rows_found_at_its_end_is_no_loss(model: list[World], start: str, rows: int) -> None:
    """The broker deletes it, for example because the cursor was at its end before the stream began."""
    world = World(random.Random(0), 1)
    model.append(world)
    (line,) = world.lines[TOPIC]
    for _ in range(rows):
        world.send(line, None)
    options = part(start, streaming=True, subscription="s")
    reader = StreamReader({}, VALUE, options)
    offset = reader.initialOffset()
    if (end := reader.latestOffset(offset, ReadAllAvailable())) != offset:
        reader.commit(end)
    world.change(TOPIC, [line], 2)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    line.deleted = True
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    world.send(world.lines[TOPIC][1], None)
    more = reader.latestOffset(end, ReadAllAvailable())
    assert [[one.value for one in task] for task in rows_of(world, reader.partitions(end, more))] == [[b"%d" % (rows + 1)]]
    reader.commit(more)


@pytest.mark.parametrize("fault", ["skipped", "made again"])
def test_unread_rows_that_are_deleted_are_a_loss(model: list[World], fault: str) -> None:
    """The cursor does not tell: it stands at the beginning of the first ledger that is kept, as after a harmless deletion."""
    world = World(random.Random(0), 1)
    model.append(world)
    (line,) = world.lines[TOPIC]
    world.send(line, None)
    options = part("earliest", streaming=True, subscription="s")
    reader = StreamReader({}, VALUE, options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.commit(end)
    world.send(line, None)
    line.cursor, line.newest_ledger = line.entries[-1].place, line.ledger + 1
    world.drop_ledgers(line)
    if fault == "made again":
        line.cursor = None
    world.send(line, None)
    with pytest.raises(DataLoss, match="may be lost"):
        StreamReader({}, VALUE, options).latestOffset(end, ReadAllAvailable())


def test_a_batch_reads_whole_transactions(model: list[World]) -> None:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        world = World(rng, rng.choice([1, 2, 3]))
        model.append(world)
        before: set[bytes] = set()
        for _ in range(6):
            for _ in range(rng.randrange(STEPS // 2)):
                world.step()
            world.is_moving = True
            tasks = BatchReader({}, VALUE, part("earliest", streaming=False)).partitions()
            world.is_moving = False
            rows = {one.value for task in rows_of(world, tasks) for one in task}
            check_whole(world, rows, among=committed(world))
            assert before <= rows, f"seed {seed}: a later read has fewer rows"
            for line in world.lines[TOPIC]:
                for child in (one for one in world.lines[TOPIC] if line.id in one.parents):
                    if any(one.value in rows for one in child.entries):
                        own = {one.value for one in line.entries} & committed(world)
                        assert own <= rows, f"seed {seed}: a child came before its parent"
            before = rows
        world.finish()
        tasks = BatchReader({}, VALUE, part("earliest", streaming=False)).partitions()
        assert {one.value for task in rows_of(world, tasks) for one in task} == committed(world)
