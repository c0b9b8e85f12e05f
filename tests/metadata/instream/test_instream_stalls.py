"""A seal can stall marker-based transactions. Repeated checks of stalled transactions make no log grow. A transaction that is not
committed is never reported as merely unfinished.
"""

from __future__ import annotations

import pytest

from metadata.common.errors import TopicSealed, TransactionUnfinished, TxnConflict
from metadata.instream.client import instream
from metadata.instream.migrating import Migrator
from metadata.records.names import TopicName
from metadata.store.contract import decide
from tests.support.bench import PERSISTENT, Bench
from txnsegment import doctor
from txnsegment.doctor import Health

T, U = PERSISTENT
Y = TopicName("public", "default", "y")


def test_a_transaction_that_stalls_makes_no_log_grow() -> None:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    hands = instream(party.cluster)
    txn = hands.coordinator.begin(topics=[T, U])
    hands.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    hands.sealing.terminate(T)
    with pytest.raises(TransactionUnfinished):
        hands.coordinator.end(txn, commit=True)
    bench.late()

    def sizes() -> list[int]:
        return [len(decide(party.cluster.store, hands.buffer.log(name).numbers)) for name in (T, U)]

    before = sizes()
    for _ in range(3):
        other = instream(bench.instream().cluster)
        assert list(other.buffer.read(T).ledgers()) == []
        assert [ledger.txn for ledger in other.buffer.read(U).ledgers()] == [txn]
        assert other.sweeper.sweep().stalled
    assert sizes() == before


def test_a_version_that_is_retried_behind_a_stalled_one_makes_no_log_grow() -> None:
    """Version 1 has committed, but stalls in the terminated topic T. Each attempt of version 2 tries to finish version 1 first."""
    bench = Bench(topics=PERSISTENT)
    owner = instream(bench.instream().cluster)
    txn = owner.coordinator.begin(topics=[T, U], app="app:", claim=bench.work(1).claim)
    owner.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    owner.sealing.terminate(T)
    with pytest.raises(TransactionUnfinished):
        owner.coordinator.end(txn, commit=True)
    before = [len(decide(owner.cluster.store, owner.buffer.log(name).numbers)) for name in (T, U)]
    for _ in range(3):
        with pytest.raises(TransactionUnfinished, match="took no marker"):
            instream(bench.instream().cluster).coordinator.commit(bench.work(2, topics=[U]))
    assert [len(decide(owner.cluster.store, owner.buffer.log(name).numbers)) for name in (T, U)] == before
    owner.sealing.delete(T)
    instream(bench.instream().cluster).coordinator.commit(bench.work(2, topics=[U]))
    assert bench.labels(U) == ["b", "app.2"]


def test_a_transaction_aborted_for_a_seal_is_not_reported_unfinished() -> None:
    """The transaction has data above the seal of T, so it is aborted. Its abort stalls in U, which was terminated. The error
    reports the seal.
    """
    bench = Bench(topics=PERSISTENT)
    hands = instream(bench.instream().cluster)
    txn = hands.coordinator.begin(topics=[T, U])
    hands.coordinator.append(txn, {U: [bench.part("b")]})
    hands.sealing.terminate(U)
    # A suspended writer appends to T. It had read the record of T before T was sealed.
    entry = hands.coordinator._data(T, txn, [bench.part("a")], 0)
    hands.topics.expect_transactions([T])
    hands.sealing.terminate(T)
    hands.buffer.log(T).append(entry)
    with pytest.raises(TopicSealed, match="was sealed at") as raised:
        hands.coordinator.end(txn, commit=True)
    assert any("could not be aborted" in note or "took no marker" in note for note in raised.value.__notes__)


def test_an_application_with_a_stalled_transaction_can_write_other_topics() -> None:
    """The abort of version 1 stalls in the terminated topic U. Versions 1 and 2 then write only to T, and are committed."""
    bench = Bench(topics=PERSISTENT)
    owner = instream(bench.instream().cluster)
    claim = bench.work(1).claim
    txn = owner.coordinator.begin(topics=[T, U], app="app:", claim=claim)
    owner.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    owner.sealing.terminate(U)
    with pytest.raises(TransactionUnfinished):
        owner.coordinator.end(txn, commit=False)
    for version in (1, 2):
        done = instream(bench.instream().cluster).coordinator.commit(bench.work(version, topics=[T]))
        assert not done.skipped
    assert bench.labels(T) == ["app.1", "app.2"]


@pytest.mark.parametrize("commit", [True, False], ids=["committing", "aborting"])
@pytest.mark.parametrize("force", [True, False], ids=["force", "wait"])
def test_a_migration_names_a_stalled_transaction_and_works_after_the_sealed_topic_is_deleted(force: bool, commit: bool) -> None:
    """A transaction over T and U stalls in the terminated topic T. A migration of U then raises an error that names the
    transaction. After T is deleted, U can be migrated.
    """
    bench = Bench(topics=PERSISTENT)
    owner = instream(bench.instream().cluster)
    txn = owner.coordinator.begin(topics=[T, U])
    owner.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    owner.sealing.terminate(T)
    with pytest.raises(TransactionUnfinished):
        owner.coordinator.end(txn, commit=commit)
    party = bench.instream()
    with pytest.raises(TxnConflict, match=f"{txn} .*cannot end, because a sealed topic") as raised:
        Migrator(party.cluster, party.coordinator).migrate(U, Y, wait_ms=1_000, force=force)
    assert raised.value.advice is not None
    assert str(T) in raised.value.advice
    owner.sealing.delete(T)
    party = bench.instream()
    assert Migrator(party.cluster, party.coordinator).migrate(U, Y, force=force).name == Y


def test_a_forced_migration_that_aborts_a_transaction_into_a_stall_names_it() -> None:
    """A transaction over T and U is OPEN, and T is terminated. The migration of U aborts the transaction, and the abort stalls in
    T. The migration raises an error that names the transaction.
    """
    bench = Bench(topics=PERSISTENT)
    owner = instream(bench.instream().cluster)
    txn = owner.coordinator.begin(topics=[T, U])
    owner.coordinator.append(txn, {T: [bench.part("a")], U: [bench.part("b")]})
    owner.sealing.terminate(T)
    party = bench.instream()
    with pytest.raises(TxnConflict, match=f"{txn} .*cannot end, because a sealed topic"):
        Migrator(party.cluster, party.coordinator).migrate(U, Y, force=True)


def test_the_doctor_counts_open_transactions_only() -> None:
    """A stalled transaction is decided, so it is not OPEN, although no sweep can finish it."""
    bench = Bench(topics=PERSISTENT)
    hands = instream(bench.instream().cluster)
    stalled = hands.coordinator.begin(topics=[T])
    hands.coordinator.append(stalled, {T: [bench.part("a")]})
    hands.sealing.terminate(T)
    with pytest.raises(TransactionUnfinished):
        hands.coordinator.end(stalled, commit=True)
    late = hands.coordinator.begin(topics=[U])
    bench.late()
    hands.coordinator.begin(topics=[U])
    found = doctor._transactions("transactions", hands.coordinator.cluster)
    assert found.message == f"1 of 2 OPEN transactions are past their deadline: {late}"
    hands.sweeper.sweep()
    found = doctor._transactions("transactions", hands.coordinator.cluster)
    assert (found.health, found.message) == (Health.OK, "1 are OPEN, none is past its deadline")
