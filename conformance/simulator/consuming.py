"""What consumers of either model have in common in a simulated world: rounds of taking what a subscription has left and
acknowledging it, in transactions of their own or without, and the choice of what they take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conformance.history.format import Commit, Row
from conformance.simulator.readers import rows_of
from conformance.simulator.scheduler import Actor, Process, World
from metadata.client.providers import PendingAckProvider
from metadata.common.errors import TxnSegmentError
from metadata.read.backlog import acked, pending, taken
from metadata.read.reading import Reading
from metadata.records.row_ranges import Rows, common, rows, span, union
from metadata.rules.acks import Ack
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.write.write_set import Committed, WriteSet


@dataclass(frozen=True)
class Hands:
    """What one process consumes with. `take`: what it will acknowledge of what the poll of this name gave it, and with whom."""

    take: Callable[[str], tuple[PendingAckProvider, list[Ack]]]
    commit: Callable[[WriteSet], Committed]


def start_consuming(world: World, name: str, hands: Callable[[Process], Hands], *, rounds: int, plain: bool, within: int) -> Actor:
    """It takes what is not acknowledged, some of it or all, and acknowledges it; `plain`: without a transaction."""
    process = Process(world, name)

    def run() -> None:
        mine = hands(process)
        for batch in range(rounds):
            try:
                pending_acks, acks = mine.take(f"{name}.{batch}")
                if plain:
                    pending_acks.acknowledge(acks)
                elif acks:
                    _commit(world, process, acks, mine.commit)
            except TxnSegmentError:
                continue  # an AckConflict: somebody else was faster, or the topic went on; any other: it comes again

    return world.spawn(process, name, run, delay=world.rng.randrange(within))


def _commit(world: World, process: Process, acks: Sequence[Ack], commit: Callable[[WriteSet], Committed]) -> None:
    """In a transaction of nothing else, of an application of its own."""
    history, attempt, name = world.history, world.unique(), process.name
    app = f"{name}-{attempt}"
    history.asked(Commit(history.now(), attempt, name, app, "", 1, (), None, attempt, False, True))
    claim, timeout_ms = Claim(1, None, attempt, False), world.rng.choice((200, 1_000))
    try:
        made = commit(WriteSet(app, "", claim, {}, time_ms(process.store), timeout_ms, random=True, acks=acks))
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "committed", made.txn_id)


def choose(
    world: World, reading: Reading, pending_acks: PendingAckProvider, subscription: str, *, whole: bool = False
) -> tuple[list[Row], list[Ack]]:
    """The rows of a reading that are given to the subscription, and what will be acknowledged of them: of each segment a few
    ledgers, all of them or some of their rows. `whole`: all there is.
    """
    rng = world.rng
    cursors = pending_acks.read((segment.name, subscription) for segment in reading.segments)
    done = acked({segment: cursor for (segment, _), cursor in cursors.items()})
    given, acks = list[Row](), []
    for segment in reading.segments:
        had = done[segment.name]
        ledgers = [ledger for ledger, _ in pending(segment, had, 0, reading.cut)]
        ledgers = ledgers if whole else ledgers[: rng.choice((1, 2, 10))]
        here = [row for ledger in ledgers for row in rows_of(world, segment.name, ledger) if not common(place(row), had)]
        given += here
        if here and not whole and rng.random() < 0.4:
            some = rng.sample(here, rng.randint(1, len(here)))
            acks.append(Ack(segment.name, subscription, union(*map(place, some))))
        elif (ack := taken(segment.name, subscription, had, ledgers)) is not None:
            acks.append(ack)
    return given, acks


def place(row: Row) -> Rows:
    """The row alone, as acknowledgements name it."""
    return rows([span(*row.position)])
