"""Records the history of a world: each write to the store, and the requests, replies and reads of the actors.

The module parses the JSON of the records with its own decoder and produces the events of `conformance.history.format`. The history
checker judges these events. The time of an event is its place in the history, so the order of any two events is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from conformance.history.format import (
    Ack,
    Application,
    Commit,
    Complaint,
    Event,
    Header,
    Layout,
    ReadFailed,
    Registration,
    Seal,
    Segment,
    Start,
    Sweep,
    Told,
    Trim,
    Watermark,
    Written,
)
from conformance.simulator.seen import in_stream_logs
from conformance.simulator.seen.cursors import LAST_ENTRY, acknowledged, changes, lacks
from conformance.simulator.seen.in_stream_acks import AckLog
from conformance.simulator.store.faults import Observer
from conformance.simulator.store.keyed import rows_of
from conformance.simulator.store.storage import Disk
from metadata.records.paths import Key, decode, encode
from metadata.store.memory import MemoryState

REFUSED = frozenset({"Fenced", "TxnConflict", "SegmentSealed", "TopicSealed", "TopicNotFound", "OptionError"})
"""The errors of a commit that say that no row or ack of the attempt is committed, now or later."""
decoded = lru_cache(maxsize=1024)(decode)
_DECODER = json.JSONDecoder()


@lru_cache(20_000)
def read_json(body: bytes) -> Any:
    """Parse JSON, cached by its bytes. Callers must not change the result."""
    return _DECODER.decode(body.decode())


@dataclass
class History(Observer):
    """Records the events of a world. `allowance_ms`: the time after a deadline until its transaction counts as timed out."""

    state: MemoryState
    disk: Disk
    allowance_ms: int = 0
    events: list[Event] = field(default_factory=list)
    aborting: Callable[[], str | None] = lambda: None
    """A function that returns the attempt that the current actor was started to abort (`start_late_abort`); None for other actors.
    """
    acking: Callable[[], bool] = lambda: False
    """A function that returns whether the current actor acknowledges without a transaction. Such an actor may drop a void pending
    ack and acknowledge its rows in one write.
    """
    moving: Callable[[], Sequence[int]] = tuple
    """A function that returns the log numbers to which the current actor has moved a subscription so far, or at which it has
    created it. It returns several numbers, because an earlier request may arrive late. After each write of this actor to a cursor,
    exactly the rows at or below one of these numbers must be acknowledged. For other actors the function returns no numbers.
    """
    showing: Callable[[Event], None] = lambda layout: None
    """A function that is called with each layout that is written."""
    trimmed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last trimmed position of each segment."""
    ack_logs: dict[str, AckLog] = field(default_factory=dict)
    """The state of the pending-ack logs of persistent topics."""
    movable: set[str] = field(default_factory=set)
    """The cursors that an actor has created or moved."""
    writes: int = 0
    commits: int = 0
    before: int = 0
    """The number of commits among the events that the world began with."""
    reads: int = 0

    def __post_init__(self) -> None:
        """Record the topics that exist, unless there are earlier events."""
        for key, record in () if self.events else self.state.records.items():
            if key.path.startswith("/topics/"):
                self.wrote(key, None, record.value)

    def now(self) -> int:
        """Return the number of the next event, which is the time now."""
        return len(self.events)

    def bad(self, what: str, invariant: int | None = None) -> None:
        """Record a violation that was found outside the history checker."""
        self.events.append(Complaint(len(self.events), what, invariant))

    def digest(self) -> str:
        """Return a digest of the events."""
        return hashlib.sha256(json.dumps(self.events).encode()).hexdigest()

    def recorded(self, seed: int) -> list[Event]:
        """Return the history in its file format."""
        return [Start(0, "conformance.simulator", "events", seed), *self.events]

    # --- the actors -----------------------------------------------------------------------------------------------

    def asked(self, call: Commit) -> None:
        self.events.append(call)

    def told(self, call: str, said: str, txn: str | None = None, number: int | None = None) -> None:
        """Record the reply to a commit. `said`: committed, skipped, or the name of the raised error."""
        if said in ("committed", "skipped"):
            self.events.append(Told(len(self.events), call, said, txn, number))
            return
        meaning = "conflict" if said == "VersionConflict" else "failed" if said in REFUSED else "unknown"
        self.events.append(Told(len(self.events), call, meaning, error=said))

    def saw(self, event: Event) -> None:
        self.events.append(event)
        self.reads += 1

    def missed(self, who: str, error: Exception) -> None:
        """Record that a read failed although no fault explains it, since a file or record that it needs is gone."""
        self.events.append(ReadFailed(len(self.events), who, type(error).__name__, False, str(error)))

    def swept(self, who: str, began: int, now_ms: int) -> None:
        """Record that a sweep has ended without an error. Such a sweep has aborted all timed-out transactions."""
        self.events.append(Sweep(len(self.events), began, who, now_ms))

    # --- the store ------------------------------------------------------------------------------------------------

    def wrote(self, key: Key, before: bytes | None, after: bytes | None) -> None:
        self.writes += 1
        path = key.path
        if path.startswith("/txn/id/"):
            self.events.append(self._header(path[8:], after))
        elif path.startswith("/log/"):
            self._log(int(path[-20:]), before, after)
        elif path.startswith("/txn/app/"):
            self.events.append(self._application(path[9:], after))
        elif path.startswith("/txn/segment-state/watermark/"):
            mark = None if after is None else read_json(after)
            position = None if mark is None else (mark["ledgerId"], mark["entryId"])
            segment = decoded(path[29:])
            self.events.append(Watermark(len(self.events), segment, position))
            if mark is not None:
                self._trimmed(segment, mark.get("trimmedTo", {"ledgerId": 0, "entryId": 0}))
        elif path.startswith("/cursors/"):
            segment, _, subscription = path[9:].partition(":")
            if before is None and decoded(segment).startswith("persistent://"):
                self._carried(path, read_json(after or b"{}"))
                return
            to = self.moving()
            if to:
                self.movable.add(path)
            found = changes(before, after, plain=self._plain, committed=self._committed, moving=bool(to))
            for state, ranges, txn in found:
                if state == "moved back":
                    self.bad(f"the cursor {path} moved back over {ranges}", 11)
                    continue
                if state == "moved" and ranges not in self._aims(decoded(segment), to):
                    self.bad(f"the cursor {path} was to be at one of {to}, and has {ranges}", 11)
                self.events.append(Ack(len(self.events), decoded(segment), decoded(subscription), state, ranges, txn))
        elif path.startswith("/topics/") and after is not None:
            self.events.append(self._layout(path, read_json(after)))
            self.showing(self.events[-1])
        elif path.startswith("/persistent/"):
            self._in_stream(key, after)

    def _in_stream(self, key: Key, after: bytes | None) -> None:
        """Record the events of a write of the marker-based model. Record a violation if a log takes an entry of a transaction while
        the topic's record says that the log has no such entries.
        """
        at, path = len(self.events), key.path
        if after is None:
            return
        if path.startswith("/persistent/logs/"):
            event = in_stream_logs.entry(at, path, read_json(after), self._rows, self.allowance_ms, self.aborting)
            self.commits += event.state == "COMMITTING"
            self.events.append(event)
            if event.kind == "DATA" and event.txn is not None and not in_stream_logs.expects(self.state, event.log):
                self.bad(f"{event.log} took an entry of {event.txn} while its record said that there is none", 4)
        elif path.startswith("/persistent/acks/"):
            self._acknowledged(path, read_json(after))
        elif path.startswith("/persistent/topics/"):
            topic, through = in_stream_logs.trimmed(path, read_json(after))
            if through > self.trimmed.get(topic, (0, 0))[0]:
                self.trimmed[topic] = through, 0
                self.events.append(Trim(at, at, topic, through))

    def _acknowledged(self, path: str, body: Any) -> None:
        name = path.split("/")[3]
        topic, _, subscription = name.partition(":")
        for state, ranges, txn in self.ack_logs.setdefault(path[:-21], AckLog()).entry(body):
            self.events.append(Ack(len(self.events), decoded(topic), decoded(subscription), state, ranges, txn))

    def _carried(self, path: str, cursor: Any) -> None:
        """Check a cursor that a migration creates. It must have exactly the acknowledgements of the subscription's pending-ack log.
        All of these acknowledgements must be decided, and the log must be sealed.
        """
        lives = [found for place, found in self.ack_logs.items() if place.split("/")[3] == path[9:]]
        had = lives[-1] if lives else AckLog()
        got = acknowledged(cursor)
        if had.claims or got != had.done or not had.sealed:
            self.bad(f"the cursor {path} was carried over as {got}; its log has {had}", 11)

    def _trimmed(self, segment: str, to: Any) -> None:
        """Check that retention removed no row that a subscription needs. Subscriptions that an actor has created or moved
        (`movable`) are not checked. Check also that the trimmed position of a watermark never moves back.
        """
        place, before = (to["ledgerId"], to["entryId"]), self.trimmed.get(segment, (0, 0))
        if place <= before:
            if place < before:
                self.bad(f"{segment} was trimmed to {before}, and its watermark now says {place}", 5)
            return
        self.trimmed[segment] = place
        at = len(self.events)
        self.events.append(Trim(at, at, segment, place[0]))
        prefix = f"/cursors/{encode(segment)}:"
        for key, record in self.state.records.items():
            if key.path.startswith(prefix) and key.path not in self.movable and lacks(record.value, place):
                self.bad(f"{segment} was trimmed to {place}, and {key.path} has not acknowledged all of that", 11)

    def _aims(self, segment: str, to: Sequence[int]) -> list[tuple[tuple[tuple[int, int], tuple[int, int]], ...]]:
        """Return the acknowledged ranges that a cursor may have after it was created at one of these numbers or moved to it. At the
        number 0 (before the first row) the cursor may also begin after rows that retention has removed from the topic's segments.
        """
        stem = segment.rpartition("/")[0]
        trims = [e.through for e in self.events if isinstance(e, Trim) and e.segment.startswith(f"{stem}/")] if 0 in to else []
        return [(((0, 0), (number, LAST_ENTRY)),) if number else () for number in (*to, *trims)]

    def _plain(self, txn: str) -> bool:
        return self.acking() and not self._committed(txn)

    def _committed(self, txn: str) -> bool:
        header = self.state.records.get(Key(f"/txn/id/{txn}", txn))
        return header is not None and read_json(header.value)["state"] == "COMMITTED"

    def _header(self, txn: str, after: bytes | None) -> Header:
        at = len(self.events)
        if after is None:
            return Header(at, txn, "gone")
        new = read_json(after)
        app, _, topic = new.get("app", ":").partition(":")
        self.commits += new["state"] == "COMMITTED"
        return Header(
            at,
            txn,
            new["state"],
            decoded(app),
            decoded(topic),
            new.get("version"),
            new.get("attempt"),
            new.get("commit"),
            round((new["createdAt"] + new["timeout"]) * 1000) + self.allowance_ms,
            self.aborting() if new["state"] == "ABORTED" else None,
        )

    def _log(self, number: int, before: bytes | None, after: bytes | None) -> None:
        at = len(self.events)
        if after is None:
            self.events.append(Registration(at, number, state="gone"))
            return
        new = read_json(after)
        if "seal" in new:
            if before is None:
                self.events.append(Seal(at, number, new["topic"], tuple(new["seal"]), new["why"], new["epoch"]))
            return
        rows = () if before is not None else self._rows(new)
        self.events.append(Registration(at, number, new.get("txn"), new.get("state"), rows))

    def _rows(self, registration: Any) -> tuple[Written, ...]:
        segments = registration["segments"]
        if "manifest" in registration:
            manifest, _ = self.disk.files.get(
                registration["manifest"], (b"{}", 0)
            )  # an append that took effect late may find its manifest deleted; the registration is void then
            segments = read_json(manifest)
        files = self.disk.files
        return tuple(
            Written(name, key, segment)
            for segment, write in segments.items()
            for part in write["parts"]
            for name, key in rows_of(part["path"], files.get(part["path"], (b"", 0))[0])
        )

    def _application(self, name: str, after: bytes | None) -> Application:
        app, _, topic = name.partition(":")
        new = {} if after is None else read_json(after)
        return Application(len(self.events), decoded(app), decoded(topic), new.get("lastCommitted"), new.get("by"))

    def _layout(self, path: str, new: Any) -> Layout:
        _, _, tenant, namespace, name = path.split("/")
        prefix, infos = f"{tenant}/{namespace}/{decoded(name)}", new["segments"]

        def named(info: Any) -> str:
            if "legacyTopicName" in info:
                return str(info["legacyTopicName"])
            return f"segment://{prefix}/{info['hashRange']['start']:04x}-{info['hashRange']['end']:04x}-{info['segmentId']}"

        segments = tuple(
            Segment(
                named(info),
                info["hashRange"]["start"],
                info["hashRange"]["end"],
                info["state"] == "ACTIVE",
                tuple(named(infos[str(parent)]) for parent in info["parentIds"] if str(parent) in infos),
                info.get("sealedAtLog"),
            )
            for info in infos.values()
        )
        return Layout(len(self.events), f"topic://{prefix}", new["epoch"], segments, bool(new.get("deleted")))
