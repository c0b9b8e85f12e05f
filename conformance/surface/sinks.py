"""Writes of Spark: batch writes, streaming sinks, and writes in a `cluster.transaction()`. The writers are called in the order in
which Spark calls them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from conformance.harness.spark_driver import SparkStreamWrite, SparkWrite
from conformance.surface.bench import Bench
from conformance.surface.common import Open, attempt, table
from conformance.surface.model import Row, Written
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import Process, World
from conformance.surface.writing import decided, topic_of
from metadata.common.errors import AckConflict, SubscriptionNotFound, TopicNotFound, VersionConflict


@operation(4, t=PICK, rows=6, seed=PICK, p=PICK, tasks=3, how=6, app=3)
def write(bench: Bench, a: Args) -> object:
    """Do `df.write...save()`. In some cases a task attempt fails, the commit is repeated, the write is aborted before or after the
    commit, or its version is committed already.
    """
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    process, rows = world.process(a["p"]), world.rows(name, 1 + a["rows"], a["seed"])
    options = {"serviceUrl": world.url, "path": name}
    app, version = None, 0
    if a["app"] == 0:
        app = f"w-{name}-{world.model.made[name]}"
        version = world.model.versions.get(app, -1) + (0 if a["how"] == 4 else 1)
        if version < 0:
            return False
        options |= {"txnAppId": app, "txnVersion": str(version)}
    with world.inside(process):
        one = SparkWrite(options, table(rows))
        if a["how"] == 1:
            one.run(1)  # the files of this attempt are never committed
        messages = one.run(1 + a["tasks"])
        if a["how"] == 2:
            one.abort([None, *messages])
            return None
        written = Written(rows)
        process.gate.number = None
        one.commit(messages)
        if app is None or version > world.model.versions.get(app, -1):
            if app is not None:
                world.model.versions[app] = version
            world.model.commit(written, process.gate.number, world.clock.true_ms())
        if a["how"] == 3:
            one.commit(messages)
        if a["how"] == 5:
            one.abort(messages)
    return None


@dataclass
class Sink:
    """A streaming query that writes to a topic. `batch`: the number of its current micro-batch. `rows`: the rows of this
    micro-batch, the same at each attempt. `committed`: whether an attempt has committed it. `attempts`: the commit messages of
    earlier attempts.
    """

    name: str
    query: str
    options: dict[str, str]
    batch: int = 0
    rows: list[Row] = field(default_factory=list)
    committed: bool = False
    attempts: list[list[Any]] = field(default_factory=list)

    def write(self) -> SparkStreamWrite:
        """Return a new attempt to write the current micro-batch."""
        return SparkStreamWrite(self.options, table(self.rows), self.query, self.batch)


@operation(1.5, t=PICK, app=2)
def sink(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None or len(world.sinks) >= 2:
        return False
    query = uuid4().hex
    options = {"serviceUrl": world.url, "path": name, "checkpointlocation": f"/c/{query}"}
    if a["app"]:
        options |= {"txnAppId": f"sink-{query}"}
    world.sinks.append(Sink(name, query, options))
    return None


@operation(7, i=PICK, p=PICK, rows=5, seed=PICK, tasks=3, how=8)
def sink_batch(bench: Bench, a: Args) -> object:
    """Run a micro-batch of a sink: the tasks, the commit, and the entry in Spark's commit log. If the query fails or dies between
    these steps, the next call for this sink runs the same micro-batch again.
    """
    world = bench.world(a["w"])
    one: Sink | None = one_of(world.sinks, a["i"])
    if one is None:
        return False
    if one.name not in world.model.topics:
        world.sinks.remove(one)
        return None
    process = world.process(a["p"])
    if not one.rows:
        one.rows = world.rows(one.name, a["rows"], a["seed"])
    with world.inside(process):
        micro_batch = one.write()
        messages = micro_batch.run(1 + a["tasks"])
        if a["how"] == 0:  # the query is killed before the commit
            one.attempts.append(messages)
            return None
        if a["how"] == 1:
            micro_batch.abort(messages)
            return None
        sink_commit(world, process, one, messages)
        if a["how"] == 2 and one.attempts:  # the process of an earlier attempt is a zombie: it commits or aborts late
            (micro_batch.commit if a["seed"] % 2 else micro_batch.abort)(one.attempts[0])
        if a["how"] == 3:  # the query is killed before its entry in the commit log
            one.attempts.append(messages)
            return None
    one.batch, one.rows, one.committed, one.attempts = one.batch + 1, [], False, []
    return None


def sink_commit(world: World, process: Process, one: Sink, messages: list[Any]) -> None:
    process.gate.number = None
    one.write().commit(messages)
    if not one.committed:
        one.committed = True
        world.model.commit(Written(list(one.rows)), process.gate.number if one.rows else None, world.clock.true_ms())


class _InBlock(Exception):
    pass


@operation(4, p=PICK, t=PICK, t2=PICK, rows=5, seed=PICK, c=PICK, acks=2, end=5, app=4, version=3)
def transaction(bench: Bench, a: Args) -> object:
    """Run a `with cluster.transaction()` block with Spark writes, rows of the driver and acks. It ends with an error, an abort or a
    commit.
    """
    world = bench.world(a["w"])
    names = [n for pick in (a["t"], a["t2"]) if (n := topic_of(world, pick)) is not None]
    if not names:
        return False
    process = world.process(a["p"])
    identity = None
    if a["app"] == 0:
        identity = ("etl", max(0, world.model.versions.get("etl", -1) + a["version"]))
    one = Open(process, None, Written(), identity=identity)
    done: Any = None
    with attempt(bench, AckConflict, SubscriptionNotFound, VersionConflict, TopicNotFound) as tried:
        made = (
            process.cluster.transaction() if identity is None else process.cluster.transaction(app=identity[0], version=identity[1])
        )
        one.txn = made
        process.gate.number = None
        try:
            with made as txn:
                _fill(world, one, names, a)
                if a["end"] == 0:
                    raise _InBlock
                if a["end"] == 1:
                    txn.abort()
            done = None if a["end"] < 2 else made.commit()
        except _InBlock:
            pass
    if tried.failed:
        from conformance.surface.writing import refused

        refused(world, one, tried.error)
    elif a["end"] >= 2:
        from conformance.surface.writing import check_version

        check_version(world, one, done)
        decided(world, one, done)
        return None
    for following in one.consumers:
        following.due = True
    return None


def _fill(world: World, one: Open, names: list[str], a: Args) -> None:
    for i, name in enumerate(names):
        rows = world.rows(name, 1 + a["rows"], a["seed"] + i)
        with world.inside(one.process):
            staged = SparkWrite({**one.txn.options, "path": name}, table(rows))
            messages = staged.run()
            if a["seed"] % 5 == i:
                staged.abort(messages)
                continue
            staged.commit(messages)
        one.written.rows += rows
    if a["seed"] % 3 == 0:
        rows = world.rows(names[0], 2, a["seed"])
        one.stage(world, names[0], rows)
        one.written.rows += rows
    if a["acks"] == 0:
        _acknowledge(world, one, a)


def _acknowledge(world: World, one: Open, a: Args) -> None:
    from conformance.surface.consuming import _name, consumer_of, rows_of

    following = consumer_of(world, a["c"])
    if following is None or following.stale or any(world.model.topics[name].persistent for name in following.topics):
        return
    sub = following.subscription
    given = {id(g): g for _, g in following.handed}.values()
    fresh = [g for g in given if not any(n in world.model.acked.get((_name(world, g), sub), ()) for n in rows_of(g))]
    chosen = fresh[: 1 + a["c"] % 4]
    if not chosen:
        return
    following.consumer.ack(chosen, txn=one.txn)
    one.consumers.append(following)
    for g in chosen:
        one.written.acks.append((_name(world, g), sub, rows_of(g)))
