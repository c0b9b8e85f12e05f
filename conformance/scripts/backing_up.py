"""Commands of backups and restores (docs/operations.md, Backup).

k1: backup           take a backup; the answer shows its log and its applications. k1 can crash or sleep at a call of the backup
restore              restore the last backup to a new store, with the same files; all processes end, because they use the old store
"""

from __future__ import annotations

import json
from collections.abc import Callable

from conformance.scripts import answers
from conformance.scripts.parsing import Command, ScriptError
from conformance.scripts.world import Work, World
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.storage import GatedStorage
from metadata.backup.backup import BackupReader
from metadata.backup.backup_file import Backup
from metadata.backup.restore import Restoration
from metadata.cluster.cluster import read_cluster_record
from metadata.cluster.ledger_root import MARK
from metadata.records.paths import CLUSTER
from metadata.store.memory import MemoryState


def backup(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("k1"))

    def answer(taken: Backup) -> list[str]:
        world.backup = taken
        return [f"backup up to {taken.heading.number}", *_shown(world, taken)]

    return world.drive(Work(process, BackupReader(process.cluster).take, answer))


def _shown(world: World, taken: Backup) -> list[str]:
    """Return the registrations, seals and application records in a backup as lines."""
    lines = []
    for kept in taken.records:
        body, path = json.loads(kept.value), kept.key.path
        if path.startswith("/log/"):
            number = int(path[-20:])
            lines.append(f"log {number}: {answers.registration(world, number, body)}")
        elif path.startswith("/txn/app/"):
            lines.append(f"{answers.app_name(kept.key.partition)}: {answers.application(body)}")
    return sorted(lines)


def restore(world: World, cmd: Command) -> list[str]:
    taken = world.backup
    if taken is None:
        raise ScriptError(f"{cmd.line!r}: there is no backup")
    store = GatedStore(MemoryState(), world.clock)
    world.disk.files[MARK] = (json.dumps({"cluster": taken.heading.cluster}).encode(), 0)
    Restoration(taken, store, "memory://script", GatedStorage(world.disk), world.clock).run()
    del world.disk.files[MARK]
    record = store.state.get(CLUSTER)
    assert record is not None
    lost = read_cluster_record(record, "memory://script").restored or ()
    world.replace(store.state, lost)
    return [f"restored up to {taken.heading.number}, goes on at {lost[-1].before}"]


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {"backup": backup, "restore": restore}
