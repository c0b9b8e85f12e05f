"""Migrations of persistent topics under load: killed, put to sleep, doubled and failed at every store call.

While a topic migrates others write to it (transactions, plain messages), read it, acknowledge its rows and move them
(`migration_workload`). Everything here runs in processes of its own (`forks`); `migration_checker` takes what they recorded.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from conformance.chaos import migration_workload as parties
from conformance.chaos.crashing import Crash, Fate, When
from conformance.chaos.driver import Place, crashing_client, make, unfinished
from conformance.chaos.forks import Died, Forks
from conformance.chaos.left_open import leave_behind, open_in
from conformance.chaos.migration_checker import Cast, checked
from conformance.chaos.migration_workload import ROWS, SCHEMA, Scene
from conformance.chaos.reading import final_read, read_named
from conformance.history.files import read
from metadata.common.errors import TxnConflict, TxnSegmentError
from metadata.records.cluster_records import Settings
from metadata.records.names import persistent_name, topic_name
from txnsegment import connect

SETTINGS = Settings(
    txn_timeout_ms=3_000, deadline_allowance_ms=200, fold_after_registrations=16, fold_after_ms=1_000, header_retention_ms=5_000
)
"""What a killed mover has claimed is free again after three seconds."""
WAIT_SECONDS = 60.0
LAST_SECONDS = 240.0
FAILURES = {"Unavailable", "UnknownOutcome", "OutcomeUnknown"}
"""What a migration may be told whose store call failed."""
FATES = (Fate.DIE, Fate.SLEEP, Fate.FAIL)
WAYS = (None, WAIT_SECONDS)
"""A migration aborts what is open, or waits for it so many seconds."""
WRITING = ("writer", "sender")
PARTIES = (*WRITING, "consumer", "stream")
"""Who is at work on a topic that migrates."""


@dataclass(frozen=True)
class Case:
    """What happened at one crash point. `hit`: the migration got there. `wrong`: in words."""

    what: str
    hit: bool
    wrong: list[str]


# --- the parts that run in processes of their own -----------------------------------------------------------------------


def prepare(url: str, topics: Sequence[str], subscriptions: Sequence[str]) -> None:
    """Make the topics and on each of them the subscriptions."""
    with connect(url) as cluster:
        for topic in topics:
            cluster.topics.create(topic, schema=SCHEMA)
            for name in subscriptions:
                cluster.subscriptions.create(topic, name)


@dataclass
class Migrated:
    """What one migration reports. `error`: class of what it raised. `calls`: of the store, in order."""

    to: str | None = None
    error: str | None = None
    message: str = ""
    calls: list[str] = field(default_factory=list)


def migrate(url: str, name: str, to: str, segments: int, wait: float | None, crash: Crash | None = None) -> Migrated:
    """As `txnsegment topics migrate`: it waits so many SECONDS for what is open, or (None) aborts it."""
    client, store = crashing_client(url, crash)
    done = Migrated(calls=store.calls)
    try:
        made = client.instream.migrator.migrate(
            persistent_name(name), topic_name(to), segments=segments, wait_ms=round(1000 * (wait or 0)), force=wait is None
        )
        done.to = str(made.name)
    except TxnSegmentError as error:
        done.error, done.message = type(error).__name__, str(error)
    client.close()
    return done


def at_work(scene: Scene, topic: str) -> list[str]:
    """Everybody at once on one topic, in threads of one process; tracebacks of who failed. Who reads ends after who writes."""
    wrong: list[str] = []

    def run(party: Callable[[], None]) -> None:
        try:
            party()
        except Exception:
            wrong.append(traceback.format_exc(limit=-4, chain=False))
            scene.end_work()  # whoever waits for work is to hear of it
            scene.end_reading()

    writing = (partial(parties.write_on, scene, "writer", [topic]), partial(parties.send_on, scene, "sender", topic))
    reading = (
        partial(parties.acknowledge_on, scene, "consumer", [topic]),
        partial(parties.stream_on, scene, "stream", [topic], 2 * ROWS),
    )
    threads = [threading.Thread(target=run, args=(party,)) for party in (*writing, *reading)]
    for thread in threads:
        thread.start()
    for thread in threads[: len(writing)]:
        thread.join()
    scene.end_reading()
    for thread in threads:
        thread.join()
    return wrong


def judge(place: Place, folder: Path, cast: Cast) -> list[str]:
    """Sweep, read everything by the old names and the new ones, judge it with what the parties recorded."""
    found: list[str] = []
    names = [name for pair in cast.successors.items() for name in pair]
    for name in names:
        found += unfinished(dataclasses.replace(place, topic=name))
    final = [final_read(place.url, name) for name in names]
    return found + checked(cast, [read(file) for file in sorted(folder.glob("*.jsonl"))], final)


def die_midway(scene: Scene, who: str, topics: Sequence[tuple[str, str]], segments: int, how: Sequence[float | None]) -> None:
    """As `migration_workload.migrate_on`, but be killed in the second topic: right after the first entry that it appends to a log,
    its SEAL or the end of a transaction that is in its way. Raises Died, with what it was told, if it comes to its end.
    """
    parties.migrate_on(scene, who, topics[:1], segments, how[:1])
    told = migrate(scene.url, *topics[1], segments, how[1], Crash(1, When.AFTER, of="write Append"))
    raise Died(f"The migration of {topics[1][0]} was not killed, and was told {told.error or told.to}: {told.message}")


# --- crash points -------------------------------------------------------------------------------------------------------


def points(forks: Forks, place: Place, folder: Path, fate: Fate, *, twins: bool = False, every: int = 1) -> Iterator[Case]:
    """A topic for each store call of a migration (or each `every`-th), with everybody at work on it: the migration meets its fate
    after it (before the next one the store is the same), and another one goes on. `twins`: that one runs beside it from the
    beginning.

    All of it twice: by a migration that aborts what is open, and by one that waits for it; the first case of each has no fate, and
    counts the calls. In a cluster of its own, which is made here.
    """
    forks.call(make, place, SETTINGS)
    for wait in WAYS:

        def case(number: int, crash: Crash | None, wait: float | None = wait) -> tuple[Migrated | None, Case]:
            way = f"{'aborts' if wait is None else 'waits'}{number}"
            name, to = f"persistent://public/default/{way}", f"topic://public/default/{way}"
            notes = folder / f"{fate.name}-{twins}-{way}"
            return _case(forks, place, notes, name, to, crash, wait, number, twins=twins)

        counted, first = case(0, None)
        assert counted is not None
        yield first
        for number, call in enumerate(range(every, len(counted.calls) + 1, every), 1):
            yield case(number, Crash(call, When.AFTER, fate))[1]


def _case(
    forks: Forks,
    place: Place,
    folder: Path,
    name: str,
    to: str,
    crash: Crash | None,
    wait: float | None,
    number: int,
    *,
    twins: bool,
) -> tuple[Migrated | None, Case]:
    scene, segments = Scene(place.url, folder), 1 + number % 2
    scene.begin()
    forks.call(prepare, place.url, [name], ["consumer"])
    others = forks.start(at_work, scene, name)
    started = [others]
    told, hit, found = None, False, []
    try:
        scene.wait_for_work(PARTIES, [others])
        if wait is None and number % 4 < 2:  # nobody waits for it in vain: who aborts takes it, too
            forks.call(leave_behind, place.url, name)
        victim = forks.start(migrate, place.url, name, to, segments, wait, crash)
        beside = forks.start(migrate, place.url, name, to, segments, wait) if twins else None
        started += [victim, *([] if beside is None else [beside])]
        if crash is None:
            told = victim.result(LAST_SECONDS)
            found += _refused("the migration", told, ())
        elif crash.fate is Fate.DIE:
            hit = victim.killed()
        elif crash.fate is Fate.FAIL:
            failed: Migrated = victim.result(LAST_SECONDS)
            hit = len(failed.calls) >= crash.call
            found += _refused("the one that failed", failed, FAILURES)
        else:
            hit = victim.stopped()
        if beside is not None:
            found += _refused("the twin", beside.result(LAST_SECONDS), ())
        found += _refused("the successor", forks.call(migrate, place.url, name, to, segments, wait), ())
        if crash is not None and crash.fate is Fate.SLEEP:
            if hit:
                victim.send(signal.SIGCONT)
            found += _refused("the one that slept", victim.result(LAST_SECONDS), ())
        scene.wait_for_work(WRITING, [others], more=2)
        scene.end_work()
        found += others.result(LAST_SECONDS)
    finally:
        for child in started:
            child.stop()
    cast = Cast(
        {name: to},
        writers={"writer": [name]},
        senders={"sender": name},
        consumers={"consumer": [name]},
        streams={"stream": [name]},
    )
    found += forks.call(judge, dataclasses.replace(place, topic=name), folder, cast)
    what = "nothing happens" if crash is None else f"{crash.when.value} store call {crash.call}"
    return told, Case(f"{what} ({name}, {'aborts' if wait is None else 'waits'})", hit, found)


def _refused(who: str, told: Migrated, allowed: Sequence[str] | set[str]) -> list[str]:
    return [] if told.error is None or told.error in allowed else [f"{who} was told {told.error}: {told.message}"]


# --- open transactions --------------------------------------------------------------------------------------------------


def refusals(place: Place) -> list[str]:
    """What is open in the way is named, and nothing was done; it is waited for; it is aborted. What is wrong, in words."""
    make(place, SETTINGS)
    return [what for wait in WAYS for what in _refused_then(place, wait)]


def _refused_then(place: Place, wait: float | None) -> list[str]:
    name = f"persistent://public/default/{'aborts' if wait is None else 'waits'}"
    to = name.replace("persistent://", "topic://")
    prepare(place.url, [name], ["s"])
    with connect(place.url) as cluster:
        found = []
        coordinator, topics = cluster.client.instream.coordinator, cluster.client.instream.topics
        txn = open_in(cluster, name, "k", "open.0", timeout_ms=60_000)
        before = topics.get(persistent_name(name)).layout
        for seconds in (0.0, 0.5):
            told = _migrated_by(place.url, name, to, seconds)
            if told.error != "TxnConflict" or txn not in told.message:
                found.append(f"{txn} is open in {name}, and the migration was told {told.error}: {told.message}")
        if topics.get(persistent_name(name)).layout != before or cluster.client.topics.find(topic_name(to)) is not None:
            found.append(f"a migration of {name} that was refused has done something")
        with cluster.producer(name, plain=True) as producer:
            producer.send({"key": "k", "id": "plain.0"})
        ending = threading.Timer(0.5, partial(coordinator.end, txn, commit=True))
        if wait is not None:
            ending.start()
        found += _refused("the one that goes on", migrate(place.url, name, to, 1, wait), ())
        if wait is not None:
            ending.join()
        else:
            with suppress(TxnConflict):
                coordinator.end(txn, commit=True)
                found.append(f"{txn} committed after it was aborted")
    rows = [row.id for row in read_named(place.url, [to], "reader").rows]
    if rows != ["plain.0"] * (wait is None) + ["open.0", "plain.0"] * (wait is not None):
        found.append(f"{to} holds {rows}")
    return found


def _migrated_by(url: str, name: str, to: str, wait: float) -> Migrated:
    """By the way of the face: neither waiting for long nor aborting."""
    with connect(url) as cluster:
        try:
            return Migrated(cluster.topics.migrate(name, to, wait=wait).name)
        except TxnSegmentError as error:
            return Migrated(None, type(error).__name__, str(error))
