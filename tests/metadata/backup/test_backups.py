"""Tests of backups that are taken while writers run, and restores: which restores are refused, what a repeated restore does, and
what a restore guarantees (docs/operations.md, Backup).
"""

from __future__ import annotations

import gzip
import json
import random
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from conformance.at_rest import AtRest
from conformance.simulator.casts.backups import cast_of
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import Outcome, play
from conformance.simulator.store.faults import Crashed, Fate, Gate, GatedStore, always
from conformance.simulator.store.storage import GatedStorage
from metadata.backup import backup_file
from metadata.backup.backup import BackupReader, is_known
from metadata.backup.backup_file import Backup
from metadata.backup.restore import Restoration
from metadata.cluster.cluster import Cluster, read_cluster_record
from metadata.cluster.ledger_root import MARK
from metadata.common.errors import (
    BackupDamaged,
    BackupUnsettled,
    BadVersion,
    ConfigurationError,
    OffsetOutOfRange,
    RestoredBehind,
    RestoreRefused,
    VersionConflict,
)
from metadata.instream.model import transaction_buffer
from metadata.maintenance.sweeper import Sweeper
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import Application, Attempt, Cursor, Header, Nanos, Policies, State
from metadata.records.row_ranges import parse_all
from metadata.rules import consistent_cut
from metadata.rules.consistent_cut import Moving, Told, Written
from metadata.rules.strides import STRIDE
from metadata.rules.transitions import Claim
from metadata.store import open_store
from metadata.store.contract import look
from metadata.store.memory import MemoryState
from metadata.topics import policies
from metadata.topics.topics import Topics
from metadata.write.coordinator import Coordinator
from metadata.write.write_set import Committed
from tests.support.bench import At, Bench, T, U, each_step


def backing_up(seed: int) -> tuple[Outcome, int]:
    """Run one schedule of the simulator. Return its outcome, and the number of backups that were taken and restored."""
    cast, backups = cast_of(random.Random(f"backups {seed}"), False)
    with quiet():
        return play(seed, cast), len(backups.taken)


def test_backups_at_any_moment_are_states_that_could_have_been() -> None:
    """Backups are taken while writers, consumers (some with transactions), sweepers and deleters run, with crashes and lost
    replies. Each backup is a state that the rules allow.
    """
    found = [backing_up(seed) for seed in range(20)]
    assert not [outcome.violations for outcome, _ in found if outcome.violations]
    assert sum(taken for _, taken in found) > 50
    assert sum(outcome.commits for outcome, _ in found) > 100


def test_a_backup_is_consistent_with_commits_and_sweeps_at_any_step() -> None:
    """At each step of the backup another process commits, sweeps, and commits again. The backup has exactly the rows up to its log
    number.
    """

    def run(gate: At) -> None:
        bench = Bench()
        written(bench, 1)
        bench.party().sweeper.sweep()
        written(bench, 2)

        def meanwhile() -> None:
            written(bench, 3)
            bench.party().sweeper.sweep()
            written(bench, 4)

        gate.meanwhile = meanwhile
        backup = BackupReader(bench.party(gate).cluster).take()
        again = Again(bench, backup)
        again.restore()
        number = backup.heading.number
        wanted = sorted(row.id for row in bench.read() if row.position[0] <= number)
        assert again.shown() == wanted
        again.coordinator().commit(bench.work(0, app="more"))  # a further commit makes no other row visible
        assert [path for path in again.shown() if "/more/" not in path] == wanted
        assert again.version() == number, "in this bench version n is number n of the log"

    assert len(list(each_step(run, lambda k: At(k, meanwhile=lambda: None)))) >= 10


def test_a_version_folded_at_any_step_of_a_backup_is_known_to_its_application() -> None:
    """At each step of the backup another process registers, commits and folds version 3. The fold may remove the registration from
    the log. The restored application record has the last version that was committed up to the backup's log number (found by the
    simulator with seed 1312).
    """

    def run(gate: At) -> None:
        bench = Bench()
        written(bench, 1, 2)

        def meanwhile() -> None:
            written(bench, 3)
            bench.party().coordinator.commit(bench.work(0, app="other"))
            bench.party().sweeper.sweep()

        gate.meanwhile = meanwhile
        again = Again(bench, BackupReader(bench.party(gate).cluster).take())
        again.restore()
        number = again.backup.heading.number
        assert again.shown() == sorted(row.id for row in bench.read() if row.position[0] <= number)
        assert (again.version(), again.version("other")) == (min(number, 3), 0 if number == 4 else -1)

    assert len(list(each_step(run, lambda k: At(k, meanwhile=lambda: None)))) >= 10


def test_a_backup_is_consistent_with_a_split_at_any_step() -> None:
    """A segment is split at each step of the backup. The backup's layout shows the split only if the backup has the seal."""
    splits = set()

    def run(gate: At) -> None:
        bench = Bench()
        written(bench, 1)

        def meanwhile() -> None:
            bench.party().topics.split(topic_name(T), 0)
            written(bench, 2)

        gate.meanwhile = meanwhile
        backup = BackupReader(bench.party(gate).cluster).take()
        again = Again(bench, backup)
        again.restore()
        number = backup.heading.number
        assert again.shown() == sorted(row.id for row in bench.read() if row.position[0] <= number)
        layout = Topics(again.cluster()).get(topic_name(T)).layout
        sealed = [info.sealed_at_log for info in layout.segments.values() if info.sealed_at_log is not None]
        assert all(n <= number for n in sealed)
        assert sealed or number < 2, "the seal is number 2"
        splits.add(bool(sealed))
        again.coordinator().commit(bench.work(0, app="more")) if sealed else None
        assert Topics(again.cluster()).finish_seals() == 0

    assert len(list(each_step(run, lambda k: At(k, meanwhile=lambda: None)))) >= 10
    assert splits == {True, False}


def test_a_commit_above_an_undecided_registration_is_not_in_the_backup() -> None:
    bench = Bench()
    written(bench, 1)
    first = Registered(bench, "first")
    waited: list[str] = []

    def meanwhile(kind: str, what: str) -> Fate:
        waited.append(kind)
        if len(waited) == 1:
            Registered(bench, "second")
            written(bench, 2)
            first.decide()
        return Fate.GO

    bench.clock.pause = meanwhile
    backup = taken(bench)
    bench.clock.pause = lambda kind, what: Fate.GO
    again = Again(bench, backup)
    again.restore()
    assert backup.heading.number == 2
    assert again.version() == 1
    assert waited == ["sleep"]
    assert {path.split("/")[1] for path in again.shown()} == {"app", "first"}


def test_every_kind_of_record_is_in_a_backup(tmp_path: Path) -> None:
    """The test writes every kind of record. The backup code knows each kind: it saves the kind or leaves it out on purpose."""
    seen: set[str] = set()
    run = AtRest(f"memory://{uuid.uuid4().hex}", tmp_path, 60)

    def look_at_all(_: int) -> None:
        with open_store(run.url) as store:
            seen.update(store.view().keys(paths.EVERYTHING))

    run.run(look_at_all)
    look_at_all(0)
    assert len({path.split("/")[1] for path in seen}) >= 6
    assert not [path for path in seen if not is_known(path)]


def test_policies_of_a_namespace_are_in_a_backup() -> None:
    bench = Bench()
    policies.set_for_namespace(bench.party().cluster, "public", "default", {"retention_ms": 5})
    again = Again(bench)
    again.restore()
    record = look(again.cluster().store, paths.namespace("public", "default"))
    assert record is not None
    assert Policies.of(record).retention_ms == 5


# --- a restored bench -------------------------------------------------------------------------------------------------


class Again:
    """A backup of a bench, restored into another store over the same disk."""

    def __init__(self, bench: Bench, backup: Backup | None = None) -> None:
        self.bench, self.state = bench, MemoryState()
        self.backup = backup or taken(bench)
        mark(bench, self.backup.heading.cluster)

    def restore(self, gate: Gate = always) -> None:
        store = GatedStore(self.state, self.bench.clock, gate)
        Restoration(self.backup, store, "memory://again", GatedStorage(self.bench.disk, gate), self.bench.clock).run()

    def cluster(self) -> Cluster:
        store = GatedStore(self.state, self.bench.clock)
        record = look(store, paths.CLUSTER)
        assert record is not None
        known = read_cluster_record(record, "memory://again")
        storage = GatedStorage(self.bench.disk)
        return Cluster(
            "memory://again", store, storage, known.settings, self.bench.clock, self.bench.unique, restored=known.restored or ()
        )

    def coordinator(self) -> Coordinator:
        return Coordinator(self.cluster(), lambda job: job())

    def version(self, app: str = "app") -> int:
        record = look(self.cluster().store, paths.application(app, ""))
        return -1 if record is None else Application.of(record).last_committed

    def shown(self) -> list[str]:
        reading = transaction_buffer(self.cluster()).read(LogSelection((T, U)))
        ledgers = [f for s in reading.segments for f in s.ledgers(0, reading.cut)]
        return sorted(part.path for found in ledgers for part in found.parts)


def taken(bench: Bench) -> Backup:
    return BackupReader(bench.party().cluster).take()


def mark(bench: Bench, identity: str) -> None:
    bench.disk.files[MARK] = (json.dumps({"cluster": identity}).encode(), 0)


class Registered:
    """A transaction that is registered and undecided. It has its own application."""

    def __init__(self, bench: Bench, app: str) -> None:
        self._owner, self._work = bench.party().coordinator, bench.work(1, app=app)
        opened = self._owner.opener.open(self._work)
        assert not isinstance(opened, Committed)
        self._opened, self._number = opened, self._owner._register(opened, self._work).number

    def decide(self) -> None:
        self._owner._decide(self._opened, self._work, self._number)


def written(bench: Bench, *versions: int) -> None:
    for version in versions:
        bench.party().coordinator.commit(bench.work(version))


def test_a_restored_cluster_reads_and_sweeps_alike_and_continues_above_the_backup() -> None:
    bench = Bench()
    written(bench, 1, 2)
    bench.party().sweeper.sweep()
    written(bench, 3)
    again = Again(bench)
    again.restore()
    before = sorted(row.id for row in bench.read())
    assert again.shown() == before
    cluster = again.cluster()
    Sweeper(cluster, transaction_buffer(cluster)).sweep()
    assert again.shown() == before
    done = again.coordinator().commit(bench.work(4))
    assert done.number is not None
    assert done.number >= STRIDE
    assert len(again.shown()) > len(before)
    assert again.coordinator().commit(bench.work(4)).skipped


def test_an_open_transaction_delays_a_backup_until_its_deadline_and_is_not_in_it() -> None:
    bench = Bench()
    written(bench, 1)
    with pytest.raises(Crashed):
        bench.party(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="dead"))
    written(bench, 2)
    with pytest.raises(BackupUnsettled, match="is not decided"):
        BackupReader(bench.party().cluster).take(0.5)
    again = Again(bench)  # the backup waits for the deadline of the dead transaction, as a reader does
    again.restore()
    assert again.shown() == sorted(row.id for row in bench.read())
    assert again.backup.heading.number == 3


def test_an_empty_cluster_and_a_backup_of_a_restored_one() -> None:
    bench = Bench()
    first = Again(bench)
    first.restore()
    first.coordinator().commit(bench.work(0))
    second = Again(bench, BackupReader(first.cluster()).take())
    second.restore()
    assert second.shown() == first.shown()
    assert [lost.after for lost in second.cluster().restored] == [0, STRIDE]
    done = second.coordinator().commit(bench.work(1)).number
    assert done is not None
    assert done >= 2 * STRIDE


def test_a_restored_cluster_does_not_reuse_numbers_absent_from_its_backup() -> None:
    """A cluster is restored from a backup. This cluster is backed up, and then commits, so the new backup lacks the commit. A
    second cluster is restored from the new backup, and does not use the number of the commit.
    """
    bench = Bench()
    written(bench, 0)
    first = Again(bench)
    first.restore()
    second = Again(bench, BackupReader(first.cluster()).take())
    lost = first.coordinator().commit(bench.work(1)).number
    second.restore()
    assert lost == STRIDE
    assert second.coordinator().commit(bench.work(0, app="other")).number == 2 * STRIDE
    with pytest.raises(OffsetOutOfRange):
        transaction_buffer(second.cluster()).read_to(LogSelection((T, U)), lost)


# --- interrupted and refused restores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH])
def test_a_restore_that_dies_anywhere_leaves_nothing_usable_and_is_finished_by_the_next(fate: Fate) -> None:
    bench = Bench()
    written(bench, 1, 2, 3)
    backup, files = taken(bench), dict(bench.disk.files)
    whole = Again(bench, backup)
    whole.restore()
    wanted = _records(whole.state)
    again: Again

    def run(gate: At) -> None:
        nonlocal again
        bench.disk.files = dict(files)
        again = Again(bench, backup)
        try:
            again.restore(gate)
        except Crashed:
            assert gate.hit
            usable = _has(again.state, "/cluster") and not _has(again.state, "/restoring")
            if usable:
                assert _records(again.state) == wanted
            again.restore() if not usable else None
        assert _records(again.state) == wanted

    steps = list(each_step(run, lambda k: At(k, fate, kinds=("write", "publish", "delete"))))
    assert len(steps) >= 7


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE_REQUEST, Fate.SPLIT])
def test_a_restore_survives_lost_replies(fate: Fate) -> None:
    bench = Bench()
    written(bench, 1, 2)
    backup, files = taken(bench), dict(bench.disk.files)
    whole = Again(bench, backup)
    whole.restore()
    wanted = _records(whole.state)

    def run(gate: At) -> None:
        bench.disk.files = dict(files)
        again = Again(bench, backup)
        again.restore(gate)
        assert _records(again.state) == wanted

    assert len(list(each_step(run, lambda k: At(k, fate, kinds=("write",))))) >= 5


def test_a_restore_into_a_store_that_never_answers_ends_in_an_error() -> None:
    bench = Bench()
    written(bench, 1)
    backup = taken(bench)
    for patience in range(4):  # the store answers only the first `patience` writes
        asked = count()

        def gate(kind: str, what: str) -> Fate:
            return Fate.LOSE_REQUEST if kind == "write" and next(asked) >= patience else Fate.GO  # noqa: B023  called at once

        again = Again(bench, backup)
        with pytest.raises(BadVersion, match="reply to its write was lost"):
            again.restore(gate)
        assert not _has(again.state, "/cluster") or _has(again.state, "/restoring")


def _records(state: MemoryState) -> dict[str, object]:
    """Return the records without the fields that differ between restores: ids, and the number of observations of the clocks."""
    found: dict[str, object] = {}
    for key, record in state.records.items():
        value = json.loads(record.value)
        if key.path in ("/cluster", "/founding"):
            value.pop("id")
            value.pop("restored", None)
        if key.path == "/sweep/time":
            value = {**value, "looks": value["looks"][:1]}
        found[key.path] = value
    return found | {"next": state.numbers[paths.LOG]}


def _has(state: MemoryState, path: str) -> bool:
    return any(key.path == path for key in state.records)


def test_a_restore_that_was_taken_over_stops() -> None:
    """Two processes restore the same backup. The second takes over and finishes. The first then stops, and changes no record of the
    cluster, which is already in use.
    """
    bench = Bench()
    written(bench, 1, 2)
    again = Again(bench)
    done: list[int] = []

    def other() -> None:
        again.restore()
        number = again.coordinator().commit(bench.work(3)).number
        assert number is not None
        done.append(number)

    with pytest.raises(RestoreRefused, match="Another process restores"):
        again.restore(At(3, meanwhile=other, kinds=("write",)))
    assert done
    assert again.coordinator().commit(bench.work(3)).skipped


def test_a_store_in_use_and_another_backup_are_refused() -> None:
    bench = Bench()
    written(bench, 1)
    again = Again(bench)
    again.restore()
    before = dict(again.state.records)
    again.restore()  # this backup is already restored, so this second restore changes nothing
    assert again.state.records == before
    mark(bench, "another")
    with pytest.raises(RestoreRefused, match="is not empty"):
        again.restore()
    mark(bench, again.backup.heading.cluster)
    written(bench, 2)
    half = Again(bench)
    with pytest.raises(Crashed):
        half.restore(At(2, Fate.CRASH_BEFORE, kinds=("write",)))
    written(bench, 3)
    half.backup = taken(bench)
    mark(bench, half.backup.heading.cluster)
    with pytest.raises(RestoreRefused, match="another backup"):
        half.restore()


def test_a_restore_needs_the_root_of_the_backup_with_its_files() -> None:
    bench = Bench()
    written(bench, 1)
    again = Again(bench)
    mark(bench, "somebody else's")
    with pytest.raises(RestoreRefused, match="belongs to another cluster"):
        again.restore()
    del bench.disk.files[MARK]
    with pytest.raises(RestoreRefused, match=f"has no {MARK}"):
        again.restore()
    mark(bench, again.backup.heading.cluster)
    part = next(path for path in bench.disk.files if path.startswith("parts/"))
    kept = bench.disk.files.pop(part)
    with pytest.raises(RestoreRefused, match=f"1 are missing, such as {part}"):
        again.restore()
    assert not again.state.records, "nothing was changed"
    bench.disk.files[part] = kept
    again.restore()


# --- exactly once, across a restore -----------------------------------------------------------------------------------


def test_a_stream_beyond_the_backup_fails_and_a_stream_within_it_continues() -> None:
    bench = Bench()
    written(bench, 0, 1, 2)
    again = Again(bench)
    again.restore()
    for lost in (4, 9):
        with pytest.raises(RestoredBehind, match="only those up to 2"):
            again.coordinator().commit(bench.work(lost))
    assert again.coordinator().commit(bench.work(2)).skipped, "the application replays its last batch"
    assert again.coordinator().commit(bench.work(3)).number
    assert again.coordinator().commit(bench.work(5)).number, "the application continues like any other"


def test_an_aborted_attempt_does_not_open_the_way_for_a_later_version() -> None:
    bench = Bench()
    written(bench, 0)
    again = Again(bench)
    again.restore()
    work = bench.work(1)
    cluster = again.cluster()
    cluster.store = GatedStore(again.state, bench.clock, At(3, Fate.CRASH_BEFORE, kinds=("write",)))
    dying = Coordinator(cluster, lambda job: job())
    with pytest.raises(Crashed):
        dying.commit(work)
    with pytest.raises(RestoredBehind):
        again.coordinator().commit(bench.work(3))


def test_a_stream_that_the_backup_does_not_know_must_begin_at_its_first_batch() -> None:
    bench = Bench()
    again = Again(bench)
    again.restore()
    with pytest.raises(RestoredBehind, match="knows none"):
        again.coordinator().commit(bench.work(7, app="later"))
    with pytest.raises(RestoredBehind):  # a commit without rows also has a version, so it is refused as well
        again.coordinator().commit(bench.work(7, app="later", topics=()))
    assert again.coordinator().commit(bench.work(0, app="new")).number
    assert again.coordinator().commit(bench.work(7, app="batch", by=None)).number, (
        "versions of batch writes need not be consecutive"
    )


def test_a_stream_that_accepts_the_loss_continues() -> None:
    bench = Bench()
    written(bench, 0)
    again = Again(bench)
    again.restore()
    work = bench.work(4)
    accepted = Claim(4, work.claim.by, work.claim.attempt, replays=True, accepts_loss=True)
    work = type(work)(work.app, work.app_topic, accepted, work.parts, work.staged_ms, work.timeout_ms)
    assert again.coordinator().commit(work).number
    assert again.coordinator().commit(bench.work(5)).number


def test_offsets_of_the_lost_history_are_refused() -> None:
    bench = Bench()
    written(bench, 0, 1)
    again = Again(bench)
    written(bench, 2)
    again.restore()
    again.coordinator().commit(bench.work(2))
    buffer, read = transaction_buffer(again.cluster()), LogSelection((T, U))
    kept = again.backup.heading.number
    assert buffer.read_to(read, kept).cut >= kept
    assert buffer.read_to(read, STRIDE).cut >= STRIDE
    with pytest.raises(OffsetOutOfRange, match=f"from before .* was restored.*up to {kept}"):
        buffer.read_to(read, kept + 1)


# --- the rules --------------------------------------------------------------------------------------------------------


def _header(state: State, commit: int | None = None) -> Header:
    return Header(state=state, timeout=Nanos(1), created_at=Nanos(1), commit=commit)


def _told(**known: Told) -> Callable[[str], Told]:
    return lambda txn: known[txn]


def test_a_cursor_at_a_number() -> None:
    claims = {"a": parse_all(["5:0"]), "b": parse_all(["6:0"]), "c": parse_all(["7:0"])}
    before = Cursor(acked=parse_all(["1:0"]), claims=claims)
    after = Cursor(acked=parse_all(["1:0", "5:0", "6:0"]), claims={"c": claims["c"]})
    told = _told(a=Told(_header(State.COMMITTED, 9)), b=Told(_header(State.COMMITTED, 11)), c=Told(_header(State.COMMITTED), True))
    found = consistent_cut.cursor_at(10, before, after, told)
    assert (found.acked, found.claims) == (parse_all(["1:0", "5:0", "7:0"]), {})
    with pytest.raises(Moving, match="unknown consumer"):
        consistent_cut.cursor_at(10, before, Cursor(acked=parse_all(["1:0", "5:0", "8:0"]), claims={}), told)
    # Now transaction a is aborted, so its ack of 5:0 does not count. An unknown consumer must have acknowledged 5:0.
    dropped = _told(a=Told(_header(State.ABORTED)), b=told("b"), c=told("c"))
    with pytest.raises(Moving, match="unknown consumer"):
        consistent_cut.cursor_at(10, before, after, dropped)
    with pytest.raises(Moving, match="moved back"):
        consistent_cut.cursor_at(10, before, Cursor(), told)
    # Transaction c has only acknowledgements, so it has no log number. Now c may have been decided between the two reads of
    # the cursor, so nobody knows whether its acks belong to the backup.
    unsure = _told(a=told("a"), b=told("b"), c=Told(_header(State.COMMITTED)))
    with pytest.raises(Moving, match="the transaction c"):
        consistent_cut.cursor_at(10, before, after, unsure)


def test_an_application_at_a_number() -> None:
    before = Application(last_committed=3, by="q", current=Attempt(version=4, txn_id="t4", by="q"))
    after = Application(last_committed=5, by="q", current=Attempt(version=6, txn_id="t6", by="q"))
    told = _told(t4=Told(_header(State.COMMITTED, 8)))
    written = [Written(8, "t4", 4, True), Written(9, "t5", 5, True), Written(12, "t6", 6, True)]
    for number, version in ((7, 3), (8, 4), (9, 5), (11, 5), (12, 6)):
        assert consistent_cut.application_at(number, before, after, written, told).last_committed == version
    with pytest.raises(Moving, match="version 5"):
        consistent_cut.application_at(9, before, after, written[:1], told)
    aborted = _told(t4=Told(_header(State.ABORTED)))  # t4 is aborted, so an unknown attempt must have committed version 4
    with pytest.raises(Moving, match="version 4"):
        consistent_cut.application_at(9, before, before.model_copy(update={"last_committed": 4}), [], aborted)
    with pytest.raises(Moving, match="decided meanwhile"):
        consistent_cut.application_at(9, before, after, written, _told(t4=Told(_header(State.COMMITTED))))


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_backup_file_round_trips_and_replaces_no_file(tmp_path: Path) -> None:
    bench = Bench()
    written(bench, 1)
    backup = taken(bench)
    path = tmp_path / "a.gz"
    assert backup_file.write(path, backup) == path.stat().st_size
    assert backup_file.read(path) == backup
    assert sorted(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigurationError, match="exists already"):
        backup_file.write(path, backup)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(lines[0])["txnsegmentBackup"] == 1
    assert [json.loads(line)["key"] for line in lines[1:-1]] == [kept.key.path for kept in backup.records]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    bench = Bench()
    written(bench, 1)
    path = tmp_path / "a.gz"
    backup_file.write(path, taken(bench))
    packed = path.read_bytes()
    plain = gzip.decompress(packed)
    head, *rest = plain.splitlines(keepends=True)
    damaged = [packed[:length] for length in (0, 1, 10, len(packed) // 2, len(packed) - 1)]
    damaged += [packed[:i] + bytes([packed[i] ^ 1]) + packed[i + 1 :] for i in range(10, len(packed), 97)]
    damaged += [
        gzip.compress(data)
        for data in (
            b"",
            b"{}\n",
            plain.replace(b"COMMITTED", b"ABORTED..", 1),
            head + b"".join(rest[:-2] + rest[-1:]),
            head + b"".join(rest[:-1]),
            b"\n" + plain,
        )
    ]
    for i, data in enumerate(damaged):
        path.write_bytes(data)
        with pytest.raises(BackupDamaged):
            pytest.fail(f"damage {i} was read as {backup_file.read(path).heading}")
    path.write_bytes(gzip.compress(plain.replace(b'"txnsegmentBackup":1', b'"txnsegmentBackup":4', 1)))
    with pytest.raises(BackupDamaged, match="format is 4, not one of 1, 2, 3"):
        backup_file.read(path)


def test_a_backup_that_is_behind_is_a_conflict_of_versions() -> None:
    """A program that handles version conflicts also handles a cluster that was restored to an earlier version."""
    assert issubclass(RestoredBehind, VersionConflict)
