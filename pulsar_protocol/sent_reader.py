"""Reads the log of what txnsegment's writers have sent to a topic (`sent_log`), for cuts that split no transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.errors import RecordsGone, TimedOut, TopicMissing
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.reader import entries
from pulsar_protocol.retries import PATIENCE_SECONDS, passes, repeat
from pulsar_protocol.sent_log import Sent, Settled, decode, log_name
from pulsar_protocol.whole_transactions import NO_CHILDREN, Child, Extent, least_whole_cut, whole_cut

TRIES: Final = 3
AT_ONCE: Final = 1000
"""How many records are read at a time in the search for the last `Settled`."""
_NOTHING: Final[Mapping[str, Position]] = {}
NONE_ENDED: Final[AbstractSet[str]] = frozenset()


class SentLog:
    """The transactions that writers of txnsegment have sent to one topic, as far as one reader needs them. Keeps what it has read,
    so that a stream reads each record once. While the broker is away, a read waits for it.

    `read`: for each segment of the log, the position up to which the reader needs no records (`needed_after`).
    """

    def __init__(self, client: PulsarClient, topic: str, read: Mapping[str, Position] = _NOTHING) -> None:
        self._client, self._topic = client, topic
        self._read = dict(read)
        self._ended: set[str] = set()
        """The sealed segments of the log that have been read to their end."""
        self._sent: dict[TxnId, Sent] = {}
        self._places: dict[TxnId, tuple[str, Position]] = {}
        """Where the record of each transaction is in the log."""
        self._committed: set[TxnId] = set()
        self._settled: dict[str, Position] = {}
        """For each segment of the log, up to which position the `Settled` that were read say that records are not needed."""
        self._first_kept: dict[str, Position] = {}
        """For each segment of the log that lacks records which this reader has not read, the position before the first kept one."""
        self.incomplete = False
        """Whether records are gone that this reader has not read, and that a `Settled` covers. The transactions of these records
        are at or below the newest cut that splits no transaction. So a read that ends at this cut has all of them. A read that ends
        before it may split them.
        """
        self._complete_at: Mapping[str, Position] | None = None

    @property
    def settled(self) -> Mapping[str, Position]:
        """For each segment of the log, up to which position the `Settled` that were read say that records are not needed."""
        return self._settled

    @property
    def segments(self) -> set[str]:
        """The segments of the topic that the records name."""
        return {name for one in self._sent.values() for name in one.segments}

    def catch_up(self) -> None:
        """Read the records up to the end of the log. A topic that txnsegment has never written has no log. Raises LogDamaged,
        RecordsGone, or the error that the broker reports.
        """
        self._patiently(lambda: self._read_log(from_settled=False))

    def skip_settled(self) -> None:
        """Read the records that a reader of the newest rows needs. Call this before the cuts are found, because transactions that
        are settled later may have rows above these cuts. Raises LogDamaged, RecordsGone, or the error that the broker reports.
        """
        self._patiently(lambda: self._read_log(from_settled=True))

    def _patiently(self, call: Callable[[], None]) -> None:
        """Call a function that asks the broker and may be repeated. Repeat it while the broker is away, for at most
        `PATIENCE_SECONDS`, and not after the client was closed. What an earlier try has read stays.
        """
        repeat(
            lambda left: call(),
            PATIENCE_SECONDS,
            stop=threading.Event(),
            when=lambda error: passes(error) and not self._client.closed,
        )

    def _read_log(self, *, from_settled: bool) -> None:
        try:
            layout = self._client.layout(log_name(self._topic))
        except TopicMissing:
            return
        for one in sorted(layout.segments.values(), key=lambda one: -one.id):
            if one.name not in self._ended:
                self._read_segment(one.name, from_settled)
                if not one.active:
                    self._ended.add(one.name)
        self._check_kept()

    def _check_kept(self) -> None:
        """Raise RecordsGone if records are gone that this reader needs, as far as the log tells."""
        for segment, first in list(self._first_kept.items()):
            if self._settled.get(segment, EARLIEST).ledger < first.ledger:
                raise RecordsGone(
                    f"{segment}: records up to {first.ledger}:0 are gone. They say where the rows of transactions to {self._topic} "
                    "are, so it is unknown whether a read would have only a part of a transaction.",
                    advice="The namespace has no retention, and an older txnsegment did not hold these records. Try again after "
                    "the next write to the topic: its records say what readers need. Or begin again: a new checkpoint, or "
                    "subscriptions.seek.",
                )
            del self._first_kept[segment]
            self.incomplete = True

    def whole(self, cut: Mapping[str, Position], children: Mapping[str, Child] = NO_CHILDREN) -> dict[str, Position]:
        """Return the greatest cut at or below `cut` that splits no transaction, and has entries of a child only if it has all
        entries of the child's parents (`whole_cut`). `cut` must have been found before the last `catch_up`. Raises the error that
        the broker reports.
        """
        self._patiently(lambda: self._drop_aborted(cut))
        return whole_cut(cut, self._extents(), children)

    def limited(
        self, ends: Mapping[str, Position], cut: Mapping[str, Position], children: Mapping[str, Child] = NO_CHILDREN
    ) -> dict[str, Position]:
        """Return the least cut at or above `ends` that keeps the rules of `whole`. `cut`: what `whole` returned last. If this
        reader is `incomplete`, return `cut`.
        """
        if self.incomplete:
            self._complete_at = dict(cut)
            return dict(cut)
        return least_whole_cut(ends, cut, self._extents(), children)

    def forget_segments(self, names: AbstractSet[str]) -> None:
        """Forget what was sent to segments that were deleted."""
        for txn, sent in list(self._sent.items()):
            if not names.isdisjoint(sent.segments):
                left = {name: places for name, places in sent.segments.items() if name not in names}
                self._sent[txn] = Sent(txn, left)

    def forget_to(self, start: Mapping[str, Position], ended: AbstractSet[str] = NONE_ENDED) -> None:
        """Forget the transactions that lie at or below `start` in all their segments. All later reads must begin at or above
        `start`. `ended`: segments that are read to their ends.
        """
        if self._complete_at is not None and all(start.get(name, place) >= place for name, place in self._complete_at.items()):
            self.incomplete, self._complete_at = False, None
        for txn, sent in list(self._sent.items()):
            if _lies_within(sent, start, ended):
                self._forget(txn)

    def needed_after(self, start: Mapping[str, Position], ended: AbstractSet[str] = NONE_ENDED) -> dict[str, Position]:
        """Return, for each segment of the log, the position up to which a read from `start` on needs no record. `ended`: segments
        that are read to their ends.
        """
        found = dict(self._read)
        for txn, sent in self._sent.items():
            segment, place = self._places[txn]
            if not _lies_within(sent, start, ended):
                found[segment] = min(found[segment], Position(place.ledger, place.entry - 1))
        return found

    def _extents(self) -> list[Extent]:
        return [Extent(one.segments) for one in self._sent.values()]

    def _forget(self, txn: TxnId) -> None:
        del self._sent[txn]
        del self._places[txn]
        self._committed.discard(txn)

    def _read_segment(self, segment: str, from_settled: bool) -> None:
        """Read the new records of a segment of the log. With `from_settled`, read the newest records first, until a `Settled` says
        that the older ones are not needed.
        """
        end = upto = self._end(segment, self._read.get(segment, EARLIEST))
        first: Position | None = None
        while upto > (known := self._read.get(segment, EARLIEST)):
            start = max(known, self._earlier(segment, upto)) if from_settled else known
            for place, entry in entries(self._client, segment, start, upto):
                first = place if first is None else min(first, place)
                for message in entry.messages():
                    found = decode(message.value or b"", log_name(self._topic))
                    if isinstance(found, Sent):
                        self._sent[found.txn] = found
                        self._places.setdefault(found.txn, (segment, place))
                    elif isinstance(found, Settled):
                        for name, position in found.after.items():
                            self._settled[name] = max(position, self._settled.get(name, EARLIEST))
                            if from_settled:
                                self._read[name] = max(position, self._read.get(name, EARLIEST))
            upto = start
        known = self._read.get(segment, EARLIEST)
        if known != EARLIEST and first is not None and first > Position(known.ledger, known.entry + 1):
            self._note_first_kept(segment, known)
        self._read[segment] = max(end, known)

    def _note_first_kept(self, segment: str, known: Position) -> None:
        """Note the first record that is kept, if records after `known` may be gone. The subscription of the log (`log_holding`)
        keeps the ledger of the last record that is not needed. So if this ledger is there, no record after it is gone.
        """
        before = Segment(self._client, segment).before_first()
        if before.ledger > known.ledger:
            self._first_kept[segment] = before

    def _earlier(self, segment: str, position: Position) -> Position:
        """Return the position after which the next older records are read: `AT_ONCE` records before `position`, or the end of an
        earlier ledger, or EARLIEST.
        """
        if position.entry >= AT_ONCE:
            return Position(position.ledger, position.entry - AT_ONCE)
        before = Segment(self._client, segment).before(Position(position.ledger, 0))
        return before if before.entry >= 0 and before < position else EARLIEST

    def _end(self, segment: str, start: Position) -> Position:
        """Return the last entry of a segment of the log. Its entries have no transaction, so all of them are decided."""
        for _ in range(TRIES):
            cut = Segment(self._client, segment).cut(start)
            if cut.whole:
                if start != EARLIEST and cut.position < cut.last:
                    self._note_first_kept(segment, start)
                return cut.position
        raise TimedOut(
            f"{segment}: the broker did not deliver the entries up to {cut.last.text}.",
            advice="Only txnsegment may write to this topic, without transactions. Try again if the broker was slow.",
        )

    def _drop_aborted(self, cut: Mapping[str, Position]) -> None:
        """Drop the aborted transactions that the cut splits. Readers never get their rows, so the cut need not be lowered for
        them.
        """
        for txn, sent in list(self._sent.items()):
            begun = {name: first for name, (first, _) in sent.segments.items() if name in cut and first <= cut[name]}
            complete = all(last <= cut[name] for name, (_, last) in sent.segments.items() if name in cut)
            if not begun or complete or txn in self._committed:
                continue
            name, first = next(iter(begun.items()))
            found = Segment(self._client, name).first_after(Position(first.ledger, first.entry - 1))
            if found.position == first:
                self._committed.add(txn)
            else:
                self._forget(txn)


def _lies_within(sent: Sent, start: Mapping[str, Position], ended: AbstractSet[str]) -> bool:
    return all(name in ended or (name in start and last <= start[name]) for name, (_, last) in sent.segments.items())
