"""Batch reads: of a whole topic, of a range of log numbers, of the same range again, and of adjoining ranges one after the other (a
chain).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from conformance.harness.spark_driver import numbers, read_batch
from conformance.surface.bench import Bench
from conformance.surface.common import attempt
from conformance.surface.model import Fault
from conformance.surface.operations import PICK, Args, one_of, operation
from conformance.surface.world import World
from conformance.surface.writing import topic_of
from metadata.common.errors import DataLoss, OffsetOutOfRange, SchemaError, TopicNotFound


def undecided_from(world: World) -> float:
    """Return the lowest log number at which a paused or dead process may have an undecided registration; infinity if there is none.

    Rows at this number or above may not be readable yet.
    """
    numbers = [one.process.gate.number for one in world.holding if one.process.gate.number is not None]
    return min(numbers, default=float("inf"))


def number_of(world: World, n: int) -> int:
    return world.model.committed[n].number or 0


@operation(6, t=PICK, p=PICK, earliest=2)
def read_all(bench: Bench, a: Args) -> object:
    """Read all retained rows of a topic: without a start, or with `startingOffsets` = `earliest`."""
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None:
        return False
    model = world.model
    rows = {row.n for row in model.rows_of(model.topics[name])}
    certain = {n for n in rows if number_of(world, n) < undecided_from(world)}
    options = {"serviceUrl": world.url, "path": name} | ({"startingOffsets": "earliest"} if a["earliest"] else {})
    where = f"a batch of all of {name}"
    with world.inside(world.process(a["p"])), attempt(bench, SchemaError) as tried:
        found = numbers(read_batch(options))
    if tried.failed:
        if certain - model.gone.keys():
            raise Fault("batch: lost", f"{where} says that nothing was written: {tried.error}")
        return None
    model.check_rows(found, certain | (rows & set(found)), where, gone_by=model.step, what="batch")
    model.check_whole(found, where)
    return None


@dataclass
class Range:
    """A range that was read. `rows`: the rows that this read returned. `incarnation`: the incarnation of the topic at that time
    (`model.Topic`).
    """

    options: dict[str, str]
    topic: str
    incarnation: str
    rows: list[int]


@operation(5, t=PICK, start=PICK, end=PICK, p=PICK)
def read_range(bench: Bench, a: Args) -> object:
    """Read the rows of a topic with start < number <= end."""
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    model = world.model
    known = sorted({0, *(w.number for w in model.transactions() if w.number is not None)})
    if name is None or len(known) < 2:
        return False
    start, end = sorted((known[a["start"] % len(known)], known[a["end"] % len(known)]))
    options = {
        "serviceUrl": world.url,
        "path": name,
        "startingOffsets": json.dumps({"log": start}),
        "endingOffsets": json.dumps({"log": end}),
    }
    where = f"a batch of {name} after {start} up to {end}"
    expected = model.between([model.topics[name]], start, end)
    with world.inside(world.process(a["p"])), attempt(bench, SchemaError, DataLoss, OffsetOutOfRange) as tried:
        found = numbers(read_batch(options))
    if isinstance(tried.error, DataLoss) and not may_miss(world, name):
        raise Fault("false loss", f"{where}: {tried.error}, though nothing can have gone")
    if isinstance(tried.error, OffsetOutOfRange) and end < undecided_from(world):
        raise Fault("out of range", f"{where}: {tried.error}, though all of it is decided")
    if isinstance(tried.error, SchemaError) and expected - model.gone.keys():
        raise Fault("batch: lost", f"{where} says that nothing was written: {tried.error}")
    if tried.failed:
        return None
    model.check_rows(found, expected, where, gone_by=None, what="range")
    model.check_whole(found, where)
    world.ranges.append(Range(options, name, model.topics[name].incarnation, found))
    return None


def may_miss(world: World, name: str) -> bool:
    """Return whether retention or a deletion can have removed rows of any incarnation of the topic."""
    model = world.model
    return model.made[name] > 1 or name not in model.topics or any(row.n in model.gone for row in model.rows_of(model.topics[name]))


@operation(4, i=PICK, p=PICK)
def read_range_again(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    one: Range | None = one_of(world.ranges, a["i"])
    if one is None:
        return False
    again(bench, world, one, a["p"])
    return None


def again(bench: Bench, world: World, one: Range, pick: int) -> None:
    """Read a range again. The read must return the same rows, or fail for a permitted reason. After a failure the range is not read
    again.

    A range by timestamps is not read again if its topic was deleted or recreated, because timestamps are looked up in the current
    topic.
    """
    now = world.model.topics.get(one.topic)
    if "startingTimestamp" in one.options and (now is None or now.incarnation != one.incarnation):
        world.ranges.remove(one)
        return
    with world.inside(world.process(pick)), attempt(bench, SchemaError, DataLoss, TopicNotFound) as tried:
        found = numbers(read_batch(one.options))
    what = {k: v for k, v in one.options.items() if k != "serviceUrl"}
    if tried.failed:
        if not may_miss(world, one.topic):
            raise Fault("same range", f"{what} was read before, and fails now: {type(tried.error).__name__}: {tried.error}")
        world.ranges.remove(one)
        return
    if sorted(found) != sorted(one.rows):
        raise Fault("same range", f"{what} had rows {sorted(one.rows)}, and has {sorted(found)} when it is read again")


@dataclass
class Chain:
    """A chain: reads of adjoining ranges of a topic, one after the other. `by_time`: whether the ranges are given by timestamps.
    `edge`: the log number or timestamp at which the last read ended; None before the first read. `rows`: the rows of all reads.
    `since`: the model's step number at the first read.
    """

    topic: str
    by_time: bool
    edge: int | None = None
    rows: list[int] = field(default_factory=list)
    since: int = 0

    def options(self, end: int | None) -> dict[str, str]:
        name = "Timestamp" if self.by_time else "Offsets"

        def text(edge: int) -> str:
            return str(edge) if self.by_time else json.dumps({"log": edge})

        found = {} if self.edge is None else {f"starting{name}": text(self.edge + (1 if self.by_time else 0))}
        return found | ({} if end is None else {f"ending{name}": text(end)})


@operation(2, t=PICK, time=2)
def chain(bench: Bench, a: Args) -> object:
    world = bench.world(a["w"])
    name = topic_of(world, a["t"])
    if name is None or len(world.chains) >= 3:
        return False
    world.chains.append(Chain(name, bool(a["time"])))
    return None


@operation(8, i=PICK, end=PICK, p=PICK)
def extend(bench: Bench, a: Args) -> object:
    """Do the next read of a chain. It ends at the log number of a committed transaction, or at a past timestamp."""
    world = bench.world(a["w"])
    one: Chain | None = one_of(world.chains, a["i"])
    if one is None:
        return False
    if one.by_time:
        end = world.clock.now_ms() - (1, 1, 5, 20, 6_000, 20_000)[a["end"] % 6]
        if one.edge is not None and end <= one.edge:
            return False
    else:
        known = sorted(n for w in world.model.transactions() if (n := w.number) is not None and n > (one.edge or 0))
        if not known:
            return False
        end = known[a["end"] % len(known)]
    read_on(bench, world, one, end, a["p"])
    return None


def read_on(bench: Bench, world: World, one: Chain, end: int | None, pick: int) -> bool:
    """Read the next range of a chain, up to `end` (None: up to the cut), and check its rows. Return whether the chain can be
    continued.
    """
    model = world.model
    options = {"serviceUrl": world.url, "path": one.topic} | one.options(end)
    with world.inside(world.process(pick)), attempt(bench, SchemaError, DataLoss, OffsetOutOfRange, TopicNotFound) as tried:
        found = numbers(read_batch(options))
    if isinstance(tried.error, OffsetOutOfRange):
        if end is None or (not one.by_time and end < undecided_from(world)):
            raise Fault("out of range", f"a batch {options}: {tried.error}, though all of it is decided")
        return True  # the range is not decided yet, so a later operation reads it
    if isinstance(tried.error, SchemaError):
        if one.topic in model.topics and any(row.n not in model.gone for row in model.rows_of(model.topics[one.topic])):
            raise Fault("batch: lost", f"a batch {options} says that nothing was written: {tried.error}")
        return end is not None
    if tried.failed:
        if not may_miss(world, one.topic):
            raise Fault("false loss", f"a batch {options}: {tried.error}, though nothing can have gone")
        world.chains.remove(one)
        return False
    where = f"a chain of reads of {one.topic}, the last one {one.options(end)}"
    model.check_real(found, where)
    model.check_whole(found, where)
    if one.edge is None:
        one.since = model.step
    one.rows += found
    model.check_once(one.rows, where)
    if one.by_time and end is not None and end > world.clock.true_ms():
        # `end` lies in the future, because the run's clock had leapt ahead when `end` was chosen. Rows with earlier timestamps may
        # still be written.
        bench.met["read ahead of time"] += 1
        world.chains.remove(one)
        return False
    if end is not None:
        one.edge = end
        if "starting" in " ".join(options):
            world.ranges.append(Range(options, one.topic, model.topics[one.topic].incarnation, found))
    return True


def close_chain(bench: Bench, world: World, one: Chain) -> None:
    """Do the last read of a chain, without an end. Together, the reads of the chain must have returned every row of the topic,
    except rows that retention or a deletion may have removed.
    """
    model = world.model
    if one.topic not in model.topics or not read_on(bench, world, one, None, 0):
        return
    rows = {row.n for row in model.rows_of(model.topics[one.topic])}
    missing = rows - set(one.rows) - model.gone.keys()
    if missing:
        how = "timestamps" if one.by_time else "offsets"
        raise Fault(
            f"chain by {how}",
            f"adjoining reads of {one.topic} by {how}, up to {one.edge} and from there on, miss rows {sorted(missing)}",
        )
