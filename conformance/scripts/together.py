"""Commands of transactions over several writes, `cluster.transaction()` (protocol.md sections 2, 5, 7).

d1: begin [app=q version=7] [timeout=5s]      begin a transaction; nothing is written to the store yet
d1: write a:3 t.0:1                  run one write of Spark: plan it, stage its parts, and publish its manifest
d1: write w2 a:3 [only=STEP]         run the write w2, or only one of its steps. `begin`: plan it and stage its parts. `leave`:
                                     publish its manifest; a second `leave` stages new parts first, as if Spark ran the write
                                     again. `withdraw`: mark the write as aborted, as Spark's abort does
d1: take a subscription=s [to=5]     read the unacknowledged rows, as `txn.read` does; the commit will acknowledge them
d1: end                              end the `with` block: read the manifests, then do all steps of a commit
d1: break                            raise an exception in the `with` block, which aborts the transaction
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql.types import StringType, StructField, StructType

from conformance.scripts import answers
from conformance.scripts.names import records
from conformance.scripts.parsing import Command, ScriptError, duration_ms
from conformance.scripts.world import URL, Process, Work, World
from conformance.scripts.writing import parts_of, staged_words
from metadata.records.names import topic_name
from metadata.records.row_ranges import texts
from metadata.write.staging_manifests import StagingArea, StagingManifest
from metadata.write.write_set import Committed
from spark_txn_source.options import ReadOptions
from txnsegment.positions import unread
from txnsegment.spark_transaction import SparkTransaction

_TYPES = StructType([StructField("value", StringType())]).json()


def begin(world: World, cmd: Command) -> list[str]:
    process = world.process(cmd.who("d1"))
    version, timeout = cmd.number("version"), cmd.get("timeout")
    timeout_ms = world.settings.txn_timeout_ms if timeout is None else duration_ms(timeout)
    app = cmd.get("app")

    def run() -> str:
        txn = SparkTransaction(process.client, app=app, version=version, timeout_ms=timeout_ms)
        world.together[process.name] = txn
        return txn.options["txnStaging"]

    return world.drive(Work(process, run, lambda token: [f"token {token}"]))


def _txn(world: World, cmd: Command) -> tuple[Process, SparkTransaction]:
    name = cmd.who("d1")
    txn = world.together.get(name)
    if txn is None:
        raise ScriptError(f"{cmd.line!r}: {name} has no transaction")
    return world.process(name), txn


def write(world: World, cmd: Command) -> list[str]:
    process = world.process(name := cmd.who("d1"))
    only, wanted = cmd.get("only"), staged_words(cmd)
    token = cmd.get("token") or world.together[name].options["txnStaging"]
    given = cmd.one() if cmd.words else world.unique()
    topic, since = topic_name(wanted[0][0].partition(".")[0]), world.clock.now
    runs = world.runs.setdefault(token, {})
    area = StagingArea(process.cluster.storage, token)

    def run() -> None:
        if only in (None, "begin"):
            runs[given] = area.begin(given, str(topic)), since, parts_of(world, wanted)
        if only in (None, "leave"):
            order, staged_ms, staged = runs[given]
            again = parts_of(world, wanted) if staged is None else staged
            parts = tuple((segment, part) for segment, found in again.items() for part in found)
            area.leave(StagingManifest(given, order, str(topic), _TYPES, None, staged_ms, parts))
            runs[given] = order, since, None
        if only == "withdraw":
            area.withdraw(given)

    def said(_: None) -> list[str]:
        left = [path for path in area.files() if f".{given}." in path]
        return [f"write {given}: {' '.join(path.rpartition('.')[2] for path in left)}"]

    return world.drive(Work(process, run, said))


def take(world: World, cmd: Command) -> list[str]:
    process, txn = _txn(world, cmd)
    options = _reading(world, cmd)

    def run() -> list[str]:
        found = unread(process.client, options)
        txn.acknowledge(found.acks)
        (read,) = found.ranges
        return [f"log {read.start} to {read.end}: {' '.join(texts(one.rows))} of {one.segment}" for one in found.acks]

    return world.drive(Work(process, run, lambda lines: lines or ["nothing new"]))


def _reading(world: World, cmd: Command) -> ReadOptions:
    to = cmd.get("to")
    given = {"serviceUrl": URL, "path": cmd.one(), "subscription": cmd.need("subscription")}
    return ReadOptions.parse(given if to is None else {**given, "endingOffsets": json.dumps({"log": int(to)})}, streaming=False)


def end(world: World, cmd: Command) -> list[str]:
    process, txn = _txn(world, cmd)

    def run() -> Committed:
        with txn:
            txn.commit()
        return txn.commit()

    return world.drive(Work(process, run, lambda done: _committed(world, done)))


def _committed(world: World, found: Committed) -> list[str]:
    if found.skipped:
        return ["committed already: skipped"]
    if found.txn_id is None:
        return ["nothing to commit"]
    state = next((h["state"] for k, h in records(world.state, "/txn/id/") if k.partition == found.txn_id), "gone")
    number = found.number
    what = ": acks only" if number is None else f", commit {number}: " + answers.log(world)[number].removeprefix(f"{found.txn_id} ")
    return [f"txn {found.txn_id} {state}{what}"]


def break_(world: World, cmd: Command) -> list[str]:
    process, txn = _txn(world, cmd)

    def run() -> None:
        try:
            with txn:
                raise _Broken
        except _Broken:
            return

    return world.drive(answers.changing(world, process, run))


class _Broken(Exception):
    """The exception of the user's code in the `with` block."""


COMMANDS: dict[str, Callable[[World, Command], list[str]]] = {
    "begin": begin,
    "write": write,
    "take": take,
    "end": end,
    "break": break_,
}
