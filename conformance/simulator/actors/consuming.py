"""Consumers of a topic of either model. In each round a consumer takes unacknowledged rows of a subscription and acknowledges them,
with or without a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from conformance.history.format import Commit, Poll, Row
from conformance.simulator.actors.readers import rows_of
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.world.scheduler import Actor, Process, World
from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import PendingAckProvider, Provider, Providers
from metadata.common.errors import TxnSegmentError
from metadata.read.backlog import acked, pending, taken
from metadata.read.reading import Reading
from metadata.records.names import any_topic_name, is_persistent
from metadata.records.row_ranges import Rows, common, end_of, rows, span, union
from metadata.rules.acks import Ack, up_to
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.write.write_set import WriteSet


def start_consumer(
    world: World,
    name: str,
    topic: str,
    subscription: str,
    *,
    rounds: int,
    plain: bool,
    within: int = 120,
    migrating: bool = False,
    cumulative: float = 0.0,
) -> Actor:
    """Start a consumer. In each round it takes unacknowledged rows and acknowledges some or all of them.

    `plain`: whether it acknowledges without a transaction. `migrating`: whether the topic may be migrated meanwhile. The consumer
    then determines the transaction model of the topic at the beginning of each round. `cumulative`: the probability of a cumulative
    acknowledgement of all rows taken from a segment.
    """
    numbers = count()

    def consume(process: Process) -> None:
        client, poll = process.client, f"{name}.{next(numbers)}"
        provider, acks = take(world, client, topic, subscription, poll, migrating=migrating, cumulative=cumulative)
        if plain:
            provider.acks.acknowledge(acks)
        elif acks:
            _commit(world, process, provider, acks, migrating=migrating)

    return start_rounds(world, name, rounds, consume, within=within)


def take(
    world: World,
    client: Client,
    topic: str,
    subscription: str,
    poll: str,
    *,
    migrating: bool = False,
    whole: bool = False,
    cumulative: float = 0.0,
) -> tuple[Provider, list[Ack]]:
    """Run one poll and record it under the name `poll`. Return the provider of the topic's model, and acks for the poll's rows."""
    history, began, providers = world.history, world.history.now(), Providers(client)
    name = str(providers.resolve(topic)) if migrating else topic
    provider = providers.of([name]) if migrating else providers.serving(any_topic_name(name))
    given, acks = choose(world, log_of(client, name).now(), provider.acks, subscription, whole=whole, cumulative=cumulative)
    log = name if is_persistent(name) else ""
    history.saw(Poll(history.now(), began, poll, 0, (name,), tuple(given), subscription=subscription, ordered=False, log=log))
    return provider, acks


def drain(world: World, client: Client, topic: str, subscription: str) -> None:
    """Deliver and acknowledge all remaining rows of the subscription. Record a violation if rows remain after that."""
    for again in range(2):
        provider, acks = take(world, client, topic, subscription, f"drain{again}", migrating=True, whole=True)
        if again and acks:
            world.history.bad(f"{subscription} of {topic} was drained, and still has {acks} to get", 11)
        provider.acks.acknowledge(acks)


def _commit(world: World, process: Process, provider: Provider, acks: Sequence[Ack], *, migrating: bool) -> None:
    """Commit the acks in a transaction without rows. The transaction has an application of its own."""
    history, attempt, name = world.history, world.unique(), process.name
    app = f"{name}-{attempt}"
    history.asked(Commit(history.now(), attempt, name, app, "", 1, (), None, attempt, False, True))
    claim, timeout_ms = Claim(1, None, attempt, False), world.rng.choice((200, 1_000))
    try:
        work = WriteSet(app, "", claim, {}, time_ms(process.store), timeout_ms, random=True, acks=acks)
        coordinator = (
            Providers(process.client).coordinator((), (ack.segment for ack in acks)) if migrating else provider.coordinator
        )
        made = coordinator.commit(work)
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "committed", made.txn_id)


def choose(
    world: World,
    reading: Reading,
    pending_acks: PendingAckProvider,
    subscription: str,
    *,
    whole: bool = False,
    single: float = 0.4,
    cumulative: float = 0.0,
) -> tuple[list[Row], list[Ack]]:
    """Choose unacknowledged rows from a few ledgers of each segment of a reading. Return the rows, and acks for some or all of
    them.

    `whole`: choose all unacknowledged rows and acknowledge all of them. `single`: the probability that only a random sample of a
    segment's chosen rows is acknowledged. `cumulative`: the probability of a cumulative ack up to a segment's last chosen row.
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
        if here and cumulative and rng.random() < cumulative:
            acks.append(up_to(segment.name, subscription, end_of(*here[-1].position)))
        elif here and single and not whole and rng.random() < single:
            some = rng.sample(here, rng.randint(1, len(here)))
            acks.append(Ack(segment.name, subscription, union(*map(place, some))))
        elif (ack := taken(segment.name, subscription, had, ledgers)) is not None:
            acks.append(ack)
    return given, acks


def place(row: Row) -> Rows:
    """Return the range of this row alone, in the form that acknowledgements use."""
    return rows([span(*row.position)])
