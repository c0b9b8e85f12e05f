"""Commands that show the content of the store and the disk.

txns, log, ops, events, aborted, watermarks, apps, layouts, files, cursors      show all records or files of this kind, one per line
calls r1                             show the calls that the last command of the process r1 made
memory r1                            show how many entries of the log, and how many verdicts, the process r1 has in its caches
dump /txn/id/                        show the records below a path, byte for byte
index idx:txn-by-deadline            show the entries of an index
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from conformance.scripts import answers
from conformance.scripts.parsing import Command
from conformance.scripts.world import World
from metadata.records.paths import KeyRange

_KINDS = {
    "txns": "1",
    "log": "2",
    "ops": "3",
    "events": "4",
    "aborted": "5",
    "watermarks": "6",
    "apps": "7",
    "layouts": "8",
    "files": "9",
    "cursors": answers.CURSORS,
}


def show(world: World, cmd: Command) -> list[str]:
    return answers.of_kind(world, _KINDS[cmd.verb])


def calls(world: World, cmd: Command) -> list[str]:
    made = world.processes[cmd.one()].calls
    return [" ".join(word if (n := len(list(same))) == 1 else f"{word} x{n}" for word, same in groupby(made))]


def memory(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.one())
    buffer = process.client.buffer
    return [f"{process.name} remembers {len(buffer.log)} of the log, {len(buffer._final)} verdicts"]


def dump(world: World, cmd: Command) -> list[str]:
    start = cmd.one()
    found = world.state.scan(KeyRange(start, start + "~", ""))
    return [f"{record.key.path} {record.value.decode()}" for record in found] or ["none"]


def index(world: World, cmd: Command) -> list[str]:
    name = cmd.one()
    found = world.state.scan_index(name, "", "~")
    entries = [(entry.key, record.key.path) for record in found for entry in record.indexes if entry.name == name]
    return [f"{key} -> {path}" for key, path in entries] or ["none"]


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    **dict.fromkeys(_KINDS, show),
    "calls": calls,
    "memory": memory,
    "dump": dump,
    "index": index,
}
