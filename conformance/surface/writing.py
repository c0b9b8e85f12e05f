"""Topics, producers, transactions of `cluster.begin()`, and commits that are paused."""

from __future__ import annotations

import contextlib

from conformance.surface.bench import Bench
from conformance.surface.common import DDL, NAMES, Open, attempt, fault_unless, table, values
from conformance.surface.gate import AFTER, BEFORE, Held
from conformance.surface.model import Fault, Written
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import SETTINGS, Process, World
from metadata.common.errors import (
    AckConflict,
    DataLoss,
    OptionError,
    OutcomeUnknown,
    SchemaError,
    SegmentSealed,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TransactionUnfinished,
    TxnConflict,
    VersionConflict,
)

CHANGED = (TopicNotFound, SegmentSealed, TxnConflict, SchemaError)
"""The permitted errors of a commit whose topic was deleted or recreated after its rows were staged."""


def topic_of(world: World, pick: int) -> str | None:
    """Return the name of an existing `topic://`; None if there is none."""
    name: str | None = one_of([topic.name for topic in world.model.topics.values() if not topic.persistent], pick)
    return name


@operation(0.8, t=len(NAMES), segments=4, key=3, schema=5)
def create_topic(bench: Bench, a: Args) -> object:
    world, name = bench.world(a["w"]), NAMES[a["t"]]
    process = world.process(a["w"])
    key = "k" if a["key"] else None
    with attempt(bench, TopicExists) as tried:
        process.cluster.topics.create(name, segments=1 + a["segments"], key=key, schema=DDL if a["schema"] else None)
    fault_unless(
        tried.failed == (name in world.model.topics), "topics", f"create({name}): {tried.error}, model {world.model.topics}"
    )
    if not tried.failed:
        world.model.make(name, key)
    return None


@operation(0.7, t=PICK, p=PICK)
def delete_topic(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    world.process(a["p"]).cluster.topics.delete(name)
    for consumer in [one for one in world.consumers if name in one.topics]:
        consumer.deleted(name)
    world.model.delete(name, world.clock.now_ms())
    return None


@operation(3, t=PICK, p=PICK, s=PICK)
def split(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    topics = world.process(a["p"]).cluster.topics
    active = [s.id for s in topics.describe(name).segments if s.state == "ACTIVE"]
    if len(active) > 5:
        return False
    topics.split(name, one_of(active, a["s"]))
    return None


@operation(2, t=PICK, p=PICK, s=PICK)
def merge(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    topics = world.process(a["p"]).cluster.topics
    active = sorted((s for s in topics.describe(name).segments if s.state == "ACTIVE"), key=lambda s: s.start)
    if len(active) < 2:
        return False
    first = a["s"] % (len(active) - 1)
    topics.merge(name, active[first].id, active[first + 1].id)
    return None


@operation(10, t=PICK, p=PICK, rows=5, seed=PICK, how=3)
def produce(bench: Bench, a: Args) -> object:
    """Write one transaction: by `cluster.begin()`, by `write` of a producer, or by `send` and `flush` of a producer."""
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    process = world.process(a["p"])
    rows = world.rows(name, 1 + a["rows"], a["seed"])
    written = Written(rows)
    if a["how"] == 0:
        with process.cluster.begin() as txn:
            txn.append(name, table(rows))
            world.committing(process, written, txn.commit)
        return None
    producer = process.cluster.producer(name)
    if a["how"] == 1:
        world.committing(process, written, lambda: producer.write(table(rows)))
        return None
    for value in values(rows):
        producer.send(value)
    world.committing(process, written, producer.flush)
    return None


# --- transactions that stay open --------------------------------------------------------------------------------------------


@operation(3, p=PICK, app=6, version=4)
def begin(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    if len(world.transactions) >= 3:
        return False
    process = world.process(a["p"])
    if a["app"] < 2:
        identity = (f"a{a['app']}", max(0, world.model.versions.get(f"a{a['app']}", -1) + a["version"] - 1))
        txn = process.cluster.begin(app=identity[0], version=identity[1])
        world.transactions.append(Open(process, txn, Written(), identity=identity))
    else:
        world.transactions.append(Open(process, process.cluster.begin(), Written()))
    return None


@operation(5, x=PICK, t=PICK, rows=5, seed=PICK)
def append(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    one: Open | None = one_of(world.transactions, a["x"])
    name = topic_of(world, a["t"])
    if one is None or name is None or one.process.held is not None:
        return False
    if one.persistent:
        return False
    rows = world.rows(name, 1 + a["rows"], a["seed"])
    with attempt(bench, *CHANGED) as tried:
        one.stage(world, name, rows)
    if not tried.failed:
        one.written.rows += rows
        one.topics.add(name)
    return None


@operation(5, x=PICK)
def commit(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    one: Open | None = one_of(world.transactions, a["x"])
    if one is None or one.process.held is not None:
        return False
    with attempt(bench, *CHANGED, AckConflict, SubscriptionNotFound, VersionConflict, OptionError) as tried:
        committed = world_commit(world, one, one.txn.commit)
        check_version(world, one, committed)
    if tried.failed:
        refused(world, one, tried.error)
    else:
        world.transactions.remove(one)
    return None


def world_commit(world: World, one: Open, call: object) -> object:
    one.process.gate.number = None
    done = call()  # type: ignore[operator]
    decided(world, one, done)
    return done


def decided(world: World, one: Open, done: object) -> None:
    """Record the result `done` of a commit in the model. The model then expects the rows and acks, unless the commit was skipped.
    Raises Fault if the transaction acknowledged rows that were acknowledged before.
    """
    if getattr(done, "skipped", False):
        one.written.state = "skipped"
        for consumer in one.consumers:
            consumer.due = consumer.skipped = True
        return
    for topic, sub, rows in one.written.acks:
        # A cumulative ack may cover rows that are already acknowledged. It is refused only if it covers no other row.
        covered = {n for name, of, found in one.covered if (name, of) == (topic, sub) for n in found}
        twice = (rows & world.model.acked.get((topic, sub), set())) - covered
        if twice:
            raise Fault(
                "ack", f"a transaction acknowledged rows {sorted(twice)} of {topic} for {sub}, which were acknowledged before"
            )
    world.model.commit(one.written, one.process.gate.number if one.written.rows else None, one.began_ms or world.clock.true_ms())
    # A cumulative ack still covers these rows if the subscription was moved or recreated after the ack.
    for topic, sub, rows in one.covered:
        if (topic, sub) in world.model.acked:
            world.model.acked[topic, sub] |= rows


def check_version(world: World, one: Open, done: object) -> None:
    if one.identity is None:
        return
    app, version = one.identity
    last = world.model.versions.get(app, -1)
    skipped = getattr(done, "skipped", False)
    if skipped != (version <= last):
        raise Fault("version", f"{app} committed {last}; then version {version} answered skipped={skipped}")
    world.model.versions[app] = max(last, version)


def refused(world: World, one: Open, error: object) -> None:
    """Raise Fault if the model does not permit this error of a commit."""
    if isinstance(error, AckConflict):
        rows = {(topic, sub, n) for topic, sub, found in one.written.acks for n in found}
        acked = {(topic, sub, n) for (topic, sub), found in world.model.acked.items() for n in found}
        from conformance.surface.common import claimed

        nothing_left = any(found <= world.model.acked.get((topic, sub), set()) for topic, sub, found in one.covered)
        there = all((t, s) in world.model.acked for t, s, _ in one.written.acks)
        # A subscription that was created after a trim begins above the trimmed rows, so an ack of these rows is refused.
        trimmed = any(n in world.model.gone for _, _, n in rows)
        # A consumer is stale if one of its topics or its subscription was deleted. Its acks may be refused.
        stale = any(consumer.stale for consumer in one.consumers)
        if not rows & (acked | claimed(world)) and not nothing_left and there and not trimmed and not stale:
            raise Fault("conflict", f"AckConflict, though nobody had acknowledged or claimed any of {sorted(rows)}: {error}")
    if isinstance(error, VersionConflict) and one.identity is not None:
        app, version = one.identity
        if version > world.model.versions.get(app, -1):
            raise Fault("version", f"version {version} of {app} was refused after {world.model.versions.get(app, -1)}: {error}")
    if not isinstance(error, AckConflict | VersionConflict | SubscriptionNotFound | OptionError) and not changed(world, one):
        raise Fault("error", f"a commit failed though nothing had changed: {type(error).__name__}: {error}")


def changed(world: World, one: Open) -> bool:
    """Return whether a commit may fail because something has changed. This is so if a topic of the transaction was deleted. It is
    also so if the first staged parts may be older than half the orphan age, since the product refuses such parts.
    """
    there = {inc for topic in world.model.topics.values() for inc in topic.incarnations}
    gone = any(row.topic not in there for row in one.written.rows)
    gone = gone or any(name not in world.model.topics for name, _, _ in one.written.acks)
    return gone or (one.staged_ms is not None and one.staged_ms + SETTINGS.orphan_age_ms // 2 <= world.clock.furthest_ms + 60_000)


@operation(2, x=PICK, how=3)
def leave(bench: Bench, a: Args) -> object:
    """End a transaction without a commit: by `abort`, by an exception in its block, or by dropping the object."""
    world = bench.world(a["w"])
    one: Open | None = one_of(world.transactions, a["x"])
    if one is None or one.process.held is not None:
        return False
    world.transactions.remove(one)
    stale = any(consumer.stale for consumer in one.consumers)
    with attempt(bench, *((TopicNotFound, SubscriptionNotFound, DataLoss) if stale else ())), contextlib.suppress(KeyError):
        if a["how"] == 0:
            one.txn.abort()
        elif a["how"] == 1:
            with one.txn:
                raise KeyError("in the block")
        else:
            return None
    for consumer in one.consumers:
        consumer.due = True
    return None


# --- paused commits --------------------------------------------------------------------------------------------------------


@operation(3, t=PICK, t2=PICK, rows=4, seed=PICK, point=2, x=PICK, fresh=2)
def hold(bench: Bench, a: Args) -> object:
    """Pause a process within the commit of a new or an existing transaction: before its registration, or between the registration
    and the decision.
    """
    world = bench.world(a["w"])
    if len(world.holding) >= 2:
        return False
    one: Open | None = None
    free = [o for o in world.transactions if o.process.held is None and o.written.rows and o.identity is None and not o.persistent]
    if a["fresh"] and free:
        one = free[a["x"] % len(free)]
        world.transactions.remove(one)
        if sum(p.held is None for p in world.processes) < 2:
            world.open()
    else:
        names = list(dict.fromkeys(n for pick in (a["t"], a["t2"]) if (n := topic_of(world, pick)) is not None))
        if not names:
            return False
        process = world.open()
        one = Open(process, process.cluster.begin(), Written())
        for name in names:
            rows = world.rows(name, 1 + a["rows"], a["seed"])
            one.stage(world, name, rows)
            one.written.rows += rows
    hold_commit(bench, world, one, (BEFORE, AFTER)[a["point"]])
    return None


def hold_commit(bench: Bench, world: World, one: Open, point: str) -> None:
    process: Process = one.process
    process.gate.number = None
    one.began_ms = world.clock.true_ms()
    held = Held(one.txn.commit, point)
    process.held = process.gate.held = held
    if held.start():
        one.opened_ms = world.clock.now_ms()
        world.holding.append(one)
        return
    ended(bench, world, one, held)


def ended(bench: Bench, world: World, one: Open, held: Held) -> None:
    """Record in the model that a commit or migration has ended. If the call raised an error that is not permitted, raise this
    error.
    """
    one.process.held = one.process.gate.held = None
    if held.error is not None:
        # Three further errors are permitted. OutcomeUnknown: the transaction was aborted after its deadline, and its header has
        # expired. TransactionUnfinished: the transaction is committed, and one of its persistent topics was deleted. OptionError:
        # one of its topics was migrated.
        moved = one.moved or one.topics & world.model.persistent.moving.keys()
        migrated = (OptionError,) if one.persistent and moved and len(one.topics) > 1 else ()
        with attempt(bench, *CHANGED, *migrated, AckConflict, SubscriptionNotFound, OutcomeUnknown, TransactionUnfinished) as tried:
            raise held.error
        if isinstance(tried.error, TransactionUnfinished):
            decided(world, one, None)
        return
    decided(world, one, held.result)


@operation(4, h=PICK)
def resume(bench: Bench, a: Args) -> object:
    """Let a paused process continue to the end of its call."""
    world = bench.world(a["w"])
    living = [one for one in world.holding if not one.process.gate.dead]
    one: Open | None = one_of(living, a["h"])
    if one is None or one.process.held is None:
        return False
    held = one.process.held
    held.finish()
    world.holding.remove(one)
    ended(bench, world, one, held)
    return None


@operation(1, h=PICK)
def die(bench: Bench, a: Args) -> object:
    """Let a paused process die. Its open transaction stays OPEN until another process aborts it after the deadline."""
    world = bench.world(a["w"])
    one: Open | None = one_of([one for one in world.holding if not one.process.gate.dead], a["h"])
    if one is None or one.process.held is None:
        return False
    bury(world, one.process)
    return None


def bury(world: World, process: Process) -> None:
    """Let a paused process die: mark it as dead, let its call fail, and close its consumers and queries."""
    held = process.held
    assert held is not None
    for query in world.queries:
        if query.process is process:
            query.stop()
    for following in [one for one in world.consumers if one.process is process]:
        following.close()
        world.consumers.remove(following)
    world.transactions[:] = [one for one in world.transactions if one.process is not process]
    world.producers[:] = [found for found in world.producers if found[0] is not process]
    process.gate.dead = True
    held.finish()
    process.held = None
    world.processes.remove(process)
    process.cluster.client.cluster.store.close()
    if held.error is None:
        raise AssertionError("a process committed after its death")


@operation(3, t=PICK, p=PICK, new=3)
def producer_open(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None or len(world.producers) >= 2:
        return False
    process = world.process(a["p"])
    world.producers.append((process, process.cluster.producer(name), name, Written()))
    return None


@operation(4, i=PICK, rows=3, seed=PICK)
def producer_send(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    found = one_of(world.producers, a["i"])
    if found is None:
        return False
    _, producer, name, written = found
    if name not in world.model.topics:
        return False
    rows = world.rows(name, 1 + a["rows"], a["seed"])
    for value in values(rows):
        producer.send(value)
    written.rows += rows
    return None


@operation(3, i=PICK)
def producer_flush(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    found = one_of(world.producers, a["i"])
    if found is None or found[0].held is not None:
        return False
    process, producer, name, written = found
    with attempt(bench, *CHANGED) as tried:
        world.committing(process, written, producer.flush)
    if tried.failed:
        there = world.model.topics.get(name)
        if there is not None and all(row.topic == there.incarnation for row in written.rows):
            raise Fault("error", f"flush failed though {name} is as it was: {tried.error}")
        world.producers.remove(found)
        return None
    world.producers[world.producers.index(found)] = (process, producer, name, Written())
    return None
