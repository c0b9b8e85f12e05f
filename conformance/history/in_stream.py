"""Judge the marker-based model by the entries of its logs. The markers in each topic's log must agree with the decisions in the
coordinators' logs.

A DATA entry of a topic's log is void in four cases: it comes after the marker of its transaction; an earlier marker has a low-water
mark at or above its transaction; it comes after the seal; or it is a second append with the same id. A marker decides all DATA of
its transaction before it that are not void. In a coordinator's log, the first allowed transition of a transaction takes effect.
COMMITTING takes effect only if the application has not committed this version or a higher one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from conformance.history.findings import Findings
from conformance.history.format import Ack, Entry, Event, Header, Read, Time, Trim
from conformance.history.truth import Batch, Registered, Truth, Txn

ALLOWED = {
    "OPEN": ("COMMITTING", "ABORTING"),
    "COMMITTING": ("COMMITTED",),
    "ABORTING": ("ABORTED",),
    "COMMITTED": (),
    "ABORTED": (),
}
ENDED = {"COMMIT": ("COMMITTING", "COMMITTED"), "ABORT": ("ABORTING", "ABORTED")}
"""Kind of a marker -> the states of its transaction that permit it."""


@dataclass(slots=True)
class Logged:
    """The state of a transaction in its coordinator's log. `new`: its NEW entry. `topics`: the topics that are its participants."""

    new: Entry
    state: str = "OPEN"
    topics: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)
    """The topics whose rows the transaction acknowledges."""

    def is_in_the_way_of(self, migrated: set[str]) -> bool:
        """Return whether the transaction blocks the migration of one of these topics. That is so if the topic is a participant, if
        the transaction has a pending ack on the topic, or if its application belongs to the topic.
        """
        return not migrated.isdisjoint((*self.topics, *self.claimed, self.new.topic))


@dataclass(slots=True)
class TopicLog:
    """The state of one topic's log. `truth`: its committed data, with the numbers of this log."""

    name: str
    truth: Truth = field(default_factory=lambda: Truth(store=True))
    ongoing: dict[str, list[Entry]] = field(default_factory=dict)
    """Transaction -> its DATA entries that are not void and not decided."""
    ended: dict[str, str] = field(default_factory=dict)
    """Transaction -> its outcome by its first marker."""
    ended_at: dict[str, int] = field(default_factory=dict)
    """Transaction -> the number of its first marker."""
    trimmed: int = 0
    """The log is trimmed up to this number. If the marker of a transaction is trimmed and a zombie of the transaction then appends
    data, this data is void. A process that finds such data appends an ABORT marker, even if the transaction is COMMITTED.
    """
    marked: set[str] = field(default_factory=set)
    """Transactions that have a marker in this log, which may be a void one."""
    low_water: dict[str, int] = field(default_factory=dict)
    sealed_at: int | None = None
    """The number of the first SEAL that took effect. A migration's SEAL takes no effect while a transaction is ongoing here."""
    sealed_when: Time = 0

    @property
    def sealed(self) -> bool:
        return self.sealed_at is not None

    def has_ended(self, txn: str) -> bool:
        most, _, least = txn.partition("_")
        return txn in self.ended or int(least) <= self.low_water.get(most, -1)


class InStream:
    """Follows the entries of all logs, in the order in which they were appended."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self.topics: dict[str, TopicLog] = {}
        self.txns: dict[str, Logged] = {}
        self._seen: dict[str, int] = {}
        self._migrated: set[str] = set()
        """Topics that were sealed by a migration. Any process that finds the SEAL may end the transactions that block it."""
        self._versions: dict[tuple[str, str], tuple[int, str]] = {}
        """Application -> its highest committed version, and the transaction that committed this version."""

    def entry(self, event: Entry) -> Iterator[Header]:
        """Follow the next entry. If it changes the state of a transaction, yield this change in the form of a `Header`."""
        if event.number <= self._seen.get(event.log, 0):
            text = f"entry {event.number} of {event.log} appeared after {self._seen[event.log]}"
            self._found.note("late registration", text, event)
            return
        self._seen[event.log] = event.number
        match event.kind:
            case "NEW":
                yield self._new(event)
            case "ADD":
                known = self.txns.get(event.txn or "")
                if known is not None and known.state == "OPEN":
                    known.topics.update(event.topics)
            case "STATUS":
                yield from self._status(event)
            case _:
                self._of_topic(event)

    def trim(self, event: Trim) -> None:
        """Note a trim of a persistent topic's log."""
        if (topic := self.topics.get(event.segment)) is not None:
            topic.trimmed = max(topic.trimmed, event.through)

    def ack(self, event: Ack) -> None:
        """Note an acknowledgement of rows of a persistent topic."""
        if event.state == "pending" and (known := self.txns.get(event.txn or "")) is not None:
            known.claimed.add(event.segment)

    # --- a coordinator's log ------------------------------------------------------------------------------------------

    def _new(self, event: Entry) -> Header:
        assert event.txn is not None
        self.txns[event.txn] = Logged(event, topics=set(event.topics))
        return _header(event, event, "OPEN")

    def _status(self, event: Entry) -> Iterator[Header]:
        known = self.txns.get(event.txn or "")
        state = event.state or ""
        if known is None or state not in ALLOWED[known.state]:
            return
        if state == "COMMITTING" and self._is_overtaken(known.new):
            return
        known.state = state
        if state == "COMMITTING":
            if known.new.app is not None and known.new.version is not None:
                self._versions[known.new.app, known.new.topic or ""] = known.new.version, event.txn or ""
            yield _header(event, known.new, "COMMITTED")
        elif state == "ABORTING":
            yield _header(event._replace(by=None) if known.is_in_the_way_of(self._migrated) else event, known.new, "ABORTED")
        else:
            self._final(event, known)

    def _is_overtaken(self, new: Entry) -> bool:
        if new.app is None or new.version is None:
            return False
        version, txn = self._versions.get((new.app, new.topic or ""), (-1, ""))
        return txn != new.txn and version >= new.version

    def _final(self, event: Entry, known: Logged) -> None:
        missing = [t for t in sorted(known.topics) if self._lacks(t, event.txn or "")]
        if missing:
            text = f"{event.txn} was logged {event.state} before {', '.join(missing)} had its marker"
            self._found.note("ended before its markers", text, known.new, event)

    def _lacks(self, name: str, txn: str) -> bool:
        """Return whether the transaction has not ended yet in this topic. It has ended if the log has its marker. A sealed log
        takes no more markers, so there it has also ended if it has no undecided data.
        """
        topic = self.topics.get(name)
        if topic is None:
            return True
        return txn not in topic.marked and not (topic.sealed and txn not in topic.ongoing)

    # --- a topic's log ------------------------------------------------------------------------------------------------

    def _of_topic(self, event: Entry) -> None:
        topic = self.topics.setdefault(event.log, TopicLog(event.log))
        if event.kind == "DATA":
            self._data(topic, event)
            return
        if topic.sealed:
            topic.marked.add(event.txn or "")
            return
        if event.kind == "SEAL":
            if event.why != "migrate" or not topic.ongoing:
                topic.sealed_at, topic.sealed_when = event.number, event.at
                if event.why == "migrate":
                    self._migrated.add(topic.name)
            return
        self._marker(topic, event)

    @staticmethod
    def _data(topic: TopicLog, event: Entry) -> None:
        rows = event.rows
        where = frozenset() if topic.sealed else frozenset({topic.name})
        topic.truth.registered[event.number] = Registered(event, topics=where)
        if topic.sealed:
            return
        if event.txn is None:
            batch = Batch(f"plain message {event.number}", rows, event.number, topic=topic.name, committed_at=event.at)
            topic.truth.committed[event.number] = batch
            return
        if topic.has_ended(event.txn):
            return
        if event.txn not in topic.truth.txns:
            topic.truth.txns[event.txn] = Txn(Header(event.at, event.txn, "OPEN"), event.at)
        mine = topic.ongoing.setdefault(event.txn, [])
        if all(entry.id != event.id for entry in mine):
            mine.append(event)

    def _marker(self, topic: TopicLog, event: Entry) -> None:
        txn, known = event.txn or "", self.txns.get(event.txn or "")
        topic.marked.add(txn)
        registered = known is not None and topic.name in known.topics
        forgotten = event.kind == "ABORT" and topic.ended_at.get(txn, topic.trimmed + 1) <= topic.trimmed
        if known is None or (not forgotten and (known.state not in ENDED[event.kind] and (registered or event.kind == "COMMIT"))):
            state = "unknown" if known is None else known.state
            self._found.note("marker without a decision", f"{topic.name} got {event.kind} of {txn}, which is {state}", event)
        if not topic.has_ended(txn):
            topic.ended[txn], topic.ended_at[txn] = event.kind, event.number
            self._decided(topic, txn, event.at, committed=event.kind == "COMMIT")
        if event.low_water is not None:
            self._low_water(topic, txn.partition("_")[0], event)

    @staticmethod
    def _decided(topic: TopicLog, txn: str, at: Time, *, committed: bool) -> None:
        mine, known = topic.ongoing.pop(txn, []), topic.truth.txns.get(txn)
        if known is None:
            header = Header(at, txn, "OPEN")
            topic.truth.txns[txn] = known = Txn(header, at)
        known.state, known.decided_at = "COMMITTED" if committed else "ABORTED", min(known.decided_at, at)
        for entry in mine if committed else ():
            batch = Batch(txn, entry.rows, entry.number, txn, topic=topic.name, committed_at=at)
            topic.truth.committed[entry.number] = batch

    def _low_water(self, topic: TopicLog, most: str, event: Entry) -> None:
        assert event.low_water is not None
        if event.low_water <= topic.low_water.get(most, -1):
            return
        topic.low_water[most] = event.low_water
        below = [t for t in self.txns.values() if _is_below(t.new, most, event.low_water)]
        for known in [t for t in below if t.state not in ("COMMITTED", "ABORTED")][:1]:
            text = f"{event.low_water} in {topic.name}, though {known.new.txn} is {known.state}"
            self._found.note("low-water mark too high", text, known.new, event)
        for txn in [t for t in topic.ongoing if t.partition("_")[0] == most and int(t.partition("_")[2]) <= event.low_water]:
            self._decided(topic, txn, event.at, committed=False)

    # --- the end of the history --------------------------------------------------------------------------------------

    def end(self, topic: TopicLog, at: Time) -> None:
        """Judge the complete log of a topic. Each transaction that wrote to the topic before `at` must have ended there. `at`: the
        time at which the final read of the topic began.
        """
        for txn, entries in topic.ongoing.items():
            if entries[0].at < at:
                known = self.txns.get(txn)
                state = "unknown" if known is None else known.state
                text = f"{txn}, {state}, was never ended in {topic.name}, where it wrote {entries[0].number}"
                self._found.note("participant left out", text, *entries[:1])
        for txn, known in self.txns.items():
            if known.state in ENDED["COMMIT"] and topic.ended.get(txn) == "ABORT" and topic.name in known.topics:
                text = f"{txn}, {known.state}, ended as aborted in {topic.name}"
                self._found.note("participant left out", text, known.new)


def _header(event: Entry, new: Entry, state: str) -> Header:
    return Header(
        event.at,
        new.txn or "",
        state,
        new.app,
        new.topic,
        new.version,
        new.attempt,
        None,
        new.deadline,
        event.by if state == "ABORTED" else None,
    )


def _is_below(new: Entry, most: str, least: int) -> bool:
    found, _, number = (new.txn or "").partition("_")
    return found == most and int(number) <= least


def by_markers(part: Iterable[Event], common: Truth, older: Container[str], found: Findings) -> dict[str, Txn]:
    """Return the outcome of each transaction that acknowledged rows of one persistent topic. The time of the outcome is the time of
    the marker in the pending-ack log, because this marker decides the ack. Report markers that disagree with the coordinators'
    logs.

    `part`: the events of the topic. `common`: the outcomes of all transactions by headers and by the coordinators' logs. `older`:
    the marker-based transactions. All other transactions acknowledged rows after the migration of the topic, and headers decide
    them.
    """
    made: dict[str, Txn] = {}
    held: dict[str, Ack] = {}
    final: Time | None = None
    for event in part:
        if isinstance(event, Read) and event.final:
            final = event.began
        if not isinstance(event, Ack) or event.txn is None:
            continue
        known = common.txns.get(event.txn)
        if event.txn not in older and known is not None:
            made[event.txn] = known
            continue
        if event.state == "pending":
            made.setdefault(event.txn, Txn(Header(event.at, event.txn, "OPEN"), event.at))
            held[event.txn] = event
            continue
        state = "COMMITTED" if event.state == "acked" else "ABORTED"
        made[event.txn] = Txn(Header(event.at, event.txn, "OPEN"), event.at, event.at, state)
        held.pop(event.txn, None)
        if known is None or known.state != state or known.decided_at > event.at:
            text = f"acknowledgements of {event.txn} on {event.segment} ended {state}"
            found.note("marker without a decision", text, event, invariant=11)
    for txn, event in held.items():
        known = common.txns.get(txn)
        if final is not None and event.at < final and known is not None and known.state == "COMMITTED":
            text = f"the ack of {txn}, COMMITTED, never reached the cursor of {event.subscription} on {event.segment}"
            found.note("committed ack lost", text, event)
    return made
