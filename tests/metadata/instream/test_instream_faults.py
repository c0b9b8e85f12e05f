"""Every store call of a commit, a sweep and a read of persistent topics fails in every way, and is interrupted by other work.
Afterwards each version is committed exactly once, every transaction is decided, and rows that a reader has seen stay visible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.errors import (
    OptionError,
    OutcomeUnknown,
    TopicNotFound,
    TopicSealed,
    TransactionUnfinished,
    TxnConflict,
    TxnSegmentError,
)
from metadata.records.row_ranges import parse_all, texts
from metadata.rules.acks import Ack
from tests.support.bench import PERSISTENT, At, Bench, each

T, U = PERSISTENT

FATES = [fate for fate in Fate if fate not in (Fate.GO, Fate.LATE)]


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
@pytest.mark.parametrize("predecessor", [False, True], ids=["first", "after-a-crashed-attempt"])
def test_a_commit_interrupted_at_every_step_is_atomic(fate: Fate, predecessor: bool) -> None:
    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        if predecessor:
            with pytest.raises(Crashed):  # the earlier attempt crashes after its data was appended
                bench.instream(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1))
        gate = At(k, fate)
        work, told = bench.work(1), False
        try:
            told = not bench.instream(gate).coordinator.commit(work).skipped
        except TransactionUnfinished:
            raise AssertionError("nothing was sealed") from None
        except (Crashed, TxnSegmentError):
            assert gate.hit
        seen = {name: bench.labels(name) for name in (T, U)}
        if told:
            assert seen == {T: ["app.1"], U: ["app.1"]}, gate.hit
        bench.instream().coordinator.commit(bench.work(1))
        assert bench.instream().coordinator.commit(bench.work(1)).skipped
        assert bench.labels(T) == bench.labels(U) == ["app.1"], gate.hit
        bench.instream().coordinator.commit(bench.work(2))
        bench.finish()
        assert bench.labels(T) == bench.labels(U) == ["app.1", "app.2"], gate.hit
        return gate

    assert each(run) > 15


def prepared() -> Bench:
    """Return a bench on which every step of a sweep has work. It has committed and aborted transactions, one transaction that
    crashed while OPEN and one while COMMITTING, plain messages, and data that was appended after its transaction had been aborted.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(str(T), "s")
    party.coordinator.commit(bench.work(1))
    aborted = party.coordinator.begin(topics=[T])
    party.coordinator.append(aborted, {T: [bench.part("aborted")]})
    party.coordinator.end(aborted, commit=False)
    party.coordinator.append(aborted, {T: [bench.part("zombie")]})
    party.coordinator.append(None, {T: [bench.part("plain")]})
    with pytest.raises(Crashed):  # the owner crashes after COMMITTING is logged and before the first marker
        bench.instream(At(3, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="late"))
    with pytest.raises(Crashed):
        bench.instream(At(2, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(bench.work(1, app="dead"))
    party.coordinator.append(None, {T: [bench.part("after")]})
    return bench


DONE = {T: ["app.1", "plain", "late.1", "after"], U: ["app.1", "late.1"]}


def check_prefix(bench: Bench, why: str) -> None:
    for name, whole in DONE.items():
        seen = bench.labels(name)
        assert seen == whole[: len(seen)], why


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
def test_a_sweep_interrupted_at_every_step_does_no_harm(fate: Fate) -> None:
    def run(k: int) -> At:
        bench = prepared()
        bench.late()
        gate = At(k, fate)
        try:
            bench.instream(gate).sweeper.sweep()
        except (Crashed, TxnSegmentError):
            assert gate.hit
        check_prefix(bench, gate.hit)
        bench.finish()
        assert {name: bench.labels(name) for name in (T, U)} == DONE, gate.hit
        return gate

    assert each(run) > 30


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.UNAVAILABLE, Fate.SESSION_LOST], ids=lambda fate: fate.name)
def test_a_read_interrupted_at_every_step_does_no_harm(fate: Fate) -> None:
    """The read comes after all deadlines, so the reader also ends the transactions of crashed owners. Afterwards a second reader
    finds all committed rows.
    """

    def run(k: int) -> At:
        bench = prepared()
        bench.late()
        gate = At(k, fate)
        try:
            assert bench.labels(T, bench.instream(gate)) == DONE[T], gate.hit
        except (Crashed, TxnSegmentError):
            assert gate.hit
        assert bench.labels(T) == DONE[T]
        bench.finish()
        assert {name: bench.labels(name) for name in (T, U)} == DONE, gate.hit
        return gate

    each(run)


def others(bench: Bench) -> None:
    bench.instream().coordinator.commit(bench.work(1, app="other"))


def sweep(bench: Bench) -> None:
    bench.late()
    bench.instream().sweeper.sweep()


def retention(bench: Bench) -> None:
    sweep(bench)
    bench.older()
    for _ in range(3):
        bench.instream().sweeper.sweep()


INTERRUPTIONS: dict[str, Callable[[Bench], object]] = {
    "successor": lambda bench: bench.instream().coordinator.commit(bench.work(1)),
    "empty-successor": lambda bench: bench.instream().coordinator.commit(bench.work(1, topics=())),
    "other": others,
    "sweep": sweep,
    "retention": retention,
    "late-reader": lambda bench: (bench.late(), bench.labels(T), bench.labels(U)),
    "successor-and-retention": lambda bench: (bench.instream().coordinator.commit(bench.work(1)), retention(bench)),
}


@pytest.mark.parametrize("name", INTERRUPTIONS)
@pytest.mark.parametrize("empty", [False, True], ids=["rows", "empty"])
def test_a_zombie_that_wakes_after_other_work_commits_at_most_once(name: str, empty: bool) -> None:
    """At every step of a commit the driver is suspended while another process does the work `name`. The driver then resumes, and
    its version is committed at most once. Guards against failures A1, A4 and A34 (protocol.md section 9).
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        gate = At(k, meanwhile=lambda: INTERRUPTIONS[name](bench))
        work = bench.work(1, topics=() if empty else (T, U))
        told = False
        with suppress(TxnConflict, OutcomeUnknown):
            told = not bench.instream(gate).coordinator.commit(work).skipped
        if told and not empty:
            assert bench.labels(T).count("app.1") == 1, gate.hit
        bench.instream().coordinator.commit(bench.work(1))
        bench.finish()
        rows = bench.labels(T).count("app.1")
        assert rows == bench.labels(U).count("app.1"), gate.hit
        # if the commit returned success, its rows are visible exactly once
        assert rows == (not empty if told else rows) <= 1, gate.hit
        return gate

    each(run)


@pytest.mark.parametrize("name", ["sweep", "retention", "successor", "successor-and-retention"])
def test_a_late_abort_after_other_work_changes_nothing(name: str) -> None:
    """At every step of Spark's abort other processes end the transaction. In some cases they also drop it from the log, or commit
    its version again. The abort raises no error, and does not end the transaction of the later attempt. Guards against failure A36
    (protocol.md section 9).
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        work = bench.work(1)
        with pytest.raises(Crashed):  # the writer crashes after its data was appended
            bench.instream(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(work)
        gate = At(k, meanwhile=lambda: INTERRUPTIONS[name](bench))
        bench.instream(gate).coordinator.abort_attempt(work.app, work.app_topic, work.claim)
        assert not [txn for txn in bench.instream().coordinator.log.live() if txn.attempt == work.claim.attempt], gate.hit
        bench.finish()
        assert bench.labels(T) == bench.labels(U) == (["app.1"] if gate.hit and "successor" in name else []), gate.hit
        return gate

    assert each(run) > 3


@pytest.mark.parametrize("name", ["sweep", "retention", "other"])
def test_a_reader_suspended_during_other_work_reads_a_consistent_state(name: str) -> None:
    """At every step of a read other processes end transactions, write snapshots, compact and commit. The read returns a prefix of
    the final rows. Guards against failures A28 and A29 (protocol.md section 9).
    """

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, meanwhile=lambda: INTERRUPTIONS[name](bench))
        party = bench.instream(gate)
        seen = bench.labels(T, party)
        gate.k = -1  # no later call is interrupted
        bench.finish()
        whole = bench.labels(T)
        assert seen == whole[: len(seen)], gate.hit
        assert bench.labels(T, party) == whole, gate.hit
        return gate

    each(run)


@pytest.mark.parametrize("name", ["sweep", "retention", "other", "late-reader", "successor-and-retention"])
def test_a_sweeper_suspended_during_other_work_does_no_harm(name: str) -> None:
    def run(k: int) -> At:
        bench = prepared()
        bench.late()
        gate = At(k, meanwhile=lambda: INTERRUPTIONS[name](bench))
        bench.instream(gate).sweeper.sweep()
        bench.finish()
        for topic, whole in DONE.items():
            seen = [row for row in bench.labels(topic) if not row.startswith("other")]
            assert seen == whole, gate.hit
        return gate

    each(run)


# --- seals -----------------------------------------------------------------------------------------------------------


def test_a_transaction_over_a_terminated_topic_stalls() -> None:
    """The marker-based model has this limit: each topic's own log must take the marker, but a terminated topic takes no entry. So
    the commit is reported as unfinished.
    """
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T, U])
    party.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    bench.instream().sealing.terminate(T)
    with pytest.raises(TransactionUnfinished, match="took no marker"):
        party.coordinator.end(txn, commit=True)
    assert bench.labels(U) == ["b"]
    assert bench.labels(T) == []
    assert len(bench.instream().sweeper.sweep().stalled) == 1
    bench.late()
    assert bench.labels(T) == []  # a reader after the deadline does not wait for the marker, and still hides the row


def test_a_transaction_that_stalls_fails_no_reader_and_nothing_else_of_a_sweep() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.append(None, {T: [bench.part("below")]})
    for topic in (T, U):
        txn = party.coordinator.begin(topics=[topic])
        party.coordinator.append(txn, {topic: [bench.part("a")]})
        bench.instream().sealing.terminate(topic)
        with pytest.raises(TransactionUnfinished):
            party.coordinator.end(txn, commit=True)
    bench.late()
    assert bench.labels(T) == ["below"]
    report = bench.instream().sweeper.sweep()
    assert (len(report.stalled), report.failed) == (2, {})


def test_appends_after_a_seal_are_refused() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    number = party.sealing.seal(T, "migrate", to="topic://public/default/t")
    assert number is not None
    assert party.sealing.seal(T, "migrate") == number
    with pytest.raises(TopicSealed):
        party.coordinator.append(txn, {T: [bench.part("a")]})
    with pytest.raises(TopicSealed):
        party.coordinator.append(None, {T: [bench.part("p")]})
    party.coordinator.end(txn, commit=True)  # the transaction has no rows in T, so it needs no marker there
    with pytest.raises(OptionError, match="never spans both kinds"):  # T is migrated to topic://, but U is not
        party.coordinator.commit(bench.work(1))
    assert bench.labels(T) == bench.labels(U) == []


def test_a_migration_waits_for_open_transactions() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    txn = party.coordinator.begin(topics=[T])
    party.coordinator.append(txn, {T: [bench.part("a")]})
    assert party.sealing.seal(T, "migrate") is None
    party.coordinator.end(txn, commit=True)
    assert party.sealing.seal(T, "migrate") is not None
    assert bench.labels(T) == ["a"]


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
def test_a_seal_falls_at_every_step_of_a_commit_and_fails_at_every_step(fate: Fate) -> None:
    """A migration seals the topic at every step of a commit. All rows of a successful commit lie below the seal. No row of a failed
    commit is visible. No transaction stalls. If the seal itself fails at any of its steps, the topic can be sealed again.
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        sealed: list[object] = []
        gate = At(k, meanwhile=lambda: sealed.append(bench.instream().sealing.seal(T, "migrate")))
        told = False
        try:
            bench.instream(gate).coordinator.commit(bench.work(1))
            told = True
        except TopicSealed:
            assert sealed == [1], gate.hit
        assert bench.labels(T) == bench.labels(U) == (["app.1"] if told else []), gate.hit
        bench.finish()
        other = Bench(topics=PERSISTENT)
        failing = At(k, fate)
        try:
            other.instream(failing).sealing.seal(T, "migrate")
        except (Crashed, TxnSegmentError):
            assert failing.hit
        assert other.instream().sealing.seal(T, "migrate") is not None
        return gate

    each(run)


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.commit(bench.work(1))
    assert party.buffer.snapshot(T)
    party.sealing.delete(T)
    assert [t.name for t in party.topics.list()] == [U]
    bench.late()
    bench.older()
    assert party.sweeper.sweep().left == 3  # three entries: data, marker, seal
    assert not bench.kept("/persistent/logs/persistent%3A%2F%2Fpublic%2Fdefault%2Ft/")
    (tombstone,) = (found for found in party.sweeper.trimmer.every() if found.name == T)
    assert tombstone.layout.snapshot is None


def test_a_compaction_never_restores_entries_deleted_by_another_one() -> None:
    """At every step of a compaction another process commits, acknowledges and compacts. The first compaction brings back no entry
    that the second compaction has deleted.
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        where = (str(T), "s")
        bench.instream().coordinator.acks.create(*where)
        bench.instream().coordinator.commit(bench.work(1))
        bench.instream().coordinator.acks.acknowledge([Ack(*where, parse_all(["1"]))])

        def others() -> None:
            party = bench.instream()
            party.coordinator.commit(bench.work(2))
            party.coordinator.acks.acknowledge([Ack(*where, parse_all(["2"]))])
            bench.clock.now += bench.settings.header_retention_ms + 1
            party.coordinator.log.compact()
            party.coordinator.acks.compact(where)

        gate = At(k, meanwhile=others)
        party = bench.instream(gate)
        party.coordinator.log.compact()
        party.coordinator.acks.compact(where)
        hit = gate.hit
        gate.k = -1
        if hit:
            for again in (bench.instream(), party):
                assert again.coordinator.commit(bench.work(2)).skipped, hit
                assert texts(again.coordinator.acks.read([where])[where].acked) == ["1..2"], hit
        bench.finish()
        return gate

    assert each(run) > 5


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY, Fate.CRASH_AFTER], ids=lambda fate: fate.name)
def test_a_topic_is_never_trimmed_above_its_snapshot(fate: Fate) -> None:
    """A trim fails at each step. It never removes entries above the newest snapshot: readers replay these entries, and could not
    recognize the rows of aborted transactions without them.
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)
        party = bench.instream()
        party.coordinator.commit(bench.work(1))
        aborted = party.coordinator.begin(topics=[T])
        party.coordinator.append(aborted, {T: [bench.part("no")]})
        party.coordinator.append(None, {T: [bench.part("plain")]})
        party.coordinator.end(aborted, commit=False)
        gate = At(k, fate)
        trimmer = bench.instream(gate).sweeper.trimmer
        with suppress(Crashed, TxnSegmentError):
            trimmer.trim_to(trimmer.buffer.read(T), 3)
        layout = bench.instream().topics.get(T).layout
        assert layout.trimmed_log <= (0 if layout.snapshot is None else layout.snapshot.at), gate.hit
        assert bench.labels(T) == ["plain"] if layout.trimmed_log else ["app.1", "plain"]
        assert gate.hit or layout.trimmed_log == 3
        return gate

    assert each(run) > 4


@pytest.mark.parametrize("fate", [Fate.GO, Fate.CRASH_AFTER], ids=["whole", "cut-short"])
def test_a_topic_is_deleted_at_every_step_of_a_commit(fate: Fate) -> None:
    """At every step of a commit another process deletes the topic, and in one case crashes during the deletion. A sweep finishes
    the deletion, and no transaction stays undecided.
    """

    def run(k: int) -> At:
        bench = Bench(topics=PERSISTENT)

        def delete() -> None:
            with suppress(Crashed):
                bench.instream(At(1, fate, kinds=("write",))).sealing.delete(T)  # the second write of a deletion is the SEAL

        gate = At(k, meanwhile=delete)
        told = False
        with suppress(TopicSealed, TopicNotFound, TransactionUnfinished):
            told = not bench.instream(gate).coordinator.commit(bench.work(1)).skipped
        bench.late()
        for _ in range(2):
            bench.instream().sweeper.sweep()
        assert not bench.instream().coordinator.log.live(), gate.hit
        rows = bench.labels(U)
        assert rows in ([], ["app.1"])
        assert rows or not told, gate.hit
        if gate.hit:
            assert bench.instream().topics.find(T) is None, gate.hit
        return gate

    assert each(run) > 10


def test_a_write_with_a_random_application_is_retried_while_its_outcome_is_known() -> None:
    bench = Bench(topics=PERSISTENT)
    work = dataclasses.replace(bench.work(1, app="once", by=None), random=True)
    with pytest.raises(Crashed):
        # the writer crashes before the transaction is decided
        bench.instream(At(4, Fate.CRASH_BEFORE, kinds=("write",))).coordinator.commit(work)
    again = dataclasses.replace(work, retried=True)
    assert not bench.instream().coordinator.commit(again).skipped
    assert bench.instream().coordinator.commit(again).skipped
    bench.finish()
    with pytest.raises(OutcomeUnknown):
        bench.instream().coordinator.commit(dataclasses.replace(again, staged_ms=bench.clock.now_ms()))
    assert bench.labels(T) == bench.labels(U) == ["once.1"]
