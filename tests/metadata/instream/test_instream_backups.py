"""Backups of persistent topics while writers run. A backup at any moment is a state that the rules allow, with whole transactions.
After a restore no id and no position is used again (docs/in_stream.md, Backups).
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import greenlet
import pytest
from test_migration import check_done, migrate, prepared, work

from conformance.simulator.casts.in_stream_backups import cast_of
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import Outcome, play
from conformance.simulator.store.faults import Crashed, Fate, GatedStore
from conformance.simulator.store.storage import GatedStorage
from metadata.backup.backup import BackupReader
from metadata.backup.backup_file import Backup
from metadata.backup.restore import Restoration
from metadata.cluster.ledger_root import MARK
from metadata.common.errors import (
    CorruptSnapshot,
    OffsetOutOfRange,
    RestoredBehind,
    TopicNotFound,
    TopicSealed,
    TransactionNotFound,
    TransactionUnfinished,
)
from metadata.cursors.cursors import Where
from metadata.records import paths as common_paths
from metadata.records.cluster_records import ClusterRecord
from metadata.records.row_ranges import parse_all, texts
from metadata.rules.acks import Ack, done
from metadata.rules.strides import MARKED_STRIDE
from metadata.store.memory import MemoryState
from tests.support.bench import PERSISTENT, At, Bench, each

T, U = PERSISTENT

WHERE = (str(T), "s")
Plan = Sequence[tuple[int, int]]


def subscribed() -> Bench:
    """Return a bench with two topics and a subscription. Both topics have version 1 of `app`, and T has a plain message."""
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(*WHERE)
    party.coordinator.commit(bench.work(1))
    party.coordinator.append(None, {T: [bench.part("plain")]})
    return bench


def taken(bench: Bench) -> Backup:
    return BackupReader(bench.instream().cluster).take()


def restored(bench: Bench, backup: Backup, gate: Callable[[str, str], Fate] = lambda kind, what: Fate.GO) -> Bench:
    """Restore a backup into an empty store, over the same ledger root."""
    again = emptied(bench)
    into(again, backup, gate)
    return again


def emptied(bench: Bench) -> Bench:
    again = Bench(bench.settings, topics=())
    again.topics = PERSISTENT
    again.clock, again.disk, again.state = bench.clock, bench.disk, MemoryState()
    again.unique = bench.unique  # type: ignore[method-assign]
    return again


def into(again: Bench, backup: Backup, gate: Callable[[str, str], Fate] = lambda kind, what: Fate.GO) -> None:
    again.disk.files[MARK] = (json.dumps({"cluster": backup.heading.cluster}).encode(), 0)
    store = GatedStore(again.state, again.clock, gate)
    Restoration(backup, store, "memory://again", GatedStorage(again.disk, gate), again.clock).run()
    know(again)


def know(again: Bench) -> None:
    """Tell the bench which ranges of numbers the restore has lost. A real cluster reads these ranges when it is opened."""
    again.disk.files.pop(MARK, None)
    record = again.state.get(common_paths.CLUSTER)
    assert record is not None
    again.restored = ClusterRecord.of(record).restored or ()


def acked(bench: Bench, where: Where = WHERE) -> list[str]:
    cursor = bench.instream().coordinator.acks.read([where])[where]
    assert not cursor.claims
    return texts(done(cursor))


def check_settled(bench: Bench) -> None:
    for name in (T, U):
        reading = bench.instream().buffer.read(name)
        assert not reading.ongoing
        assert reading.cut == reading.end
    assert not bench.instream().coordinator.log.txns()


def backing_up(seed: int) -> tuple[Outcome, int]:
    """Run one schedule of the simulator. Return its outcome, and the number of backups that were taken and restored."""
    cast, backups = cast_of(random.Random(f"backups in stream {seed}"), False)
    with quiet():
        return play(seed, cast), len(backups.taken)


def test_backups_at_any_moment_of_simulated_worlds() -> None:
    """Backups are taken while drivers, clients, producers, consumers and sweepers run, with crashes and lost replies."""
    found = [backing_up(seed) for seed in range(25)]
    assert not [outcome.violations for outcome, _ in found if outcome.violations]
    assert sum(taken for _, taken in found) > 40
    assert sum(outcome.commits for outcome, _ in found) > 150


# --- every moment of a transaction ------------------------------------------------------------------------------------


class Running:
    """A process that commits a transaction with rows in both topics and an acknowledgement, and then sends a plain message. It
    pauses before each of its writes.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.told, self.writes = bench, False, 0
        self._work = dataclasses.replace(bench.work(2), acks=[Ack(*WHERE, parse_all(["1"]))])
        hub = greenlet.getcurrent()

        def gate(kind: str, what: str) -> Fate:
            if kind == "write":
                hub.switch()
                self.writes += 1
            return Fate.GO

        self._greenlet = greenlet.greenlet(lambda: self._run(bench.instream(gate)))

    def _run(self, party: Any) -> None:
        party.coordinator.commit(self._work)
        self.told = True
        party.coordinator.append(None, {U: [self.bench.part("after")]})

    def step(self) -> bool:
        """Run until just before the next write. Return False if the process had already ended."""
        if self._greenlet.dead:
            return False
        self._greenlet.switch()
        return True

    def until(self, plan: Plan, at: int) -> bool:
        """Let this process do the steps that the plan puts at step `at` of the backup. Return whether its `commit` has returned by
        then.
        """
        for step, count in plan:
            for _ in range(count if step == at else 0):
                self.step()
        return self.told

    def finish(self) -> None:
        while self.step():
            continue


def check_whole(bench: Bench, backup: Backup, told: bool, why: object) -> bool:
    """Return whether version 2 is in the backup. Check that the restored cluster has version 2 as a whole or not at all, and that
    it has version 2 exactly once after the commit is repeated.
    """
    again = restored(bench, backup)
    check_settled(again)
    there = "app.2" in again.labels(T)
    assert again.labels(T) == (["app.1", "plain", "app.2"] if there else ["app.1", "plain"]), why
    assert [row for row in again.labels(U) if row != "after"] == (["app.1", "app.2"] if there else ["app.1"]), why
    assert acked(again) == (["1"] if there else []), why
    assert there or not told, why
    assert again.instream().coordinator.commit(again.work(2)).skipped is there, why
    assert again.labels(T).count("app.2") == again.labels(U).count("app.2") == 1, why
    again.finish()
    return there


def cuts(steps: int, writes: int) -> Iterator[Plan]:
    """Yield plans. A plan is a list of pairs: a step of the backup, and the number of writes just before this step. In these plans
    some writes come before the backup, and all others at one step.
    """
    for step in range(steps + 1):
        for first in range(writes + 1):
            yield (0, first), (step, writes)


def beside(steps: int, writes: int) -> Iterator[Plan]:
    """Yield a plan with all writes before the backup, then plans with one write at each of some consecutive steps of the backup,
    then plans with writes at random steps.
    """
    yield (0, writes), (0, writes)
    for step in range(steps + 1):
        yield tuple((step + i, 1) for i in range(writes))
    rng = random.Random(5)
    for _ in range(80):
        yield tuple((step, 1) for step in sorted(rng.randrange(steps) for _ in range(writes)))


@pytest.mark.parametrize("moments", [cuts, beside])
def test_a_backup_at_every_moment_of_a_transaction(moments: Callable[[int, int], Iterator[Plan]]) -> None:
    bench = subscribed()
    running = Running(bench)
    running.finish()
    counting = At(-1)
    BackupReader(bench.instream(counting).cluster).take()
    writes, steps = running.writes + 1, counting.steps
    assert writes > 6
    assert steps > 15
    seen = set()
    for plan in moments(steps, writes):
        bench = subscribed()
        running = Running(bench)
        told = running.until(plan, 0)
        at = 0

        def gate(kind: str, what: str, plan: Any = plan, running: Running = running) -> Fate:
            nonlocal at
            at += 1
            running.until(plan, at)
            return Fate.GO

        backup = BackupReader(bench.instream(gate).cluster).take()
        running.finish()
        seen.add((told, check_whole(bench, backup, told, plan)))
    assert seen == {(True, True), (False, True), (False, False)}


def test_commits_acknowledged_before_a_backup_are_in_the_backup() -> None:
    bench = subscribed()
    running = Running(bench)
    running.finish()
    again = restored(bench, taken(bench))
    assert again.labels(T) == ["app.1", "plain", "app.2"]
    assert again.labels(U) == ["app.1", "app.2", "after"]
    assert acked(again) == ["1"]


# --- each step of a backup is interrupted by a whole other operation ----------------------------------------------------


def sweep(bench: Bench) -> None:
    bench.late()
    bench.instream().sweeper.sweep()
    bench.older()
    bench.instream().sweeper.sweep()


def commit_and_sweep(bench: Bench) -> None:
    bench.instream().coordinator.commit(bench.work(2))
    sweep(bench)
    bench.instream().coordinator.commit(bench.work(3))


def trim(bench: Bench) -> None:
    bench.instream().coordinator.commit(bench.work(2))
    trimmer = bench.instream().sweeper.trimmer
    trimmer.trim_to(trimmer.buffer.read(T), 2)
    sweep(bench)


def make_again(bench: Bench) -> None:
    acks = bench.instream().coordinator.acks
    acks.delete(*WHERE)
    acks.create(*WHERE, parse_all(["2"]))


MEANWHILE: dict[str, Callable[[Bench], object]] = {
    "commit-and-sweep": commit_and_sweep,
    "trim": trim,
    "subscribe": lambda bench: bench.instream().coordinator.acks.create(str(U), "other", parse_all(["1"])),
    "make-again": make_again,
    "delete": lambda bench: bench.instream().sealing.delete(U),
    "terminate": lambda bench: bench.instream().sealing.terminate(T),
}


def of_versions(again: Bench) -> str:
    """Check that each version is restored as a whole or not at all, that a commit of the last restored version is skipped, and that
    no trimmed or aborted row is visible again. Return the restored rows of T.
    """
    check_settled(again)
    there = again.labels(T)
    last = max((int(row[4:]) for row in there if row.startswith("app.")), default=1)
    assert again.labels(U) == [f"app.{n}" for n in range(1, last + 1)]
    for version in range(last, 4):
        assert again.instream().coordinator.commit(again.work(version)).skipped is (version == last)
    assert again.labels(U) == ["app.1", "app.2", "app.3"]
    return " ".join(there)


def of_a_subscription(again: Bench, where: Where) -> str:
    """Return the acknowledged rows of a subscription, or "none" if it was not restored. Check that a restored subscription accepts
    further acknowledgements.
    """
    check_settled(again)
    acks = again.instream().coordinator.acks
    if where[1] not in acks.list(where[0]):
        acks.create(*where)
        return "none"
    found = acked(again, where)
    acks.acknowledge([Ack(*where, parse_all(["5"]))])
    assert acked(again, where) == [*found, "5"]
    return " ".join(found)


def of_a_deletion(again: Bench) -> str:
    """Return whether the topic U exists, as "there" or "gone". Check that an existing topic accepts commits as before, and that a
    deleted topic can be neither read nor written.
    """
    names = [topic.name for topic in again.instream().topics.list()]
    if U in names:
        check_settled(again)
        assert again.labels(U) == ["app.1"]
        again.instream().coordinator.commit(again.work(2))
        assert again.labels(U) == ["app.1", "app.2"]
        return "there"
    assert names == [T]
    for use in (lambda: again.labels(U), lambda: again.instream().coordinator.commit(again.work(2))):
        with pytest.raises(TopicNotFound):
            use()
    assert again.labels(T) == ["app.1", "plain"]
    return "gone"


def of_a_seal(again: Bench) -> str:
    """Return whether T is "sealed" or "open". Check that a sealed topic refuses appends, and that an open topic accepts them."""
    check_settled(again)
    sealed = again.instream().buffer.read(T).sealed_at is not None
    with pytest.raises(TopicSealed) if sealed else nullcontext():
        again.instream().coordinator.append(None, {T: [again.part("on")]})
    assert again.labels(T) == ["app.1", "plain", *([] if sealed else ["on"])]
    return "sealed" if sealed else "open"


AFTER: dict[str, tuple[Callable[[Bench], str], set[str]]] = {
    "commit-and-sweep": (of_versions, {"app.1 plain", "app.1 plain app.2", "app.1 plain app.2 app.3"}),
    "trim": (of_versions, {"app.1 plain", "plain app.2", "plain"}),
    "subscribe": (lambda again: of_a_subscription(again, (str(U), "other")), {"none", "1"}),
    "make-again": (lambda again: of_a_subscription(again, WHERE), {"1", "2"}),
    "delete": (of_a_deletion, {"there", "gone"}),
    "terminate": (of_a_seal, {"open", "sealed"}),
}
"""For each name of MEANWHILE: the function that checks the restored cluster, and all results that this function must return when
the work is done at each step of the backup in turn.

`app.1 plain app.2` is the result if the transaction log is compacted after the backup has listed the log and before the backup
reads the log's snapshot. `plain` is the result if the trim comes just after the backup has read the transaction log.
"""


@pytest.mark.parametrize("name", MEANWHILE)
def test_a_backup_is_consistent_with_other_work_at_each_step(name: str) -> None:
    """At each step of a backup another process does the work `name`. The backup contains this work as a whole or not at all."""
    check, ways = AFTER[name]
    seen = set()

    def run(k: int) -> At:
        bench = subscribed()
        bench.instream().coordinator.acks.acknowledge([Ack(*WHERE, parse_all(["1"]))])
        with pytest.raises(Crashed):  # this transaction is open when the backup begins, so readers wait for it
            bench.instream(At(2, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="dead"))
        gate = At(k, meanwhile=lambda: MEANWHILE[name](bench))
        backup = BackupReader(bench.instream(gate).cluster).take()
        seen.add(check(restored(bench, backup)))
        return gate

    assert each(run) > 15
    assert seen == ways


# --- undecided transactions in a backup ---------------------------------------------------------------------------


def test_a_restore_aborts_undecided_and_finishes_decided_transactions() -> None:
    bench = subscribed()
    party = bench.instream()
    aborted = party.coordinator.begin(topics=[T])
    party.coordinator.append(aborted, {T: [bench.part("aborted")]})
    party.coordinator.end(aborted, commit=False)
    party.coordinator.append(aborted, {T: [bench.part("zombie")]})
    with pytest.raises(Crashed):  # the owner crashes after COMMITTING is logged and before the first marker
        bench.instream(At(3, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="late"))
    claiming = party.coordinator.begin(topics=[T], subscriptions=[WHERE])
    party.coordinator.append(claiming, {T: [bench.part("open")]})
    party.coordinator.acknowledge(claiming, [Ack(*WHERE, parse_all(["1"]))])
    party.coordinator.append(None, {T: [bench.part("after")]})
    before = bench.state.fingerprint()
    backup = taken(bench)
    assert bench.state.fingerprint() == before, "the repetition changes nothing"
    again = restored(bench, backup)
    check_settled(again)
    assert again.labels(T) == ["app.1", "plain", "late.1", "after"]
    assert again.labels(U) == ["app.1", "late.1"]
    assert acked(again) == []
    assert again.instream().coordinator.commit(again.work(1, app="late")).skipped
    again.finish()


def test_late_data_of_transactions_before_a_restore_is_void_and_no_id_is_reused() -> None:
    bench = subscribed()
    open_one = bench.instream().coordinator.begin(topics=[T])
    backup = taken(bench)
    lost = bench.instream().coordinator.begin(topics=[T])
    again = restored(bench, backup)
    party = again.instream()
    for old in (open_one, lost):
        with pytest.raises(TransactionNotFound):
            party.coordinator.end(old, commit=True)
    new = party.coordinator.begin(topics=[T])
    assert int(new.partition("_")[2]) >= MARKED_STRIDE
    for old in (open_one, lost):  # a process from before the restore may still append under the id of its transaction
        party.coordinator.append(old, {T: [again.part("zombie")]})
        reading = again.instream().buffer.read(T)
        assert (reading.ongoing, reading.cut) == ({}, reading.end), "the entry of an old transaction makes no reader wait"
    number = party.coordinator.append(new, {T: [again.part("new")]})[str(T)]
    assert number >= MARKED_STRIDE
    party.coordinator.end(new, commit=True)
    assert again.labels(T) == ["app.1", "plain", "new"]
    assert not again.instream().buffer.read(T).ongoing


def test_a_restored_cluster_without_transactions_reuses_no_id() -> None:
    bench = Bench(topics=())
    backup = taken(bench)
    assert backup.heading.txnsegment_backup == 1
    bench.instream().topics.create(T)
    lost = bench.instream().coordinator.append(None, {T: [bench.part("lost")]})[str(T)]
    again = restored(bench, backup)
    again.instream().topics.create(T)
    txn = again.instream().coordinator.begin(topics=[T])
    assert int(txn.partition("_")[2]) >= MARKED_STRIDE
    assert again.instream().coordinator.append(None, {T: [again.part("new")]})[str(T)] >= MARKED_STRIDE
    with pytest.raises(OffsetOutOfRange, match="is from before it was restored"):
        again.instream().buffer.read_to(T, lost)
    topic = again.instream().buffer.read(T).topic
    assert [topic.before_lost(n) for n in (0, lost, MARKED_STRIDE - 1, MARKED_STRIDE)] == [0, 0, 0, MARKED_STRIDE], (
        "a lost number is read as the start of the lost range"
    )


def test_only_acks_before_the_backup_count_after_a_restore() -> None:
    """At each step of a backup another process commits version 2, and then acknowledges a row without a transaction. The restored
    cluster never has this acknowledgement without version 2.
    """
    seen = set()

    def run(k: int) -> At:
        bench = subscribed()
        bench.instream().coordinator.acks.acknowledge([Ack(*WHERE, parse_all(["1"]))])

        def meanwhile() -> None:
            bench.instream().coordinator.commit(bench.work(2, topics=[U]))
            bench.instream().coordinator.acks.acknowledge([Ack(*WHERE, parse_all(["3"]))])

        gate = At(k, meanwhile=meanwhile)
        again = restored(bench, BackupReader(bench.instream(gate).cluster).take())
        seen.add(("app.2" in again.labels(U), *acked(again)))
        return gate

    assert each(run) > 15
    assert seen == {(False, "1"), (True, "1"), (True, "1", "3")}


# --- after a restore ----------------------------------------------------------------------------------------------------


def test_readers_beyond_the_backup_get_an_error_and_others_continue() -> None:
    bench = subscribed()
    party = bench.instream()
    waiting = party.coordinator.begin(topics=[T])
    number = party.coordinator.append(waiting, {T: [bench.part("waiting")]})[str(T)]
    party.coordinator.append(None, {T: [bench.part("above")]})
    backup = taken(bench)
    party.coordinator.end(waiting, commit=True)
    last = bench.instream().buffer.read(T).cut
    assert bench.labels(T) == ["app.1", "plain", "waiting", "above"]
    again = restored(bench, backup)
    assert again.labels(T) == ["app.1", "plain", "above"]
    buffer = again.instream().buffer
    for offset in range(number):
        assert buffer.read_to(T, offset).cut >= offset
    for offset in (number, number + 1, last, MARKED_STRIDE - 1):
        with pytest.raises(OffsetOutOfRange, match=f"with what is up to {number - 1} alone"):
            buffer.read_to(T, offset)
    assert again.instream().coordinator.append(None, {T: [again.part("new")]})[str(T)] == MARKED_STRIDE
    assert [found.id for found in buffer.read_to(T, MARKED_STRIDE).ledgers(number - 1)] == [number + 1, MARKED_STRIDE]


def test_an_offset_at_a_marker_stays_good() -> None:
    """A stream that starts at `latest` gets the end of the log as its offset. The entry there may be a marker. The offset can still
    be read after a restore.
    """
    bench = subscribed()
    bench.instream().coordinator.commit(bench.work(2))
    end = bench.instream().buffer.read(U).cut
    again = restored(bench, taken(bench))
    reading = again.instream().buffer.read_to(U, end)
    assert (reading.cut, reading.end) == (end, end)
    assert [ledger.id for ledger in reading.ledgers()] == [1, 3]


def test_a_query_beyond_the_backup_fails_and_a_query_within_it_continues() -> None:
    bench = subscribed()
    again = restored(bench, taken(bench))
    with pytest.raises(RestoredBehind, match="only those up to 1"):
        again.instream().coordinator.commit(again.work(3))
    with pytest.raises(RestoredBehind, match="knows none"):
        again.instream().coordinator.commit(again.work(3, app="unknown"))
    again.instream().coordinator.commit(again.work(2))
    again.instream().coordinator.commit(again.work(4))
    assert again.labels(T) == ["app.1", "plain", "app.2", "app.4"]
    assert again.instream().coordinator.commit(again.work(9, app="batch", by=None)).positions


def test_a_backup_of_a_restored_cluster() -> None:
    bench = subscribed()
    first = restored(bench, taken(bench))
    backup = taken(first)  # this backup is taken before the restored cluster has appended any entry
    first.instream().coordinator.commit(first.work(2))
    second = restored(bench, backup)
    assert second.labels(T) == ["app.1", "plain"]
    assert second.instream().coordinator.append(None, {T: [second.part("new")]})[str(T)] == 2 * MARKED_STRIDE
    assert int(second.instream().coordinator.begin().partition("_")[2]) >= 2 * MARKED_STRIDE
    for offset in (5, MARKED_STRIDE, MARKED_STRIDE + 1):
        with pytest.raises(OffsetOutOfRange):
            second.instream().buffer.read_to(T, offset)


def test_a_restored_log_without_its_snapshot_is_never_replayed() -> None:
    """A restored log has no markers. A replay would regard its rows as rows of unknown transactions, and hide them as aborted. So a
    reader without the snapshot raises an error.
    """
    bench = subscribed()
    again = restored(bench, taken(bench))
    pointer = again.instream().topics.get(T).layout.snapshot
    assert pointer is not None
    damaged = pointer.model_copy(update={"crc": 1})
    again.instream().topics.change(T, lambda layout: layout.model_copy(update={"snapshot": damaged}))
    with pytest.raises(CorruptSnapshot, match="different checksum"):
        again.labels(T)


def test_deleted_and_terminated_topics_stay_deleted_and_terminated() -> None:
    bench = subscribed()
    bench.instream().sealing.delete(U)
    sealed = bench.instream().sealing.terminate(T)
    again = restored(bench, taken(bench))
    assert [topic.name for topic in again.instream().topics.list()] == [T]
    assert again.instream().buffer.read(T).sealed_at == sealed
    assert again.labels(T) == ["app.1", "plain"]
    again.older()
    assert not again.instream().sweeper.sweep().failed


def test_a_transaction_that_stalls_has_ended_in_a_backup() -> None:
    bench = subscribed()
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T, U])
    party.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    party.sealing.terminate(T)
    with pytest.raises(TransactionUnfinished):
        party.coordinator.end(txn, commit=True)
    again = restored(bench, taken(bench))
    check_settled(again)
    assert (again.labels(T), again.labels(U)) == (["app.1", "plain", "a"], ["app.1", "b"])


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REPLY], ids=lambda fate: fate.name)
def test_a_restore_interrupted_at_every_step_is_finished_by_a_repetition(fate: Fate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction log is so large that it is stored in a file. The restore fails at each step, and a second restore completes
    it.
    """
    monkeypatch.setattr("metadata.backup.in_stream.INLINE_BYTES", 10)
    bench = subscribed()
    backup, files = taken(bench), dict(bench.disk.files)
    wanted = restored(bench, backup).state.numbers

    def run(k: int) -> At:
        bench.disk.files = dict(files)
        again = emptied(bench)
        gate = At(k, fate, kinds=("write",) if fate is Fate.LOSE_REPLY else ("write", "publish"))
        try:
            into(again, backup, gate)
        except Crashed:
            if again.state.get(common_paths.RESTORING) is not None or again.state.get(common_paths.CLUSTER) is None:
                into(again, backup)
            know(again)
        assert again.state.numbers == wanted, gate.hit
        assert again.labels(T) == ["app.1", "plain"]
        assert again.instream().coordinator.commit(again.work(1)).skipped
        with pytest.raises(RestoredBehind):
            again.instream().coordinator.commit(again.work(3))
        return gate

    assert each(run) > 8


def test_a_transaction_log_in_a_file_gets_a_new_file_at_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the restore, the record of the transaction log has the checksum of the new file, not of the old file (found by the
    simulator with seed 4947).
    """
    monkeypatch.setattr("metadata.backup.in_stream.INLINE_BYTES", 10)
    monkeypatch.setattr("metadata.instream.transaction_log.INLINE_BYTES", 10)
    bench = subscribed()
    bench.instream().coordinator.log.compact()
    bench.instream().coordinator.commit(bench.work(2))
    again = restored(bench, taken(bench))
    assert again.instream().coordinator.commit(again.work(2)).skipped
    assert again.instream().coordinator.log.compact() is not None
    assert again.instream().coordinator.commit(again.work(2)).skipped


@pytest.mark.parametrize("middle", [True, False], ids=["of-the-migration", "of-the-backup"])
def test_a_backup_taken_during_a_migration_is_whole(middle: bool) -> None:
    """A backup is taken at each step of a migration, or a migration runs at each step of a backup. After the restore the migration
    can be started, or finished if it had begun.
    """

    def run(k: int) -> At:
        bench = prepared()
        backups: list[Backup] = []
        gate = At(k, meanwhile=lambda: backups.append(taken(bench)) if middle else migrate(bench.instream()))
        party = bench.instream(gate)
        migrate(party) if middle else backups.append(BackupReader(party.cluster).take())
        for backup in backups:
            again = restored(bench, backup)
            again.instream().coordinator.commit(work(again, 2))
            migrate(again.instream())
            check_done(again, ["app.1", "plain", "app.2"], gate.hit)
        return gate

    assert each(run) > 15
