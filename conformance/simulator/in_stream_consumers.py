"""Consumers of a persistent topic in a simulated world: they acknowledge what they are given, row by row, some in transactions."""

from __future__ import annotations

from functools import partial

from conformance.history.format import Poll
from conformance.simulator.consuming import Hands, place, start_consuming
from conformance.simulator.in_stream_clients import Party
from conformance.simulator.in_stream_readers import collect
from conformance.simulator.scheduler import Actor, Process, World
from metadata.client.providers import PendingAckProvider
from metadata.records.names import persistent_name
from metadata.records.row_ranges import common, end_of, union
from metadata.rules.acks import Ack, done, up_to

SUBSCRIPTION = "s"


def start_in_stream_consumer(world: World, name: str, topic: str, *, rounds: int, plain: bool, within: int) -> Actor:
    """A consumer of a persistent topic; `plain`: without transactions."""

    def hands(process: Process) -> Hands:
        party = Party(world, process)
        return Hands(partial(_take, world, party, topic), party.coordinator.commit)

    return start_consuming(world, name, hands, rounds=rounds, plain=plain, within=within)


def _take(world: World, party: Party, topic: str, poll: str) -> tuple[PendingAckProvider, list[Ack]]:
    history, began, rng = world.history, world.history.now(), world.rng
    reading = party.buffer.read(persistent_name(topic))
    pending_acks, where = party.hands.acks, (topic, SUBSCRIPTION)
    had = done(pending_acks.read([where])[where])
    given = [row for row in collect(world, reading, 0, reading.cut) if not common(place(row), had)][: rng.choice((1, 2, 10))]
    history.saw(Poll(history.now(), began, poll, 0, (topic,), tuple(given), subscription=SUBSCRIPTION, ordered=False, log=topic))
    if not given:
        return pending_acks, []
    if rng.random() < 0.3:
        return pending_acks, [up_to(*where, end_of(*given[-1].position))]
    some = rng.sample(given, rng.randint(1, len(given))) if rng.random() < 0.5 else given
    return pending_acks, [Ack(*where, union(*map(place, some)))]
