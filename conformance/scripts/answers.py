"""The answers of scripts. They show records of the store and files of the disk, or which of them changed, in the words of
protocol.md section 1.

Records are decoded here, not by the code under test. Otherwise a fault of that code could hide itself in the answers. There are two
exceptions, which the code under test decodes: index snapshots, and the snapshots of marker-based topics (`in_stream_picture`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from conformance.scripts import in_stream_picture
from conformance.scripts.names import layouts, records, short
from conformance.scripts.world import Process, Work, World
from conformance.simulator.store.storage import GatedStorage
from ledgers import snapshots
from ledgers.errors import CorruptSnapshot
from ledgers.model import CompactedPart, Ledger
from metadata.records import paths


def span(name: str, ledger: int, first: int, last: int) -> str:
    """Return entries of one ledger of a segment as text, such as `a/977:0..2`."""
    return f"{name}/{ledger}:{first}" + (f"..{last}" if last > first else "")


def spans(world: World, number: int, registration: Any) -> str:
    """Return the entries that a registration adds to each segment as text, such as `a/977:0..2 b/977:0`."""
    found = [(short(world.state, s), w["entries"]) for s, w in registration["segments"].items()]
    return " ".join(span(name, number, 0, entries - 1) for name, entries in sorted(found))


def log(world: World) -> dict[int, str]:
    """Return the live log: the text of each registration or seal, by its number."""
    return {int(key.path[-20:]): registration(world, int(key.path[-20:]), body) for key, body in records(world.state, "/log/log-")}


def registration(world: World, number: int, body: Any) -> str:
    if "seal" in body:
        return f"seal of {' '.join(sorted(short(world.state, s) for s in body['seal']))} ({body['why']}, epoch {body['epoch']})"
    where = " in a manifest" if "manifest" in body else ""
    how = f", {body['state']}" if "state" in body else ""
    return f"{body.get('txn', 'plain')} {spans(world, number, body)}{where}{how}"


def header(body: Any) -> str:
    commit = f", commit {body['commit']}" if "commit" in body else ""
    return f"{body['state']}{commit}"


def application(body: Any) -> str:
    by = f" by {body['by']}" if "by" in body else ""
    current = body.get("current")
    now = "" if current is None else f", current {current['version']} in {current['txnId']}"
    return f"last committed {body['lastCommitted']}{by}{now}"


def app_name(partition: str) -> str:
    """Return the name of an application as text: `q on a`, or `m` if it is over several topics. `partition`: its partition key."""
    app, topic = (paths.decode(part) for part in partition.split(":"))
    return f"{app} on {topic.rpartition('/')[2]}" if topic else app


def watermark(world: World, body: Any) -> str:
    text = f"{body['ledgerId']}:{body['entryId']}"
    path = body.get("snapshot")
    if path is None:
        return f"{text}, no snapshot"
    storage = GatedStorage(world.disk)
    try:
        head = snapshots.read_head(storage, path)
    except CorruptSnapshot:
        return f"{text}, snapshot cannot be read"
    listed = [_listed(found) for found in snapshots.read_ledgers(storage, head, 0, body["ledgerId"])]
    guard = f", trimmed to {body['trimmedTo']['ledgerId']}:{body['trimmedTo']['entryId']}" if "trimmedTo" in body else ""
    return f"{text}, snapshot of {' '.join(listed) or 'nothing'}{guard}"


def _listed(found: Ledger) -> str:
    """Return a ledger of an index snapshot as text: `5`, or `5@12` if compaction has moved its rows to a file in which they begin
    at row 12. `5@12+3` is a ledger of two moved parts: one begins at row 12 of its file, the other at row 3 of its file.
    """
    moved = [str(part.first_row) for part in found.parts if isinstance(part, CompactedPart)]
    return f"{found.id}@{'+'.join(moved)}" if moved else str(found.id)


def layout(body: Any) -> str:
    infos = sorted(body["segments"].items(), key=lambda found: int(found[0]))
    shown = [
        f"{n} {i['hashRange']['start']:04x}-{i['hashRange']['end']:04x} {i['state']}"
        + (f" at {i['sealedAtLog']}" if "sealedAtLog" in i else "")
        + (f", deleted at {i['deletedAtLog']}" if "deletedAtLog" in i else "")
        for n, i in infos
    ]
    more = (["a tombstone"] if body.get("deleted") else []) + (
        [f"deleted up to {body['deletedToLog']}"] if "deletedToLog" in body else []
    )
    more += [f"trimmed up to {body['trimmedTo']['ledgerId']}"] if "trimmedTo" in body else []
    return f"epoch {body['epoch']}: " + "; ".join([*shown, *more])


def file_name(path: str) -> str:
    """Return the short name of a file: its path without tenant, namespace, hash ranges, and the checksum in a snapshot's name."""
    text = re.sub(r"-[0-9a-f]{8}\.avro$", ".avro", path.removeprefix("public/default/"))
    return re.sub(r"/[0-9a-f]{4}-[0-9a-f]{4}-([0-9]+)/", r".\1/", text)


def cursor(body: Any) -> str:
    """Return a cursor as text, such as `all up to 1:1; acked 3:0; 0_10 claims 2:0`."""
    if "deletedMs" in body:
        return "a tombstone"
    mark = body.get("markDelete")
    found = []
    if mark is not None:
        found.append("all up to " + ":".join(str(mark[k]) for k in ("ledgerId", "entryId", "batchIndex") if k in mark))
    if body.get("acked"):
        found.append(f"acked {' '.join(body['acked'])}")
    found += [f"{txn} claims {' '.join(rows)}" for txn, rows in sorted(body.get("claims", {}).items())]
    return "; ".join(found) or "nothing acked"


CURSORS = "a"
"""The first character of the keys of all cursors in a `Picture`."""

Picture = dict[str, tuple[str, str]]
"""Key -> (name, text), for each record and file. All records or files of one kind have keys with the same first character."""


def picture(world: World) -> Picture:
    """Return all records and files that answers may show."""
    state, found = world.state, {}
    for number, text in log(world).items():
        found[f"2 {number:020d}"] = (f"log {number}", text)
    for key, body in records(state, "/txn/id/"):
        found[f"1 {key.path}"] = (f"txn {key.partition}", header(body))
    for key, _ in records(state, "/txn/op/"):
        found[f"3 {key.partition}"] = (f"ops of {key.partition}", "written")
    for key, body in records(state, "/txn/segment-events/"):
        found[f"4 {key.path}"] = (f"event {_segment(world, key.partition)}", f"{body['txnId']} {body['decision']}")
    for key, body in records(state, "/txn/segment-state/aborted/"):
        segment, _, txn = key.path.rpartition("/")[2].rpartition(":")
        where = f"{body['maxLedgerId']}:{body['maxEntryId']}"
        found[f"5 {key.path}"] = (f"aborted record {_segment(world, segment)} {txn}", f"up to {where}")
    for key, body in records(state, "/txn/segment-state/watermark/"):
        found[f"6 {key.path}"] = (f"watermark {_segment(world, key.partition)}", watermark(world, body))
    for key, body in records(state, "/txn/app/"):
        found[f"7 {key.path}"] = (f"app {app_name(key.partition)}", application(body))
    for name, body in layouts(state).items():
        found[f"8 {name}"] = (f"topic {name}", layout(body))
    for key, body in records(state, "/cursors/"):
        segment, _, name = key.path.removeprefix("/cursors/").partition(":")
        found[f"{CURSORS} {key.path}"] = (f"cursor {paths.decode(name)}@{_segment(world, segment)}", cursor(body))
    for key, body in records(state, "/txn/subscription-events/"):
        segment, _, name = key.partition.partition(":")
        found[f"4 {key.path}"] = (f"event {paths.decode(name)}@{_segment(world, segment)}", f"{body['txnId']} {body['decision']}")
    for path in world.disk.files:
        if not path.startswith("sweep/"):
            found[f"9 {file_name(path)}"] = (f"file {file_name(path)}", "there")
    return found | in_stream_picture.picture(world)


def _segment(world: World, encoded: str) -> str:
    return short(world.state, paths.decode(encoded))


def changes(before: Picture, after: Picture) -> list[str]:
    """Return one line for each record that was added, changed or deleted, and for each deleted file. New files have no line."""
    lines = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new or (old is None and path.startswith("9 ")):
            continue
        if new is None:
            assert old is not None
            lines.append(f"{old[0]} {'deleted' if path.startswith('9 ') else 'gone'}")
        else:
            lines.append(f"{new[0]} {new[1]}" if path[0] in "13" else f"{new[0]}: {new[1]}")
    return lines or ["nothing changed"]


def changing(world: World, process: Process, run: Callable[[], object]) -> Work:
    """Return work whose answer shows what changed (`changes`) since the work was started, or since it last continued."""
    before: list[Picture] = []
    work = Work(process, run, lambda _: changes(before[-1], picture(world)))
    work.begin = lambda: before.append(picture(world))
    return work


def of_kind(world: World, kinds: str) -> list[str]:
    """Return one line for each record and file whose key in the `Picture` begins with one of these characters."""
    found = picture(world)
    lines = [
        f"{what} {text}" if path[0] in "139" else f"{what}: {text}"
        for path, (what, text) in sorted(found.items())
        if path[0] in kinds
    ]
    return [line.removesuffix(" there") for line in lines] or ["none"]
