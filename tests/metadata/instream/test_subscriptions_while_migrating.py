"""A call creates, moves, deletes or uses a subscription during a migration. Afterwards the successor's subscription has the effect
of this call. The tests run every interleaving of the call and the migration, store call by store call (docs/in_stream.md,
Migration).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from test_migration import EVERYWHERE, FATES, Y, migrate

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.errors import (
    AckConflict,
    SubscriptionExists,
    SubscriptionMigrated,
    SubscriptionNotFound,
    TxnConflict,
    TxnSegmentError,
)
from metadata.instream.acknowledging import RedirectedAcks
from metadata.instream.client import InStream
from metadata.instream.subscriptions import InStreamSubscriptions
from metadata.records.row_ranges import before, end_of, minus, parse_all, texts
from metadata.rules.acks import Ack, done, up_to
from metadata.topics.subscriptions import Subscriptions
from metadata.topics.topics import Topics
from tests.support.bench import PERSISTENT, At, Bench, each

T, _ = PERSISTENT


def prepared() -> Bench:
    """Return a bench with three rows in T. The subscription `s` has acknowledged the first row, and `none` was deleted."""
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    for text in ("a", "b", "c"):
        party.coordinator.append(None, {T: [bench.part(text)]})
    subscriptions(party).create(T, "s", at=0)
    acks(party).acknowledge([Ack(str(T), "s", parse_all(["1"]))])
    subscriptions(party).create(T, "none", at=0)
    subscriptions(party).delete(T, "none")
    return bench


def beyond(party: InStream) -> Subscriptions:
    return Subscriptions(party.cluster, party.coordinator.redirect.coordinator.acks)


def subscriptions(party: InStream) -> InStreamSubscriptions:
    """Return the subscriptions of the persistent topics, as the process `party` calls them. The process may have read the topic's
    record before the migration changed it.
    """
    mine = party.coordinator
    return InStreamSubscriptions(party.topics, mine.acks, lambda: mine.redirect.migrator, beyond(party))


def acks(party: InStream) -> RedirectedAcks:
    return RedirectedAcks(party.coordinator.acks, lambda: party.coordinator.redirect)


def found(bench: Bench, name: str) -> list[str] | None:
    """Return the rows of the persistent topic that the successor's subscription `name` has acknowledged, or None if there is no
    such subscription. Check that it has acknowledged no other row.
    """
    party = bench.instream()
    mine = beyond(party)
    if (Y, name) not in mine.list(Y):
        with pytest.raises(SubscriptionNotFound):
            mine.cursors(Topics(party.cluster).get(Y), name)
        return None
    assert (Y, name) in mine.list()
    legacy, *children = mine.cursors(Topics(party.cluster).get(Y), name).items()
    assert legacy[0] == str(T)
    seal = Topics(party.cluster).get(Y).layout.segments["0"].sealed_at_log
    assert seal is not None
    assert all(not minus(done(cursor), before(end_of(seal))) and not cursor.claims for _, cursor in children)
    assert not legacy[1].claims
    return texts(done(legacy[1]))


@dataclass(frozen=True)
class Deed:
    """`do`: a call. `after`: the rows that the subscription `name` has acknowledged after the call; None if it does not exist."""

    do: Callable[[Bench, InStream], object]
    after: list[str] | None
    name: str = "s"


def make_again(bench: Bench, party: InStream) -> None:
    subscriptions(party).delete(T, "s")
    subscriptions(party).create(T, "s", at=2)


def within(bench: Bench, party: InStream) -> None:
    """Commit one version with an ack, and repeat the commit until it succeeds, as a program does."""
    mine = replace(bench.work(1, topics=[]), acks=[Ack(str(T), "s", parse_all(["2"]))], app_topic=str(T))
    for _ in range(2):
        try:
            party.coordinator.commit(mine)
            break
        except TxnConflict:  # the migration has aborted the open transaction
            continue
    else:
        raise AssertionError("the version never commits")
    assert bench.instream().coordinator.commit(mine).skipped


DEEDS = {
    "create": Deed(lambda _, party: subscriptions(party).create(T, "new", at=2), ["0..2"], "new"),
    "create-first": Deed(lambda _, party: subscriptions(party).create(T, "new", at=0), [], "new"),
    "revive": Deed(lambda _, party: subscriptions(party).create(T, "none", at=1), ["0..1"], "none"),
    "delete": Deed(lambda _, party: subscriptions(party).delete(T, "s"), None),
    "make-again": Deed(make_again, ["0..2"]),
    "seek": Deed(lambda _, party: subscriptions(party).seek(T, "s", to=3), ["0..3"]),
    "seek-back": Deed(lambda _, party: subscriptions(party).seek(T, "s", to=0), []),
    "ack": Deed(lambda _, party: acks(party).acknowledge([Ack(str(T), "s", parse_all(["3"]))]), ["1", "3"]),
    "advance": Deed(lambda _, party: acks(party).advance([up_to(str(T), "s", end_of(2))]), ["0..2"]),
    "transaction": Deed(within, ["1..2"]),
}


@pytest.mark.parametrize("what", DEEDS)
def test_a_subscription_call_at_each_step_of_a_migration_takes_effect_once(what: str) -> None:
    deed = DEEDS[what]

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, meanwhile=lambda: deed.do(bench, bench.instream()), kinds=EVERYWHERE)
        migrate(bench.instream(gate))
        if gate.hit:
            assert found(bench, deed.name) == deed.after, gate.hit
        return gate

    assert each(run) > 10


@pytest.mark.parametrize("what", DEEDS)
def test_a_migration_at_each_step_of_a_subscription_call_keeps_its_effect(what: str) -> None:
    deed = DEEDS[what]

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, meanwhile=lambda: migrate(bench.instream()), kinds=EVERYWHERE)
        deed.do(bench, bench.instream(gate))
        migrate(bench.instream())
        assert found(bench, deed.name) == deed.after, gate.hit
        return gate

    assert each(run) > 1


@pytest.mark.parametrize("what", ["create", "revive"])
def test_a_subscription_whose_creator_dies_after_the_migration_is_whole_or_absent(what: str) -> None:
    """At each step of the creation the topic is migrated, and then the creator crashes. An ack under the topic's old name finds
    either the complete subscription or none.
    """
    deed = DEEDS[what]

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, Fate.CRASH_BEFORE, lambda: migrate(bench.instream()), kinds=EVERYWHERE)
        with suppress(Crashed):
            deed.do(bench, bench.instream(gate))
        if not gate.hit:
            migrate(bench.instream())
        try:
            acks(bench.instream()).acknowledge([Ack(str(T), deed.name, parse_all(["3"]))])
            assert found(bench, deed.name) == {"create": ["0..3"], "revive": ["0..1", "3"]}[what], gate.hit
        except SubscriptionNotFound:
            subscriptions(bench.instream()).create(T, deed.name, at=1)
            assert found(bench, deed.name) == ["0..1"], gate.hit
        return gate

    assert each(run) > 1


@pytest.mark.parametrize("what", DEEDS)
def test_a_subscription_call_by_a_process_unaware_of_the_migration_takes_effect(what: str) -> None:
    bench = prepared()
    party = bench.instream()
    party.coordinator.acks.read([(str(T), "s")])
    migrate(bench.instream())
    deed = DEEDS[what]
    deed.do(bench, party)
    assert found(bench, deed.name) == deed.after


def test_a_refused_call_on_a_migrated_topic_names_the_successor() -> None:
    bench = prepared()
    party = bench.instream()
    migrate(bench.instream())
    mine = party.coordinator.acks
    for call in (
        lambda: mine.create(str(T), "s"),
        lambda: mine.create(str(T), "none"),
        lambda: mine.delete(str(T), "s"),
        lambda: mine.seek({(str(T), "s"): ()}),
        lambda: mine.acknowledge([Ack(str(T), "s", parse_all(["3"]))]),
    ):
        with pytest.raises(SubscriptionMigrated, match="topics describe"):
            call()
    assert mine.list(str(T)) == []
    assert subscriptions(party).list() == []
    with pytest.raises(SubscriptionExists):
        subscriptions(party).create(T, "s", at=0)
    with pytest.raises(SubscriptionNotFound):
        subscriptions(party).delete(T, "none")
    with pytest.raises(AckConflict):
        acks(party).acknowledge([Ack(str(T), "s", parse_all(["1"]))])
    before = bench.kept("/persistent/acks")
    for _ in range(3):
        acks(party).advance([up_to(str(T), "s", end_of(3))])
        with suppress(TxnSegmentError):
            acks(party).acknowledge([Ack(str(T), "s", parse_all(["3"]))])
    assert bench.kept("/persistent/acks") == before  # void acks leave no records


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
@pytest.mark.parametrize("what", ["create", "revive", "delete", "seek", "advance"])
def test_a_subscription_call_failing_during_a_migration_can_be_repeated(what: str, fate: Fate) -> None:
    deed = DEEDS[what]

    def run(k: int) -> At:
        bench = prepared()
        gate = At(k, fate, lambda: migrate(bench.instream()), kinds=("write",))
        with suppress(Crashed, TxnSegmentError):
            deed.do(bench, bench.instream(gate))
        with suppress(SubscriptionExists, SubscriptionNotFound):  # the first call took effect, but its reply was lost
            deed.do(bench, bench.instream())
        migrate(bench.instream())
        assert found(bench, deed.name) == deed.after, gate.hit
        return gate

    assert each(run) > 0
