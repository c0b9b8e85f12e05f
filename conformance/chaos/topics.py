"""Transactions over four topics in two namespaces, acknowledgements included, under SIGKILL: never a part of one, nothing twice.

A mover takes what a subscription has still to get, a batch of eight rows at a time, and writes two rows of it to each of four
topics: one transaction, through the real sink (`conformance.harness.spark_driver`). It is killed, put to sleep or failed before and
after each of its store calls, while it stages, and at random; its successor goes on. Whoever looks must see whole batches, and a
batch in the topics iff it is acknowledged. Everything here runs in processes of its own (`forks`).
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

from conformance.chaos.crash_points import AROUND
from conformance.chaos.crashing import Crash, Fate, When
from conformance.chaos.driver import CONFLICTS, Place, crashing_client, make, unfinished
from conformance.chaos.forks import Child, Forks
from conformance.harness.spark_driver import read_batch, rows_of, spark_write
from metadata.client.client import Client
from metadata.common.errors import TxnSegmentError
from spark_txn_source.options import ReadOptions
from txnsegment import connect
from txnsegment.positions import unread
from txnsegment.spark_transaction import SparkTransaction

INPUT = "topic://public/default/in"
OUTPUTS = ("topic://acme/north/a", "topic://acme/north/b", "topic://acme/south/c", "topic://acme/south/d")
NAME = "mover"
"""The subscription, and the application."""
ROWS = 8
"""Of a batch: two for each topic."""
SCHEMA = pa.schema([("id", pa.int64()), ("batch", pa.int64())])
ALLOWED = CONFLICTS | {"AckConflict"}
"""What a zombie may be told: each says that nothing of this attempt counts, or that running it again is safe."""


def prepare(place: Place, batches: int) -> None:
    """Make the cluster, the input with so many batches, and the topics; some have several segments."""
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


@dataclass
class Moved:
    """What one mover reports. `error`: class of what a transaction raised. `calls`: of the store, in order."""

    batches: int = 0
    error: str | None = None
    message: str = ""
    calls: list[str] = field(default_factory=list)


def move(url: str, version: int, batches: int, crash: Crash | None = None, kill_while_staging: int | None = None) -> Moved:
    """Move so many batches, or all there are. `crash`: at a store call of its driver; `kill_while_staging`: before the write to the
    topic of that number is committed (the four tasks' parts are there by then, the manifests of the topics before it too).
    """
    client, store = crashing_client(url, crash)
    moved = Moved(calls=store.calls)
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
            moved.batches += 1
    except TxnSegmentError as error:
        moved.error, moved.message = type(error).__name__, str(error)
    client.close()
    return moved


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _take(client: Client, txn: SparkTransaction, url: str) -> list[tuple[int, int]]:
    """The rows of the next batch of the input, acknowledged in the transaction."""
    given = {"serviceUrl": url, "path": INPUT, "subscription": NAME}
    (everything,) = unread(client, ReadOptions.parse(given, streaming=False)).ranges
    end = min(everything.end, everything.start + 1)  # one registration is one batch
    found = unread(client, ReadOptions.parse({**given, "endingOffsets": f'{{"log":{end}}}'}, streaming=False))
    txn.acknowledge(found.acks)
    return _rows({"serviceUrl": url, "path": INPUT, **found.options()})


def _rows(options: dict[str, str]) -> list[tuple[int, int]]:
    """One batch read by the real source."""
    return [(row["id"], row["batch"]) for row in rows_of(read_batch(options))]


# --- looking -------------------------------------------------------------------------------------------------------


def wrong(url: str, batches: int, *, moved: int | None = None) -> list[str]:
    """What is wrong with what is visible now, in words. `moved`: exactly so many batches must be there.

    The cursors are read before the topics and after them: what is acknowledged must be there by then, and what is there
    acknowledged.
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
    """What somebody saw who looked all the time."""

    times: int = 0
    wrong: list[str] = field(default_factory=list)


def look(url: str, batches: int, stop: Path) -> Looked:
    """Look as long as `stop` does not exist."""
    seen = Looked()
    while not stop.exists():
        seen.wrong += wrong(url, batches)
        seen.times += 1
    return seen


# --- crash points ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What happened at one crash point. `hit`: the mover got there."""

    what: str
    hit: bool
    wrong: list[str]


def points(forks: Forks, place: Place, fate: Fate, whens: Sequence[When] = AROUND, *, every: int = 1) -> Iterator[Case]:
    """A batch for each store call of a mover (or each `every`-th): it meets its fate there, and its successor moves the batch.

    With SIGKILL also while it stages, between its writes. In clusters of its own, which are made here.
    """
    forks.call(prepare, place, 1)
    calls: int = len(forks.call(move, place.url, 1, 1).calls)
    cases: list[tuple[Crash | None, int | None]] = [
        (Crash(call, when, fate), None) for call in range(1, calls + 1, every) for when in whens
    ]
    if fate is Fate.DIE:
        cases += [(None, number) for number in range(len(OUTPUTS))]
    name = fate.name.lower()
    ledgers = None if place.ledgers is None else f"{place.ledgers}-{name}"
    cluster = dataclasses.replace(place, url=f"{place.url}-{name}", ledgers=ledgers)
    forks.call(prepare, cluster, len(cases))
    for done, (crash, stage) in enumerate(cases):
        then = (cluster, 10 * (done + 1) + 1, len(cases), done)
        mover = forks.start(move, cluster.url, 10 * (done + 1), 1, crash, stage)
        hit, found = FATES[fate](forks, mover, crash, then)
        where = f"while it stages for topic {stage}" if crash is None else f"{crash.when.value} store call {crash.call}"
        yield Case(where, hit, found)


Then = tuple[Place, int, int, int]
"""What the successor is given: the cluster, its version, how many batches there are, how many were moved before."""


def _killed(forks: Forks, mover: Child, crash: Crash | None, then: Then) -> tuple[bool, list[str]]:
    return mover.killed(), forks.call(_successor, *then)


def _slept(forks: Forks, mover: Child, crash: Crash | None, then: Then) -> tuple[bool, list[str]]:
    """The successor runs while it sleeps; then it wakes."""
    hit = mover.stopped()
    try:
        found: list[str] = forks.call(_successor, *then)
    finally:
        if hit:
            mover.send(signal.SIGCONT)
    told: Moved = mover.result()
    if told.error is not None and told.error not in ALLOWED:
        found.append(f"the zombie was told {told.error}: {told.message}")
    place, _, batches, done = then
    return hit, found + forks.call(_after, place, batches, done + 1)


def _failed(forks: Forks, mover: Child, crash: Crash | None, then: Then) -> tuple[bool, list[str]]:
    outcome: Moved = mover.result()
    return crash is not None and len(outcome.calls) >= crash.call, forks.call(_successor, *then)


FATES = {Fate.DIE: _killed, Fate.SLEEP: _slept, Fate.FAIL: _failed}


def _successor(place: Place, version: int, batches: int, done: int) -> list[str]:
    """Look; move the batch, unless the one before did; look again."""
    found = wrong(place.url, batches)
    if len(_rows({"serviceUrl": place.url, "path": INPUT, "subscription": NAME})) == (batches - done) * ROWS:
        moved = move(place.url, version, 1)
        if moved.error is not None:
            found.append(f"the successor was told {moved.error}: {moved.message}")
    return found + _after(place, batches, done + 1)


def _after(place: Place, batches: int, moved: int) -> list[str]:
    return unfinished(place) + wrong(place.url, batches, moved=moved)


# --- at random -------------------------------------------------------------------------------------------------------


@dataclass
class Stormed:
    """What came of random kills."""

    kills: int = 0
    batches: int = 0
    looks: int = 0
    wrong: list[str] = field(default_factory=list)


def storm(forks: Forks, place: Place, folder: Path, kills: int, rng: random.Random) -> Stormed:
    """Movers that go on where the one before was killed, at random moments, and somebody who looks on."""
    batches = 20 * kills
    forks.call(prepare, place, batches)
    stop = folder / "stop"
    observer = forks.start(look, place.url, batches, stop)
    report = Stormed()
    for attempt in itertools.count(1):
        mover = forks.start(move, place.url, attempt * batches, batches)
        if report.kills < kills and not mover.ended(rng.uniform(0.1, 1.5)):
            mover.stop()
            report.kills += 1
            continue
        told: Moved = mover.result(600.0)
        report.wrong += [] if told.error is None else [f"the last mover was told {told.error}: {told.message}"]
        break
    stop.touch()
    seen: Looked = observer.result()
    report.looks, report.batches = seen.times, batches
    report.wrong += seen.wrong + forks.call(_after, place, batches, batches)
    return report
