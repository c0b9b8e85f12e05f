"""Tests of the basic path of the marker-based model: create, begin, register, append, commit or abort, read (docs/in_stream.md)."""

from __future__ import annotations

import pytest

from metadata.common import metrics
from metadata.common.errors import NotAllowed, OptionError, TopicExists, TopicNotFound, TxnConflict, VersionConflict
from metadata.records.names import PersistentName, TopicName
from metadata.records.persistent_records import CONTAINS_TXN
from tests.support.bench import PERSISTENT, Bench

T, U = PERSISTENT


def test_names_of_both_domains_are_never_equal() -> None:
    mine, other = PersistentName("a", "b", "c"), TopicName("a", "b", "c")
    assert mine != other
    assert other != mine
    assert len({mine, other}) == 2
    assert str(mine) == "persistent://a/b/c"


def test_rows_of_a_transaction_are_visible_after_its_commit() -> None:
    bench = Bench(topics=PERSISTENT)
    owner = bench.instream()
    txn = owner.coordinator.begin()
    owner.coordinator.register(txn, [T, U])
    owner.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    owner.coordinator.append(txn, {T: [bench.part("c")]})
    assert bench.labels(T) == bench.labels(U) == []
    owner.coordinator.end(txn, commit=True)
    assert bench.labels(T) == ["a", "c"]
    assert bench.labels(U) == ["b"]
    owner.coordinator.end(txn, commit=True)  # a repetition of the same decision is accepted
    with pytest.raises(TxnConflict):
        owner.coordinator.end(txn, commit=False)
    assert bench.labels(T) == ["a", "c"]


def test_max_read_position_is_before_the_first_ongoing_transaction_and_aborted_rows_are_filtered() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    first, second = (party.coordinator.begin(topics=[T]) for _ in range(2))
    party.coordinator.append(None, {T: [bench.part("p0")]})
    party.coordinator.append(first, {T: [bench.part("a")]})
    party.coordinator.append(second, {T: [bench.part("b")]})
    party.coordinator.append(None, {T: [bench.part("p1")]})
    assert bench.labels(T) == ["p0"]
    party.coordinator.end(second, commit=True)
    assert bench.labels(T) == ["p0"]
    party.coordinator.end(first, commit=False)
    # plain messages, such as p1, also move maxReadPosition (failure A9)
    assert bench.labels(T) == bench.labels(T, party) == ["p0", "b", "p1"]
    reading = party.buffer.read(T)
    assert reading.max_read_position() == (reading.cut - 2, 0)  # the last two entries are markers, which have no rows
    assert [w.rows for w in reading.weights()] == [1, 1, 1]


def test_nothing_is_registered_or_committed_after_the_end() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.end(txn, commit=False)
    with pytest.raises(TxnConflict):
        party.coordinator.register(txn, [U])
    with pytest.raises(TxnConflict):
        party.coordinator.end(txn, commit=True)


def test_data_after_its_own_marker_is_void() -> None:
    bench = Bench(topics=PERSISTENT)
    owner, other = bench.instream(), bench.instream()
    txn = owner.coordinator.begin(topics=[T])
    other.coordinator.end(txn, commit=False)
    owner.coordinator.append(txn, {T: [bench.part("zombie")]})
    committed = owner.coordinator.begin(topics=[T])
    owner.coordinator.append(committed, {T: [bench.part("row")]})
    other.coordinator.end(committed, commit=True)
    owner.coordinator.append(committed, {T: [bench.part("late")]})
    owner.coordinator.append(None, {T: [bench.part("plain")]})
    assert bench.labels(T) == bench.labels(T, owner) == ["row", "plain"]


def test_a_write_set_commits_at_most_once() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    done = party.coordinator.commit(bench.work(1))
    assert set(done.positions) == {str(T), str(U)}
    assert not done.skipped
    assert party.coordinator.commit(bench.work(1)).skipped
    assert bench.instream().coordinator.commit(bench.work(1)).skipped
    party.coordinator.commit(bench.work(2, topics=()))  # an empty batch also advances the version (failure A34)
    with pytest.raises(VersionConflict):
        party.coordinator.commit(bench.work(1))
    party.coordinator.commit(bench.work(3, topics=[T]))
    assert bench.labels(T) == ["app.1", "app.3"]
    assert bench.labels(U) == ["app.1"]


def test_one_transaction_never_spans_both_models() -> None:
    bench = Bench(topics=PERSISTENT)
    work = bench.work(1)
    both = {**work.parts, "segment://public/default/x/0000-ffff-0": [bench.part("no")]}
    before = len(bench.state.records)
    with pytest.raises(OptionError, match="never spans both"):
        bench.instream().coordinator.commit(type(work)(**{**vars(work), "parts": both}))
    assert len(bench.state.records) == before


def test_the_system_property() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    assert party.topics.properties(T)[CONTAINS_TXN] == "false"
    for change in (lambda: party.topics.set_property(T, CONTAINS_TXN, "x"), lambda: party.topics.remove_property(T, CONTAINS_TXN)):
        with pytest.raises(NotAllowed):
            change()
    party.topics.set_property(T, "owner", "me")
    counted = metrics.USING_TXN_TOPICS._value.get()
    for version in (1, 2):
        party.coordinator.commit(bench.work(version, topics=[T]))
    assert metrics.USING_TXN_TOPICS._value.get() == counted + 1
    assert party.topics.properties(T) == {CONTAINS_TXN: "true", "owner": "me"}
    assert party.topics.properties(U)[CONTAINS_TXN] == "false"
    party.topics.remove_property(T, "owner")
    assert party.topics.properties(T) == {CONTAINS_TXN: "true"}


def test_a_topic_that_never_saw_a_transaction_opens_without_reading_its_data() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for i in range(3):
        party.coordinator.append(None, {T: [bench.part(f"p{i}")]})
    other = bench.instream()
    opened = other.buffer.open(other.cluster.store.view(), T)
    assert (opened.replayed, opened.cut) == (0, opened.end)
    party.coordinator.commit(bench.work(1, topics=[T]))
    opened = other.buffer.open(other.cluster.store.view(), T)
    assert opened.replayed == 5
    assert bench.labels(T, other) == ["p0", "p1", "p2", "app.1"]


def test_topics_are_created_once_and_found() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    with pytest.raises(TopicExists):
        party.topics.create(T)
    with pytest.raises(TopicNotFound):
        party.buffer.read(PersistentName("public", "default", "none"))
    party.coordinator.commit(bench.work(1))
    assert [t.name for t in party.topics.list()] == [T, U]
