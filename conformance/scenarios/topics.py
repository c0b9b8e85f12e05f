"""Transactions with acknowledgements over four topics in two namespaces, under SIGKILL. No read may show a part of a transaction,
and no row may be there twice.

A mover takes eight unacknowledged rows of a subscription at a time. One transaction acknowledges them and writes two of them to
each of four topics, through the real sink (`conformance.harness.spark_driver`). A fault strikes the mover at each of its store
calls: the mover is killed or stopped, or the call fails. The mover is also killed while it stages, and at random moments. A new
mover continues its work. Every read must show whole batches. A batch must be in the four topics if and only if it is acknowledged.
All parties run in processes of their own (`forks`).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from conformance.harness.spark_driver import read_batch, rows_of, spark_write
from conformance.scenarios.commit_points import AROUND
from conformance.scenarios.crash_points import CONFLICTS, Case, CrashPoints, Outcome, meet, refused
from conformance.scenarios.crashing import Crash, When
from conformance.scenarios.driver import Place, crashing_client, make, unfinished
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Child, Forks
from conformance.scenarios.scenario import Scenario
from metadata.client.client import Client
from metadata.common.errors import TxnSegmentError
from spark_txn_source.options import ReadOptions
from txnsegment import connect
from txnsegment.positions import unread
from txnsegment.spark_transaction import SparkTransaction

INPUT = "topic://public/default/in"
OUTPUTS = ("topic://acme/north/a", "topic://acme/north/b", "topic://acme/south/c", "topic://acme/south/d")
NAME = "mover"
"""The name of the subscription and of the application."""
ROWS = 8
"""The number of rows of a batch: two for each of the four topics."""
SCHEMA = pa.schema([("id", pa.int64()), ("batch", pa.int64())])
ALLOWED = CONFLICTS | {"AckConflict"}
"""The errors that a zombie may get. After such an error, either the zombie's attempt can never commit, or its version can safely be
written again.
"""


def prepare(place: Place, batches: int) -> None:
    """Create the cluster, the input with `batches` batches, and the output topics, some of them with several segments."""
    make(place)
    with connect(place.url) as cluster:
        cluster.topics.create(INPUT, segments=2, key="id", schema="id bigint, batch bigint")
        cluster.subscriptions.create(INPUT, NAME)
        for number, topic in enumerate(OUTPUTS):
            key = "id" if number % 2 else None
            cluster.topics.create(topic, segments=1 + number % 3, key=key, schema="id bigint, batch bigint")
        for batch in range(batches):
            with cluster.begin() as txn:
                txn.append(INPUT, _table(batch, range(batch * ROWS, (batch + 1) * ROWS)))
                txn.commit()


def _table(batch: int, ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": list(ids), "batch": [batch] * len(ids)}, schema=SCHEMA)


def move(url: str, version: int, batches: int, crash: Crash | None = None, kill_while_staging: int | None = None) -> Outcome:
    """Move `batches` batches, or all that are left if these are fewer. `crash`: a fault at a store call of this process.
    `kill_while_staging`: the index of an output topic. The process kills itself during the write to this topic, after the tasks of
    this write and before its commit. At that moment the parts of this write and the manifests of the earlier writes exist.
    """
    client, store = crashing_client(url, crash)
    moved = Outcome(calls=store.calls)
    try:
        for each in range(batches):
            with SparkTransaction(client, app=NAME, version=version + each, timeout_ms=30_000) as txn:
                rows = _take(client, txn, url)
                if not rows:
                    break
                for number, topic in enumerate(OUTPUTS):
                    mine = [(row, batch) for row, batch in rows if row % len(OUTPUTS) == number]
                    table = pa.table(list(zip(*mine, strict=True)), schema=SCHEMA)
                    spark_write(txn.options, topic, table, between=_die if number == kill_while_staging else None)
            moved.done += 1
    except TxnSegmentError as error:
        moved.error, moved.message = type(error).__name__, str(error)
    client.close()
    return moved


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _take(client: Client, txn: SparkTransaction, url: str) -> list[tuple[int, int]]:
    """Acknowledge the next batch of the input in the transaction. Return the (id, batch) of its rows."""
    given = {"serviceUrl": url, "path": INPUT, "subscription": NAME}
    (everything,) = unread(client, ReadOptions.parse(given, streaming=False)).ranges
    end = min(everything.end, everything.start + 1)  # one registration is one batch
    found = unread(client, ReadOptions.parse({**given, "endingOffsets": f'{{"log":{end}}}'}, streaming=False))
    txn.acknowledge(found.acks)
    return _rows({"serviceUrl": url, "path": INPUT, **found.options()})


def _rows(options: dict[str, str]) -> list[tuple[int, int]]:
    """Run one batch read by the real source. Return the (id, batch) of its rows."""
    return [(row["id"], row["batch"]) for row in rows_of(read_batch(options))]


# --- looking -------------------------------------------------------------------------------------------------------


def wrong(url: str, batches: int, *, moved: int | None = None) -> list[str]:
    """Return what is wrong with the rows that are visible now, in words. `moved`: how many batches must be in the output topics;
    None: any number.

    The unacknowledged rows are read twice: before the output topics are read, and again afterwards. Each row that was acknowledged
    before must be in the output topics. Each row in the output topics must be acknowledged afterwards.
    """
    left = {"serviceUrl": url, "path": INPUT, "subscription": NAME}
    before = {row for row, _ in _rows(left)}
    seen = Counter(_rows({"serviceUrl": url, "topics": ",".join(OUTPUTS)}))
    after = {row for row, _ in _rows(left)}
    rows = {row for row, _ in seen}
    found = [f"row {row} of batch {batch} is there {count} times" for (row, batch), count in seen.items() if count != 1]
    for batch in sorted({batch for _, batch in seen}):
        torn = set(range(batch * ROWS, (batch + 1) * ROWS)) - rows
        found += [f"batch {batch} is torn: {sorted(torn)} are not there"] if torn else []
    lost = set(range(batches * ROWS)) - before - rows
    found += [f"acknowledged and not there: {sorted(lost)}"] if lost else []
    found += [f"there and not acknowledged: {sorted(rows & after)}"] if rows & after else []
    if moved is not None and len(rows) != moved * ROWS:
        found.append(f"{len(rows)} rows are there, not {moved * ROWS}")
    return found


@dataclass
class Looked:
    """How many checks an observer made, and what these checks found wrong."""

    times: int = 0
    wrong: list[str] = field(default_factory=list)


def look(url: str, batches: int, stop: Path) -> Looked:
    """Check the visible rows until `stop` exists."""
    seen = Looked()
    while not stop.exists():
        seen.wrong += wrong(url, batches)
        seen.times += 1
    return seen


# --- crash points ---------------------------------------------------------------------------------------------------


class TopicsPoints(CrashPoints):
    """Crash points of a mover. At each store call (or each `every`-th), a fault strikes a mover. Then a new mover moves the batch.

    With Fault.KILL there is also a case for each of the four topics, in which the mover is killed during the write to that topic.
    The scenario creates two clusters: one in which it counts the store calls of a move, and one for the cases.
    """

    def __init__(self, forks: Forks, place: Place, fault: Fault, whens: Sequence[When] = AROUND, *, every: int = 1) -> None:
        super().__init__()
        self.name = f"four topics, {fault}"
        self._forks, self._place, self.fault, self._whens, self._every = forks, place, fault, whens, every

    def cases(self) -> Iterator[Case]:
        forks, place = self._forks, self._place
        forks.call(prepare, place, 1)
        calls: int = len(forks.call(move, place.url, 1, 1).calls)
        cases: list[tuple[Crash | None, int | None]] = [
            (Crash(call, when, self.fault), None) for call in range(1, calls + 1, self._every) for when in self._whens
        ]
        if self.fault is Fault.KILL:
            cases += [(None, number) for number in range(len(OUTPUTS))]
        ledgers = None if place.ledgers is None else f"{place.ledgers}-{self.fault}"
        cluster = dataclasses.replace(place, url=f"{place.url}-{self.fault}", ledgers=ledgers)
        forks.call(prepare, cluster, len(cases))
        for done, (crash, stage) in enumerate(cases):
            mover = forks.start(move, cluster.url, 10 * (done + 1), 1, crash, stage)
            then = (cluster, 10 * (done + 1) + 1, len(cases), done)
            hit, found = meet(mover, crash, lambda then=then: forks.call(_successor, *then), allowed=ALLOWED)  # type: ignore[misc]
            if self.fault is Fault.STOP:
                found += forks.call(_after, cluster, len(cases), done + 1)
            yield Case(f"while it stages for topic {stage}" if crash is None else str(crash), hit, found)


def _successor(place: Place, version: int, batches: int, done: int) -> list[str]:
    """Check the rows. Move the batch, unless the mover that met the fault has moved it. Check the rows again. Return what is wrong.
    `done`: how many batches earlier cases have moved.
    """
    found = wrong(place.url, batches)
    if len(_rows({"serviceUrl": place.url, "path": INPUT, "subscription": NAME})) == (batches - done) * ROWS:
        found += refused("the successor", move(place.url, version, 1))
    return found + _after(place, batches, done + 1)


def _after(place: Place, batches: int, moved: int) -> list[str]:
    return unfinished(place) + wrong(place.url, batches, moved=moved)


# --- at random -------------------------------------------------------------------------------------------------------


class TopicsStorm(Scenario):
    """Movers are killed at random moments, and a new mover continues each time. Meanwhile an observer checks the visible rows."""

    name = "four topics, random kills"

    def __init__(self, forks: Forks, place: Place, folder: Path, kills: int, rng: random.Random) -> None:
        self._forks, self._place, self._stop, self._kills, self._rng = forks, place, folder / "stop", kills, rng
        self._batches = 20 * kills
        self._versions = itertools.count(self._batches, self._batches)
        self._running: list[Child] = []
        self.kills = self.looks = 0

    def setup(self) -> None:
        self._forks.call(prepare, self._place, self._batches)

    def start(self) -> None:
        self._observer = self._forks.start(look, self._place.url, self._batches, self._stop)
        self._mover = self._next()
        self._running = [self._observer, self._mover]

    def _next(self) -> Child:
        return self._forks.start(move, self._place.url, next(self._versions), self._batches)

    def faults(self) -> None:
        while self.kills < self._kills and not self._mover.ended(self._rng.uniform(0.1, 1.5)):
            self._mover.stop()
            self.kills += 1
            self._running[1] = self._mover = self._next()

    def check(self) -> list[str]:
        wrong = refused("the last mover", self._mover.result(600.0))
        self._stop.touch()
        seen: Looked = self._observer.result()
        self.looks = seen.times
        left: list[str] = self._forks.call(_after, self._place, self._batches, self._batches)
        return wrong + seen.wrong + left

    def figures(self) -> str:
        return f"{self.kills} kills, {self._batches} transactions, looked at {self.looks} times"

    def close(self) -> None:
        self._stop.touch()
        for child in self._running:
            child.stop()
