"""Schedules with backups. Actors take backups at random moments, beside writers, consumers, sweepers and deleters. Each backup is
restored at once into a store of its own. At the end, when the outcome of every transaction is known, each restored store is
compared with the history up to the log number at which the backup ends (`Heading.number`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from conformance.history.format import Ack as Acked
from conformance.history.format import Application as Changed
from conformance.history.format import Commit, Header, Told, Written
from conformance.history.format import Registration as Registered
from conformance.simulator.actors.consuming import choose
from conformance.simulator.actors.sweepers import start_deleter, start_sweeper
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.acking import SUBSCRIPTIONS, subscribed
from conformance.simulator.casts.casts import Cast
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.origins import joined, origin
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, Process, World
from conformance.simulator.world.stage import D, T, U, staged
from ledgers.compaction import Policy
from ledgers.model import Part
from metadata.backup.backup import BackupReader
from metadata.backup.backup_file import Backup
from metadata.backup.restore import Restoration
from metadata.client.client import Client
from metadata.cluster.cluster import Cluster
from metadata.cluster.ledger_root import MARK
from metadata.common.errors import TxnSegmentError
from metadata.instream.model import transaction_buffer
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.read.reading import LogSelection, Reading
from metadata.records import paths
from metadata.records.cluster_records import Lost
from metadata.records.names import topic_name
from metadata.records.records import Application, Cursor, Registration, Settled
from metadata.records.row_ranges import Rows, common, minus
from metadata.rules.acks import Ack, done
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.store.memory import MemoryState
from metadata.topics.topics import Topics
from metadata.write.write_set import WriteSet


@dataclass
class Taken:
    """One backup, and the cluster that was restored from it (`state`, `disk`). `began`, `ended`: the number of the first event in
    the history after the backup began, and after it ended. `lost`: the ranges of log numbers that the restore has lost.
    """

    began: int
    ended: int
    backup: Backup
    state: MemoryState
    disk: Disk
    lost: tuple[Lost, ...]

    def cluster(self, world: World) -> Cluster:
        """Return a new copy of the restored cluster."""
        store = GatedStore(self.state.copy(), world.clock)
        return Cluster("memory://restored", store, GatedStorage(self.disk), world.settings, world.clock, restored=self.lost)


@dataclass
class Backups:
    """All backups of one world. `consumed`: the acknowledgements that the world's consumers tried to commit, by attempt."""

    world: World
    taken: list[Taken] = field(default_factory=list)
    consumed: dict[str, list[Ack]] = field(default_factory=dict)


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a cast of writers, consumers, sweepers, compactors and three actors that take backups. Some worlds have a deleter."""
    return cast_of(rng, trace)[0]


def cast_of(rng: random.Random, trace: bool) -> tuple[Cast, Backups]:
    deleted = rng.random() < 0.2
    settings = SETTINGS.model_copy(
        update={"header_retention_ms": rng.choice((0, 5, 500)), "fold_after_registrations": rng.choice((1, 3))}
    )
    state = subscribed(staged((T, 2), (U, 1), (D, 1)))
    world = World(rng, Plan.draw(rng, small=True), settings, state=state, trace=[] if trace else None)
    backups = Backups(world)
    empty = frozenset(v for v in (0, 1, 2) if rng.random() < 0.2)
    jobs = [
        Job("q", "q", T, (T,), (0, 1, 2), replays=True, by="query-q", empty=empty),
        Job("m", "m", "", (T, U), (1, 2)),
        Job("r", "r-random", U, (U,), (1,), random=True),
    ]
    if deleted:
        jobs.append(Job("drop", "drop", D, (D,), (0, 1)))
        start_deleter(world, "x0", D, recreate=rng.random() < 0.5, within=150)
    for job in jobs:
        start_driver(world, job)
    plain = {"c2"}
    world.history.acking = lambda: world.current is not None and world.current.name in plain
    for name, kind in (("c0", "both"), ("c1", rng.choice(("both", "acks"))), ("c2", "plain")):
        _start_consumer(backups, name, kind, rounds=3)
    start_sweeper(world, "w0", 2)
    if rng.random() < 0.5:
        start_sweeper(world, "w1", 2)
    for i in range(rng.choice((0, 1, 2))):
        _start_compactor(world, f"z{i}")
    for i in range(3):
        start_backup(backups, f"k{i}", within=220)

    def wrong() -> Iterator[str]:
        return wrong_backups(backups)

    cast = Cast(world, jobs, [], frozenset({T, U}), forgets=False, orphans=False, topics=3, also_wrong=wrong)
    return cast, backups


# --- actors -----------------------------------------------------------------------------------------------------------


def start_backup(backups: Backups, name: str, *, within: int) -> None:
    world = backups.world

    def back_up(process: Process) -> None:
        began = world.history.now()
        # `take` raises if the backup is refused or if too much changes meanwhile. No backup is recorded in that case.
        backup = BackupReader(process.cluster).take()
        try:
            backups.taken.append(_restored(world, backup, began, world.history.now()))
        except TxnSegmentError as error:  # the restore runs without faults, so it must succeed
            world.history.bad(f"{name}: the backup could not be restored: {error}")

    start_rounds(world, name, 2, back_up, within=within)


def _restored(world: World, backup: Backup, began: int, ended: int) -> Taken:
    """Restore the backup over a copy of the disk, without any fault. Return the backup with the restored cluster."""
    state, disk = MemoryState(), Disk(world.clock)
    disk.files = dict(world.disk.files)
    disk.files[MARK] = (json.dumps({"cluster": backup.heading.cluster}).encode(), 0)
    storage = GatedStorage(disk)
    Restoration(backup, GatedStore(state, world.clock), "memory://restored", storage, world.clock).run()
    record = state.get(paths.CLUSTER)
    assert record is not None
    lost = tuple(Lost(after=x["after"], before=x["before"], restored_at_ms=0) for x in json.loads(record.value)["restored"])
    return Taken(began, ended, backup, state, disk, lost)


def _start_compactor(world: World, name: str) -> None:
    topics = iter((T, U))

    def compact(process: Process) -> None:
        for segment in Topics(process.cluster).get(topic_name(next(topics))).segments():
            # If this compaction fails or another compactor is faster, the files that it wrote are orphans.
            Compactor(process.cluster, joined).compact(segment, Policy(), Compacted())

    start_rounds(world, name, 2, compact, after=60, within=200)


def _start_consumer(backups: Backups, name: str, kind: str, *, rounds: int) -> None:
    """Start a consumer that takes unacknowledged rows and acknowledges some or all of them. `kind`: "plain" (without a
    transaction), "acks" (in a transaction of acknowledgements alone) or "both" (in a transaction that also writes a row).
    """
    world, versions = backups.world, count()

    def consume(process: Process) -> None:
        client, version = process.client, next(versions)
        _, acks = choose(world, client.buffer.read(LogSelection((T,))), client.coordinator.acks, SUBSCRIPTIONS[0], single=0.0)
        if acks and kind == "plain":
            client.coordinator.acks.acknowledge(acks)
        elif acks:
            _commit(backups, client, name, version, acks, with_rows=kind == "both")

    start_rounds(world, name, rounds, consume, within=150)


def _commit(backups: Backups, client: Client, name: str, version: int, acks: list[Ack], *, with_rows: bool) -> None:
    world, history = backups.world, backups.world.history
    attempt = world.unique()
    parts: dict[str, list[Part]] = {}
    if with_rows:
        segment = client.topics.get(topic_name(U)).segments()[0]
        path = f"parts/{name}/{version}/{attempt}.parquet"
        world.disk.files[path] = (b"part", world.clock.now)
        parts[segment] = [Part(path, 1, 4, 0, (1,), 0)]
    rows = tuple(Written(part.path, None, segment) for segment, found in parts.items() for part in found)
    history.asked(Commit(history.now(), attempt, name, name, "", version, rows, None, attempt))
    backups.consumed[attempt] = acks
    timeout_ms = world.rng.choice((200, 1_000))
    try:
        work = WriteSet(name, "", Claim(version, None, attempt, False), parts, time_ms(client.cluster.store), timeout_ms, acks=acks)
        made = client.coordinator.commit(work)
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "skipped" if made.skipped else "committed", made.txn_id)


# --- what is compared -------------------------------------------------------------------------------------------------


def wrong_backups(backups: Backups) -> Iterator[str]:
    """Yield the differences between restored clusters and the history, for topic:// topics."""
    return (f"backup {i}: {what}" for i, one in enumerate(backups.taken) for what in _wrong(backups, one))


def _wrong(backups: Backups, one: Taken) -> Iterator[str]:
    """Yield the differences between one restored cluster and the history up to the backup's number."""
    number, events = one.backup.heading.number, backups.world.history.events
    cluster = one.cluster(backups.world)
    store = cluster.store
    committed = {e.txn: e for e in events if isinstance(e, Header) and e.state == "COMMITTED"}
    written = {e.number: e for e in events if isinstance(e, Registered) and e.state is None}
    yield from _wrong_rows(cluster, one, number, committed, written)
    yield from _wrong_applications(one, number, committed, [e for e in events if isinstance(e, Changed)])
    yield from _wrong_cursors(backups, one, number, committed)
    for event in events[: one.began]:
        if isinstance(event, Told) and event.said == "committed" and event.txn in committed:
            commit = committed[event.txn].commit
            if commit is not None and commit > number:
                yield f"{event.txn} was acknowledged as {commit} before the backup, which ends at {number}"
    fresh = store.append(paths.LOG, b"{}").number
    if fresh <= max([number, *written]):
        yield f"the restored log goes on at {fresh}, though {max(written)} was given out"
    ids = [int(txn.partition("_")[2]) for txn in committed]
    following = store.view().get(paths.tc_sequence())
    if following is None or json.loads(following.value)["next"] <= max([0, *ids]):
        yield "a transaction id would be given out again"


def _wrong_rows(
    cluster: Cluster, one: Taken, number: int, committed: dict[str, Header], written: dict[int, Registered]
) -> Iterator[str]:
    names = tuple(str(topic.name) for topic in Topics(cluster).list())
    if not {T, U} <= set(names):
        yield f"topics are missing: there are {names}"
        return
    reading = transaction_buffer(cluster).read(LogSelection(names))
    if reading.cut != number or reading.undecided:
        yield f"the cut is {reading.cut}, not {number}; undecided: {reading.undecided}"
    yield from _wrong_segments(reading, one.disk, number, committed, written)
    cluster.store.append(paths.LOG, Registration(publish_ms=0, state=Settled.VOID).to_bytes())
    # The restored log now ends with one more entry, which is void. It must not make further rows visible.
    reading = transaction_buffer(cluster).read(LogSelection(names))
    yield from _wrong_segments(reading, one.disk, number, committed, written)


def _wrong_segments(
    reading: Reading, disk: Disk, number: int, committed: dict[str, Header], written: dict[int, Registered]
) -> Iterator[str]:
    counting = {e.commit for e in committed.values()}
    for segment in reading.segments:
        shown = [(f.id, origin(disk, part)) for f in segment.ledgers(0, reading.cut) for part in f.parts]
        wanted = [
            (n, row.id)
            for n, event in sorted(written.items())
            if n <= number and n in counting
            for row in event.rows
            if row.segment == segment.name
        ]
        if shown != wanted:
            yield f"{segment.name} shows {shown}, but up to {number} there was {wanted}"


def _wrong_applications(one: Taken, number: int, committed: dict[str, Header], changes: list[Changed]) -> Iterator[str]:
    """Yield the differences between the restored application records and the history. The record of an application must show
    exactly those versions as committed whose rows are visible. A version without rows may be missing if no later version is
    visible.
    """
    shown = {}
    for key, record in one.state.records.items():
        if key.path.startswith("/txn/app/"):
            name, _, topic = key.path[9:].partition(":")
            shown[paths.decode(name), paths.decode(topic)] = Application.of(record).last_committed
    by_app: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
    for header in committed.values():
        by_app.setdefault((header.app or "", header.topic or ""), []).append((header.version or 0, header.commit))
    for app, versions in by_app.items():
        if app[0].startswith("r-random"):
            continue
        last = shown.get(app, -1)
        for version, commit in versions:
            if commit is not None and (commit <= number) != (version <= last):
                yield f"{app} has committed up to {last}, but its version {version} is number {commit} of {number}"
    for app, last in shown.items():
        if not any((c.app, c.topic) == app and c.last_committed == last for c in changes) and not any(
            version == last for version, _ in by_app.get(app, ())
        ):
            yield f"{app} has committed {last}, which nobody did"


def _wrong_cursors(backups: Backups, one: Taken, number: int, committed: dict[str, Header]) -> Iterator[str]:
    cursors = {}
    for key, record in one.state.records.items():
        if key.path.startswith("/cursors/"):
            cursor = Cursor.of(record)
            cursors[paths.cursor_of(key.path)] = done(cursor)
            if cursor.claims:
                yield f"{key.path} has claims"
    of_nobody = dict(cursors)
    for header in committed.values():
        acks = backups.consumed.get(header.attempt or "")
        if acks is None:
            continue
        states = {_state(cursors[ack.segment, ack.subscription], ack.rows) for ack in acks}
        if len(states) > 1 or "half" in states:
            yield f"{header.txn} ({header.commit}) is acknowledged by halves in the backup of {number}"
        elif header.commit is not None and (header.commit <= number) != ("all" in states):
            yield f"{header.txn} is number {header.commit}, but of what it acknowledged the backup of {number} has {states}"
        elif header.commit is None and header.at < one.began and "all" not in states:
            yield f"the acknowledgements of {header.txn} are missing, which had committed before the backup of {number}"
        for ack in acks:
            where = ack.segment, ack.subscription
            of_nobody[where] = minus(of_nobody[where], ack.rows)
    plain = [e for e in backups.world.history.events if isinstance(e, Acked) and e.state == "acked" and e.txn is None]
    for (segment, subscription), rows in of_nobody.items():
        for span in rows:
            there = [e for e in plain if (e.segment, e.subscription) == (segment, subscription) and e.at < one.ended]
            if not any(low <= (span[0].ledger_id, span[0].entry_id) <= high for e in there for low, high in e.ranges):
                yield f"{segment}: {span} is acknowledged in the backup of {number}, and nobody did it"


def _state(acked: Rows, wanted: Rows) -> str:
    if not minus(wanted, acked):
        return "all"
    return "half" if common(wanted, acked) else "none"
