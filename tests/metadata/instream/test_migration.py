"""Migration of persistent topics: no row is lost, doubled or reordered, with a crash at any step (docs/in_stream.md, Migration)."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.passes import delete_orphans
from metadata.common.errors import (
    NotAllowed,
    OptionError,
    TopicExists,
    TopicNotFound,
    TopicSealed,
    TxnConflict,
    TxnSegmentError,
    VersionConflict,
)
from metadata.instream import paths as instream_paths
from metadata.instream.client import InStream
from metadata.instream.legacy import LegacySegment
from metadata.instream.migrating import Migrator
from metadata.instream.model import transaction_buffer
from metadata.maintenance.sweeper import Sweeper
from metadata.read.reading import LogSelection, Reading
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.persistent_records import EntryKind, LogEntry
from metadata.records.records import SegmentState
from metadata.records.row_ranges import parse_all, texts
from metadata.rules.acks import Ack, done
from metadata.rules.transitions import limited
from metadata.topics.topics import Topic, Topics
from metadata.write.write_set import WriteSet
from tests.support.bench import PERSISTENT, At, Bench, each, label

T, U = PERSISTENT

Y, Z = topic_name("topic://public/default/y"), topic_name("topic://public/default/z")
FATES = [fate for fate in Fate if fate not in (Fate.GO, Fate.LATE)]
WRITES = ("write",)
EVERYWHERE = At(0).kinds


def migrate(party: InStream, *, force: bool = True, segments: int = 2) -> Topic:
    return Migrator(party.cluster, party.coordinator).migrate(T, Y, segments=segments, force=force)


def read(bench: Bench, name: str = str(Y)) -> Reading:
    return transaction_buffer(bench.instream().cluster).read(LogSelection((name,)))


def rows(bench: Bench, after: int = 0, through: int | None = None) -> list[str]:
    """Return the labels of the successor's visible parts, ordered by log number."""
    reading = read(bench)
    top = reading.cut if through is None else through
    found = [
        (segment.number(ledger.id), label(part))
        for segment in reading.segments
        for ledger in segment.ledgers(after, top)
        for part in ledger.parts
    ]
    return [text for _, text in sorted(found, key=lambda one: one[0])]


def work(bench: Bench, version: int, topic: str = str(T), app: str = "app") -> WriteSet:
    """Return a write set as the Spark sink makes it: its application belongs to the topic `topic`."""
    return replace(bench.work(version, app=app, topics=[T]), app_topic=topic)


def onto(bench: Bench, party: InStream, version: int) -> WriteSet:
    """Return the write set of `work` for this version, but with its part in the newest segment of the successor."""
    segment = Topics(party.cluster).get(Y).segments()[-1]
    made = work(bench, version, str(Y))
    return replace(made, parts={segment: made.parts[str(T)]}, keys={str(Y): None})


def prepared() -> Bench:
    """Return a bench with a topic. The topic has a committed and acknowledged row, an aborted row, a plain message, and a row of a
    transaction whose owner crashed.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(T), "s")
    party.coordinator.commit(work(bench, 1))
    aborted = party.coordinator.begin(topics=[T])
    party.coordinator.append(aborted, {T: [bench.part("aborted")]})
    party.coordinator.end(aborted, commit=False)
    party.coordinator.append(None, {T: [bench.part("plain")]})
    party.coordinator.acks.acknowledge([Ack(str(T), "s", parse_all(["1"]))])
    with pytest.raises(Crashed):
        bench.instream(At(2, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(work(bench, 1, app="dead"))
    return bench


def check_done(bench: Bench, expected: list[str], why: str) -> None:
    """Check that the successor has all rows, the applications' versions and the acks of the subscription."""
    party = bench.instream()
    assert rows(bench) == expected, why
    assert party.coordinator.commit(work(bench, 2)).skipped, why
    assert party.coordinator.redirect.coordinator.commit(onto(bench, party, 2)).skipped, why
    with pytest.raises(VersionConflict):
        party.coordinator.commit(replace(work(bench, 1), claim=replace(work(bench, 1).claim, by="another query")))
    party.coordinator.commit(work(bench, 3))
    assert rows(bench) == [*expected, "app.3"], why
    cursors = party.coordinator.redirect.coordinator.acks.read((s.name, "s") for s in read(bench).segments)
    assert [texts(done(c)) for c in cursors.values()] == [["1"], [], []], why


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
def test_a_migration_interrupted_at_every_step_is_finished_by_a_repetition(fate: Fate) -> None:
    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, fate, kinds=EVERYWHERE if fate is Fate.CRASH_BEFORE else WRITES)
        with suppress(Crashed, TxnSegmentError):
            migrate(bench.instream(gate))
        with suppress(TopicNotFound):
            assert rows(bench) == ["app.1", "plain"], gate.hit  # the first reader finds either no successor or all rows
        bench.instream().coordinator.commit(work(bench, 2))  # a writer under the old name can commit before and after the migration
        migrate(bench.instream())
        check_done(bench, ["app.1", "plain", "app.2"], gate.hit)
        return gate

    assert each(run) > 10


def test_an_empty_version_is_committed_once_across_a_migration_at_any_step() -> None:
    """A seal makes data above it void, which prevents a second commit of rows. A version without rows has no data. It is
    nevertheless committed only once: under the topic's old name, or in the successor.
    """

    def run(k: int) -> At:
        bench, others = Bench(topics=PERSISTENT), list[bool]()
        bench.instream().coordinator.commit(work(bench, 1))

        def meanwhile() -> None:
            party = bench.instream()
            migrate(party)
            others.append(party.coordinator.redirect.coordinator.commit(onto(bench, party, 2)).skipped)

        gate = At(k, meanwhile=meanwhile, kinds=EVERYWHERE)
        empty = replace(work(bench, 2), parts={})
        try:
            done = bench.instream(gate).coordinator.commit(empty)
        except TxnConflict:  # the migration has aborted the transaction
            done = bench.instream().coordinator.commit(empty)
        assert not others or done.skipped != others[0], (k, done)
        return gate

    assert each(run) > 5


@pytest.mark.parametrize("why", ["migrate", "terminate"])
def test_a_seal_is_never_trimmed(why: str) -> None:
    """The topic has had no transactions. A trim leaves the SEAL in its log. If the SEAL were trimmed, the topic would accept writes
    again, and its next SEAL would have another number.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.append(None, {T: [bench.part("before")]})
    seal = party.sealing.seal(T, why, to=str(Y), segments=1)
    assert seal == 2
    with suppress(TopicSealed):
        party.coordinator.append(None, {T: [bench.part("behind it")]})
    reading = party.buffer.read(T)
    assert party.sweeper.trimmer.trim_to(reading, reading.cut) == seal - 1
    fresh = bench.instream()
    assert fresh.sealing.seal(T, why, to=str(Y), segments=1) == seal
    with pytest.raises(TopicSealed):
        fresh.coordinator.append(None, {T: [bench.part("later")]})
    assert bench.labels(T) == []


def test_a_trim_stops_at_the_first_undecided_transaction_also_below_a_seal() -> None:
    """An undecided transaction never ends in a topic that is terminated meanwhile. So the trim stays below this transaction."""
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(work(bench, 1))
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(txn, {T: [bench.part("stalls")]})
    party.coordinator.append(None, {T: [bench.part("plain")]})
    seal = party.sealing.terminate(T)
    reading = party.buffer.read(T)
    assert reading.cut == seal - 3
    assert party.sweeper.trimmer.trim_to(reading, seal) == reading.cut
    assert bench.labels(T) == []
    assert bench.instream().buffer.read(T).ongoing == {txn: seal - 2}


MEANWHILE: dict[str, Callable[[Bench], object]] = {
    "another-migrates": lambda bench: migrate(bench.instream()),
    "somebody-writes": lambda bench: bench.instream().coordinator.commit(work(bench, 2)),
    "somebody-sweeps": lambda bench: (bench.late(), bench.instream().sweeper.sweep()),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_migration_is_safe_with_other_work_at_every_step(what: str) -> None:
    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, meanwhile=lambda: MEANWHILE[what](bench), kinds=WRITES if what == "somebody-sweeps" else EVERYWHERE)
        migrate(bench.instream(gate))
        bench.instream().coordinator.commit(work(bench, 2))
        check_done(bench, ["app.1", "plain", "app.2"], gate.hit)
        return gate

    assert each(run) > 10


def test_a_commit_is_interrupted_by_a_migration_at_every_step() -> None:
    """The topic is migrated at each step of a commit. The interrupted version is committed exactly once."""

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, meanwhile=lambda: migrate(bench.instream()))
        try:
            bench.instream(gate).coordinator.commit(work(bench, 2))
        except TxnConflict:  # `force` makes the migration abort open transactions
            bench.instream().coordinator.commit(work(bench, 2))
        migrate(bench.instream())
        check_done(bench, ["app.1", "plain", "app.2"], gate.hit)
        return gate

    assert each(run) > 10


def test_one_of_two_migrations_to_two_topics_wins() -> None:
    def run(k: int) -> At:
        bench = prepared()

        def other() -> None:
            with suppress(TopicSealed):
                party = bench.instream()
                Migrator(party.cluster, party.coordinator).migrate(T, Z, force=True)

        gate = At(k, meanwhile=other, kinds=WRITES)
        with suppress(TopicSealed):
            migrate(bench.instream(gate))
        there = [name for name in (Y, Z) if Topics(bench.instream().cluster).find(name) is not None]
        assert len(there) == 1, gate.hit
        assert bench.instream().coordinator.redirect.name(str(T)) == there[0]
        return gate

    assert each(run) > 10


def test_a_migration_never_takes_over_a_topic_made_meanwhile() -> None:
    def run(k: int) -> At:
        bench = prepared()
        theirs: list[Topic] = []

        def other() -> None:
            with suppress(TopicExists):
                theirs.append(Topics(bench.instream().cluster).create(Y))

        gate = At(k, meanwhile=other)
        party = bench.instream()
        try:
            migrate(bench.instream(gate))
            assert rows(bench) == ["app.1", "plain"]
            assert not theirs, gate.hit
        except TopicExists:
            assert Topics(party.cluster).get(Y).layout == theirs[0].layout
            assert rows(bench) == []
            made = Migrator(party.cluster, party.coordinator).migrate(T, Z, force=True)
            assert made.layout.migration is not None
            assert made.layout.migration.topic == str(T)
        return gate

    assert each(run) > 10


def foreign() -> Bench:
    """Return a bench with a failed migration: another process created the topic `y` after the record named `y` as the successor."""
    bench = prepared()

    def taken(kind: str, what: str) -> Fate:
        if kind == "write" and what.endswith(paths.topic(Y).path):
            Topics(bench.instream().cluster).create(Y)
        return Fate.GO

    with pytest.raises(TopicExists, match="created by another process"):
        migrate(bench.instream(taken))
    return bench


def test_a_topic_never_redirects_to_an_unrelated_topic_made_meanwhile() -> None:
    bench = foreign()
    party = bench.instream()
    migrator = Migrator(party.cluster, party.coordinator)
    for look in (migrator.made, migrator.named, lambda _: migrator.matching(re.compile(re.escape(str(T))))):
        with pytest.raises(TopicExists, match="created by another process"):
            look(T)
    assert bench.labels(T) == ["app.1", "plain"]
    Topics(party.cluster).delete(Y)
    assert [topic.name for topic in party.topics.list()] == [T, U], "the deletion of Y deleted no row of T"
    assert migrator.migrate(T, Z, force=True).name == migrator.made(T) == Z


def test_the_successor_of_a_topic_is_looked_up_once() -> None:
    """The lookup reads the topic's record. If the record names a successor, the lookup reads the successor's record, too. No record
    is read twice.
    """
    bench = prepared()
    counted: list[str] = []

    def gate(kind: str, what: str) -> Fate:
        counted.append(f"{kind} {what}")
        return Fate.GO

    party = bench.instream(gate)
    migrator = Migrator(party.cluster, party.coordinator)
    assert migrator.made(T) is None
    assert counted == [f"get {instream_paths.topic(T).path}"]
    migrate(bench.instream())
    counted.clear()
    assert migrator.made(T) == Y
    assert counted == [f"get {instream_paths.topic(T).path}", f"get {paths.topic(Y).path}"]


def test_open_transactions_are_named_waited_for_or_aborted() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(txn, {T: [bench.part("late")]})
    before = dict(bench.state.records)
    with pytest.raises(TxnConflict, match=txn):
        migrate(bench.instream(), force=False)
    assert bench.state.records == before
    migrator = Migrator(party.cluster, party.coordinator)
    with pytest.raises(TxnConflict, match="--wait"):
        migrator.migrate(T, Y, wait_ms=500)
    party.coordinator.end(txn, commit=True)
    migrator.migrate(T, Y, wait_ms=500)
    assert rows(bench) == ["late"]


def test_pending_acks_block_a_migration() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(U), "s")
    party.coordinator.append(None, {U: [bench.part("a")]})
    txn = party.coordinator.begin(subscriptions=[(str(U), "s")])
    party.coordinator.acks.claim(txn, [Ack(str(U), "s", parse_all(["1"]))])
    migrator = Migrator(party.cluster, party.coordinator)
    with pytest.raises(TxnConflict, match=txn):
        migrator.migrate(U, Z)
    migrator.migrate(U, Z, force=True)
    cursor = party.coordinator.redirect.coordinator.acks.read([(str(U), "s")])[str(U), "s"]
    assert (cursor.claims, cursor.mark_delete) == ({}, None)


def test_refused_migrations_leave_nothing_behind() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    Topics(party.cluster).create(Y)
    before = dict(bench.state.records)
    with pytest.raises(TopicExists):
        migrate(party)
    migrator = Migrator(party.cluster, party.coordinator)
    with pytest.raises(OptionError):
        migrator.migrate(T, Z, segments=0)
    with pytest.raises(TopicNotFound):
        migrator.migrate(T._replace(name="none"), Z)
    assert bench.state.records == before
    party.sealing.terminate(T)
    with pytest.raises(TopicSealed, match="terminate"):
        migrator.migrate(T, Z)


def test_positions_and_limits() -> None:
    """Migrated ledgers keep their ids. In the cluster's log each of these ledgers has a number of its own below the seal, so that
    limits and offsets can fall between two ledgers.
    """
    bench = prepared()
    old = [(found.id, found.txn) for found in bench.instream().buffer.read(T).ledgers()]
    topics = Topics(bench.instream().cluster)
    other = topics.create(Z)
    before = read(bench, str(Z)).end_of_log
    migrate(bench.instream())
    reading = read(bench)
    legacy = reading.segments[0]
    assert (legacy.name, legacy.info.state, legacy.sealed_at) == (str(T), SegmentState.SEALED, reading.seals(0, reading.cut)[0])
    assert [(found.id, found.txn) for found in legacy.ledgers(0, reading.cut)] == old
    numbers = [legacy.number(ledger_id) for ledger_id, _ in old]
    assert before < numbers[0] < numbers[-1] < (legacy.sealed_at or 0)
    assert limited(reading.weights(0, reading.cut), reading.cut, max_rows=1) == numbers[0]
    assert rows(bench, 0, numbers[0]) == ["app.1"]
    assert rows(bench, numbers[0]) == ["plain"]
    assert reading.last_change(0) == legacy.sealed_at
    assert legacy.last(reading.cut) == (old[-1][0], 0)
    assert other.name == Z


def test_a_transaction_of_several_entries_is_never_split_by_a_limit() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    first, second = (party.coordinator.begin(topics=[T]) for _ in range(2))
    for txn, text in ((first, "a"), (second, "b"), (first, "c")):
        party.coordinator.append(txn, {T: [bench.part(text)]})
    for txn in (second, first):
        party.coordinator.end(txn, commit=True)
    party.coordinator.append(None, {T: [bench.part("d")]})
    migrate(party)
    reading = read(bench)
    assert rows(bench, 0, limited(reading.weights(0, reading.cut), reading.cut, max_rows=1)) == ["a", "b", "c"]


def test_the_last_row_below_a_cut_is_searched_from_the_cut_down() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for number in range(1, 21):
        party.coordinator.append(None, {T: [bench.part(str(number))]})
    party.coordinator.commit(bench.work(1, topics=[T]))
    migrate(party)
    party.sweeper.sweep()  # the sweep writes a snapshot, and a later replay reads only the entries above the snapshot
    buffer = transaction_buffer(bench.instream().cluster)
    (legacy, *_) = buffer.read(LogSelection((str(Y),))).segments
    assert isinstance(legacy, LegacySegment)
    known = legacy.buffer.log(T)._known
    assert not [number for number in known if number <= 20]
    assert legacy.newest(legacy.number(3), legacy.number(15)) == legacy.number(15)
    assert legacy.last(legacy.number(15)) == (15, 0)
    assert [number for number in known if number <= 20] == [15], "only entry 15 was read"
    assert legacy.newest(legacy.number(15), legacy.number(15)) == legacy.number(15)


def test_a_sweep_keeps_files_that_the_successor_reads() -> None:
    bench = prepared()
    migrate(bench.instream())
    party = bench.instream()
    Topics(party.cluster).split(Y, 1)
    for _ in range(3):
        bench.clock.now += max(bench.settings.orphan_age_ms, bench.settings.grace_period_ms) + 1
        Sweeper(party.cluster, transaction_buffer(party.cluster)).sweep()
        party.sweeper.sweep()
        delete_orphans(party.cluster)
    assert rows(bench) == ["app.1", "plain"]
    for ledger in read(bench).segments[0].ledgers(0, read(bench).cut):
        assert all(part.path in bench.disk.files for part in ledger.parts)
    with pytest.raises(NotAllowed, match="topic://"):
        party.sealing.delete(T)


def test_one_transaction_over_a_migrated_topic_and_another_is_refused() -> None:
    bench = Bench(topics=PERSISTENT)
    migrate(bench.instream())
    with pytest.raises(OptionError, match="never spans both kinds"):
        bench.instream().coordinator.commit(bench.work(1))
    assert bench.labels(U) == []


def test_a_seal_does_not_count_while_a_transaction_is_ongoing() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(txn, {T: [bench.part("row")]})
    entry = LogEntry(kind=EntryKind.SEAL, id="s", publish_ms=0, why="migrate", to=str(Y), segments=1)
    party.topics.change(T, lambda layout: layout.model_copy(update={"sealing": True}))
    party.buffer.log(T).append(entry)
    party.coordinator.end(txn, commit=True)
    assert bench.labels(T) == ["row"]
    assert Migrator(party.cluster, party.coordinator).successor(T) is None
