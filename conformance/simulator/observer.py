"""What an outsider sees of a world: each write to the store as it happens, and what the actors say they saw.

It reads the records' JSON by itself and shares no code with what it watches; what can never be right is noted at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.simulator.faults import Observer
from conformance.simulator.storage import Disk
from metadata.names import segment_name
from metadata.paths import Key, decode, topic
from metadata.store.memory import MemoryState

Row = tuple[int, str, str]
"""(number, segment, path of the part)."""


@dataclass(frozen=True)
class Seen:
    """What one read returned: rows with start < number <= end. `segments`: those it knew."""

    who: str
    kind: str
    topics: tuple[str, ...]
    segments: frozenset[str]
    start: int
    end: int
    cut: int
    rows: tuple[Row, ...]


@dataclass
class History(Observer):
    state: MemoryState
    disk: Disk
    truth: dict[int, list[Row]] = field(default_factory=dict)
    """Number -> rows of each committed registration."""
    decided: dict[tuple[str, int], str] = field(default_factory=dict)
    """(application, version) -> the transaction that committed it, or `empty`."""
    last: dict[str, int] = field(default_factory=dict)
    """Application -> highest version decided."""
    aborted: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    said: list[tuple[str, str, int, str, str, str | None]] = field(default_factory=list)
    """(who, application, version, what: committed|skipped|the error's name, transaction, query)."""
    violations: list[str] = field(default_factory=list)
    seals: dict[str, int] = field(default_factory=dict)
    """Segment -> number of its first seal."""
    queries: dict[str, str | None] = field(default_factory=dict)
    """Attempt -> the query that makes it."""
    by: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """(application, version) -> the query that committed it."""
    txns: dict[str, str] = field(default_factory=dict)
    """Attempt -> the last transaction that it opened."""
    aborting: Callable[[], str | None] = lambda: None
    """The attempt that the actor of now may abort, if it is a late abort."""
    writes: int = 0

    def bad(self, what: str) -> None:
        self.violations.append(what)

    def wrote(self, key: Key, before: bytes | None, after: bytes | None) -> None:
        self.writes += 1
        path = key.path
        if path.startswith("/txn/id/"):
            self._header(path.removeprefix("/txn/id/"), before, after)
        elif path.startswith("/txn/app/"):
            self._application(path.removeprefix("/txn/app/"), before, after)
        elif path.startswith("/txn/segment-state/watermark/") and before is not None:
            if after is None:
                self._collected(path)
            elif json.loads(after)["ledgerId"] < json.loads(before)["ledgerId"]:
                self.bad(f"the watermark of {path} moved back from {before!r} to {after!r}")
        elif path.startswith("/log/") and before is not None and after is not None:
            self._settled(path, json.loads(before), json.loads(after))
        elif path.startswith("/log/") and after is not None and b'"seal"' in after:
            for segment in json.loads(after)["seal"]:
                self.seals.setdefault(segment, int(path[-20:]))

    def _collected(self, path: str) -> None:
        """A watermark was deleted: only one whose segment has left the layout (after the grace period of its deletion)."""
        name = segment_name(decode(path.rpartition("/")[2]))
        record = self.state.get(topic(name.topic))
        if record is None or str(name.segment_id) in json.loads(record.value)["segments"]:
            self.bad(f"{path} was deleted although its segment is in the layout")

    def _header(self, txn: str, before: bytes | None, after: bytes | None) -> None:
        old = None if before is None else json.loads(before)
        if after is None:
            if old is not None and old["state"] == "OPEN":
                self.bad(f"the OPEN header {txn} was deleted")
            return
        new = json.loads(after)
        if old is None:
            if new["state"] != "OPEN":
                self.bad(f"the header {txn} was born {new['state']}")
            self.txns[new.get("attempt", "")] = txn
            return
        if old["state"] != "OPEN" or new["state"] == "OPEN":
            self.bad(f"the header {txn} went from {old['state']} to {new['state']}")
        if new["state"] == "ABORTED":
            self.aborted.add(txn)
            late = self.aborting()
            if late is not None and late != new["attempt"]:
                self.bad(f"the late abort of attempt {late} ended {txn}, attempt {new['attempt']}")
            return
        self._decide(new["app"], new["version"], txn, self.queries.get(new["attempt"]))
        record = self.state.get(Key(f"/log/log-{new['commit']:020d}", "log"))
        if record is None:
            self.bad(f"{txn} committed registration {new['commit']}, which is not in the log")
            return
        registration = json.loads(record.value)
        if registration.get("txn") != txn or "state" in registration:
            self.bad(f"{txn} committed registration {new['commit']}: {registration}")
        self.truth[new["commit"]] = self._rows(new["commit"], registration)
        for segment in registration["segments"]:
            if self.seals.get(segment, new["commit"]) < new["commit"]:
                self.bad(f"{txn} committed {new['commit']} into {segment}, sealed at {self.seals[segment]}")

    def _rows(self, number: int, registration: Any) -> list[Row]:
        segments = registration["segments"]
        if "manifest" in registration:
            segments = json.loads(self.disk.files[registration["manifest"]][0])
        return [(number, segment, part["path"]) for segment, write in segments.items() for part in write["parts"]]

    def _decide(self, app: str, version: int, txn: str, by: str | None) -> None:
        if (app, version) in self.decided:
            self.bad(f"version {version} of {app} was committed twice: by {self.decided[app, version]} and by {txn}")
        elif version <= self.last.get(app, -1):
            self.bad(f"version {version} of {app} was committed by {txn} after {self.last[app]}")
        self.decided[app, version] = txn
        self.by[app, version] = by
        self.last[app] = max(version, self.last.get(app, -1))

    def _application(self, app: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            return
        old = -1 if before is None else json.loads(before)["lastCommitted"]
        new = json.loads(after)["lastCommitted"]
        if new < old:
            self.bad(f"lastCommitted of {app} went back from {old} to {new}")
        if new > old and (app, new) not in self.decided:
            self._decide(app, new, "empty", json.loads(after).get("by"))

    def _settled(self, path: str, old: Any, new: Any) -> None:
        if old.get("state") is not None and old.get("state") != new.get("state"):
            self.bad(f"{path} was settled {old.get('state')}, then {new.get('state')}")
        number = int(path[-20:])
        if new.get("state") == "COMMITTED" and number not in self.truth:
            self.bad(f"{path} was settled COMMITTED although nobody committed it")
        if new.get("state") == "VOID" and number in self.truth:
            self.bad(f"{path} was settled VOID although it was committed")
