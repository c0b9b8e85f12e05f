"""Judge the events that decide transactions: changes of headers, registrations and applications, seals, and answers to clients
(invariants 1 to 3, 8, 10 and 12). Settling is judged here, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from conformance.history.findings import Findings
from conformance.history.format import (
    Abort,
    Application,
    Commit,
    End,
    Event,
    Header,
    Registration,
    Seal,
    Sweep,
    Told,
    Written,
)
from conformance.history.truth import Batch, Registered, Truth, Txn, Version
from conformance.history.words import topic_of


class Deciding:
    """Follows the events in order. Adds what they decide to `truth`, the committed data. Reports violations."""

    def __init__(self, truth: Truth, found: Findings) -> None:
        self.truth, self.found = truth, found
        self._newest = -1
        self._ends: dict[str, End] = {}
        self._aborts: dict[str, Abort] = {}
        self._ended: dict[str, tuple[str, Told]] = {}
        self._open: dict[str, Txn] = {}
        self._empty: set[Version] = set()
        """Versions that a caller asked to commit without rows."""
        self._ended_epochs: set[tuple[str, int]] = set()

    # --- the store ------------------------------------------------------------------------------------------------

    def header(self, event: Header) -> None:
        truth, found, txn = self.truth, self.found, event.txn
        known = truth.txns.get(txn)
        if event.state == "OPEN" and known is None:
            truth.txns[txn] = self._open[txn] = Txn(event, event.at)
            return
        if known is None:
            found.note("ended twice", f"the header of {txn} was born {event.state}", event)
            truth.txns[txn] = known = Txn(event, event.at)
        elif event.state == "OPEN":
            word = "txn id reused" if known.gone else "ended twice"
            found.note(word, f"the header of {txn} became OPEN, it had been {known.state}", known.header, event)
            return
        if event.state == "gone":
            if known.state == "OPEN":
                found.note("ended twice", f"the OPEN header of {txn} was deleted", known.header, event)
                known.decided_at = min(known.decided_at, event.at)
            known.gone = True
            self._open.pop(txn, None)
            return
        if known.state != "OPEN":
            found.note("ended twice", f"the header of {txn} went from {known.state} to {event.state}", known.header, event)
            if event.state != "COMMITTED":
                return
        opened = known.header
        known.state, known.decided_at = event.state, event.at
        self._open.pop(txn, None)
        if event.by is not None and event.by != (opened.attempt or event.attempt):
            found.note(
                "ended another's transaction",
                f"the late abort of attempt {event.by} ended {txn}, attempt {opened.attempt}",
                opened,
                event,
            )
        if event.state == "COMMITTED":
            self._committed(event)

    def _committed(self, event: Header) -> None:
        truth, found = self.truth, self.found
        registered = None if event.commit is None else truth.registered.get(event.commit)
        batch = Batch(event.txn, () if registered is None else registered.first.rows, event.commit, event.txn, None, event.at)
        if event.app is not None and event.version is not None:
            attempt = truth.attempts.get(event.attempt or "")
            query = truth.by.get((event.app, event.topic or "", event.version)) if attempt is None else attempt.query
            self._decide((event.app, event.topic or "", event.version), batch, query, event)
        if event.commit is None:
            return
        truth.committed[event.commit] = batch
        if registered is None:
            found.note("lost write", f"{event.txn} committed registration {event.commit}, which is not in the log", event)
        elif registered.first.txn != event.txn or registered.state is not None:
            text = f"{event.txn} committed registration {event.commit} of {registered.first.txn}, settled {registered.state}"
            found.note("ended another's transaction", text, registered.first, event)
        self._as_asked(event, batch)
        for segment in {row.segment for row in batch.rows if row.segment is not None} if truth.seals else ():
            if truth.seals.get(segment, event.commit) < event.commit:
                text = f"{event.txn} committed {event.commit} into {segment}, sealed at {truth.seals[segment]}"
                found.note("written after the seal", text, event)

    def _as_asked(self, event: Header, batch: Batch) -> None:
        """Report a violation if the committed rows are not the rows of the `Commit` whose attempt opened the transaction, or if the
        rows of a key are in another order.
        """
        asked = self.truth.attempts.get(event.attempt or "")
        if asked is None or not asked.rows or not batch.rows:
            return
        wanted, got = {row.id for row in asked.rows}, {row.id for row in batch.rows}
        if wanted != got:
            odd = min(wanted ^ got)
            said = f"{odd} is {'not of this attempt' if odd in got else 'missing'}"
            text = f"{batch.label} committed {len(got)} rows for {len(wanted)} of {asked.who}; {said}"
            self.found.note("other rows committed", text, asked, event)
            return
        ordered = _by_key(batch.rows)
        key = next((key for key, ids in _by_key(asked.rows).items() if ids != ordered[key]), None)
        if key is not None:
            text = f"{batch.label} committed the rows of key {key} in another order than {asked.who} wrote them"
            self.found.note("committed out of order", text, asked, event)

    def _decide(self, version: tuple[str, str, int], batch: Batch, by: str | None, event: Event) -> None:
        truth, found = self.truth, self.found
        application = version[:2]
        before = truth.decided.get(version)
        text = f"version {version[2]} of {version[0]}"
        if before is not None:
            found.note("version committed twice", f"{text} was committed by {before.label} and by {batch.label}", event)
        elif version[2] <= truth.last.get(application, -1):
            found.note("versions out of order", f"{text} was committed by {batch.label} after {truth.last[application]}", event)
        batch.version = version
        truth.decided[version] = batch
        truth.by[version] = by
        truth.last[application] = max(version[2], truth.last.get(application, -1))

    def application(self, event: Application) -> None:
        truth, name = self.truth, (event.app, event.topic)
        before = truth.applications.pop(name, None)
        if event.last_committed is None:
            return
        truth.applications[name] = event
        old = -1 if before is None or before.last_committed is None else before.last_committed
        if event.last_committed < old:
            text = f"lastCommitted of {event.app} went back from {old} to {event.last_committed}"
            self.found.note("versions out of order", text, event)
        version = (*name, event.last_committed)
        if event.last_committed > old and version not in truth.decided:
            self._decide(version, Batch("an empty batch", (), committed_at=event.at), event.by, event)

    def registration(self, event: Registration) -> None:
        truth, found, number = self.truth, self.found, event.number
        known = truth.registered.get(number)
        if known is None:
            if event.state == "gone":
                return
            topics = frozenset(topic_of(row.segment) for row in event.rows if row.segment is not None)
            truth.registered[number] = Registered(event, event.state, topics)
            self._appeared(number, event)
            if event.txn is None:
                rows = tuple(r for r in event.rows if r.segment is None or truth.seals.get(r.segment, number) >= number)
                truth.committed[number] = Batch(f"plain write {number}", rows, number, None, None, event.at)
            return
        if known.gone:
            found.note("late registration", f"number {number} came back after it had been dropped", known.first, event)
        known.gone = event.state == "gone"
        if event.state is None and event.rows != known.first.rows:
            found.note("late registration", f"number {number} was given out twice", known.first, event)
        if event.state in (None, "gone"):
            return
        if known.state is not None and known.state != event.state:
            found.note("wrongly settled", f"{number} was settled {known.state}, then {event.state}", event)
        elif event.state == "COMMITTED" and number not in truth.committed:
            found.note("wrongly settled", f"{number} was settled COMMITTED although nobody committed it", event)
        elif event.state == "VOID" and number in truth.committed:
            found.note("wrongly settled", f"{number} was settled VOID although it was committed", event, invariant=5)
        elif event.state == "VOID" and known.first.txn in self._open:
            found.note("wrongly settled", f"{number} was settled VOID although {known.first.txn} is OPEN", event)
        known.state = event.state

    def _appeared(self, number: int, event: Event) -> None:
        if number < self._newest:
            self.found.note("late registration", f"number {number} appeared after {self._newest}", event)
        self._newest = max(self._newest, number)

    def seal(self, event: Seal) -> None:
        self._appeared(event.number, event)
        if (event.topic, event.epoch) in self._ended_epochs:
            return  # an earlier seal has ended this layout, so this seal is void in every segment
        self._ended_epochs.add((event.topic, event.epoch))
        for segment in event.segments:
            self.truth.seals.setdefault(segment, event.number)
        if event.why == "delete":
            self.truth.deleted.setdefault(event.topic, event.at)

    def sweep(self, event: Sweep) -> None:
        for name, txn in self._open.items():
            deadline = txn.header.deadline
            if deadline is not None and deadline < event.now_ms and txn.opened_at < event.began:
                text = f"{name} is OPEN after a sweep by {event.who} at {event.now_ms}, its deadline was {deadline}"
                self.found.note("open past its deadline", text, txn.header, event)

    # --- clients --------------------------------------------------------------------------------------------------

    def commit(self, event: Commit) -> None:
        truth = self.truth
        truth.calls[event.call] = event
        if event.attempt is not None:
            truth.attempts[event.attempt] = event
        if not event.rows:
            self._empty.add((event.app, event.topic, event.version))
        if not truth.store:
            truth.batch_of_call(event).calls.append(event)

    def end(self, event: End) -> None:
        self._ends[event.call] = event

    def abort(self, event: Abort) -> None:
        self._aborts[event.call] = event

    def told(self, event: Told) -> None:
        self.truth.told[event.call] = event
        if event.call in self.truth.calls:
            call = self.truth.calls[event.call]
            if self.truth.store:
                self._judge(call, event)
            else:
                self._believe(call, event)
        elif event.call in self._ends:
            self._ended_by_name(self._ends[event.call], event)
        elif event.call in self._aborts:
            asked = self._aborts[event.call]
            txn = self.truth.txns.get(asked.txn or "")
            if event.said == "aborted" and txn is not None and txn.state == "COMMITTED":
                self.found.note("wrong answer", f"{asked.who} was told that {asked.txn} is aborted; it is COMMITTED", asked, event)
        else:
            self.found.note("wrong answer", f"an answer to {event.call}, which nobody asked", event)

    def _judge(self, call: Commit, told: Told) -> None:
        """Judge the answer to a `Commit` by the store's records. After "committed" or "skipped" the version must be committed.
        After "failed" the call's attempt must not have committed it. After "conflict" this version or a higher one must be
        committed.
        """
        truth, found, said = self.truth, self.found, told.said
        version = (call.app, call.topic, call.version)
        batch = truth.decided.get(version)
        which = f"{call.who} was told {said} for version {call.version} of {call.app}"
        if call.random and not call.rows and not told.txn:
            return  # this write has no rows to lose, and it cannot be fenced, because no other write uses its application
        if said in ("committed", "skipped") and batch is None:
            found.note("lost write", f"{which}, which nobody committed", call, told)
        elif said in ("committed", "skipped") and call.rows and batch is not None and self._raised_alone(batch, version):
            found.note("lost write", f"{which}: lastCommitted was raised to it, and nobody committed its rows", call, told)
        elif said == "committed" and told.txn and batch is not None and batch.txn != told.txn:
            found.note("wrong answer", f"{which} by {told.txn}: {batch.label} committed it", call, told)
        elif said == "committed" and told.number is not None and batch is not None and batch.number != told.number:
            found.note("wrong answer", f"{which} as {told.number}: it is {batch.number}", call, told)
        elif said == "committed" and told.txn and self._foreign(call, told.txn):
            found.note("ended another's transaction", f"{which} by {told.txn}, which another attempt opened", call, told)
        elif said == "skipped" and truth.by.get(version) != call.query:
            found.note("wrong answer", f"{which}: {truth.by.get(version)} committed it, not {call.query}", call, told)
        elif said == "conflict" and truth.last.get(version[:2], -1) < call.version:
            found.note("wrong answer", f"{which} although only {truth.last.get(version[:2], -1)} is committed", call, told)
        elif said == "failed":
            self._stalled(call, told)
            if batch is not None and batch.txn is not None and not self._foreign(call, batch.txn):
                found.note("wrong answer", f"{which}: {batch.txn} of this attempt committed it", call, told)
        if said in ("committed", "skipped") and batch is not None:
            batch.told_at = min(batch.told_at, told.at)

    def _raised_alone(self, batch: Batch, version: Version) -> bool:
        """Return whether `lastCommitted` of the application record is the only sign of the commit, although each call for this
        version had rows. That is a violation, because only a transaction can commit rows.
        """
        return batch.txn is None and batch.number is None and version not in self._empty

    def _foreign(self, call: Commit, txn: str) -> bool:
        known = self.truth.txns.get(txn)
        return known is None or call.attempt is None or known.header.attempt != call.attempt

    def _stalled(self, call: Commit, told: Told) -> None:
        if told.error != "SegmentSealed":
            return
        topics = {topic_of(row.segment or call.topic) for row in call.rows}
        if self.truth.store and topics.isdisjoint(self.truth.deleted):
            text = f"{call.who} was refused for a seal, although nobody deleted {', '.join(sorted(topics))}"
            self.found.note("stalled by a seal", text, call, told)
        if told.number is None:
            return
        seals = [self.truth.seals[r.segment] for r in call.rows if r.segment in self.truth.seals]
        if seals and told.number < min(seals):
            text = f"{call.who} was refused for a seal at {min(seals)}, and had registered at {told.number}"
            self.found.note("stalled by a seal", text, call, told)

    def _believe(self, call: Commit, told: Told) -> None:
        """Conclude from the answer to a `Commit` what is committed (without store records). Report contradicting answers."""
        truth, found = self.truth, self.found
        version = (call.app, call.topic, call.version)
        batch = truth.batch_of_call(call)
        which = f"version {call.version} of {call.app}"
        before = truth.decided.get(version)
        if told.said == "committed":
            if before is not None and before.told_at < told.at and (before is not batch or before.txn != told.txn):
                found.note(
                    "version committed twice", f"{which} was committed by {before.txn} and by {told.txn}", *before.calls, told
                )
            elif truth.last.get(version[:2], -1) > call.version and before is None:
                text = f"{which} was committed after {truth.last[version[:2]]}"
                found.note("versions out of order", text, call, told)
            batch.txn = told.txn or batch.txn
            if told.number is not None:
                batch.number = told.number
                other = truth.committed.setdefault(told.number, batch)
                if other is not batch:
                    found.note("wrong answer", f"{which} and {other.label} were both told that they are {told.number}", told)
        elif told.said == "conflict" and truth.last.get(version[:2], -1) < call.version and not self._in_doubt(call):
            found.note("wrong answer", f"{call.who} was refused {which} although it is not committed", call, told)
        if told.said in ("committed", "skipped") and (told.said == "committed" or len(truth.batches[version]) == 1):
            truth.decided[version] = batch
            truth.last[version[:2]] = max(call.version, truth.last.get(version[:2], -1))
            batch.told_at = min(batch.told_at, told.at)
            batch.committed_at = min(batch.committed_at, told.at)

    def _in_doubt(self, refused: Commit) -> bool:
        """Return whether another call for this version or a higher one of the application may have committed that version."""
        return any(
            other.call != refused.call
            and (other.app, other.topic) == (refused.app, refused.topic)
            and other.version >= refused.version
            for other in self.truth.calls.values()
        )

    def _ended_by_name(self, asked: End, told: Told) -> None:
        """Judge the answer to an `End`. Ending a transaction again in the same way must succeed. Ending it in the other way, or
        ending an unknown transaction, must be an error.
        """
        truth, found = self.truth, self.found
        known = truth.txns.get(asked.txn)
        before = self._ended.get(asked.txn)
        what = {"commit": "committed", "abort": "aborted"}[asked.action]
        if told.said in ("committed", "aborted"):
            state = None if known is None else known.state.lower()
            if truth.store and known is None:
                text = f"{asked.who} was told that {asked.txn} is {told.said}; nobody opened it"
                found.note("unknown transaction ended", text, asked, told)
            elif told.said != what or (before is not None and before[0] != told.said) or (truth.store and state != told.said):
                text = f"{asked.who} asked to {asked.action} {asked.txn} and was told {told.said}; it is {state or before}"
                found.note("ended both ways", text, asked, told)
            self._ended.setdefault(asked.txn, (told.said, told))
        elif told.said == "failed" and before is not None and before[0] == what:
            text = f"{asked.who} may not {asked.action} {asked.txn} again: {told.error}"
            found.note("repeat refused", text, asked, before[1], told)


def _by_key(rows: Iterable[Written]) -> dict[str, list[str]]:
    """Return key -> the ids of the rows with this key, in the order of `rows`."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.key is not None:
            found.setdefault(row.key, []).append(row.id)
    return found
