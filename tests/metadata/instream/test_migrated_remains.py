"""Migrated rows are kept exactly as long as the successor's policy says (protocol.md section 7, and section 8, invariant 14)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from ledgers.model import Part
from metadata.client.passes import delete_orphans
from metadata.common.errors import DataLoss, TopicExists, TopicNotFound, TxnSegmentError
from metadata.instream.client import InStream
from metadata.instream.migrating import Migrator
from metadata.instream.model import transaction_buffer
from metadata.maintenance.sweeper import Sweeper
from metadata.maintenance.trimming import Trimmed, Trimmer
from metadata.read.reading import LogSelection, Reading
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, topic_name
from metadata.records.row_ranges import before, end_of
from metadata.rules.acks import up_to
from metadata.store.contract import decide
from metadata.topics import policies
from metadata.topics.topics import Topics
from metadata.write.write_set import WriteSet
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.losses import check_trims
from tests.support.bench import PERSISTENT, At, Bench, each, label

T, U = PERSISTENT

Y, Z = topic_name("topic://public/default/y"), topic_name("topic://public/default/z")


def migrate(bench: Bench, name: PersistentName = T, to: TopicName = Y) -> InStream:
    party = bench.instream()
    Migrator(party.cluster, party.coordinator).migrate(name, to, segments=2, force=True)
    return party


def read(bench: Bench) -> Reading:
    return transaction_buffer(bench.instream().cluster).read(LogSelection((str(Y),)))


def rows(bench: Bench) -> list[str]:
    reading = read(bench)
    return [label(p) for s in reading.segments for found in s.ledgers(0, reading.cut) for p in found.parts]


def trim(bench: Bench, party: InStream | None = None) -> Trimmed:
    party = bench.instream() if party is None else party
    return Trimmer(party.cluster, transaction_buffer(party.cluster)).trim(Y)


def keep(bench: Bench, **limits: int | bool) -> None:
    policies.put(bench.instream().cluster, str(Y), limits)


def sweep(bench: Bench, party: InStream | None = None) -> None:
    """Run every job of the sweepers once."""
    party = bench.instream() if party is None else party
    party.sweeper.sweep()
    Sweeper(party.cluster, transaction_buffer(party.cluster)).sweep()
    with suppress(TopicNotFound):
        trim(bench, party)
    delete_orphans(party.cluster)


def later(bench: Bench) -> None:
    bench.clock.now += bench.settings.orphan_age_ms + bench.settings.grace_period_ms + 1


def prepared() -> Bench:
    """Return a bench with a migrated topic. The topic has three visible rows of 4 bytes, one of them from a plain message, and an
    aborted row. A subscription has acknowledged the first row.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(T), "s")
    party.coordinator.commit(bench.work(1, topics=[T]))
    aborted = party.coordinator.begin(topics=[T])
    party.coordinator.append(aborted, {T: [bench.part("aborted")]})
    party.coordinator.end(aborted, commit=False)
    party.coordinator.append(None, {T: [bench.part("plain")]})
    party.coordinator.commit(bench.work(2, topics=[T]))
    party.coordinator.acks.acknowledge([up_to(str(T), "s", end_of(1))])
    migrate(bench)
    return bench


def test_the_new_topic_s_retention_takes_the_oldest_rows_and_no_more() -> None:
    bench = prepared()
    later(bench)
    assert trim(bench) == Trimmed(), "the policy has no limit, so no row is trimmed"
    assert len(rows(bench)) == 3
    keep(bench, retention_bytes=8, despite_subscriptions=True)
    assert trim(bench) == Trimmed(segments=1, rows=1, bytes=4)
    assert rows(bench) == ["plain", "app.2"]
    assert trim(bench) == Trimmed()
    keep(bench, retention_ms=1)
    bench.clock.now += 2
    assert trim(bench) == Trimmed(segments=1, rows=2, bytes=8)
    assert rows(bench) == []


def test_retention_counts_migrated_rows_with_the_successor_segments() -> None:
    bench = prepared()
    party = bench.instream()
    party.coordinator.redirect.coordinator.commit(onto(bench, 3))
    keep(bench, retention_bytes=8, despite_subscriptions=True)
    assert trim(bench).rows == 2
    assert rows(bench) == ["app.2", "app.3"]


def onto(bench: Bench, version: int) -> WriteSet:
    made = replace(bench.work(version, topics=[T]), app_topic=str(Y))
    segment = Topics(bench.instream().cluster).get(Y).segments()[-1]
    return replace(made, parts={segment: made.parts[str(T)]}, keys={str(Y): None})


def test_a_subscription_holds_back_its_unacknowledged_rows() -> None:
    bench = prepared()
    keep(bench, retention_ms=1)
    bench.clock.now += 2
    assert trim(bench).rows == 1
    assert rows(bench) == ["plain", "app.2"]
    last = read(bench).segments[0].last(read(bench).cut)
    assert last is not None
    bench.instream().coordinator.redirect.coordinator.acks.advance([up_to(str(T), "s", end_of(*last))])
    assert trim(bench).rows == 2


def test_retention_trims_whole_transactions() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    for text in ("a", "b", "c"):
        party.coordinator.append(txn, {T: [bench.part(text)]})
    party.coordinator.end(txn, commit=True)
    party.coordinator.append(None, {T: [bench.part("d")]})
    party.coordinator.acks.create(str(T), "s")
    party.coordinator.acks.acknowledge([up_to(str(T), "s", end_of(2))])  # the first two rows of the transaction
    migrate(bench)
    keep(bench, retention_bytes=15)
    assert trim(bench).rows == 0
    keep(bench, retention_bytes=15, despite_subscriptions=True)
    assert trim(bench).rows == 3
    assert rows(bench) == ["d"]


def test_readers_of_trimmed_rows_get_an_error() -> None:
    bench = prepared()
    before = read(bench)
    first, *_, last = (before.segments[0].number(found.id) for found in before.segments[0].ledgers(0, before.cut))
    keep(bench, retention_ms=1, despite_subscriptions=True)
    bench.clock.now += 2
    trim(bench)
    reading = read(bench)
    with pytest.raises(DataLoss, match=rf"{T} was trimmed by retention up to 6:0: its rows after 1 up to there"):
        check_trims(LogRange(reading, first, reading.cut), {})
    check_trims(LogRange(reading, last, reading.cut), {})  # a reader at the last row loses no row, because only markers follow
    assert reading.last_change(0) == reading.segments[0].sealed_at
    assert [number for number, _ in reading.published(0, reading.cut)] == [last]


def test_a_fully_trimmed_topic_leaves_only_its_name() -> None:
    bench = prepared()
    before_it = read(bench).segments[0]
    keep(bench, retention_ms=1, despite_subscriptions=True)
    later(bench)
    sweep(bench)
    parts = [path for path in bench.disk.files if "/x/persistent/" in path]
    assert len(parts) == 4, "the files stay for the grace period, for earlier plans"
    assert Topics(bench.instream().cluster).get(Y).layout.segments.keys() == {"0", "1", "2"}, (
        "the segment stays because a subscription has not acknowledged its rows"
    )
    bench.instream().coordinator.redirect.coordinator.acks.seek({(str(T), "s"): before(end_of(99))})
    for _ in range(4):
        later(bench)
        sweep(bench)
    layout = Topics(bench.instream().cluster).get(Y).layout
    assert layout.segments.keys() == {"1", "2"}
    assert layout.trimmed_to is not None
    assert layout.trimmed_to.ledger_id == before_it.newest(0, 10**9), "`trimmed_to` is a number of the cluster's log"
    check_only_the_name_is_left(bench)
    assert rows(bench) == []
    assert bench.labels(T) == []
    assert bench.instream().coordinator.redirect.name(str(T)) == Y
    assert bench.instream().coordinator.commit(replace(bench.work(1, topics=[T]), app_topic=str(T))).rows == 1
    assert rows(bench) == ["app.1"]
    with pytest.raises(DataLoss, match=str(Y)):
        check_trims(LogRange(read(bench), 0, read(bench).cut), {})


def check_only_the_name_is_left(bench: Bench) -> None:
    """Check that only the record and the SEAL of the persistent topic are left. The SEAL makes all entries above it void."""
    kept = [key.path for key in bench.state.records if "persistent%3A%2F%2Fpublic%2Fdefault%2Ft" in key.path]
    assert [path.split("/")[2] for path in kept] == ["logs"], kept
    record = bench.instream().topics.get(T).layout
    assert (record.snapshot, record.schema_id, record.leaving) == (None, None, ())
    assert not [path for path in bench.disk.files if "/x/persistent/" in path or "/t/persistent/" in path]


def parts(bench: Bench) -> dict[int, Part]:
    """Return the parts of the persistent topic by their numbers."""
    return {found.id: part for found in bench.instream().buffer.read(T).ledgers() for part in found.parts}


def check_no_row_is_gone(bench: Bench, before: dict[int, Part], why: str) -> None:
    """Check that exactly the rows above the trimmed number of the topic's record are visible, and that their files exist."""
    trimmed = bench.instream().topics.get(T).layout.trimmed_log
    left = {number: part for number, part in before.items() if number > trimmed}
    assert parts(bench) == left, why
    assert all(part.path in bench.disk.files for part in left.values()), why
    with suppress(TopicNotFound):  # the successor may be deleted
        assert rows(bench) == [label(part) for part in left.values()], why


def deleted(bench: Bench) -> Bench:
    Topics(bench.instream().cluster).delete(Y)
    return bench


def test_deleting_the_successor_deletes_the_migrated_topic() -> None:
    bench = deleted(prepared())
    party = bench.instream()
    assert [topic.name for topic in party.topics.list()] == [U]
    with pytest.raises(TopicNotFound, match=f"migrated to {Y}, which was deleted"):
        Migrator(party.cluster, party.coordinator).made(T)
    with pytest.raises(TopicExists, match=f"migrated to {Y}"):
        party.topics.create(T)
    sweep(bench)
    assert len([path for path in bench.disk.files if "/x/persistent/" in path]) == 4, (
        "the files stay for reads that were planned before"
    )
    for _ in range(4):
        later(bench)
        sweep(bench)
    check_only_the_name_is_left(bench)
    made = Topics(party.cluster).create(Y)
    assert Migrator(party.cluster, party.coordinator).made(T) == Y
    assert party.coordinator.commit(bench.work(3, topics=[T])).rows == 1
    assert rows(bench) == ["app.3"]
    assert made.layout.migration is not None


def test_a_topic_that_was_deleted_leaves_its_tombstone_alone() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(T), "s")
    party.coordinator.commit(bench.work(1, topics=[T]))
    party.coordinator.acks.acknowledge([up_to(str(T), "s", end_of(1))])
    party.sealing.delete(T)
    for _ in range(4):
        later(bench)
        sweep(bench)
    kept = [key.path for key in bench.state.records if "persistent%3A%2F%2Fpublic%2Fdefault%2Ft" in key.path]
    assert kept == []
    assert not [path for path in bench.disk.files if "/x/persistent/" in path]
    with pytest.raises(TopicExists, match="cannot be used again"):
        party.topics.create(T)


def test_entries_of_a_zombie_above_the_seal_are_deleted() -> None:
    bench = prepared()
    keep(bench, retention_ms=1, despite_subscriptions=True)
    zombie = bench.instream()
    late = zombie.coordinator._data(T, None, [bench.part("late")], bench.clock.now_ms())
    number = zombie.buffer.log(T).append(late)
    bench.instream().coordinator.redirect.coordinator.acks.seek({(str(T), "s"): before(end_of(99))})
    sweeping = bench.instream()
    for _ in range(5):
        later(bench)
        sweep(bench, sweeping)
    kept = sweeping.buffer.log(T)
    assert decide(sweeping.cluster.store, lambda view: kept.entries(view, [number])[0]) == {}, (
        "the sweeping process does not remember the deleted entry"
    )
    check_only_the_name_is_left(bench)
    assert bench.labels(T) == bench.labels(T, zombie) == rows(bench) == []


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
@pytest.mark.parametrize("end", [lambda bench: keep(bench, retention_ms=1, despite_subscriptions=True), deleted])
def test_a_sweep_that_dies_while_deleting_is_finished_by_the_next(end: Callable[[Bench], object], fate: Fate) -> None:
    """A sweep crashes at each of its writes, and the next sweeps finish its work. No row is missing before the topic's record shows
    the trim. In the end all rows are removed.
    """

    def run(k: int) -> At:
        bench = prepared()
        bench.instream().coordinator.redirect.coordinator.acks.seek({(str(T), "s"): before(end_of(99))})
        whole = parts(bench)
        end(bench)
        gate = At(k, fate, kinds=("write",))
        died = False
        for _ in range(4):
            later(bench)
            with suppress(Crashed, TxnSegmentError):
                sweep(bench, bench.instream() if died else bench.instream(gate))
            check_no_row_is_gone(bench, whole, gate.hit)
            died = died or bool(gate.hit)
        for _ in range(2):
            later(bench)
            sweep(bench)
        check_only_the_name_is_left(bench)
        return gate

    assert each(run) > 10, "the sweep had more than ten writes"


def test_a_sweep_takes_no_cursor_that_a_migration_to_another_name_has_found() -> None:
    """A migration to Y has created the topic's cursors, and then fails because another process has created Y. A sweep begins, and
    the topic is migrated to Z during the sweep, in each run at another step. The migration to Z uses the same cursors, so the sweep
    must not delete them.
    """
    cursor = paths.cursor(str(T), "s")

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        bench.instream().coordinator.acks.create(str(T), "s")

        def taken(kind: str, what: str) -> Fate:
            if kind == "write" and what.endswith(paths.topic(Y).path):
                Topics(bench.instream().cluster).create(Y)
            return Fate.GO

        party = bench.instream(taken)
        with pytest.raises(TopicExists):
            Migrator(party.cluster, party.coordinator).migrate(T, Y)
        assert cursor in bench.state.records
        gate = At(k, meanwhile=lambda: migrate(bench, to=Z))
        swept = bench.instream(gate).cluster
        Sweeper(swept, transaction_buffer(swept)).sweep()
        if gate.hit:
            assert cursor in bench.state.records, gate.hit
            bench.instream().coordinator.redirect.coordinator.acks.advance([up_to(str(T), "s", end_of(1))])
        return gate

    assert each(run) > 10, "the sweep had more than ten steps"
