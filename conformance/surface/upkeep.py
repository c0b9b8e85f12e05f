"""Maintenance: operations on the clock, retention, trims, compaction, sweeps, processes and the lag of subscriptions."""

from __future__ import annotations

from datetime import timedelta

from conformance.surface.bench import Bench
from conformance.surface.common import known_as
from conformance.surface.model import Fault
from conformance.surface.operations import PICK, Args, operation
from conformance.surface.world import World
from conformance.surface.writing import topic_of
from metadata.common.errors import Unavailable

AMOUNTS_MS = (1, 50, 1_500, 11_000, 36_000, 600_000, 3_600_000, 2 * 3_600_000, 7 * 3_600_000)
LEAPS_MS = (0, 0, 600_000, 4 * 3_600_000, 30 * 3_600_000)
KEEP = (timedelta(seconds=1), timedelta(seconds=30), timedelta(hours=3), timedelta.max)


@operation(5, by=len(AMOUNTS_MS))
def wait(bench: Bench, a: Args) -> object:
    bench.clock.passed_ms += AMOUNTS_MS[a["by"]]
    return None


@operation(1.5, by=len(LEAPS_MS))
def leap(bench: Bench, a: Args) -> object:
    """Let the wall clock leap ahead, or set it right again. The monotonic clock, which measures elapsed time, does not leap."""
    bench.clock.leap_ms = LEAPS_MS[a["by"]]
    return None


@operation(4, t=PICK, p=PICK, what=8, bytes=6, despite=6)
def retain(bench: Bench, a: Args) -> object:
    """Set a limit of time or size for the retention of a topic, or clear its limits. Sometimes retention ignores subscriptions."""
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    topic, retention = world.model.topics[name], world.process(a["p"]).cluster.retention
    if a["what"] < len(KEEP):
        keep = KEEP[a["what"]]
        retention.set(name, keep=keep)
        topic.keep_ms = None if keep == timedelta.max else keep // timedelta(milliseconds=1)
    elif a["what"] < 7:
        size = 1 + 900 * a["bytes"]
        retention.set(name, keep_bytes=size)
        topic.keep_bytes = size
    else:
        retention.clear(name)
        topic.keep_ms = topic.keep_bytes = None
        topic.despite = False
        return None
    if a["despite"] == 0:
        retention.set(name, despite_subscriptions=True)
        topic.despite = True
    return None


@operation(4, t=PICK, p=PICK)
def trim(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    world.model.trimmed(world.clock.true_ms())
    world.process(a["p"]).cluster.retention.trim(name)
    return None


@operation(5, p=PICK)
def sweep(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    sweep_all(world, a["p"])
    return None


def sweep_all(world: World, pick: int) -> None:
    world.model.trimmed(world.clock.true_ms())
    cluster = world.process(pick).cluster
    try:
        cluster.sweep()
    except Unavailable:  # the clock moved so far that the session expired, which ended the sweep
        cluster.sweep()


@operation(3, t=PICK, p=PICK, size=3)
def compact(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    world.process(a["p"]).cluster.compact(name, target_bytes=(1, 4_000, 1_000_000)[a["size"]])
    return None


@operation(2, p=PICK)
def reopen(bench: Bench, a: Args) -> object:
    """End an idle process, or open the cluster in another process."""
    world = bench.world(a["w"])
    used = [one.process for group in (world.consumers, world.transactions, world.queries) for one in group]
    used += [found[0] for found in world.producers]
    idle = [p for p in world.processes if p.held is None and not any(p is one for one in used)]
    if len(world.processes) >= 3:
        if not idle:
            return False
        world.close(idle[a["p"] % len(idle)])
    else:
        world.open()
    return None


@operation(3, p=PICK)
def lag(bench: Bench, a: Args) -> object:
    """Compare the names and lags of all subscriptions with the model."""
    world = bench.world(a["w"])
    model = world.model
    if world.holding:
        return False
    found = {(known_as(world, d.topic), d.name): d.lag.rows for d in world.process(a["p"]).cluster.subscriptions.list()}
    if found.keys() != model.acked.keys():
        raise Fault("subscription", f"the subscriptions are {sorted(found)}, the model has {sorted(model.acked)}")
    for (topic, sub), rows in found.items():
        all_rows = {row.n for row in model.rows_of(model.topics[topic])}
        left = all_rows - model.acked[topic, sub]
        if not all_rows & model.gone.keys() and rows != len(left):
            raise Fault("lag", f"{sub} of {topic} lags {rows} rows behind; the model says {sorted(left)}")
    return None
