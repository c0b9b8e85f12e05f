"""Persistent topics, and their migration to a `topic://`. During a migration other processes write, read and acknowledge by the old
and by the new name.

Before the migration the model has the topic under its full name. After the migration the model has it under the short name of the
successor, with the same consumers, subscriptions, streams and writers. `note_moves` makes this change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

from conformance.harness.spark_driver import SparkWrite, numbers, read_batch
from conformance.surface.batches import Chain, chain, read_range
from conformance.surface.bench import Bench
from conformance.surface.common import (
    DDL,
    PERSISTENT_NAMES,
    PERSISTENT_PATTERN,
    SUBSCRIPTIONS,
    Open,
    attempt,
    table,
    unfinished,
    values,
)
from conformance.surface.consuming import LOST, Following, ack, ack_cumulative, consume, consumer_open, justify_loss
from conformance.surface.gate import AFTER, BEFORE, WRITE, Held
from conformance.surface.model import Fault, Model, Row, Written
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.persistent_streams import PersistentQuery, certain
from conformance.surface.sinks import Sink
from conformance.surface.streaming import drive, query_of, stream, stream_available_now, stream_kill
from conformance.surface.upkeep import KEEP, compact, retain, trim
from conformance.surface.world import World
from conformance.surface.writing import CHANGED, delete_topic, ended, hold_commit, merge, split, topic_of
from metadata.common.errors import (
    DataLoss,
    NotAllowed,
    OptionError,
    SchemaError,
    SubscriptionExists,
    TopicExists,
    TopicNotFound,
    TopicSealed,
    TxnConflict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

WAITS = (None, 5, 100, None)
"""The choices of a migration for `wait`, in seconds (None: it does not wait). With the last choice it aborts open transactions
(`force`).
"""
FORCE = len(WAITS) - 1
TENDING = (split, merge, compact, trim, read_range, read_range, delete_topic)


# --- names -----------------------------------------------------------------------------------------------------------------


def usable(model: Model) -> list[str]:
    """Return the persistent names that resolve to an existing topic, migrated or not."""
    return [name for name in PERSISTENT_NAMES if model.persistent.named(name) in model.topics]


def old_name(world: World, pick: int) -> str | None:
    found: str | None = one_of(usable(world.model), pick)
    return found


def two_names(world: World, a: Args) -> list[str]:
    return list(dict.fromkeys(name for pick in (a["t"], a["t2"]) if (name := old_name(world, pick)) is not None))


def new_rows(world: World, name: str, count: int, seed: int) -> list[Row]:
    return world.rows(world.model.persistent.named(name), count, seed)


def settled(model: Model, names: Iterable[str]) -> bool:
    """Return whether all of the topics are persistent and none of them has begun to migrate."""
    return all(name in model.topics and name not in model.persistent.moving for name in names)


def note_moves(world: World) -> None:
    """Record completed migrations in the model. From then on the model has the successor's name for everything that used the old
    one.
    """
    model = world.model
    for name, onto in list(model.persistent.moving.items()):
        if name not in model.persistent.shifts:
            continue
        del model.persistent.moving[name]
        model.migrated(name, onto)
        for following in world.consumers:
            if name in following.topics:
                following.topics = tuple(dict.fromkeys(onto if one == name else one for one in following.topics))
                following.joined = following.several
        for one in [*world.transactions, *world.holding]:
            one.written.acks = [(onto if t == name else t, s, rows) for t, s, rows in one.written.acks]
            one.covered = [(onto if t == name else t, s, rows) for t, s, rows in one.covered]
            one.moved = one.moved or (one.persistent and name in one.topics)
        world.producers[:] = [(p, made, onto if t == name else t, written) for p, made, t, written in world.producers]
        for used in world.sinks:
            used.name = onto if used.name == name else used.name
        for read in [*world.chains, *world.ranges]:
            read.topic = onto if read.topic == name else read.topic


# --- topics ----------------------------------------------------------------------------------------------------------------


@operation(3, t=PICK, p=PICK, schema=2)
def persistent_create(bench: Bench, a: Args) -> object:
    world, name = bench.world(a["w"]), PERSISTENT_NAMES[a["t"] % len(PERSISTENT_NAMES)]
    with attempt(bench, TopicExists) as tried:
        world.process(a["p"]).cluster.topics.create(name, schema=DDL if a["schema"] else None)
    if tried.failed != (name in world.model.made):
        raise Fault("topics", f"create({name}): {tried.error}, though it was made {world.model.made.get(name, 0)} times")
    if not tried.failed:
        world.model.make(name, None, persistent=True)
    return None


@operation(0.4, t=PICK, p=PICK)
def persistent_delete(bench: Bench, a: Args) -> object:
    """Delete a persistent topic. Its name cannot be used again. The deletion of a migrated topic must fail with NotAllowed."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or name in world.model.persistent.moving:
        return False
    with attempt(bench, NotAllowed) as tried:
        world.process(a["p"]).cluster.topics.delete(name)
    if tried.failed != (name in world.model.persistent.onto):
        raise Fault("topics", f"delete({name}): {tried.error}; it was migrated to {world.model.persistent.onto.get(name)}")
    if tried.failed:
        return None
    world.model.delete(name, world.clock.now_ms())
    for consumer in [one for one in world.consumers if name in one.topics]:
        consumer.stale = True
    return None


@operation(2, i=PICK, p=PICK, segments=3)
def remake(bench: Bench, a: Args) -> object:
    """Recreate the deleted successor of a persistent topic. The old name then resolves to the new topic, without the old rows."""
    world = bench.world(a["w"])
    found: str | None = one_of([onto for onto in world.model.persistent.onto.values() if onto not in world.model.topics], a["i"])
    if found is None:
        return False
    world.process(a["p"]).cluster.topics.create(found, segments=1 + a["segments"], schema=DDL)
    world.model.make(found, None)
    return None


def in_the_way(world: World, name: str) -> list[Open]:
    """Return the transactions that may be open in a topic. The commit of each is paused, or its process died during the commit."""
    return [one for one in world.holding if one.persistent and name in one.topics]


def registered(world: World, one: Open, name: str) -> bool:
    """Return whether the transaction is certainly open in the log of the topic. Three conditions must hold. The log has rows of the
    transaction. The clock has never shown a time at or after the transaction's deadline. None of the transaction's topics was
    migrated, since a migration ends all open transactions of a topic.
    """
    return name in one.written.ledgers and not one.moved and world.clock.furthest_ms < one.opened_ms + 29_000


@operation(5, t=PICK, p=PICK, segments=3, how=2 * len(WAITS))
def migrate(bench: Bench, a: Args) -> object:
    """Migrate a topic, or repeat its migration. If transactions are open in the topic, the call raises TxnConflict, waits for them,
    or aborts them, as `how` says (WAITS).
    """
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or held_move(world, name):
        return False
    move(bench, world, name, a["p"], 1 + a["segments"], a["how"] % len(WAITS))
    return None


def move(bench: Bench, world: World, name: str, pick: int, segments: int, how: int) -> None:
    persistent = world.model.persistent
    onto, begun = target(world, name), name in persistent.moving
    certain = [one for one in in_the_way(world, name) if registered(world, one, name) and name not in persistent.onto]
    if name not in persistent.onto:
        persistent.moving[name] = onto
    with attempt(bench, TxnConflict) as tried:
        world.process(pick).cluster.topics.migrate(name, onto, segments=segments, wait=WAITS[how], force=how == FORCE)
    if tried.failed:
        if how == FORCE or not in_the_way(world, name):
            raise Fault("migration", f"{name} is not migrated though nothing is open there: {tried.error}")
        if "1000000_" not in str(tried.error):
            raise Fault("migration", f"the error does not name what is open: {tried.error}")
        if not begun:
            del persistent.moving[name]
        return
    if certain and how == 0 and not begun:
        raise Fault("migration", f"{name} was migrated though a transaction is open there")
    note_moves(world)
    if persistent.onto.get(name) != onto:
        raise Fault("migration", f"migrate({name}, {onto}) returned and nobody has completed it")


def target(world: World, name: str) -> str:
    """Return the name of a successor for a topic: that of an earlier migration of the topic, finished or not, or an unused name."""
    persistent = world.model.persistent
    said = persistent.onto.get(name) or persistent.moving.get(name)
    return said or next(f"m{i}" for i in range(99) if f"m{i}" not in world.model.made and f"m{i}" not in persistent.moving.values())


def held_move(world: World, name: str) -> bool:
    """Return whether a living process is paused during a migration of the topic."""
    return any(one.moves == name and not one.process.gate.dead for one in world.holding)


@operation(3, t=PICK, writes=14, how=2, segments=3)
def migrate_hold(bench: Bench, a: Args) -> object:
    """Begin a migration in a new process, and pause this process before one of its writes. A later `resume` continues the process,
    or a later `die` ends it.
    """
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or name in world.model.persistent.onto or held_move(world, name) or len(world.holding) >= 2:
        return False
    process = world.open()
    one = Open(process, None, Written(), opened_ms=world.clock.now_ms(), moves=name)
    begun = name in world.model.persistent.moving
    onto = world.model.persistent.moving[name] = target(world, name)

    def call() -> None:
        process.cluster.topics.migrate(name, onto, segments=1 + a["segments"], force=a["how"] == 1)

    held = Held(call, WRITE, writes=a["writes"])
    process.held = process.gate.held = held
    if held.start():
        world.holding.append(one)
        return None
    ended(bench, world, one, held)
    if isinstance(held.error, TxnConflict) and not begun:
        del world.model.persistent.moving[name]
    return None


# --- writers ---------------------------------------------------------------------------------------------------------------


@operation(10, t=PICK, t2=PICK, p=PICK, rows=5, seed=PICK, how=5)
def persistent_produce(bench: Bench, a: Args) -> object:
    """Write to a topic by its old name, before or after its migration: a transaction (perhaps to two topics), or plain messages."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None:
        return False
    process = world.process(a["p"])
    if a["how"] == 4:
        return both(bench, world, a)
    rows = new_rows(world, name, 1 + a["rows"], a["seed"])
    written = Written(rows)
    if a["how"] == 0:
        with process.cluster.begin() as txn:
            txn.append(name, table(rows))
            world.committing(process, written, txn.commit)
        return None
    if a["how"] == 1:
        world.committing(process, written, lambda: process.cluster.producer(name).write(table(rows)))
        return None
    plain = a["how"] == 3
    with attempt(bench, *((TopicSealed, OptionError) if plain and not settled(world.model, [name]) else ())):
        producer = process.cluster.producer(name, plain=plain)
        for value in values(rows):
            producer.send(value)
        world.committing(process, written, producer.flush)
    return None


def both(bench: Bench, world: World, a: Args) -> object:
    """Write to two persistent names in one transaction. The transaction must be refused if only one of the topics is migrated."""
    names, process = two_names(world, a), world.process(a["p"])
    if len(names) < 2:
        return False
    written = Written()
    kinds = {name in world.model.topics for name in names}
    moving = any(name in world.model.persistent.moving for name in names)
    with attempt(bench, *((OptionError,) if len(kinds) > 1 or moving else ())) as tried, process.cluster.begin() as txn:
        for i, name in enumerate(names):
            rows = new_rows(world, name, 1 + a["rows"], a["seed"] + i)
            txn.append(name, table(rows))
            written.rows += rows
        world.committing(process, written, txn.commit)
    if len(kinds) > 1 and not moving and not tried.failed:
        raise Fault("both kinds", f"a transaction wrote to {names}, of which one is persistent and one is not")
    return None


@operation(3, t=PICK, p=PICK, app=3, version=4)
def persistent_begin(bench: Bench, a: Args) -> object:
    """Begin a transaction, in some cases one of an application. Such an application writes to one topic only, and its versions
    migrate with this topic.
    """
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or len(world.transactions) >= 3:
        return False
    process = world.process(a["p"])
    if a["app"]:
        world.transactions.append(Open(process, process.cluster.begin(), Written(), persistent=True))
        return None
    app = f"o-{name.rpartition('/')[2]}"
    version = max(0, world.model.versions.get(app, -1) + a["version"] - 1)
    txn = process.cluster.begin(app=app, version=version)
    one = Open(process, txn, Written(), persistent=True, identity=(app, version))
    world.transactions.append(one)
    fill(bench, world, one, name, a["version"], a["app"])
    return None


@operation(4, x=PICK, t=PICK, rows=5, seed=PICK)
def persistent_append(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    one: Open | None = one_of(
        [o for o in world.transactions if o.persistent and o.identity is None and o.process.held is None], a["x"]
    )
    name = old_name(world, a["t"])
    if one is None or name is None:
        return False
    fill(bench, world, one, name, 1 + a["rows"], a["seed"])
    return None


def fill(bench: Bench, world: World, one: Open, name: str, count: int, seed: int) -> None:
    rows = new_rows(world, name, count, seed)
    mixed = one.moved or not settled(world.model, [name, *one.topics])
    with attempt(bench, *CHANGED, *((OptionError,) if mixed else ())) as tried:
        one.stage(world, name, rows)
    if not tried.failed:
        one.written.rows += rows
        one.topics.add(name)
        one.moved = one.moved or name in world.model.persistent.onto


@operation(4, t=PICK, t2=PICK, rows=4, seed=PICK, point=2, x=PICK, fresh=2)
def persistent_hold(bench: Bench, a: Args) -> object:
    """Pause a process within a commit to persistent topics: before it appends the rows, or between that append and the decision."""
    world = bench.world(a["w"])
    if len(world.holding) >= 2:
        return False
    free = [
        o
        for o in world.transactions
        if o.persistent and o.written.rows and not o.moved and not o.identity and o.process.held is None
    ]
    if a["fresh"] and free:
        one = free[a["x"] % len(free)]
        world.transactions.remove(one)
        if sum(p.held is None for p in world.processes) < 2:
            world.open()
    else:
        names = [name for name in two_names(world, a) if name in world.model.topics]
        if not names:
            return False
        process = world.open()
        one = Open(process, process.cluster.begin(), Written(), persistent=True)
        for name in names:
            fill(bench, world, one, name, 1 + a["rows"], a["seed"])
    one.before = frozenset(world.model.committed)
    one.topics |= {topic for topic, _, _ in one.written.acks}
    hold_commit(bench, world, one, (BEFORE, AFTER)[a["point"]])
    if a["point"] and one in world.holding:
        there = world.model.persistent.data
        one.written.ledgers = {name: there[name] for name in one.topics if name in there and name in world.model.topics}
    return None


@operation(1.5, t=PICK, p=PICK)
def persistent_producer(bench: Bench, a: Args) -> object:
    """Open a producer by the old name. It may stay open across a migration (`producer_send`, `producer_flush`)."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or len(world.producers) >= 2:
        return False
    process = world.process(a["p"])
    world.producers.append((process, process.cluster.producer(name), world.model.persistent.named(name), Written()))
    return None


@operation(4, t=PICK, p=PICK, rows=6, seed=PICK, tasks=3, app=3)
def persistent_write(bench: Bench, a: Args) -> object:
    """Do `df.write...save()`, and commit the write twice, as Spark does after a lost reply. In some cases the write has a version
    that is committed already. Its commit is then skipped.
    """
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None:
        return False
    process, rows = world.process(a["p"]), new_rows(world, name, 1 + a["rows"], a["seed"])
    options = {"serviceUrl": world.url, "path": name}
    app, again = f"w-{name}", a["app"] == 2
    last = world.model.versions.get(app, -1)
    if again and last < 0:
        return False
    if a["app"]:
        options |= {"txnAppId": app, "txnVersion": str(last if again else last + 1)}
    with world.inside(process):
        write = SparkWrite(options, table(rows))
        messages = write.run(1 + a["tasks"])
        if not again:
            world.committing(process, Written(rows), lambda: write.commit(messages))
            if a["app"]:
                world.model.versions[app] = last + 1
        write.commit(messages)
    return None


@operation(1, t=PICK, app=2)
def persistent_sink(bench: Bench, a: Args) -> object:
    """Add a streaming query that writes by the old name (`sink_batch` runs it)."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or len(world.sinks) >= 2:
        return False
    query = uuid4().hex
    options = {"serviceUrl": world.url, "path": name, "checkpointlocation": f"/c/{query}"}
    if a["app"]:
        options |= {"txnAppId": f"sink-{query}"}
    world.sinks.append(Sink(world.model.persistent.named(name), query, options))
    return None


# --- subscriptions and consumers -------------------------------------------------------------------------------------------


@operation(3, t=PICK, s=len(SUBSCRIPTIONS), start=2, p=PICK)
def persistent_subscribe(bench: Bench, a: Args) -> object:
    world, sub = bench.world(a["w"]), SUBSCRIPTIONS[a["s"]]
    name = old_name(world, a["t"])
    if name is None or (a["start"] and unfinished(world)):
        return False
    mine = world.model.persistent.named(name)
    rows = {row.n for row in world.model.rows_of(world.model.topics[mine])}
    with attempt(bench, SubscriptionExists) as tried:
        world.process(a["p"]).cluster.subscriptions.create(name, sub, start="latest" if a["start"] else "earliest")
    if tried.failed != ((mine, sub) in world.model.acked):
        raise Fault("subscription", f"create({name}, {sub}): {tried.error}; the model has {sorted(world.model.acked)}")
    if not tried.failed:
        world.model.acked[mine, sub] = rows if a["start"] else set()
    return None


@operation(3, t=PICK, t2=PICK, both=4, s=len(SUBSCRIPTIONS), p=PICK)
def persistent_consumer(bench: Bench, a: Args) -> object:
    """Open a consumer of one persistent topic, of two, or of one and a `topic://`."""
    world, sub = bench.world(a["w"]), SUBSCRIPTIONS[a["s"]]
    names = two_names(world, a)[: 2 if a["both"] == 0 else 1]
    if not names or len(world.consumers) >= 3:
        return False
    if a["both"] == 1 and (other := topic_of(world, a["t2"])) is not None:
        names.append(other)
    mine = tuple(dict.fromkeys(world.model.persistent.named(name) for name in names))
    process = world.process(a["p"])
    with attempt(bench, DataLoss) as tried:
        consumer = process.cluster.consumer(names, sub, start="earliest")
    for name in mine:
        world.model.acked.setdefault((name, sub), set())
    if tried.failed:
        justify_loss(world, mine, sub, tried.error)
        return None
    following = Following(world, process, consumer, mine, sub)
    following.several = len(mine) > 1
    following.begun()
    world.consumers.append(following)
    return None


@operation(9, c=PICK, count=6, kind=3, leave=4, g=PICK, old=3)
def persistent_consume(bench: Bench, a: Args) -> object:
    return consume(bench, a)


@operation(6, c=PICK, what=4, i=PICK, x=PICK, txn=3)
def persistent_ack(bench: Bench, a: Args) -> object:
    return ack(bench, a)


@operation(3, c=PICK, i=PICK, x=PICK, txn=4)
def persistent_ack_cumulative(bench: Bench, a: Args) -> object:
    return ack_cumulative(bench, a)


# --- batches ---------------------------------------------------------------------------------------------------------------


@operation(7, t=PICK, t2=PICK, p=PICK, how=4)
def persistent_read(bench: Bench, a: Args) -> object:
    """Do a batch read of all rows of a topic or two. The read names the old name of a topic, its old and its new name, two topics,
    or a pattern.
    """
    world = bench.world(a["w"])
    model, persistent, name = world.model, world.model.persistent, old_name(world, a["t"])
    if name is None:
        return False
    names, options = [name], {"serviceUrl": world.url, "path": name}
    if a["how"] == 1:
        options |= {"startingOffsets": "earliest"}
    elif a["how"] == 2:
        other = persistent.onto.get(name) or old_name(world, a["t2"])
        names = list(dict.fromkeys([name, str(other)]))
        options = {"serviceUrl": world.url, "paths": json.dumps(names)}
    elif a["how"] == 3:
        names = usable(model)
        options = {"serviceUrl": world.url, "topicsPattern": PERSISTENT_PATTERN}
    read_whole(bench, world, options, names, a["p"])
    return None


def read_whole(bench: Bench, world: World, options: dict[str, str], names: list[str], pick: int) -> None:
    model = world.model
    topics = [model.topics[one] for one in dict.fromkeys(model.persistent.named(name) for name in names)]
    rows = {row.n for topic in topics for row in model.rows_of(topic)}
    must = {n for topic in topics for n in certain(world, topic)}
    where = f"a batch of all of {names}"
    with world.inside(world.process(pick)), attempt(bench, SchemaError) as tried:
        found = numbers(read_batch(options))
    if tried.failed:
        if must - model.gone.keys():
            raise Fault("batch: lost", f"{where} says that nothing was written: {tried.error}")
        return
    model.check_rows(found, must | (rows & set(found)), where, gone_by=model.step, what="batch")
    model.check_whole(found, where)


@operation(1, t=PICK)
def persistent_chain(bench: Bench, a: Args) -> object:
    """Begin a chain of reads by timestamps (`batches.Chain`) of a topic that is not migrated yet. `extend` continues the chain."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None or name not in world.model.topics or len(world.chains) >= 3:
        return False
    world.chains.append(Chain(name, by_time=True))
    return None


# --- streams ---------------------------------------------------------------------------------------------------------------


@operation(4, t=PICK, t2=PICK, what=5, start=4, number=PICK, limit=4)
def persistent_stream(bench: Bench, a: Args) -> object:
    """Add a stream of one persistent topic, of two, of one and a `topic://`, or of all topics of a pattern."""
    world = bench.world(a["w"])
    names = two_names(world, a)[: 2 if a["what"] == 2 else 1]
    if not names or len(world.queries) >= 3:
        return False
    if a["what"] == 3 and (other := topic_of(world, a["t2"])) is not None:
        names.append(other)
    options = {"serviceUrl": world.url}
    options |= {"path": names[0]} if len(names) == 1 else {"paths": json.dumps(names)}
    if a["what"] == 4:
        names, options = [PERSISTENT_PATTERN], {"serviceUrl": world.url, "topicsPattern": PERSISTENT_PATTERN}
    subscription = None
    if a["start"] < 2:
        options |= {"startingOffsets": "earliest"}
    elif a["start"] == 2 and names != [PERSISTENT_PATTERN]:
        subscription = SUBSCRIPTIONS[a["number"] % len(SUBSCRIPTIONS)]
        if any((world.model.persistent.named(name), subscription) not in world.model.acked for name in names):
            return False
        options |= {"subscription": subscription}
    if a["limit"] == 1:
        options |= {"maxRowsPerTrigger": str(1 + a["number"] % 5)}
    elif a["limit"] == 2:
        options |= {"maxBytesPerTrigger": str(1 + a["number"] % 4000)}
    world.queries.append(PersistentQuery(world, options, tuple(names), subscription))
    return None


@operation(10, q=PICK, steps=5, p=PICK)
def persistent_stream_run(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    query = query_of(world, a["q"])
    if query is None:
        return False
    drive(bench, query, world.process(a["p"]), 1 + a["steps"])
    return None


@operation(2, q=PICK)
def persistent_stream_kill(bench: Bench, a: Args) -> object:
    return stream_kill(bench, a)


@operation(2, q=PICK, p=PICK, most=6)
def persistent_stream_available_now(bench: Bench, a: Args) -> object:
    return stream_available_now(bench, a)


# --- retention -------------------------------------------------------------------------------------------------------------


@operation(8, t=PICK, t2=PICK, p=PICK, s=PICK, size=3, what=len(TENDING) + 4, despite=6, bytes=6, start=PICK, end=PICK)
def persistent_tend(bench: Bench, a: Args) -> object:
    """On a migrated topic, run one operation for `topic://` topics: maintenance, a deletion, a read, a consumer or a stream."""
    world = bench.world(a["w"])
    there = [topic for topic in world.model.topics.values() if not topic.persistent]
    pick = one_of([i for i, topic in enumerate(there) if topic.came_from], a["t"])
    if pick is None:
        return False
    given, what = {**a, "t": pick}, a["what"] - len(TENDING)
    if what < 0:
        return TENDING[what](bench, given)
    if what == 0:
        return retain(bench, {**given, "what": a["bytes"] + 1})
    if what == 1:
        return chain(bench, {**given, "time": a["size"] % 2})
    if what == 2:
        return consumer_open(bench, {**given, "both": 1, "s": a["s"] % len(SUBSCRIPTIONS)})
    return stream(bench, {**given, "what": 0, "start": a["start"] % 6, "number": a["end"], "limit": a["size"], "ago": a["s"]})


@operation(1, t=PICK, p=PICK, what=6, bytes=6)
def persistent_retain(bench: Bench, a: Args) -> object:
    """Set the retention of a persistent topic by its name. If the topic is migrated, this sets the retention of the successor."""
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None:
        return False
    topic, retention = world.model.topics[world.model.persistent.named(name)], world.process(a["p"]).cluster.retention
    if a["what"] < 3:
        retention.set(name, keep=KEEP[a["what"]])
        topic.keep_ms = round(KEEP[a["what"]].total_seconds() * 1000)
    else:
        topic.keep_bytes = 1 + 900 * a["bytes"]
        retention.set(name, keep_bytes=topic.keep_bytes)
    return None


@operation(1, t=PICK, p=PICK)
def persistent_trim(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = old_name(world, a["t"])
    if name is None:
        return False
    world.model.trimmed(world.clock.true_ms())
    world.process(a["p"]).cluster.retention.trim(name)
    return None


# --- the end of a run ------------------------------------------------------------------------------------------------------


def conclude(bench: Bench, world: World) -> None:
    """Complete the unfinished migrations. Then read each migrated topic by its old name. The read must return all rows, or raise
    TopicNotFound if the successor was deleted.
    """
    persistent = world.model.persistent
    for name in [name for name in persistent.moving if name in world.model.topics]:
        move(bench, world, name, 0, 1, FORCE)
    for name, onto in persistent.onto.items():
        if onto in world.model.topics:
            read_whole(bench, world, {"serviceUrl": world.url, "path": name}, [name], 0)
            continue
        with world.inside(world.process(0)), attempt(bench, *LOST) as tried:
            read_batch({"serviceUrl": world.url, "path": name})
        if not isinstance(tried.error, TopicNotFound):
            raise Fault("topics", f"{name}, of which {onto} was deleted, can be read")
