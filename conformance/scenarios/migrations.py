"""Migrations of persistent topics under load. A fault strikes the migrating process after one of its store calls: the process is
killed (also beside a twin) or stopped, or the call fails.

While a topic migrates, the parties of `migration_workload` write to it (transactions, plain messages), read it and acknowledge its
rows. They run in child processes (`forks`). `migration_checker` judges their histories.
"""

from __future__ import annotations

import dataclasses
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

from conformance.history.files import read
from conformance.scenarios import migration_workload as parties
from conformance.scenarios.crash_points import Case, CrashPoints, Outcome, meet, refused
from conformance.scenarios.crashing import Crash, When
from conformance.scenarios.dangling_transactions import leave_behind, open_in
from conformance.scenarios.driver import Place, crashing_client, make, unfinished
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Child, Died, Forks
from conformance.scenarios.migration_checker import Cast, checked
from conformance.scenarios.migration_workload import ROWS, SCHEMA, Scene
from conformance.scenarios.reading import final_read, read_named
from conformance.scenarios.scenario import Scenario
from metadata.common.errors import TxnConflict, TxnSegmentError
from metadata.records.cluster_records import Settings
from metadata.records.names import persistent_name, topic_name
from txnsegment import connect

SETTINGS = Settings(
    txn_timeout_ms=3_000, deadline_allowance_ms=200, fold_after_registrations=16, fold_after_ms=1_000, header_retention_ms=5_000
)
"""The transaction timeout is short, so that the transaction of a killed mover ends, with its pending acks, after three seconds."""
WAIT_SECONDS = 60.0
LAST_SECONDS = 240.0
FAILURES = {"Unavailable", "UnknownOutcome", "OutcomeUnknown"}
"""The errors that a migration may raise after one of its store calls failed."""
FAULTS = (Fault.KILL, Fault.STOP, Fault.FAIL, Fault.TWIN)
WAYS = (None, WAIT_SECONDS)
"""The values of `wait` in the cases. None: the migration aborts open transactions. A number: it waits for them (seconds)."""
WRITING = ("writer", "sender")
PARTIES = (*WRITING, "consumer", "stream")
"""The parties that work on a migrating topic."""


# --- the parts that run in processes of their own -----------------------------------------------------------------------


def prepare(url: str, topics: Sequence[str], subscriptions: Sequence[str]) -> None:
    """Create the topics, and these subscriptions for each topic."""
    with connect(url) as cluster:
        for topic in topics:
            cluster.topics.create(topic, schema=SCHEMA)
            for name in subscriptions:
                cluster.subscriptions.create(topic, name)


def migrate(url: str, name: str, to: str, segments: int, wait: float | None, crash: Crash | None = None) -> Outcome:
    """Do what `txnsegment topics migrate` does. `wait`: the seconds to wait for open transactions; None: abort them."""
    client, store = crashing_client(url, crash)
    done = Outcome(calls=store.calls)
    try:
        client.instream.migrator.migrate(
            persistent_name(name), topic_name(to), segments=segments, wait_ms=round(1000 * (wait or 0)), force=wait is None
        )
        done.done = 1
    except TxnSegmentError as error:
        done.error, done.message = type(error).__name__, str(error)
    client.close()
    return done


def at_work(scene: Scene, topic: str) -> list[str]:
    """Run all parties on one topic, in threads of this process. The readers end after the writers. Return tracebacks of errors."""
    wrong: list[str] = []

    def run(party: Callable[[], None]) -> None:
        try:
            party()
        except Exception:
            wrong.append(traceback.format_exc(limit=-4, chain=False))
            scene.end_work()  # all parties end, and with them this process; `wait_for_work` then raises Died
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
    """Sweep the cluster and read all rows of each topic, by its old and by its new name. Return what is wrong with these reads and
    with the histories of the parties.
    """
    found: list[str] = []
    names = [name for pair in cast.successors.items() for name in pair]
    for name in names:
        found += unfinished(dataclasses.replace(place, topic=name))
    final = [final_read(place.url, name) for name in names]
    return found + checked(cast, [read(file) for file in sorted(folder.glob("*.jsonl"))], final)


def die_midway(scene: Scene, who: str, topics: Sequence[tuple[str, str]], segments: int, how: Sequence[float | None]) -> None:
    """Migrate the first topic, as `migration_workload.migrate_on` does. Then begin to migrate the second topic, and kill this
    process after the first entry that this migration appends to a log: the SEAL, or the end of an open transaction. Raises Died,
    with the migration's result, if the process was not killed.
    """
    parties.migrate_on(scene, who, topics[:1], segments, how[:1])
    told = migrate(scene.url, *topics[1], segments, how[1], Crash(1, When.AFTER, of="write Append"))
    raise Died(f"The migration of {topics[1][0]} was not killed, and was told {told.error}: {told.message}")


# --- crash points -------------------------------------------------------------------------------------------------------


class MigrationPoints(CrashPoints):
    """Crash points of a migration. Each store call (or each `every`-th) has a case, with a topic of its own, on which all parties
    work. The fault strikes after the call. Then a second process migrates the same topic. With TWIN, a further process also
    migrates the topic, at the same time as the one that the fault strikes. No fault strikes before a call, since the store is then
    the same as after the previous call.

    There are two series of cases: in one the migrations abort open transactions, in the other they wait for them. The first case of
    each series has no fault; the store calls of its migration are counted. The scenario creates a cluster of its own.
    """

    reach = 0.5

    def __init__(self, forks: Forks, place: Place, folder: Path, fault: Fault, *, every: int = 1) -> None:
        super().__init__()
        self.name = f"migrations, {fault}"
        self._forks, self._place, self._folder, self._every = forks, place, folder, every
        self._twins, self._fault = fault is Fault.TWIN, Fault.KILL if fault is Fault.TWIN else fault

    def setup(self) -> None:
        self._forks.call(make, self._place, SETTINGS)

    def cases(self) -> Iterator[Case]:
        for wait in WAYS:
            with _Migrating(self._forks, self._place, self._folder, wait, 0) as unharmed:
                told = unharmed.migrate()
                yield unharmed.checked("nothing happens", refused("the migration", told), hit=True)
            for number, call in enumerate(range(self._every, len(told.calls) + 1, self._every), 1):
                crash = Crash(call, When.AFTER, self._fault)
                with _Migrating(self._forks, self._place, self._folder, wait, number) as case:
                    victim, twin = case.start(crash), case.start() if self._twins else None
                    hit, wrong = meet(victim, crash, case.go_on, twin=twin, allowed=(), failures=FAILURES)
                    yield case.checked(f"{crash}{' beside a twin' if self._twins else ''}", wrong, hit=hit)


class _Migrating:
    """One topic that migrates while all parties work on it. `wait`: the seconds for which the migration waits for open
    transactions; None: it aborts them.
    """

    def __init__(self, forks: Forks, place: Place, folder: Path, wait: float | None, number: int) -> None:
        way = f"{'aborts' if wait is None else 'waits'}{number}"
        self._name, self._to = f"persistent://public/default/{way}", f"topic://public/default/{way}"
        self._forks, self._place, self._wait, self._number = forks, place, wait, number
        self._scene = Scene(place.url, folder / way)
        self._started: list[Child] = []

    def __enter__(self) -> Self:
        self._scene.begin()
        self._forks.call(prepare, self._place.url, [self._name], ["consumer"])
        self._others = self._forks.start(at_work, self._scene, self._name)
        self._started.append(self._others)
        try:
            self._scene.wait_for_work(PARTIES, [self._others])
            if self._wait is None and self._number % 4 < 2:  # two in four cases of the migrations that abort transactions
                self._forks.call(leave_behind, self._place.url, self._name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._started:
            child.stop()

    def start(self, crash: Crash | None = None) -> Child:
        child = self._forks.start(migrate, self._place.url, self._name, self._to, 1 + self._number % 2, self._wait, crash)
        self._started.append(child)
        return child

    def migrate(self) -> Outcome:
        told: Outcome = self.start().result(LAST_SECONDS)
        return told

    def go_on(self) -> list[str]:
        return refused("the successor", self.migrate())

    def checked(self, what: str, wrong: list[str], *, hit: bool) -> Case:
        """Let the parties do more work and end. Return the case, with everything that is wrong with the rows and the histories."""
        self._scene.wait_for_work(WRITING, [self._others], more=2)
        self._scene.end_work()
        wrong = wrong + self._others.result(LAST_SECONDS)
        cast = Cast(
            {self._name: self._to},
            writers={"writer": [self._name]},
            senders={"sender": self._name},
            consumers={"consumer": [self._name]},
            streams={"stream": [self._name]},
        )
        wrong += self._forks.call(judge, dataclasses.replace(self._place, topic=self._name), self._scene.folder, cast)
        return Case(f"{what} ({self._name}, {'aborts' if self._wait is None else 'waits'})", hit, wrong)


# --- open transactions --------------------------------------------------------------------------------------------------


class Refusals(Scenario):
    """While a transaction is open, migrations are refused. They change nothing, and their errors name the transaction. Then a
    migration that may wait for the transaction, or abort it, succeeds.
    """

    name = "migrations with open transactions"

    def __init__(self, forks: Forks, place: Place) -> None:
        self._forks, self._place = forks, place

    def setup(self) -> None:
        self._forks.call(make, self._place, SETTINGS)

    def check(self) -> list[str]:
        return [what for wait in WAYS for what in self._forks.call(_refused_then, self._place, wait)]

    def figures(self) -> str:
        return "refused, waiting, aborting"


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
        found += refused("the one that goes on", migrate(place.url, name, to, 1, wait))
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


def _migrated_by(url: str, name: str, to: str, wait: float) -> Outcome:
    """Migrate by the public API. The migration waits `wait` seconds for open transactions, and does not abort them."""
    with connect(url) as cluster:
        try:
            cluster.topics.migrate(name, to, wait=wait)
        except TxnSegmentError as error:
            return Outcome(type(error).__name__, str(error))
    return Outcome(done=1)
