"""Consumers of a topic by the name that it had before its migration: of either model as it is served at the moment, each row by
itself, in transactions and without. Whoever sleeps in between acknowledges by what it knew.
"""

from __future__ import annotations

from conformance.history.format import Commit, Poll, Row
from conformance.simulator.in_stream_consumers import SUBSCRIPTION
from conformance.simulator.readers import rows_of
from conformance.simulator.scheduler import Actor, Process, World
from conformance.simulator.writers import hands_on
from metadata.acks import Ack
from metadata.backlog import acked, pending, taken
from metadata.client import Client
from metadata.errors import TxnSegmentError
from metadata.providers import Provider, Providers
from metadata.row_ranges import common, rows, span, union
from metadata.store.contract import time_ms
from metadata.transitions import Claim
from metadata.write_set import WriteSet


def start_onward_consumer(world: World, name: str, topic: str, *, rounds: int, plain: bool, within: int) -> Actor:
    """It takes what is not acknowledged, some of it or all, and acknowledges it; `plain`: without a transaction."""
    process = Process(world, name)

    def run() -> None:
        client = hands_on(world, process, at_once=True)
        for batch in range(rounds):
            try:
                provider, acks = take(world, client, f"{name}.{batch}", topic)
                if plain:
                    provider.acks.acknowledge(acks)
                elif acks:
                    _commit(world, client, name, acks)
            except TxnSegmentError:
                continue  # an AckConflict: somebody else was faster, or the topic went on; any other: it comes again

    return world.spawn(process, name, run, delay=world.rng.randrange(within))


def take(world: World, client: Client, poll: str, topic: str, *, whole: bool = False) -> tuple[Provider, list[Ack]]:
    """What is given to a consumer, and what it will acknowledge of it (`whole`: all there is)."""
    history, began, rng = world.history, world.history.now(), world.rng
    providers = Providers(client)
    name = providers.resolve(topic)
    provider = providers.of([name])
    reading = provider.buffer.read(str(name))
    cursors = provider.acks.read((segment.name, SUBSCRIPTION) for segment in reading.segments)
    done = acked({segment: cursor for (segment, _), cursor in cursors.items()})
    given, acks = list[Row](), []
    for segment in reading.segments:
        had = done[segment.name]
        ledgers = [ledger for ledger, _ in pending(segment, had, 0, reading.cut)]
        ledgers = ledgers if whole else ledgers[: rng.choice((1, 2, 10))]
        here = [r for found in ledgers for r in rows_of(world, segment.name, found) if not common(rows([span(*r.position)]), had)]
        given += here
        if here and not whole and rng.random() < 0.4:
            some = rng.sample(here, rng.randint(1, len(here)))
            acks.append(Ack(segment.name, SUBSCRIPTION, union(*(rows([span(*row.position)]) for row in some))))
        elif (ack := taken(segment.name, SUBSCRIPTION, had, ledgers)) is not None:
            acks.append(ack)
    log = str(name) if str(name) == topic else ""
    seen = Poll(history.now(), began, poll, 0, (str(name),), tuple(given), subscription=SUBSCRIPTION, ordered=False, log=log)
    history.saw(seen)
    return provider, acks


def drain(world: World, client: Client, topic: str) -> None:
    """Everything that is left is given to the subscription, and acknowledged: after that there is nothing."""
    for again in range(2):
        provider, acks = take(world, client, f"drain{again}", topic, whole=True)
        if again and acks:
            world.history.bad(f"{SUBSCRIPTION} of {topic} was drained, and still has {acks} to get", 11)
        provider.acks.acknowledge(acks)


def _commit(world: World, client: Client, name: str, acks: list[Ack]) -> None:
    history, attempt = world.history, world.unique()
    app = f"{name}-{attempt}"
    history.asked(Commit(history.now(), attempt, name, app, "", 1, (), None, attempt, False, True))
    claim, timeout_ms = Claim(1, None, attempt, False), world.rng.choice((200, 1_000))
    try:
        work = WriteSet(app, "", claim, {}, time_ms(client.cluster.store), timeout_ms, random=True, acks=acks)
        made = Providers(client).coordinator(work).commit(work)
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "committed", made.txn_id)
