"""Commands of compaction and retention (protocol.md sections 1 and 7). The answers of `compact` and `trim` show what changed in the
store and on the disk.

w1: compact a [t.0] [files=2] [target=1000]     compact the topic a (or the segment t.0): join runs of at least `files` small files
                                     into files of about `target` bytes. A part of a script has ten bytes for each row
retain a time=+1h bytes=40 despite | retain namespace time=+1h     set the retention of a topic, or of the namespace of all topics.
                                     With `despite`, rows are trimmed although subscriptions still need them
w1: trim a                           trim the topic by its retention
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.scripts import answers
from conformance.scripts.names import segment
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.world import Work, World
from conformance.simulator.store.origins import joined
from ledgers.compaction import Policy
from ledgers.model import TARGET_BYTES
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.trimming import Trimmer
from metadata.records.names import topic_name
from metadata.topics.policies import set_for_namespace, set_for_topic


def compact(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("w1"))
    policy = Policy(cmd.number("target") or TARGET_BYTES, cmd.number("files") or 2)
    wanted = [
        full
        for word in cmd.words
        for full in ([segment(world.state, word)] if "." in word else process.client.topics.get(topic_name(word)).segments())
    ]
    if not wanted:
        raise ScriptError(f"{cmd.line!r}: compact what?")

    def run() -> None:
        for full in wanted:
            Compactor(process.cluster, joined).compact(full, policy, Compacted())

    return world.drive(answers.changing(world, process, run))


def retain(world: World, cmd: Command) -> list[str]:
    process, change = world.process(cmd.who("admin")), dict[str, int | bool | None]()
    if (time := cmd.get("time")) is not None:
        change["retention_ms"] = -1 if time == "forever" else duration_ms(time)
    if (size := cmd.number("bytes")) is not None:
        change["retention_bytes"] = size
    if cmd.flag("despite"):
        change["despite_subscriptions"] = True
    name = cmd.one()

    def run() -> None:
        if name == "namespace":
            set_for_namespace(process.cluster, "public", "default", change)
        else:
            set_for_topic(process.cluster, topic_name(name), change)

    return world.drive(Work(process, run, lambda _: []))


def trim(world: World, cmd: Command) -> list[str]:
    process, name = world.process(cmd.who("w1")), topic_name(cmd.one())
    trimmer = Trimmer(process.cluster, process.client.buffer)
    return world.drive(answers.changing(world, process, lambda: trimmer.trim(name)))


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "compact": compact,
    "retain": retain,
    "trim": trim,
}
