"""Interprets a write below /persistent/ from its JSON alone: an entry of a topic's or coordinator's log, or a topic's record."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from conformance.history.format import Entry, Written
from metadata.records.paths import Key, decode, encode
from metadata.store.memory import MemoryState

SYSTEM = "persistent://pulsar/system/__transaction_log_"
FIRST_COORDINATOR = 1_000_000
decoded = lru_cache(maxsize=1024)(decode)


def entry(
    at: int,
    path: str,
    body: Any,
    rows: Callable[[Any], tuple[Written, ...]],
    allowance_ms: int,
    aborting: Callable[[], str | None],
) -> Entry:
    """Return the history's event for one entry of a log. `rows`: a function that returns the rows of a registration. `aborting`: a
    function that returns the attempt that the current writer may abort, or None.
    """
    name, number = decoded(path.split("/")[3]), int(path[-20:])
    if name.startswith(SYSTEM):
        return _of_coordinator(at, name, number, body, allowance_ms, aborting)
    found = Entry(at, name, number, body["kind"], body["id"], body.get("txn"), why=body.get("why"), low_water=body.get("lowWater"))
    if found.kind != "DATA":
        return found
    listed = {k: body[k] for k in ("manifest",) if k in body}
    return found._replace(rows=rows({"segments": {name: body["write"]}, **listed}))


def _of_coordinator(at: int, name: str, number: int, body: Any, allowance_ms: int, aborting: Callable[[], str | None]) -> Entry:
    most = FIRST_COORDINATOR + int(name.removeprefix(SYSTEM))
    found = Entry(at, name, number, body["kind"], body["id"], f"{most}_{body.get('txn', number)}", topics=tuple(body["topics"]))
    if found.kind == "STATUS":
        return found._replace(state=body["state"], by=aborting() if body["state"] == "ABORTING" else None)
    if found.kind == "ADD":
        return found
    app, _, topic = body.get("app", ":").partition(":")
    return found._replace(
        app=decoded(app) or None,
        topic=decoded(topic),
        version=body.get("version"),
        attempt=body.get("attempt"),
        deadline=body["createdMs"] + body["timeoutMs"] + allowance_ms,
    )


def trimmed(path: str, record: Any) -> tuple[str, int]:
    """Return the topic of a record, and the number up to which its rows are trimmed."""
    tenant, namespace, name = (decoded(part) for part in path.split("/")[3:])
    return f"persistent://{tenant}/{namespace}/{name}", record.get("trimmedLog", 0)


def expects(state: MemoryState, topic: str) -> bool:
    """Return False if the topic's record says that the topic has no messages of transactions; otherwise return True."""
    tenant, namespace, name = (encode(part) for part in topic.removeprefix("persistent://").split("/"))
    record = state.records.get(Key(f"/persistent/topics/{tenant}/{namespace}/{name}", ""))
    return record is None or b'"__contains_txn_messages":"false"' not in record.value
