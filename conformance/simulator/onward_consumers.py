"""Consumers of a topic by the name that it had before its migration: of either model as it is served at the moment, each row by
itself, in transactions and without. Whoever sleeps in between acknowledges by what it knew.
"""

from __future__ import annotations

from functools import partial

from conformance.history.format import Poll
from conformance.simulator.consuming import Hands, choose, start_consuming
from conformance.simulator.in_stream_consumers import SUBSCRIPTION
from conformance.simulator.scheduler import Actor, Process, World
from metadata.client.client import Client
from metadata.client.providers import PendingAckProvider, Providers
from metadata.rules.acks import Ack


def start_onward_consumer(world: World, name: str, topic: str, *, rounds: int, plain: bool, within: int) -> Actor:
    """A consumer of a topic that may be migrated meanwhile; `plain`: without transactions."""

    def hands(process: Process) -> Hands:
        client = process.client
        return Hands(partial(_take, world, client, topic), lambda work: Providers(client).coordinator(work).commit(work))

    return start_consuming(world, name, hands, rounds=rounds, plain=plain, within=within)


def _take(world: World, client: Client, topic: str, poll: str, *, whole: bool = False) -> tuple[PendingAckProvider, list[Ack]]:
    history, began = world.history, world.history.now()
    providers = Providers(client)
    name = providers.resolve(topic)
    provider = providers.of([name])
    given, acks = choose(world, provider.buffer.read(str(name)), provider.acks, SUBSCRIPTION, whole=whole)
    log = str(name) if str(name) == topic else ""
    seen = Poll(history.now(), began, poll, 0, (str(name),), tuple(given), subscription=SUBSCRIPTION, ordered=False, log=log)
    history.saw(seen)
    return provider.acks, acks


def drain(world: World, client: Client, topic: str) -> None:
    """Everything that is left is given to the subscription, and acknowledged: after that there is nothing."""
    for again in range(2):
        pending_acks, acks = _take(world, client, topic, f"drain{again}", whole=True)
        if again and acks:
            world.history.bad(f"{SUBSCRIPTION} of {topic} was drained, and still has {acks} to get", 11)
        pending_acks.acknowledge(acks)
