"""The records of the marker-based model as the answers of scripts show them: logs, topic records and subscriptions. They are
decoded here, not by the code under test, except for the Avro snapshots of topics.
"""

from __future__ import annotations

import base64
from typing import Any

from conformance.scripts.names import records
from conformance.scripts.world import World
from metadata.instream import snapshots
from metadata.records.paths import decode

COORDINATOR = "__transaction_log_0"


def named(full: str) -> str:
    """Return `p` for persistent://public/default/p, and `tc` for the coordinator's log."""
    name = full.rpartition("/")[2]
    return "tc" if name == COORDINATOR else name


def entry(body: Any, ledger: int, topic: str) -> str:
    """Return an entry of a log as text.

    Examples: `DATA 1000000_1 p/3:0..2`, `COMMIT 1000000_1 low-water mark 0`, `NEW q version 1, of p q`, `STATUS 1 COMMITTING`.
    """
    kind, more = body["kind"], []
    txn = str(body.get("txn", "plain" if kind == "DATA" else ""))
    if kind == "DATA":
        entries = body["write"]["entries"]
        more.append(f"{topic}/{ledger}:0" + (f"..{entries - 1}" if entries > 1 else ""))
        more += ["in a manifest"] if "manifest" in body else []
    elif kind in ("COMMIT", "ABORT"):
        more += [f"low-water mark {body['lowWater']}"] if "lowWater" in body else []
    elif kind == "SEAL":
        more += [body["why"]] if "why" in body else []  # the seal of a pending-ack log has no reason
    elif kind in ("ACK", "SEEK"):
        more.append((".." if body.get("cumulative") else "") + " ".join(body["rows"]))
    elif kind == "STATUS":
        more.append(body["state"])
    if kind in ("NEW", "ADD"):
        app = body.get("app")
        more += [f"{decode(app.partition(':')[0])} version {body['version']}"] if app is not None else []
        where = [*map(named, body["topics"]), *(f"{name}@{named(topic)}" for topic, name in body["subscriptions"])]
        more += [f"of {' '.join(where)}"] if where else []
    return f"{kind} {txn} {', '.join(more)}".replace("  ", " ").rstrip()


def topic(body: Any) -> str:
    """Return a topic's record as text: its properties, its snapshot with the aborted transactions, up to where it is trimmed,
    whether it is being sealed, and whether nothing but this record is left of the topic. Of a deleted topic, say only that it is a
    tombstone.
    """
    if body.get("deleted"):
        return "a tombstone" + ("; nothing else is left" if body.get("bare") else "")
    told = body.get("properties", {})
    found = [f"{key}={told[key]}" for key in sorted(told)] or ["no properties"]
    snapshot = body.get("snapshot")
    if snapshot is not None:
        aborted = snapshots.decode(base64.b64decode(snapshot["avro"]))[2] if "avro" in snapshot else {}
        listed = " ".join(f"{txn} at {number}" for txn, number in sorted(aborted.items()))
        found.append(f"snapshot of {snapshot['at']}" + (f", aborted {listed}" if listed else ""))
    if body.get("trimmedLog"):
        found.append(f"trimmed up to {body['trimmedLog']}")
    found += ["sealing"] if body.get("sealing") else []
    return "; ".join([*found, *(["nothing else is left"] if body.get("bare") else [])])


def _kept(body: Any) -> str:
    """Return as text the state that the last compaction of the coordinator's log has kept in its record."""
    kept = body.get("txnLog")
    if kept is None:
        return "nothing compacted"
    txns = " ".join(f"{t['least']} {t['state']}" for t in kept["txns"])
    apps = " ".join(f"{decode(app.partition(':')[0])} {w['version']}" for app, w in sorted(kept["apps"].items()))
    return f"compacted up to {kept['at']}: " + "; ".join([*([txns] if txns else []), *([f"committed {apps}"] if apps else [])])


def picture(world: World) -> dict[str, tuple[str, str]]:
    """Return the records of the marker-based model in the form of an `answers.Picture`."""
    found = {}
    for key, body in records(world.state, "/persistent/logs/"):
        full, number = decode(key.partition), int(key.path[-20:])
        name = named(full)
        found[f"b {'0' if name == 'tc' else '1'} {key.path}"] = (f"{name} {number}", entry(body, number, name))
    for key, body in records(world.state, "/persistent/acks/"):
        full, _, subscription = key.partition.partition(":")
        name = f"{decode(subscription)}@{named(decode(full))}"
        found[f"b 2 {key.path}"] = (f"{name} {int(key.path[-20:])}", entry(body, 0, name))
    for key, body in records(world.state, "/persistent/topics/"):
        name = named(key.path)
        found[f"c {key.path}"] = (f"record of {name}", _kept(body) if name == "tc" else topic(body))
    for key, body in records(world.state, "/persistent/subscriptions/"):
        full, _, subscription = key.partition.partition(":")
        kept = body["snapshot"]
        cursor = kept["cursor"]
        text = f"as of {kept['at']}" + (
            f", acked {cursor.get('markDelete', '')} {' '.join(cursor.get('acked', ()))}" if cursor else ""
        )
        found[f"d {key.path}"] = (
            f"subscription {decode(subscription)}@{named(decode(full))}",
            ("a tombstone" if "deletedMs" in body else text) + ("; moved" if body.get("moved") else ""),
        )
    return found
