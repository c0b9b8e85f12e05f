"""Clients of persistent topics in a simulated world. They run transactions step by step, and send plain messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from conformance.history.format import End, Told
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import staged
from conformance.simulator.world.scheduler import Actor, Process, World
from metadata.common.errors import TxnConflict, TxnSegmentError
from metadata.records.names import persistent_name


def start_client(world: World, name: str, topics: Sequence[str], rounds: int, *, within: int = 80) -> Actor:
    """Start a client that begins transactions, registers topics, writes to them and ends them. Sometimes it ends a transaction
    twice, perhaps with the other decision, or writes to a transaction that it has ended.
    """
    numbers = count()
    return start_rounds(
        world, name, rounds, lambda process: _transaction(world, process, f"{name}/{next(numbers)}", topics), within=within
    )


def _transaction(world: World, process: Process, stem: str, topics: Sequence[str]) -> None:
    rng, client = world.rng, process.client
    coordinator = client.instream.coordinator
    names = {topic: persistent_name(topic) for topic in rng.sample(topics, rng.randint(1, len(topics)))}
    at_once = rng.random() < 0.5
    txn = coordinator.begin(timeout_ms=rng.choice((200, 1_000)), topics=list(names.values()) if at_once else ())
    if not at_once:
        coordinator.register(txn, list(names.values()))
    for i in range(rng.choice((0, 1, 1, 2, 3))):
        some = rng.sample(sorted(names), rng.randint(1, len(names)))
        parts = staged(client, some, f"{stem}/{world.unique()}/{i}")
        coordinator.append(txn, {names[topic]: found for topic, found in parts.items()})
    commit = rng.random() < 0.6
    try:
        _end(world, process, txn, commit=commit)
    finally:
        if rng.random() < 0.3:  # simulates a thread that does not know that the transaction has ended
            parts = staged(client, names, f"{stem}/{world.unique()}/late")
            coordinator.append(txn, {names[topic]: found for topic, found in parts.items()})
    if rng.random() < 0.3:
        _end(world, process, txn, commit=commit if rng.random() < 0.6 else not commit)


def _end(world: World, process: Process, txn: str, *, commit: bool) -> None:
    history, call = world.history, world.unique()
    history.events.append(End(history.now(), call, process.name, txn, "commit" if commit else "abort"))
    said, error = "committed" if commit else "aborted", None
    try:
        process.client.instream.coordinator.end(txn, commit=commit)
    except TxnConflict as conflict:
        said, error = "failed", type(conflict).__name__
        raise
    except TxnSegmentError as other:
        said, error = "unknown", type(other).__name__
        raise
    finally:
        if process.alive:
            history.events.append(Told(history.now(), call, said, txn, None, error))


def start_producer(world: World, name: str, topic: str, rounds: int, *, within: int = 120) -> Actor:
    """Start a producer that sends one plain message in each round. If a reply is lost, the message may or may not be in the log.
    The producer does not send it again.
    """
    numbers = count()

    def send(process: Process) -> None:
        client = process.client
        parts = staged(client, (topic,), f"{name}/{next(numbers)}")
        client.instream.coordinator.append(None, {persistent_name(topic): parts[topic]})

    return start_rounds(world, name, rounds, send, within=within)
