"""The workload of a migration. Its parties write, read, acknowledge and move the rows of `persistent://` topics, which migrate to
`topic://` meanwhile.

Each party records its requests, the replies and the rows that it got, in a history file. A process of a party may be killed at any
moment; another process then continues the party's work and the file. No party is informed of a migration. All parties use the old
names of the topics, also after the migration.

The `id` of a row is `<party>.<seq>`. The rows of a key are written in the order of `seq`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from conformance.history.files import Resumed, shortened
from conformance.history.format import Ack, Commit, Drained, Plan, Poll, Read, Row, Start, Told, Written
from conformance.scenarios.forks import Child, Died
from conformance.scenarios.history import now
from conformance.scenarios.reading import micro_batches, named_rows, position_of, read_named
from metadata.common.errors import AckConflict, OptionError, TopicSealed, TxnConflict, TxnSegmentError
from metadata.records.names import is_persistent
from txnsegment import Cluster, connect
from txnsegment.consumer import Consumer
from txnsegment.messages import Batch
from txnsegment.topics import PersistentDescription

ROWS, KEYS = 6, 3
"""The number of rows of each transaction, and the number of keys of each writer. No key has two writers."""
SCHEMA = "key string, id string"
WORK = ('"said":"committed"', '"event":"poll"', '"event":"read"')
"""Texts in the lines of a history. An event counts as a completed piece of work if its line contains one of them."""
WORK_SECONDS = 120.0
PAUSE_SECONDS = 0.02
IDLE_SECONDS = 0.3
"""How long a consumer waits for more rows before it checks whether all work is done."""


@dataclass(frozen=True)
class Scene:
    """What the parties share. `url`: the service URL of the cluster. `folder`: the folder of the histories. The writers end when
    the file `working` is removed from this folder, and the readers end when the file `reading` is removed.
    """

    url: str
    folder: Path

    def history(self, who: str) -> Resumed:
        return Resumed(self.folder / f"{who}.jsonl", Start(now(), who))

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
        """Return how many pieces of work (`WORK`) a party has recorded so far. Only complete lines count, since the party may just
        be writing a line.
        """
        file = self.folder / f"{who}.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return sum(any(word in line for word in WORK) for line in lines)

    def end_work(self) -> None:
        (self.folder / "working").unlink(missing_ok=True)

    def end_reading(self) -> None:
        (self.folder / "reading").unlink(missing_ok=True)

    def wait_for_work(self, names: Iterable[str], children: Collection[Child], more: int = 1) -> None:
        """Wait until each of these parties has recorded `more` further pieces of work. The first of them may have begun before this
        call. So `more` must be 2 if one whole piece of work shall begin after this call.

        `children`: the processes that do the work. Raises Died if one of them ends, or if the work takes longer than
        `WORK_SECONDS`.
        """
        wanted = {name: self.done(name) + more for name in names}
        until = time.monotonic() + WORK_SECONDS
        while idle := [name for name, count in wanted.items() if self.done(name) < count]:
            for child in children:
                if child.ended(0):
                    raise Died(f"Nobody works any more ({', '.join(idle)} are waited for): {child.result()}")
            if time.monotonic() > until:
                raise Died(f"{', '.join(idle)} recorded less than {more} pieces of work in {WORK_SECONDS:g} s.")
            time.sleep(PAUSE_SECONDS)


def rows_of(who: str, numbers: Iterable[int]) -> list[tuple[str, str]]:
    """Return (key, id) of the rows of the party `who` with these numbers, in the order in which they are written."""
    return [(f"{who}-{n % KEYS}", f"{who}.{n}") for n in numbers]


def _table(rows: Sequence[tuple[str, str]]) -> pa.Table:
    keys, ids = zip(*rows, strict=True)
    return pa.table({"key": list(keys), "id": list(ids)})


def _told(history: Resumed, call: str, error: TxnSegmentError | None = None, *, said: str = "committed") -> None:
    history.add(Told(now(), call, said, error=None if error is None else type(error).__name__))


# --- writing -----------------------------------------------------------------------------------------------------------


def write_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """Run the party of a writer: commit transactions over all of `topics`, one version after the other, until the writers shall
    end. A new process continues with the first version that is not recorded as committed.

    A version is written again if a migration has aborted its transaction (`--force`), or if one of the topics has migrated and
    another has not.
    """
    history = scene.history(who)
    version = sum(isinstance(event, Told) and event.said == "committed" for event in history.before)
    attempt = sum(isinstance(event, Commit) for event in history.before)
    app = f"{who} of {scene.folder.name}"
    with connect(scene.url) as cluster:
        while scene.working:
            rows = rows_of(who, range(version * ROWS, (version + 1) * ROWS))
            by_topic = {topic: rows[i :: len(topics)] for i, topic in enumerate(topics)}
            written = tuple(Written(name, key, topic) for topic, some in by_topic.items() for key, name in some)
            call, attempt = f"{who}-{version}-{attempt}", attempt + 1
            history.add(Commit(now(), call, who, app, "", version, written))
            try:
                with cluster.begin(app=app, version=version) as transaction:
                    for topic, some in by_topic.items():
                        transaction.append(topic, _table(some))
                    transaction.commit()
            except (TxnConflict, OptionError) as error:
                _expected(error, several=len(topics) > 1)
                _told(history, call, error, said="unknown")
                time.sleep(PAUSE_SECONDS)
                continue
            _told(history, call)
            version += 1


def _expected(error: TxnConflict | OptionError, *, several: bool) -> None:
    """Raise the error unless it is expected. A TxnConflict is expected. If the transaction has `several` topics, an OptionError is
    also expected that says that some of these topics have migrated and others have not.
    """
    if isinstance(error, OptionError) and not (several and "never spans both" in str(error)):
        raise error


def send_on(scene: Scene, who: str, topic: str) -> None:
    """Run the party of a sender: send one row after the other as a plain message. When the topic migrates, which ends plain
    messages, send each row in a transaction. A row whose sending fails is not sent again.
    """
    history = scene.history(who)
    tried = sum(isinstance(event, Commit) for event in history.before)
    with connect(scene.url) as cluster:
        while scene.working:
            ((key, name),) = rows_of(who, [tried])
            history.add(Commit(now(), name, who, name, "", 0, (Written(name, key, topic),)))
            try:
                with cluster.producer(topic, plain=not _migrates(cluster, topic)) as producer:
                    producer.send({"key": key, "id": name})
                _told(history, name)
            except (TopicSealed, TxnConflict) as error:
                _told(history, name, error, said="failed")
            except OptionError as error:  # the topic was migrated after the check
                if "in transactions alone" not in str(error):
                    raise
                _told(history, name, error, said="failed")
            tried += 1
            time.sleep(PAUSE_SECONDS)


def _migrates(cluster: Cluster, topic: str) -> bool:
    """Return whether a persistent topic has a successor: it has migrated, or its migration has begun."""
    described = cluster.topics.describe(topic)
    assert isinstance(described, PersistentDescription)
    return described.migrated_to is not None


# --- acknowledging -----------------------------------------------------------------------------------------------------


class Life:
    """Records what one consumer gets and acknowledges. Rows are recorded before the process does anything with them."""

    def __init__(self, history: Resumed, who: str, topics: Sequence[str]) -> None:
        self._history, self._who, self._topics = history, who, tuple(topics)
        self._name, self._given = f"{who} {os.getpid()} {now()}", 0

    def batches(self, consumer: Consumer, timeout: float) -> Iterator[Batch]:
        began = now()
        for batch in consumer.batches(timeout=timeout):
            values = batch.rows.to_pylist()
            rows = tuple(
                Row(row["id"], batch.segment, position_of(at), row["key"], batch.txn)
                for at, row in zip(batch.ids, values, strict=True)
            )
            self._history.add(Poll(now(), began, self._name, self._given, self._topics, rows, subscription=self._who))
            self._given += 1
            yield batch
            began = now()

    def acked(self, batch: Batch) -> None:
        ends = position_of(batch.ids[0]), position_of(batch.ids[-1])
        self._history.add(Ack(now(), batch.segment, self._who, "acked", (ends,)))


def acknowledge_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """Run the party of a consumer: get rows and acknowledge them, until the file `reading` is gone and no row is unacknowledged."""
    history = scene.history(who)
    life = Life(history, who, topics)
    with connect(scene.url) as cluster, cluster.consumer(list(topics), who) as consumer:
        while True:
            began, last = now(), not scene.reading
            for batch in life.batches(consumer, IDLE_SECONDS):
                consumer.ack(batch)
                life.acked(batch)
            if last and consumer.lag().rows == 0:
                history.add(Drained(now(), began, who, tuple(topics)))
                return


def move_on(scene: Scene, who: str, source: str, target: str) -> None:
    """Run the party of a mover: write the unacknowledged rows of the subscription `who` of `source` to `target`. The transaction
    that writes rows also acknowledges them.

    A mover that is killed may leave pending acks. Until the deadline of its transaction, the next mover gets an AckConflict for
    these rows, and tries again.
    """
    history = scene.history(who)
    with connect(scene.url) as cluster:
        while True:
            began, last = now(), not scene.reading
            moved = _move(cluster, history, who, source, target)
            if not moved and last and cluster.subscriptions.describe(source, who).lag.rows == 0:
                history.add(Drained(now(), began, who, (source,), target))
                return
            time.sleep(PAUSE_SECONDS)


def _move(cluster: Cluster, history: Resumed, who: str, source: str, target: str) -> bool:
    """Move the rows that are available, each batch in one transaction. Return whether any rows were moved.

    In the history, moving a batch is version 0 of an application that is named after the batch. So if two processes move the same
    batch, the checker finds a version that was committed twice.
    """
    moved, life = False, Life(history, who, [source])
    with cluster.consumer(source, who) as consumer:
        for batch in life.batches(consumer, 0):
            rows = tuple(Written(row["id"], row["key"], target) for row in batch.rows.to_pylist())
            call = f"{who} {now()}"
            history.add(Commit(now(), call, who, f"{who} {batch.segment} {batch.ids[0]}", "", 0, rows))
            try:
                with cluster.begin() as transaction:
                    transaction.append(target, batch.rows)
                    consumer.ack(batch, txn=transaction)
                    transaction.commit()
            except (AckConflict, TxnConflict, OptionError) as error:
                if not isinstance(error, AckConflict):
                    _expected(error, several=True)
                _told(history, call, error, said="unknown")
                return moved
            _told(history, call)
            life.acked(batch)
            moved = True
    return moved


# --- reading -----------------------------------------------------------------------------------------------------------


def stream_on(scene: Scene, who: str, topics: Sequence[str], limit: int | None = None) -> None:
    """Run the party of a stream: read one micro-batch after the other, until the file `reading` is gone and no rows are left.
    Record a `Poll` for each micro-batch. At the end, record a `Plan` with equal start and end, since nothing more is to be read. By
    then all topics have migrated, so one number in the cluster's log says how far the stream has read.
    """
    history, asked = scene.history(who), 0.0

    def over() -> bool:
        nonlocal asked
        asked = now()
        return not scene.reading

    def top(rows: Iterable[Row]) -> int:
        return max((row.position[0] for row in rows if not is_persistent(row.segment)), default=0)

    reached = max((top(event.rows) for event in history.before if isinstance(event, Poll)), default=0)
    options = {"serviceUrl": scene.url, "topics": json.dumps(list(topics))}
    for one in micro_batches(options, scene.folder / f"{who}.checkpoint", over, limit):
        rows = named_rows(one.found)
        history.add(Poll(now(), one.began, who, one.number, tuple(topics), rows, ordered=False))
        reached = max(reached, top(rows))
    history.add(Plan(now(), asked, who, tuple(topics), reached, reached))


def look_on(scene: Scene, who: str, topics: Sequence[str]) -> None:
    """Run the party of a looker: read all rows again and again, until the file `reading` is gone. Record each read."""
    history = scene.history(who)
    before: Read | None = None
    last = False
    while not last:
        last = not scene.reading
        whole = read_named(scene.url, topics, who)
        history.add(shortened(before, whole))
        before = whole
        time.sleep(PAUSE_SECONDS)


# --- migrating ---------------------------------------------------------------------------------------------------------


def migrate_on(scene: Scene, who: str, topics: Sequence[tuple[str, str]], segments: int, how: Sequence[float | None]) -> None:
    """Migrate the topics, given as (old name, new name), one after the other. `how`: for each topic, the seconds for which its
    migration waits for open transactions; None: the migration aborts them. Write the time that each migration took (ms) to the file
    `<who>-ms`.
    """
    with connect(scene.url) as cluster:
        for (name, to), wait in zip(topics, how, strict=True):
            began = now()
            cluster.topics.migrate(name, to, segments=segments, wait=wait, force=wait is None)
            with (scene.folder / f"{who}-ms").open("a") as took:
                took.write(f"{round(now() - began)}\n")
