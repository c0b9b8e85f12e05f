"""Commands of subscriptions and their acknowledgements (protocol.md section 7, Acks).

    subscribe s a [at=3]                 create the subscription s of topic a, with its cursor at the number 3
    unsubscribe s a | seek s a to=3      delete the subscription, or move its cursor
    c1: ack s@a/1:0 s@b/1:0..2:1         acknowledge rows now, without a transaction
    c1: advance s@..a/2:0                acknowledge all rows up to this position, as a stream does; it may be repeated
    d1: claim                            do the step between `check` and `record` of a transaction with acknowledgements (section 5)
    backlog s a b                        show the unacknowledged rows of the subscription s in the topics a and b, and its lag

Words for acknowledgements: `s@a/1:0` acknowledges entry 0 of ledger 1 of segment a, for the subscription s. `s@a/1:0:2..1:0:3`
acknowledges rows 2 and 3 of that entry, and `s@a/1:0..2:1` a range of entries with both ends. `s@..a/2:0` acknowledges everything
up to this entry. `open` and `commit` take these words beside their words for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.scripts import answers
from conformance.scripts.names import segment
from conformance.scripts.parsing import Command, ScriptError
from conformance.scripts.reading import rows
from conformance.scripts.stepping import acks_of, step
from conformance.scripts.world import Process, Work, World
from metadata.read import backlog
from metadata.read.reading import LogSelection
from metadata.records.names import topic_name
from metadata.rules.acks import Ack
from spark_txn_source.acked import acknowledged
from spark_txn_source.losses import check_cursors
from spark_txn_source.pieces import pieces


def _named(cmd: Command) -> tuple[str, str]:
    if len(cmd.words) != 2:
        raise ScriptError(f"{cmd.line!r}: {cmd.verb} SUBSCRIPTION TOPIC")
    return cmd.words[0], cmd.words[1]


def _acting(world: World, cmd: Command, usual: str, act: Callable[[Process], object]) -> list[str]:
    process = world.process(cmd.who(usual))
    return world.drive(answers.changing(world, process, lambda: act(process)))


def subscribe(world: World, cmd: Command) -> list[str]:
    (name, topic), at = _named(cmd), cmd.number("at") or 0
    return _acting(world, cmd, "admin", lambda p: p.client.subscriptions.create(topic_name(topic), name, at=at))


def unsubscribe(world: World, cmd: Command) -> list[str]:
    name, topic = _named(cmd)
    return _acting(world, cmd, "admin", lambda p: p.client.subscriptions.delete(topic_name(topic), name))


def seek(world: World, cmd: Command) -> list[str]:
    (name, topic), to = _named(cmd), int(cmd.need("to"))
    return _acting(world, cmd, "admin", lambda p: p.client.subscriptions.seek(topic_name(topic), name, to=to))


def ack(world: World, cmd: Command) -> list[str]:
    wanted = _only_acks(world, cmd)
    return _acting(world, cmd, "c1", lambda p: p.client.coordinator.acks.acknowledge(wanted))


def advance(world: World, cmd: Command) -> list[str]:
    wanted = _only_acks(world, cmd)
    return _acting(world, cmd, "c1", lambda p: p.client.coordinator.acks.advance(wanted))


def _only_acks(world: World, cmd: Command) -> Sequence[Ack]:
    wanted = acks_of(world, cmd)
    if cmd.words or not wanted:
        raise ScriptError(f"{cmd.line!r}: {cmd.verb} SUBSCRIPTION@SEGMENT/ROWS ..")
    return wanted


def show_backlog(world: World, cmd: Command) -> list[str]:
    name, *topics = cmd.words
    process = world.process(cmd.who("c1"))
    selection = LogSelection(tuple(segment(world.state, t) if "." in t else str(topic_name(t)) for t in topics))

    def run() -> list[str]:
        reading = process.client.buffer.read(selection)
        done = acknowledged(process.client, reading, name)
        check_cursors(reading, done, name)
        found = [p for s in reading.segments for p in pieces(s, 0, reading.cut, marks=True, done=done[s.name])]
        lag = backlog.total({s.name: backlog.lag(reading, s, done[s.name], reading.cut) for s in reading.segments})
        return [rows(world, found), f"lag {lag.rows} rows, {lag.bytes} bytes, {lag.seconds:.3f} s"]

    return world.drive(Work(process, run, lambda lines: lines))


def claim(world: World, cmd: Command) -> list[str]:
    """Run the transaction until it is about to write its op records. By then all of its acknowledgements are pending."""

    def reached(work: Work) -> list[str]:
        held = answers.of_kind(world, answers.CURSORS)
        return [line for line in held if f"{work.txn} claims" in line] or ["nothing is claimed"]

    return step(world, cmd, lambda called: called == "record", reached)


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "subscribe": subscribe,
    "unsubscribe": unsubscribe,
    "seek": seek,
    "ack": ack,
    "advance": advance,
    "claim": claim,
    "backlog": show_backlog,
}
