"""Tests of the long-term maintenance of a persistent topic: snapshots, trimming, compaction, upgrades, files, providers
(docs/in_stream.md).
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

import fastavro
import pytest
from test_migration import Y, foreign

from conformance.simulator.store.faults import Fate
from metadata.client.passes import delete_orphans
from metadata.client.providers import Providers
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import (
    CorruptPart,
    CorruptSnapshot,
    DataLoss,
    NotAllowed,
    OptionError,
    SweepIncomplete,
    TopicExists,
    TransactionNotFound,
)
from metadata.instream import paths, snapshots
from metadata.instream.client import instream
from metadata.instream.sweeping import InStreamReport
from metadata.maintenance.sweeper import complain
from metadata.records.names import PersistentName, TopicName, topic_name
from metadata.records.persistent_records import CONTAINS_TXN, Model, PersistentLayout
from metadata.records.records import Registration, SegmentWrite
from metadata.records.row_ranges import parse_all
from metadata.topics.policies import set_for_topic
from tests.support.bench import PERSISTENT, At, Bench, each

T, _ = PERSISTENT


def aborted(bench: Bench, label: str = "aborted") -> str:
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(txn, {T: [bench.part(label)]})
    party.coordinator.end(txn, commit=False)
    return txn


def layout(bench: Bench) -> PersistentLayout:
    return bench.instream().topics.get(T).layout


# --- snapshots ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_pulsars_record_of_max_read_position() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    gone = aborted(bench)
    open_txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(open_txn, {T: [bench.part("open")]})
    late = aborted(bench)
    assert party.buffer.snapshot(T)
    pointer = layout(bench).snapshot
    assert pointer is not None
    assert pointer.avro is not None
    found = fastavro.schemaless_reader(io.BytesIO(base64.b64decode(pointer.avro)), fastavro.parse_schema(snapshots.SCHEMA), None)
    assert (
        found
        == {
            "topicName": str(T),
            "maxReadPositionLedgerId": 4,  # the log has data, marker, data, marker, and then an undecided transaction
            "maxReadPositionEntryId": 0,
            "aborts": [
                {"txnIdMostBits": 1_000_000, "txnIdLeastBits": int(gone[8:]), "ledgerId": 4, "entryId": 0},
                {"txnIdMostBits": 1_000_000, "txnIdLeastBits": int(late[8:]), "ledgerId": 7, "entryId": 0},
            ],
        }
    )
    opened = bench.instream().buffer.open(party.cluster.store.view(), T)
    assert opened.replayed == 3  # only the entries above maxReadPosition are replayed
    assert bench.labels(T) == ["app.1"]
    party.coordinator.end(open_txn, commit=True)
    assert bench.labels(T) == ["app.1", "open"]


def test_snapshots_are_taken_by_count_and_by_time() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    assert not party.buffer.snapshot(T, entries=3, after_ms=1_000_000)
    assert party.buffer.snapshot(T, entries=2, after_ms=1_000_000)
    party.coordinator.commit(bench.work(2))
    assert not party.buffer.snapshot(T, entries=3, after_ms=1_000_000)
    bench.clock.now += 1_000_000
    assert party.buffer.snapshot(T, entries=3, after_ms=1_000_000)
    assert not party.buffer.snapshot(T)


def test_committers_take_snapshots_and_compact_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata.instream.coordinator.COMPACT_ENTRIES", 10)
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for version in range(20):
        bench.clock.now += 3_000
        party.coordinator.commit(bench.work(version, topics=[T]))
    pointer = layout(bench).snapshot
    assert pointer is not None
    assert pointer.at >= 36  # the topic gets one snapshot in five seconds, not one for each commit
    assert len(bench.kept("/persistent/logs/persistent%3A%2F%2Fpulsar")) <= 12
    fresh = bench.instream()
    assert fresh.buffer.open(fresh.cluster.store.view(), T).replayed <= 4
    assert fresh.coordinator.commit(bench.work(19)).skipped


def test_a_large_snapshot_is_stored_in_a_file_that_the_orphan_sweep_keeps() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for i in range(12):
        aborted(bench, f"a{i}")
    small, snapshots.INLINE_BYTES = snapshots.INLINE_BYTES, 64
    try:
        assert party.buffer.snapshot(T)
    finally:
        snapshots.INLINE_BYTES = small
    pointer = layout(bench).snapshot
    assert pointer is not None
    assert len(pointer.files()) == 2
    assert set(pointer.files()) <= set(party.sweeper.named_files(party.cluster.store.view()))
    opened = bench.instream().buffer.open(party.cluster.store.view(), T)
    assert opened.replayed == 0
    assert len(opened.state.aborted) == 12
    bench.disk.files[pointer.files()[0]] = (b"\x00", 0)
    damaged = bench.instream().buffer.open(party.cluster.store.view(), T)
    assert (damaged.replayed, len(damaged.state.aborted)) == (24, 12)  # the reader replayed the whole log


# --- trimming ----------------------------------------------------------------------------------------------------------


def test_trimming_removes_rows_and_their_state() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    gone = aborted(bench)
    party.coordinator.commit(bench.work(2))
    zombie = bench.instream()
    zombie.coordinator.append(gone, {T: [bench.part("zombie")]})
    planned = party.buffer.read(T)
    set_for_topic(party.cluster, T, {"retention_ms": 1_000})
    bench.clock.now += 10_000
    party.coordinator.append(None, {T: [bench.part("new")]})
    report = party.sweeper.sweep()
    assert report.trimmed == 1
    after = layout(bench)
    # Ledger 5 is the last visible ledger that is past its retention. Above it are a marker, data of an ended transaction, and the
    # new ledger.
    assert after.trimmed_log == 5
    assert bench.labels(T) == bench.labels(T, party) == ["new"]
    assert [ledger.id for ledger in planned.ledgers()] == [1, 5]  # the files of an earlier plan stay during the grace period
    zombie.coordinator.append(gone, {T: [bench.part("late zombie")]})
    assert bench.labels(T) == bench.labels(T, zombie) == ["new"]
    set_for_topic(party.cluster, T, {"retention_ms": None})
    bench.older()
    assert party.sweeper.sweep().left == 5
    assert bench.labels(T) == ["new"]
    with pytest.raises(DataLoss):
        list(bench.instream().buffer.read(T)._buffer.entries(T, [1]))
    assert gone not in party.buffer.read(T)._state.aborted
    bench.finish()
    assert bench.labels(T) == ["new"]


def test_a_trim_keeps_unacknowledged_rows() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(T), "s", parse_all(["0..1"]))
    for version in (1, 2):
        party.coordinator.commit(bench.work(version))
    set_for_topic(party.cluster, T, {"retention_ms": 1_000})
    bench.clock.now += 10_000
    party.sweeper.sweep()
    assert bench.labels(T) == ["app.2"]
    set_for_topic(party.cluster, T, {"despite_subscriptions": True})
    party.sweeper.sweep()
    assert bench.labels(T) == []
    assert party.buffer.read(T).last_change(0) == party.buffer.read(T).trimmed_to


def test_rows_trimmed_before_the_first_transaction_are_not_missed() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for i in range(3):
        party.coordinator.append(None, {T: [bench.part(f"p{i}")]})
    reading = party.buffer.read(T)
    assert party.sweeper.trimmer.trim_to(reading, 2) == 2
    assert layout(bench).snapshot is None
    party.coordinator.commit(bench.work(1))
    assert bench.labels(T) == bench.labels(T, party) == ["p2", "app.1"]
    bench.older()
    party.sweeper.sweep()
    assert bench.labels(T) == ["p2", "app.1"]


# --- data of unregistered transactions ---------------------------------------------------------------------------------


def test_data_of_an_unregistered_transaction_is_aborted_by_a_sweep_or_a_reader() -> None:
    """The transaction did not register the topic, so its end wrote no marker there. A sweep or a reader writes an abort marker,
    once the transaction has ended or is unknown. Guards against failure A4 (protocol.md section 9).
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin()
    party.coordinator.append(txn, {T: [bench.part("stray")]})
    party.coordinator.end(txn, commit=True)
    party.coordinator.append(None, {T: [bench.part("plain")]})
    assert bench.labels(T) == []
    bench.late()
    assert bench.labels(T) == ["plain"]
    with pytest.raises(TransactionNotFound):  # the append is refused, because this id may be allocated later
        party.coordinator.append("1000000_99999", {T: [bench.part("unknown")]})
    bench.older()
    party.sweeper.sweep()
    assert party.coordinator.log.txn(int(txn[8:])) is None
    bench.instream().coordinator.append(txn, {T: [bench.part("forgotten")]})
    party.coordinator.append(None, {T: [bench.part("more")]})
    bench.finish()
    assert bench.labels(T) == ["plain", "more"]


def test_memory_and_log_do_not_grow_with_history() -> None:
    """A process's state and the log have a bounded size after any number of commits. Guards against failure A13 (protocol.md
    section 9).
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for version in range(20):
        party.coordinator.commit(bench.work(version))
        if version % 5 == 4:
            bench.older()
            party.sweeper.sweep()
    bench.older()
    party.sweeper.sweep()
    party.sweeper.sweep()
    state = party.coordinator.log.replay.state
    assert len(state.txns) <= 5
    assert set(state.apps) == {"app:"}
    assert not state.live
    assert len(party.buffer.state(T).ended) <= 1
    fresh = bench.instream()
    assert fresh.coordinator.commit(bench.work(19)).skipped
    assert fresh.buffer.open(fresh.cluster.store.view(), T).replayed == 0


# --- upgrades ----------------------------------------------------------------------------------------------------------


def with_property(bench: Bench, value: str | None) -> None:
    found = bench.instream().topics.get(T)
    kept = {k: v for k, v in found.layout.properties.items() if k != CONTAINS_TXN}
    changed = found.layout.model_copy(update={"properties": kept | ({} if value is None else {CONTAINS_TXN: value})})
    bench.instream().cluster.store.put(paths.topic(T), changed.to_bytes())


@pytest.mark.parametrize("transactional", [False, True])
def test_upgrade_1_reading_sets_no_property(transactional: bool) -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.append(None, {T: [bench.part("p")]})
    if transactional:
        party.coordinator.commit(bench.work(1))
        aborted(bench)
    rows = ["p", "app.1"] if transactional else ["p"]
    with_property(bench, None)
    assert bench.labels(T) == rows
    bench.instream().sweeper.sweep()
    assert layout(bench).properties[CONTAINS_TXN] == ("true" if transactional else "false")
    assert bench.labels(T) == rows


def test_upgrade_2_a_property_that_is_no_boolean_stays_and_the_topic_is_always_replayed() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    aborted(bench)
    with_property(bench, "of a user")
    assert bench.labels(T) == ["app.1"]
    assert bench.instream().buffer.open(party.cluster.store.view(), T).replayed == 4
    party.coordinator.commit(bench.work(2))
    bench.instream().sweeper.sweep()
    assert layout(bench).properties[CONTAINS_TXN] == "of a user"
    with pytest.raises(NotAllowed):
        party.topics.set_property(T, CONTAINS_TXN, "true")


def test_upgrade_3_a_boolean_of_a_user_counts_as_the_systems() -> None:
    bench = Bench(topics=PERSISTENT)
    with_property(bench, "False")
    party = bench.instream()
    party.coordinator.append(None, {T: [bench.part("p")]})
    assert party.buffer.open(party.cluster.store.view(), T).replayed == 0
    party.coordinator.commit(bench.work(1))
    assert layout(bench).properties[CONTAINS_TXN] == "true"
    assert bench.labels(T) == ["p", "app.1"]


def test_the_property_is_set_before_the_first_transactional_entry() -> None:
    """The topic's property says whether its log may have transactional messages. A reader may list the log before the first of
    them, and then read the property. So the property must be true before the first transactional message is appended.
    """
    bench = Bench(topics=PERSISTENT)
    seen: list[str] = []

    def gate(kind: str, what: str) -> Fate:

        if kind == "write" and what.startswith("Append /persistent/logs/persistent%3A%2F%2Fpublic"):
            seen.append(layout(bench).properties[CONTAINS_TXN])
        return Fate.GO

    bench.instream(gate).coordinator.commit(bench.work(1))
    assert set(seen) == {"true"}
    assert seen


# --- files -------------------------------------------------------------------------------------------------------------


def test_the_orphan_sweep_keeps_files_named_by_logs_and_deletes_the_rest() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    bench.part("orphan")
    bench.clock.now += bench.settings.orphan_age_ms + 1
    party.coordinator.append(None, {T: [bench.part("young")]})
    before = set(bench.disk.files)
    deleted = delete_orphans(party.cluster)
    assert deleted.files == 1
    (gone,) = before - {path for path in bench.disk.files if "sweep/" not in path}
    assert "orphan" in gone
    assert bench.labels(T) == ["app.1", "young"]


def test_a_write_set_too_big_for_an_entry_lies_in_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata.instream.steps.MAX_INLINE", 200)
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    assert sum(path.startswith("manifests/") for path in bench.disk.files) == 2
    assert bench.labels(T) == ["app.1"]
    assert {p for p in bench.disk.files if p.startswith("manifests/")} <= set(party.sweeper.named_files(party.cluster.store.view()))


# --- both models -------------------------------------------------------------------------------------------------------


def test_providers_select_by_domain_and_by_namespace() -> None:
    bench = Bench(topics=PERSISTENT)
    providers = Providers(bench.party())
    new, other = PersistentName("public", "default", "new"), topic_name("topic://public/default/t")
    found = providers.select([T, new, other])
    assert {str(n): (s.model, s.name) for n, s in found.items()} == {
        str(T): (Model.IN_STREAM, str(T)),
        str(new): (Model.IN_STREAM, str(new)),
        str(other): (Model.METADATA, str(other)),
    }
    providers.set_namespace("public", "default", Model.METADATA)
    providers.set_namespace("public", "default", Model.METADATA)
    assert providers.select([T])[T].model is Model.IN_STREAM  # T exists, so it stays persistent until it is migrated
    assert providers.select([new])[new] == providers.select([TopicName(*new)])[TopicName(*new)]
    bench.instream().topics.change(T, lambda now: now.model_copy(update={"migrated_to": str(other)}))
    assert providers.select([T])[T].name == str(other)


def test_a_name_never_resolves_to_an_unrelated_topic_made_during_its_migration() -> None:
    bench = foreign()
    mine = bench.party()
    with pytest.raises(TopicExists, match="topics migrate"):
        Providers(mine).resolve(str(T))
    before = mine.topics.get(Y).layout
    with pytest.raises(TopicExists, match="topics migrate"):
        Providers(mine).coordinator([T]).commit(bench.work(7, topics=[T]))
    assert mine.topics.get(Y).layout == before


def test_a_write_set_goes_to_the_model_of_its_topics_and_never_to_both() -> None:
    bench = Bench(topics=PERSISTENT)
    both = bench.party()
    providers = Providers(both)
    topic = both.topics.create(topic_name("topic://public/default/t"))
    work = bench.work(1)
    assert providers.coordinator(work.parts) is both.instream.coordinator
    providers.coordinator(work.parts).commit(work)
    (segment,) = topic.segments()
    mixed = bench.work(2, topics=[T])
    mixed = type(mixed)(**{**vars(mixed), "parts": {**mixed.parts, segment: [bench.part("no")]}})
    before = dict(bench.state.records)
    with pytest.raises(OptionError, match="never spans both"):
        providers.coordinator(mixed.parts).commit(mixed)
    assert bench.state.records == before
    assert bench.labels(T) == ["app.1"]
    assert [providers.of([name]).model for name in (segment, str(T))] == [Model.METADATA, Model.IN_STREAM]


def test_one_sweep_covers_both_transaction_models() -> None:
    bench = Bench(topics=PERSISTENT)
    both = bench.party()
    txn = both.instream.coordinator.begin(topics=[T])
    both.instream.coordinator.append(txn, {T: [bench.part("late")]})
    bench.late()
    assert both.sweep().timed_out == 1
    both.instream.coordinator.commit(bench.work(1))
    assert both.instream.buffer.snapshot(T) or layout(bench).snapshot is not None
    pointer = layout(bench).snapshot
    assert pointer is not None
    damaged = {"snapshot": pointer.model_copy(update={"at": 99, "made_ms": 0}), "trimmed_log": 1}
    both.instream.topics.change(T, lambda now: now.model_copy(update=damaged))
    with pytest.raises(SweepIncomplete, match=str(T)):
        bench.party().sweep()


def test_a_sweep_of_both_models_reports_all_of_its_failures() -> None:
    older = InStreamReport(failed={str(T): CorruptSnapshot("One is damaged.")})
    with pytest.raises(SweepIncomplete) as newer:
        complain({"segment://public/default/t/0000-ffff-0": CorruptPart("Two is damaged.")})
    InStreamReport().complain(newer.value)  # a report without failures raises no error
    with pytest.raises(SweepIncomplete, match=r"One is damaged.*Two is damaged") as both:
        older.complain(newer.value)
    assert [str(cause) for cause in both.value.causes] == ["One is damaged.", "Two is damaged."]


def test_each_transaction_model_keeps_its_own_schema() -> None:
    from pyspark.sql.types import LongType, StructType

    bench = Bench(topics=PERSISTENT)
    topics = bench.instream().topics
    _, first = topics.schemas.evolve(T, StructType().add("a", LongType()))
    _, second = topics.schemas.evolve(T, StructType().add("a", LongType()).add("b", LongType()))
    assert (first, second) == (0, 1)
    assert topics.schemas.get(T, second).columns.fieldNames() == ["a", "b"]
    assert layout(bench).properties[CONTAINS_TXN] == "false"  # the schema code has written the record again, and kept the property


def test_on_sqlite_with_real_parts(tmp_path: Path) -> None:
    """Two clients use one SQLite store and real Parquet files."""
    import pyarrow as pa

    from ledgers.parts import PartWriter, read_part
    from metadata.records.folders import folder_of

    with_rows = pa.record_batch({"x": [1, 2, 3]})
    cluster = open_cluster(f"file://{tmp_path}/c")
    mine, other = instream(cluster), instream(open_cluster(f"file://{tmp_path}/c"))
    mine.topics.create(T)
    writer = PartWriter(cluster.storage, folder_of(str(T)), with_rows.schema, 0, staging_id="s")
    writer.write(with_rows)
    part = writer.close()
    assert part is not None
    txn = mine.coordinator.begin(topics=[T])
    mine.coordinator.append(txn, {T: [part]})
    assert list(other.buffer.read(T).ledgers()) == []
    other.coordinator.end(txn, commit=True)
    (ledger,) = other.buffer.read(T).ledgers()
    rows = [v for found in read_part(cluster.storage, ledger.parts[0], where=str(T)) for v in found.batch.column("x").to_pylist()]
    assert rows == [1, 2, 3]
    assert mine.sweeper.sweep().compacted > 0
    assert [found.id for found in mine.buffer.read(T).ledgers()] == [ledger.id]
    for party in (mine, other):
        party.cluster.close()


def test_an_entry_is_read_like_a_registration() -> None:
    """An entry of a persistent topic's log can be read as a Registration, because both models share the code for manifests."""
    bench = Bench(topics=PERSISTENT)
    bench.instream().coordinator.append(None, {T: [bench.part("p")]})
    ((_, entry),) = bench.instream().buffer.entries(T, [1])
    found = entry.registration(str(T))
    assert isinstance(found, Registration)
    assert isinstance(found.segments[str(T)], SegmentWrite)


@pytest.mark.parametrize("count", [1, 16])
def test_a_commit_takes_the_same_round_trips_for_any_number_of_topics(count: int) -> None:
    """A commit does these steps for all topics together. It reads the transaction log, appends NEW, and reads the log again. It
    reads the topics' records and appends the data. It reads the records, appends COMMITTING, and reads the log. It appends the
    markers, reads the records, and appends COMMITTED. A read of the log takes two round trips, each other step one.
    """
    names = [PersistentName("public", "default", f"t{i}") for i in range(count)]
    bench = Bench(topics=names)
    steps: list[str] = []

    def gate(kind: str, what: str) -> Fate:
        steps.append(f"{kind} {what[:60]}")
        return Fate.GO

    party = bench.instream(gate)
    party.coordinator.share = lambda names: None  # type: ignore[method-assign]
    party.coordinator.commit(bench.work(1, topics=names))
    steps.clear()
    party.coordinator.commit(bench.work(2, topics=names))
    assert len(steps) == 14, "\n".join(steps)


def test_a_topic_deleted_during_its_sweep_is_no_failure() -> None:
    def swept(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        bench.instream().coordinator.commit(bench.work(1))
        gate = At(k, meanwhile=lambda: bench.instream().sealing.delete(T))
        assert not bench.instream(gate).sweeper.sweep().failed, gate.hit
        return gate

    assert each(swept) > 20
