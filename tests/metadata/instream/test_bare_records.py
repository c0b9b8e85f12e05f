"""Bare records. The record of a deleted persistent topic is bare if nothing else of the topic is left, except the SEAL of a topic
that was migrated. A sweep does not check all bare records each time, and still finds data that was appended late (protocol.md
section 8, invariant 14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from conformance.simulator.store.faults import Fate
from metadata.client.passes import delete_orphans
from metadata.common.errors import SubscriptionNotFound, TopicNotFound, TopicSealed, TransactionNotFound
from metadata.instream import paths
from metadata.instream.client import InStream
from metadata.instream.migrating import Migrator
from metadata.instream.model import transaction_buffer
from metadata.instream.remains import LOOKED_AT
from metadata.instream.transaction_log import TRANSACTION_LOG
from metadata.instream.txn_records import TxnEntry, TxnState
from metadata.maintenance.sweeper import Sweeper
from metadata.records.names import PersistentName, TopicName
from metadata.records.row_ranges import end_of
from metadata.rules.acks import up_to
from metadata.topics.topics import Topics
from tests.support.bench import PERSISTENT, At, Bench

T, _ = PERSISTENT

LOGS, ACKS, SUBSCRIPTIONS = "/persistent/logs/persistent%3A%2F%2Fpublic", "/persistent/acks/", "/persistent/subscriptions/"

TRANSACTIONS = paths.log(TRANSACTION_LOG).path


def names(count: int) -> list[PersistentName]:
    return [PersistentName("public", "default", f"dead{i:03d}") for i in range(count)]


def sweep(bench: Bench, party: InStream | None = None) -> None:
    party = bench.instream() if party is None else party
    party.sweeper.sweep()
    Sweeper(party.cluster, transaction_buffer(party.cluster)).sweep()
    delete_orphans(party.cluster)


def later(bench: Bench) -> None:
    bench.clock.now += bench.settings.orphan_age_ms + bench.settings.grace_period_ms + 1


def bury(bench: Bench, count: int) -> list[PersistentName]:
    """Create and use `count` topics. Delete the even ones; migrate the odd ones and delete their successors. Sweep until the logs
    have no entries but the SEALs of the migrated topics.
    """
    party = bench.instream()
    buried = names(count)
    for i, name in enumerate(buried):
        party.topics.create(name)
        party.coordinator.acks.create(str(name), "s")
        party.coordinator.commit(bench.work(1, topics=[name]))
        if i % 2:
            to = TopicName("public", "default", f"onward{i}")
            Migrator(party.cluster, party.coordinator).migrate(name, to, force=True)
            Topics(party.cluster).delete(to)
        else:
            party.sealing.delete(name)
    for _ in range(5):
        later(bench)
        sweep(bench)
    assert len(bench.kept(LOGS)) == count // 2, "the SEALs of the migrated topics are left"
    assert not bench.kept(ACKS) + bench.kept(SUBSCRIPTIONS)
    return buried


def requests(bench: Bench) -> Counter[str]:
    """Return how many requests of each kind go to the store during an idle sweep and a listing of the files that records name."""
    asked = Counter[str]()

    def noted(kind: str, what: str) -> Fate:
        asked[kind] += 1
        return Fate.GO

    party = bench.instream(noted)
    party.sweeper.sweep()
    list(party.sweeper.named_files(party.cluster.store.view()))
    return asked


def test_an_idle_sweep_asks_no_more_after_many_names_have_died() -> None:
    few, many = Bench(topics=[T]), Bench(topics=[T])
    bury(few, 2 * LOOKED_AT)
    bury(many, 5 * LOOKED_AT)
    assert requests(few) == requests(many)


def deleting(bench: Bench, name: PersistentName) -> None:
    """Delete the topic, and sweep until its record is bare."""
    bench.instream().sealing.delete(name)
    for _ in range(3):
        later(bench)
        sweep(bench)
    assert bench.instream().topics.seen(name).layout.bare


def test_an_append_after_a_missed_deletion_is_refused_and_removed() -> None:
    bench = Bench(topics=[T])
    bury(bench, 2 * LOOKED_AT)
    kept = len(bench.kept(LOGS))
    sleeper = bench.instream(At(0, meanwhile=lambda: deleting(bench, T), kinds=("write",)))
    with pytest.raises(TopicNotFound):
        sleeper.coordinator.append(None, {T: [bench.part("late")]})
    assert len(bench.kept(LOGS)) == kept + 1
    later(bench)
    sweep(bench)
    assert not [path for path in bench.disk.files if "/late-" in path], "no reader can need the late file"
    swept_away(bench, kept)


def asleep_before_its_append(bench: Bench, meanwhile: Callable[[], None]) -> tuple[InStream, str]:
    """Append data in a transaction, and call `meanwhile` between the read of the topic record and the append. The data then lies
    above all entries that `meanwhile` appends. Return the process and the transaction.
    """
    party = bench.instream(gate := At(10**9, meanwhile=meanwhile, kinds=("write",)))
    txn = party.coordinator.begin(topics=[T])
    gate.k = gate.steps + 1  # the call below writes twice: first a property of the topic, then the data
    party.coordinator.append(txn, {T: [bench.part("late")]})
    assert gate.hit
    return party, txn


def test_a_transaction_after_a_missed_deletion_cannot_commit_and_its_data_is_removed() -> None:
    """The writer is suspended while the topic is deleted, its transaction times out, and the transaction's record expires."""
    bench = Bench(topics=[T])
    bury(bench, 2 * LOOKED_AT)
    kept = len(bench.kept(LOGS))
    party, txn = asleep_before_its_append(bench, lambda: deleting(bench, T))
    with pytest.raises(TransactionNotFound):
        party.coordinator.end(txn, commit=True)
    assert len(bench.kept(LOGS)) > kept
    swept_away(bench, kept)


def test_a_transaction_that_is_open_still_cannot_commit_above_a_deletion() -> None:
    """The transaction is within its deadline. Its commit finds the deletion, and aborts instead of logging COMMITTING."""
    bench = Bench(topics=[T])
    kept = len(bench.kept(LOGS))
    party, txn = asleep_before_its_append(bench, lambda: bench.instream().sealing.delete(T))
    with pytest.raises(TopicSealed, match=f"{T} was deleted while transaction {txn} wrote to it"):
        party.coordinator.end(txn, commit=True)
    assert TxnState.COMMITTING not in decisions(bench)
    assert TxnState.ABORTING in decisions(bench)
    swept_away(bench, kept)


def decisions(bench: Bench) -> list[TxnState | None]:
    """Return the states of all entries of the transaction log."""
    return [TxnEntry.of(record).state for key, record in bench.state.records.items() if key.path.startswith(TRANSACTIONS)]


def swept_away(bench: Bench, kept: int) -> None:
    for _ in range(200):
        if len(bench.kept(LOGS)) == kept:
            return
        later(bench)
        sweep(bench)
    raise AssertionError("the late data stays for ever")


def test_an_ack_after_a_missed_deletion_is_refused_and_leaves_no_record() -> None:
    bench = Bench(topics=[T])
    bench.instream().coordinator.acks.create(str(T), "s")
    bench.instream().coordinator.commit(bench.work(1, topics=[T]))
    sleeper = bench.instream(At(0, meanwhile=lambda: deleting(bench, T), kinds=("write",)))
    with pytest.raises(SubscriptionNotFound):
        sleeper.coordinator.acks.acknowledge([up_to(str(T), "s", end_of(1))])
    assert not bench.kept(ACKS), "no sweep could find a pending-ack log of a deleted topic"


def test_a_subscription_made_after_the_deletion_is_removed() -> None:
    bench = Bench(topics=[T])
    bury(bench, 2 * LOOKED_AT)
    deleting(bench, T)
    bench.instream().coordinator.acks.create(str(T), "late")
    for _ in range(200):
        if not bench.kept(SUBSCRIPTIONS):
            return
        later(bench)
        sweep(bench)
    raise AssertionError("the late subscription stays for ever")
