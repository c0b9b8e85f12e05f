"""The final checks of every run: all paused commits continue, sweepers run, and every reader reads to the end."""

from __future__ import annotations

from conformance.harness.spark_driver import numbers, read_batch
from conformance.surface import migrations
from conformance.surface.batches import again, close_chain
from conformance.surface.bench import Bench
from conformance.surface.common import attempt
from conformance.surface.consuming import LOST, justify_loss, take
from conformance.surface.gate import Held
from conformance.surface.model import Fault
from conformance.surface.streaming import check_caught_up, drive
from conformance.surface.upkeep import sweep_all
from conformance.surface.world import World
from conformance.surface.writing import ended
from metadata.common.errors import SchemaError


def conclude(bench: Bench) -> None:
    bench.clock.leap_ms = 0
    deadlines = bench.clock.true_ms()
    for world in bench.worlds:
        for one in list(world.holding):
            if not one.process.gate.dead and one.process.held is not None:
                held: Held = one.process.held
                held.finish()
                ended(bench, world, one, held)
            elif one.process.gate.dead:
                # The clock may have been ahead when this transaction was opened. Its deadline may then lie more than 60 s ahead.
                deadlines = max(deadlines, one.opened_ms)
            world.holding.remove(one)
            migrations.note_moves(world)
        world.settle()
        migrations.note_moves(world)
    # After this, all open transactions are past their deadlines.
    bench.clock.passed_ms += 60_000 + max(0, deadlines - bench.clock.true_ms())
    for world in bench.worlds:
        if world.usable:
            _conclude(bench, world)


def _conclude(bench: Bench, world: World) -> None:
    process = world.process(0)
    sweep_all(world, 0)
    migrations.note_moves(world)
    migrations.conclude(bench, world)
    for one in list(world.ranges):
        again(bench, world, one, 0)
    for one in list(world.chains):
        close_chain(bench, world, one)
    world.settle()
    _read_all(bench, world)
    for following in list(world.consumers):
        if following.stale:
            continue
        with attempt(bench, *LOST) as tried:
            following.consumer.rewind()
        if tried.failed:
            justify_loss(world, following.topics, following.subscription, tried.error)
            continue
        following.begun()
        take(bench, following, following.consumer.messages(timeout=0), 10_000, 0)
    for query in list(world.queries):
        query.stop()
        rows = {row.n for t in query.topics() if query.names != ("*",) for row in world.model.rows_of(t)}
        if drive(bench, query, process, 600):
            raise Fault("endless", f"{query.where} did not come to an end after 200 batches")
        if query in world.queries and query.engine.reader is not None:
            check_caught_up(query, rows)


def _read_all(bench: Bench, world: World) -> None:
    """Check that a batch read of each topic, without a start, returns all retained rows."""
    model = world.model
    for topic in list(model.topics.values()):
        rows = {row.n for row in model.rows_of(topic)}
        where = f"a batch of all of {topic.name}"
        with world.inside(world.process(0)), attempt(bench, SchemaError) as tried:
            found = numbers(read_batch({"serviceUrl": world.url, "path": topic.name}))
        if tried.failed:
            if rows - model.gone.keys():
                raise Fault("batch: lost", f"{where} says that nothing was written: {tried.error}")
            continue
        model.check_rows(found, rows, where, gone_by=model.step, what="batch")
        model.check_whole(found, where)
