"""Helpers shared by the operations: permitted errors, tables of rows, paused commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from conformance.surface.model import Fault, Row, Written
from metadata.common.errors import TxnSegmentError

if TYPE_CHECKING:
    from conformance.surface.bench import Bench
    from conformance.surface.world import Process, World

NAMES = ("t0", "t1", "t2")
OLDER_NAMES = tuple(f"persistent://public/default/p{i}" for i in range(3))
OLDER_PATTERN = "persistent://public/default/p.*"
SUBSCRIPTIONS = ("s0", "s0", "s0", "s1")
"""Mostly one: a second one holds all rows back from retention."""
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
DDL = "k string, n bigint"


@dataclass
class Attempt:
    """The outcome of a call; `error` None for a success."""

    error: TxnSegmentError | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None


@contextmanager
def attempt(bench: Bench, *kinds: type[TxnSegmentError]) -> Iterator[Attempt]:
    """Errors of the given kinds are permitted here; every other error is a fault, which the driver reports."""
    found = Attempt()
    try:
        yield found
    except kinds as error:
        bench.met[type(error).__name__] += 1
        found.error = error


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"k": row.key, "n": row.n} for row in rows], schema=SCHEMA)


def values(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for `Producer.send`. (A column whose values are all None has no type there.)"""
    return [{"k": row.key or "none", "n": row.n} for row in rows]


@dataclass
class Open:
    """A transaction begun by the program. `consumers`: the consumers whose acknowledgements are part of it."""

    process: Process
    txn: Any
    written: Written
    topics: set[str] = field(default_factory=set)
    consumers: list[Any] = field(default_factory=list)
    covered: list[tuple[str, str, frozenset[int]]] = field(default_factory=list)
    """The rows covered by its cumulative acks, by segment: topic, subscription, rows, whether acked before."""
    identity: tuple[str, int] | None = None
    began_ms: int | None = None
    """The beginning of its commit, if that is paused: its publish time is no earlier."""
    older: bool = False
    """Whether it writes to persistent topics."""
    moved: bool = False
    """One of its topics was migrated since it began."""
    before: frozenset[int] | None = None
    """The rows committed before its commit was paused."""
    moves: str | None = None
    """Set instead of a transaction: the persistent topic that its process migrates."""
    opened_ms: int = 0
    """The time of the clock when the commit was last seen running: its deadline is half a minute later."""


def claimed(world: World) -> set[tuple[str, str, int]]:
    """The rows that may have pending acks of paused transactions, or of transactions whose process died during a commit."""
    return {(topic, sub, n) for one in world.holding for topic, sub, rows in one.written.acks for n in rows}


def unfinished(world: World) -> bool:
    """Whether a commit is paused (or its process died in it), so that rows above it may not be readable yet."""
    return bool(world.holding)


def known_as(world: World, topic: object) -> str:
    """The model's name for a topic with a full product name."""
    return world.model.older.named(str(topic).removeprefix("topic://public/default/"))


def fault_unless(condition: bool, oracle: str, text: str) -> None:
    if not condition:
        raise Fault(oracle, text)
