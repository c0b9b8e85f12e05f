"""Consumers of a persistent topic in a simulated world: they acknowledge what they are given, row by row, some in transactions."""

from __future__ import annotations

from conformance.history.format import Commit, Poll, Row
from conformance.simulator.in_stream_clients import Party
from conformance.simulator.in_stream_readers import collect
from conformance.simulator.scheduler import Process, World
from metadata.acks import Ack, done, up_to
from metadata.errors import TxnSegmentError
from metadata.names import persistent_name
from metadata.row_ranges import Rows, common, end_of, rows, span, union
from metadata.store.contract import time_ms
from metadata.transitions import Claim
from metadata.write_set import WriteSet

SUBSCRIPTION = "s"


def start_in_stream_consumer(world: World, name: str, topic: str, *, rounds: int, plain: bool, within: int) -> None:
    """It takes what is not acknowledged, some of it or all, and acknowledges it; `plain`: without a transaction."""
    process = Process(world, name)

    def run() -> None:
        party = Party(world, process)
        for batch in range(rounds):
            try:
                acks = _consumed(world, party, f"{name}.{batch}", topic)
                if plain:
                    party.hands.acks.acknowledge(acks)
                elif acks:
                    _commit(world, party, name, acks)
            except TxnSegmentError:
                continue  # an AckConflict: somebody else was faster; any other: it comes again

    world.spawn(process, name, run, delay=world.rng.randrange(within))


def _consumed(world: World, party: Party, poll: str, topic: str) -> list[Ack]:
    history, began, rng = world.history, world.history.now(), world.rng
    reading = party.buffer.read(persistent_name(topic))
    where = topic, SUBSCRIPTION
    had = done(party.hands.acks.read([where])[where])
    given = [row for row in collect(world, reading, 0, reading.cut) if not common(_row(row), had)][: rng.choice((1, 2, 10))]
    history.saw(Poll(history.now(), began, poll, 0, (topic,), tuple(given), subscription=SUBSCRIPTION, ordered=False, log=topic))
    if not given:
        return []
    if rng.random() < 0.3:
        return [up_to(*where, end_of(*given[-1].position))]
    some = rng.sample(given, rng.randint(1, len(given))) if rng.random() < 0.5 else given
    return [Ack(*where, union(*map(_row, some)))]


def _row(row: Row) -> Rows:
    return rows([span(*row.position)])


def _commit(world: World, party: Party, name: str, acks: list[Ack]) -> None:
    history, attempt = world.history, world.unique()
    app = f"{name}-{attempt}"
    history.asked(Commit(history.now(), attempt, name, app, "", 1, (), None, attempt, False, True))
    claim, timeout_ms = Claim(1, None, attempt, False), world.rng.choice((200, 1_000))
    try:
        work = WriteSet(app, "", claim, {}, time_ms(party.process.store), timeout_ms, random=True, acks=acks)
        made = party.coordinator.commit(work)
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "committed", made.txn_id)
