"""Parties at work on `persistent://` topics that become `topic://` meanwhile: who writes, reads, acknowledges and moves rows.

Each notes what it did in a file that outlives its processes, so that it may be killed at any moment and another one goes on for it;
`conformance.chaos.carried` judges the notes. Nobody is told of a migration: all name the topics by their old names to the end.

A row is `id` = `<who>.<seq>`; the rows of a key are written in the order of `seq`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from conformance.chaos.forks import Child, Died
from conformance.chaos.reading import micro_batches
from conformance.history.files import repair
from metadata.common.errors import AckConflict, OptionError, TopicSealed, TxnConflict
from pyspark_txnsegment import DefaultSource
from spark_txn_source.batch import BatchReader
from txnsegment import Cluster, connect
from txnsegment.topics import PersistentDescription

ROWS, KEYS = 6, 3
"""Of each writer: rows of a transaction, and keys of its own."""
SCHEMA = "key string, id string"
WORK = frozenset({"version", "sent", "delivered", "moved", "batch", "look"})
"""What a party notes once it has done a piece of its work."""
WORK_SECONDS = 120.0
PAUSE_SECONDS = 0.02
IDLE_SECONDS = 0.3
"""How long a consumer waits for more before it looks whether all is done."""


@dataclass(frozen=True)
class Scene:
    """What the parties have in common. `working` and `reading` exist until those who write and those who read are to end."""

    url: str
    folder: Path

    def notes(self, who: str) -> Notes:
        return Notes(self.folder / f"{who}.jsonl")

    def begin(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "working").touch()
        (self.folder / "reading").touch()

    @property
    def working(self) -> bool:
        return (self.folder / "working").exists()

    @property
    def reading(self) -> bool:
        return (self.folder / "reading").exists()

    def done(self, who: str) -> int:
        """How many pieces of its work a party has noted so far."""
        return sum(not WORK.isdisjoint(note) for note in read_notes(self.folder / f"{who}.jsonl"))

    def end_work(self) -> None:
        (self.folder / "working").unlink(missing_ok=True)

    def end_reading(self) -> None:
        (self.folder / "reading").unlink(missing_ok=True)

    def wait_for_work(self, names: Iterable[str], children: Collection[Child], more: int = 1) -> None:
        """Until each of these parties has noted so many pieces of its work since now: with 2, one that it began after now.

        Raises Died if one of the children, who do that work, ends, or if it takes more than `WORK_SECONDS`.
        """
        wanted = {name: self.done(name) + more for name in names}
        until = time.monotonic() + WORK_SECONDS
        while idle := [name for name, count in wanted.items() if self.done(name) < count]:
            for child in children:
                if child.ended(0):
                    raise Died(f"Nobody works any more ({', '.join(idle)} are waited for): {child.result()}")
            if time.monotonic() > until:
                raise Died(f"{', '.join(idle)} noted less than {more} pieces of work in {WORK_SECONDS:g} s.")
            time.sleep(PAUSE_SECONDS)


class Notes:
    """What one party noted, line by line; the half line that a kill left is dropped: what it would have said was not done then."""

    def __init__(self, file: Path) -> None:
        if file.exists():
            repair(file)
        self.before = read_notes(file)
        self._file = file.open("a")

    def add(self, **noted: Any) -> None:
        self._file.write(json.dumps(noted) + "\n")
        self._file.flush()


def read_notes(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that somebody may be writing at this moment; none if there is no file yet."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def rows_of(who: str, numbers: Iterable[int]) -> list[tuple[str, str]]:
    """(key, id), in written order."""
    return [(f"{who}-{n % KEYS}", f"{who}.{n}") for n in numbers]


def _table(rows: Sequence[tuple[str, str]]) -> pa.Table:
    keys, ids = zip(*rows, strict=True)
    return pa.table({"key": list(keys), "id": list(ids)})


# --- writing -----------------------------------------------------------------------------------------------------------


def write_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """One transaction over all the topics after the other, each a version; the first one again that nobody was told of.

    What a migration aborts (`--force`) is run again, and so is what spans a topic that was migrated and one that is about to.
    """
    notes = scene.notes(who)
    version = len([note for note in notes.before if "version" in note])
    app = f"{who} of {scene.folder.name}"
    with connect(scene.url) as cluster:
        while scene.working:
            rows = rows_of(who, range(version * ROWS, (version + 1) * ROWS))
            try:
                with cluster.begin(app=app, version=version) as transaction:
                    for i, topic in enumerate(topics):
                        transaction.append(topic, _table(rows[i :: len(topics)]))
                    transaction.commit()
            except (TxnConflict, OptionError) as error:
                _expected(error, several=len(topics) > 1)
                notes.add(again=version, why=type(error).__name__)
                time.sleep(PAUSE_SECONDS)
                continue
            notes.add(version=version)
            version += 1


def _expected(error: TxnConflict | OptionError, *, several: bool) -> None:
    """Raise it if it is an OptionError that a migration of one topic out of several does not explain."""
    if isinstance(error, OptionError) and not (several and "never spans both" in str(error)):
        raise error


def send_on(scene: Scene, who: str, topic: str) -> None:
    """Plain messages, and transactions of a row each once the topic takes no more of them. Each try is a row of its own."""
    notes = scene.notes(who)
    tried = len([note for note in notes.before if "sends" in note])
    with connect(scene.url) as cluster:
        while scene.working:
            ((key, name),) = rows_of(who, [tried])
            notes.add(sends=tried)
            try:
                with cluster.producer(topic, plain=not _migrates(cluster, topic)) as producer:
                    producer.send({"key": key, "id": name})
                notes.add(sent=tried)
            except (TopicSealed, TxnConflict):
                notes.add(refused=tried)
            except OptionError as error:  # it was migrated between the look and the producer
                if "in transactions alone" not in str(error):
                    raise
                notes.add(refused=tried)
            tried += 1
            time.sleep(PAUSE_SECONDS)


def _migrates(cluster: Cluster, topic: str) -> bool:
    """Whether a persistent topic goes on, or soon will, as a topic://."""
    described = cluster.topics.describe(topic)
    assert isinstance(described, PersistentDescription)
    return described.migrated_to is not None


# --- acknowledging -----------------------------------------------------------------------------------------------------


def acknowledge_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """Deliver rows, note them, acknowledge them, note that; until nothing is left."""
    notes = scene.notes(who)
    with connect(scene.url) as cluster, cluster.consumer(list(topics), who) as consumer:
        while True:
            last = not scene.reading
            for batch in consumer.batches(timeout=IDLE_SECONDS):
                names = [[batch.topic, row["key"], row["id"]] for row in batch.rows.to_pylist()]
                notes.add(delivered=names)
                consumer.ack(batch)
                notes.add(acked=[name for _, _, name in names])
            if last and consumer.lag().rows == 0:
                notes.add(left=0)
                return


def move_on(scene: Scene, who: str, source: str, target: str) -> None:
    """Take what a subscription has still to get, and write it to another topic with its acknowledgement: one transaction.

    Whoever is killed leaves claims behind, until they are past their deadline: an AckConflict is a reason to begin anew.
    """
    notes = scene.notes(who)
    with connect(scene.url) as cluster:
        while True:
            last = not scene.reading
            moved = _move(cluster, notes, who, source, target)
            if not moved and last and cluster.subscriptions.describe(source, who).lag.rows == 0:
                notes.add(left=0)
                return
            time.sleep(PAUSE_SECONDS)


def _move(cluster: Cluster, notes: Notes, who: str, source: str, target: str) -> bool:
    """Move what is there, each batch in a transaction, and note it; whether anything was."""
    moved = False
    with cluster.consumer(source, who) as consumer:
        for batch in consumer.batches(timeout=0):
            try:
                with cluster.begin() as transaction:
                    transaction.append(target, batch.rows)
                    consumer.ack(batch, txn=transaction)
                    transaction.commit()
            except (AckConflict, TxnConflict, OptionError) as error:
                if not isinstance(error, AckConflict):
                    _expected(error, several=True)
                return moved
            notes.add(moved=batch.rows.num_rows)
            moved = True
    return moved


# --- reading -----------------------------------------------------------------------------------------------------------


def stream_on(scene: Scene, who: str, topics: Sequence[str], limit: int | None = None) -> None:
    """Micro-batch by micro-batch, until all is done."""
    notes, options = scene.notes(who), {"serviceUrl": scene.url, "topics": json.dumps(list(topics))}
    for one in micro_batches(options, scene.folder / f"{who}.checkpoint", lambda: not scene.reading, limit):
        notes.add(batch=one.number, rows=[row for batch in one.found for row in seen(batch)])


def seen(batch: pa.RecordBatch) -> list[list[Any]]:
    """[segment, ledger, entry, index, key, id] of each row."""
    return [[row["__segment"], *map(int, row["__messageId"].split(":")), row["key"], row["id"]] for row in batch.to_pylist()]


def read_all(url: str, topics: Sequence[str]) -> list[list[Any]]:
    """One batch read of everything that is visible now, as `seen` gives it."""
    options = {"serviceUrl": url, "topics": json.dumps(list(topics)), "includeMetadata": "true"}
    reader = BatchReader(options, DefaultSource(options).schema())
    return [row for task in reader.partitions() for batch in reader.read(task) for row in seen(batch)]


def look_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """Whole reads, one after the other, until all is done."""
    notes = scene.notes(who)
    last = False
    while not last:
        last = not scene.reading
        notes.add(look=[row[5] for row in read_all(scene.url, topics)])
        time.sleep(PAUSE_SECONDS)


# --- migrating ---------------------------------------------------------------------------------------------------------


def migrate_on(scene: Scene, who: str, topics: Sequence[tuple[str, str]], segments: int, how: Sequence[float | None]) -> None:
    """Migrate one topic after the other: it waits so many SECONDS for what is open there, or (None) aborts it."""
    notes = scene.notes(who)
    with connect(scene.url) as cluster:
        for (name, to), wait in zip(topics, how, strict=True):
            began = time.monotonic()
            made = cluster.topics.migrate(name, to, segments=segments, wait=wait, force=wait is None)
            notes.add(migrated=name, to=made.name, took_ms=round(1000 * (time.monotonic() - began)), waited=wait is not None)
