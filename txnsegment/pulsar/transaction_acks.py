"""`TransactionAcks`: the acknowledgements that one transaction of a Spark program has for one subscription of a topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack

from ledgers.errors import TxnSegmentError
from metadata.common.errors import AckConflict
from metadata.records.row_ranges import FIRST, NONE, before, common
from pulsar_protocol import succession
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Cut, Segment
from pulsar_protocol.layout import EARLIEST, Layout, Position
from pulsar_protocol.rest import admin_url
from pulsar_protocol.subscription import Subscription, all_but
from spark_txn_sink.pulsar.log_records import Outcome
from spark_txn_source.pulsar.asking import each
from spark_txn_source.pulsar.topics import layout
from txnsegment.pulsar.ack_log import CHECKPOINT_EVERY, AckLog
from txnsegment.pulsar.ack_records import WHOLE, Positions, RowsBySegment, State, beginning, joined
from txnsegment.pulsar.ending import Owner
from txnsegment.pulsar.feeding import offset_after

log = logging.getLogger("txnsegment.transaction.pulsar")
Claim = tuple[RowsBySegment, Positions | None]
"""Rows to acknowledge, and `State.sent` after them, if all rows are read."""


class TransactionAcks:
    """A `Participant`: it takes part in the commit of its transaction. It owns the log of the subscription, as a consumer does,
    from its making to the end of the transaction. So the subscription has no other reader in this time, and what is unacknowledged
    stays so. After the commit the cursors of the broker follow.
    """

    def __init__(self, client: PulsarClient, acks: AckLog, topic: str, subscription: str) -> None:
        """`acks`: the log of acknowledgements of the subscription. The log has a record that the subscription exists. This object
        closes the log.
        """
        self._client, self._acks = client, acks
        self.service_url = client.url
        self.topic, self.subscription = topic, subscription
        self._cursors = Subscription(client, topic, subscription, admin_url())
        self.claimed: RowsBySegment = {}
        """The rows that the commit will acknowledge."""
        self._sent: Positions | None = None
        self._written: Claim = {}, None
        """What the transaction acknowledges. Nothing is added after it was written into the log."""
        self._conflict: AckConflict | None = None
        self._closed = False

    def state(self) -> State:
        """Return what is acknowledged. Raises TakenOver, SubscriptionBusy, the broker's error."""
        return self._acks.state()

    def hold(self, segments: tuple[str, ...]) -> None:
        """Let the subscription keep the unread entries of these segments from retention."""
        self._cursors.hold([*segments])

    def check_unclaimed(self, rows: RowsBySegment) -> None:
        """Raise AckConflict if this transaction acknowledges some of the rows already."""
        for segment, found in rows.items():
            for row, _ in common(found, self.claimed.get(segment, NONE))[:1]:
                raise AckConflict(
                    f"The transaction acknowledges rows of {segment} from {':'.join(map(str, row))} on already, for the "
                    f"subscription {self.subscription!r} of {self.topic}.",
                    advice="Read a subscription once in a transaction, and acknowledge each row once.",
                )

    def claim(self, rows: RowsBySegment, sent: Positions | None = None) -> None:
        """Acknowledge rows with the commit. The transaction must not acknowledge them already (`check_unclaimed`). `sent`: see
        `State`, if all rows are read.
        """
        self.claimed = joined(self.claimed, rows)
        self._sent = sent

    def refuse(self, conflict: AckConflict) -> None:
        """Let the commit raise this error, unless the version of the transaction was committed before. (If it was, its
        acknowledgements were committed with it, and the repetition commits nothing.)
        """
        self._conflict = self._conflict or conflict

    def acknowledge_now(self, rows: RowsBySegment) -> None:
        """Acknowledge positions that have no rows, without a transaction, and let the cursors follow."""
        self._acks.acknowledge(rows)
        self._settle(rows, None)

    # --- the transaction calls these ---

    def begun(self, txn: TxnId) -> None:
        self._acks.begin(txn)

    def prepare(self, owner: Owner, txn: TxnId) -> None:
        if self._conflict is not None:
            raise self._conflict
        self._written = self.claimed, self._sent
        self._acks.prepare(txn, self.claimed)

    def ended(self, owner: Owner, txn: TxnId | None, outcome: Outcome | None) -> None:
        """Take note of how the transaction ended, and give the subscription free."""
        try:
            if txn is not None:
                self._acks.ended(txn, self._written[0], outcome)
            if outcome == "committed":
                self._settle(*self._written)
        finally:
            self.close()

    def _settle(self, rows: RowsBySegment, sent: Positions | None) -> None:
        """Let the cursors follow. An error is only logged, because the log has the acknowledgements. A later transaction or
        consumer of the subscription moves the cursors.
        """
        try:
            self._follow(rows, sent)
        except TxnSegmentError as error:
            log.warning("the cursors of %s of %s were not moved: %s", self.subscription, self.topic, error.message)

    def _follow(self, rows: RowsBySegment, sent: Positions | None) -> None:
        """Let the cursors follow the acknowledgements in the segments of `rows`, and write a checkpoint into the log if one is due.
        With a checkpoint the cursors follow in all segments, also if an earlier program was killed before it moved them. Then let
        the cursors pass the segments that are left behind. The log gets a record of these first, because the broker may delete
        them.
        """
        found, state = layout(self._client, self.topic), self._acks.state()
        names = {one.name for one in found.segments.values()}
        due = state.records >= CHECKPOINT_EVERY
        self._move(state, names if due else names & rows.keys())
        kept = {name: mine for name, mine in state.rows.items() if name in names or beginning(mine) < WHOLE}
        self._acks.checkpoint(kept, state.sent if sent is None else sent)
        if over := left_behind(self._client, found, self._acks.state(), rows):
            self._acks.acknowledge(dict.fromkeys(over, before(WHOLE)))
            self._move(self._acks.state(), over)

    def _move(self, state: State, segments: Iterable[str]) -> None:
        """Move the cursors of these segments to what is acknowledged."""
        ends = {name: beginning(state.rows.get(name, NONE)) for name in segments}
        places = {name: Position(end.ledger_id, end.entry_id - 1) for name, end in ends.items() if FIRST < end < WHOLE}
        places = {name: all_but(place) for name, place in places.items() if place.entry >= 0}
        whole = [name for name, end in ends.items() if end >= WHOLE]
        places |= each(whole, lambda name: Segment(self._client, name).last())
        self._cursors.acknowledge(places)

    def close(self) -> None:
        """Give the subscription free. Idempotent."""
        if not self._closed:
            self._closed = True
            with ExitStack() as both:  # closes both, although one may raise
                both.callback(self._acks.close)
                both.callback(self._cursors.close)


def left_behind(client: PulsarClient, found: Layout, state: State, rows: RowsBySegment) -> frozenset[str]:
    """Return the sealed segments that no program needs any more, without those of which the log says so. All rows of such a segment
    were acknowledged before, and a transaction has acknowledged `rows` of its descendants. `found`: the layout of the topic.
    `state`: what is acknowledged.

    A stream that gives its micro-batches to `txn.acknowledge_rows` may still read a segment, or look for its end, until it has read
    a row of a descendant in a later micro-batch. Until then the broker must not delete the segment.
    """
    offset = offset_after(found.topic, state.rows, state.sent)
    above = {name for one in found.segments.values() if one.name in rows for name in succession.ancestors(found, one)}
    ended, cuts = offset.ended, dict[str, Cut]()

    def has_ended(name: str) -> bool:
        return Segment(client, name).ends_at(offset.segments.get(name, EARLIEST))

    while asked := {one.name for one in succession.readable(found, ended)} & above - rows.keys() - cuts.keys():
        for name, is_over in each(asked, has_ended).items():
            place = offset.segments.get(name, EARLIEST)
            cuts[name] = Cut(place, place, whole=is_over, sealed=True)
        ended = succession.ended_at(found, ended, offset.segments, cuts)
    return ended - offset.ended
