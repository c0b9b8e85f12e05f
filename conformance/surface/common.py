"""Functions and types that the operations share: permitted errors, tables of rows, and transactions."""

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
PERSISTENT_NAMES = tuple(f"persistent://public/default/p{i}" for i in range(3))
PERSISTENT_PATTERN = "persistent://public/default/p.*"
SUBSCRIPTIONS = ("s0", "s0", "s0", "s1")
"""The names of subscriptions. Each operation chooses one of the four entries at random, so most operations use `s0`. Retention
keeps a row until all subscriptions of the topic have acknowledged it. So few rows would be trimmed if `s1` were used as often as
`s0`.
"""
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
DDL = "k string, n bigint"


@dataclass
class Attempt:
    """The outcome of the calls in an `attempt` block. `error`: the permitted error that they raised; None if they succeeded."""

    error: TxnSegmentError | None = None

    @property
    def failed(self) -> bool:
        return self.error is not None


@contextmanager
def attempt(bench: Bench, *kinds: type[TxnSegmentError]) -> Iterator[Attempt]:
    """Permit errors of the given kinds in the block, and keep such an error in the `Attempt`. Any other error fails the run
    (`drive.execute`).
    """
    found = Attempt()
    try:
        yield found
    except kinds as error:
        bench.met[type(error).__name__] += 1
        found.error = error


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"k": row.key, "n": row.n} for row in rows], schema=SCHEMA)


def values(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows for `Producer.send`. A missing key becomes "none", because a column with only None values would have no type."""
    return [{"k": row.key or "none", "n": row.n} for row in rows]


@dataclass
class Open:
    """A transaction that a program has begun, or a paused migration (`moves`). `consumers`: the consumers whose acknowledgements
    are part of the transaction.
    """

    process: Process
    txn: Any
    written: Written
    topics: set[str] = field(default_factory=set)
    consumers: list[Any] = field(default_factory=list)
    covered: list[tuple[str, str, frozenset[int]]] = field(default_factory=list)
    """(topic, subscription, rows) of each cumulative ack in the transaction. The rows include those that were acknowledged before.
    """
    identity: tuple[str, int] | None = None
    began_ms: int | None = None
    """If the commit is paused: the time at which it began. The publish time of the transaction's rows is this time or later."""
    persistent: bool = False
    """Whether the transaction writes to persistent topics."""
    moved: bool = False
    """Whether one of the transaction's topics was migrated after the transaction began."""
    before: frozenset[int] | None = None
    """The rows that were committed before the commit of this transaction was paused."""
    moves: str | None = None
    """The persistent topic of a paused migration. If it is not None, this object is the migration, not a transaction."""
    staged_ms: int | None = None
    """The time that the clock showed when the first rows of the transaction were staged."""
    opened_ms: int = 0
    """The time that the clock showed when the commit or migration paused. The deadline of the transaction is half a minute later.
    """

    def stage(self, world: World, name: str, rows: Sequence[Row]) -> None:
        """Stage rows by `append`."""
        self.staged_ms = world.clock.now_ms() if self.staged_ms is None else self.staged_ms
        self.txn.append(name, table(rows))


def claimed(world: World) -> set[tuple[str, str, int]]:
    """Return (topic, subscription, row) of each row that may have a pending ack. Such a row is acknowledged in a transaction whose
    commit is paused, or whose process died during the commit.
    """
    return {(topic, sub, n) for one in world.holding for topic, sub, rows in one.written.acks for n in rows}


def unfinished(world: World) -> bool:
    """Return whether a commit is paused or a process died during a commit. If so, rows of later commits may not be readable yet."""
    return bool(world.holding)


def known_as(world: World, topic: object) -> str:
    """Return the name that the model has for a topic. `topic`: the full name that the product uses."""
    return world.model.persistent.named(str(topic).removeprefix("topic://public/default/"))


def fault_unless(condition: bool, oracle: str, text: str) -> None:
    if not condition:
        raise Fault(oracle, text)
