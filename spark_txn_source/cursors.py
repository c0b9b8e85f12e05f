"""The cursors of a stream's subscription. They give the start of the stream and its lag, and the commits of the stream move them
(protocol.md section 6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from metadata.client.client import Client
from metadata.client.logs import Logs, where_now
from metadata.client.providers import Providers
from metadata.common.errors import AckConflict, OptionError, SubscriptionExists
from metadata.read.backlog import Lag, first_pending, lag, measure, pending, total
from metadata.read.reading import Reading
from metadata.read.selection import LOG, Earliest, Pattern, Position, selection_of
from metadata.records.names import topic_of
from metadata.records.row_ranges import NONE, Row, Rows, before, end_of, minus, texts, through_ledger, union
from metadata.rules.acks import up_to
from spark_txn_source.acked import acked_when_planned, acknowledged, first_unacknowledged_ledger, last_ledger, ledger_at
from spark_txn_source.log_ranges import NOTHING, deleted_to
from spark_txn_source.losses import check_cursors, known_trims
from spark_txn_source.offsets import StreamOffset
from spark_txn_source.options import ReadOptions


class StreamCursors:
    """The cursors of one stream's subscription, in the process that plans the stream. `client`: a function that returns the client
    of this process.
    """

    def __init__(self, client: Callable[[], Client], options: ReadOptions, subscription: str) -> None:
        self._client, self._options, self._selection, self.subscription = client, options, options.selection, subscription
        self._joined: dict[str, set[int]] = {}
        self._acked_to: dict[str, int] = {}

    def start(self, readings: Sequence[Reading]) -> StreamOffset:
        """Return the start offset. In each log the stream starts right before the first unacknowledged row. The offset's field
        `acked` has the acknowledged rows above this start.
        """
        self.join(readings)
        places: dict[str, Position] = {}
        beyond: dict[str, Rows] = {}
        known, trims = 0, dict[str, int]()
        for reading in readings:
            done = acknowledged(self._client(), reading, self.subscription)
            if self._options.fail_on_data_loss:
                check_cursors(reading, done, self.subscription)
            number = reading.before_lost(first_pending(reading, done, reading.cut))
            places[reading.log] = reading.position(number)
            beyond |= {s.name: minus(done[s.name], before(end_of(s.ledger_id(number)))) for s in reading.segments}
            known = max(known, deleted_to(reading, Earliest(), None))
            trims |= known_trims(reading, self._options.start, cursors=True)
        acked = tuple((segment, tuple(texts(rows))) for segment, rows in sorted(beyond.items()) if rows)
        found = StreamOffset(0, self._selection.key, known, acked, trims).moved(places)
        return dataclasses.replace(found, acked_to=found.numbers())

    def join(self, readings: Sequence[Reading]) -> None:
        """Create the subscription, at the first row, on each topic that the pattern matches and that the previous call did not see.
        A topic that was deleted and created again counts as not seen, because it has none of its former segments. For a read
        with names in place of a pattern, do nothing.
        """
        there = {str(topic.name): topic for reading in readings for topic in reading.topics}
        segments = {name: {info.segment_id for info in topic.layout.kept()} for name, topic in there.items()}
        met, self._joined = self._joined, segments
        if isinstance(self._selection, Pattern):
            for name in sorted(segments):
                if name in met and (segments[name] == met[name] or segments[name] & met[name]):
                    continue
                with suppress(SubscriptionExists):  # another query has just created the subscription
                    Providers(self._client()).subscribe(there[name].name, self.subscription, at=0)

    def check_added(self, readings: Sequence[Reading], offset: StreamOffset) -> bool:
        """Check that the subscription has acknowledged all rows that a restarted query skips. Otherwise the query's commits would
        acknowledge rows that the query never reads.

        A restarted stream continues at its offset, so it skips rows at or below the offset. This method checks these rows in the
        `topic://` topics that the restart added (`topicsChanged=continue`), and in all topics if the restart uses another
        subscription. With another subscription the stream also skips the rows in the offset's field `acked`.

        Return False while a transaction at or below the offset is undecided, because it may yet add skipped rows. Raises
        OptionError if the subscription that the query uses now has not acknowledged a skipped row.
        """
        before = selection_of(offset.read)
        if before is None:
            return True
        numbers = offset.numbers()
        added = [(one, segment, numbers[one.log]) for one in readings if one.log in numbers for segment in one.segments]
        left_out: Mapping[str, Rows] = NOTHING
        older_version = offset.cluster is None  # offsets of older versions of txnsegment do not name the subscription
        if offset.subscription == self.subscription or older_version:
            if offset.read == self._selection.key:
                return True
            begun = {*Logs(self._client(), before).successors()}
            # Only `topic://` topics have to be checked. The offset has an entry for the log of a persistent topic only if the
            # stream has read that topic.
            added = [
                (one, segment, number)
                for one, segment, number in added
                if one.log == LOG and segment.topic.name not in begun and not before.covers(segment.name, segment.topic.name)
            ]
        else:
            left_out = offset.done()
        for reading, segment, number in added:
            done = acknowledged(self._client(), reading, self.subscription)[segment.name]
            wanted = union(through_ledger(segment.ledger_id(number)), left_out.get(segment.name, NONE))
            if first_unacknowledged_ledger(segment, done, wanted) is not None:
                through = max(number, segment.number(last_ledger(wanted)))
                there, to = where_now(self._client(), segment.topic, through)
                why = "the stream's offset" if through == number else "among rows that its former subscription acknowledged"
                raise OptionError(
                    f"{self.subscription!r} has unacknowledged rows of {segment.topic.name} at or below {through}, {why}. "
                    "The stream would acknowledge them without having read them.",
                    advice="Use a new checkpoint location: it starts at the first unacknowledged row. Or give the rows up: "
                    f"txnsegment subscriptions seek {there} {self.subscription} --to {to}",
                )
        return all(reading.cut >= number for reading, _, number in added)

    def lag(self, readings: Sequence[Reading], reached: StreamOffset) -> Lag:
        """Return the lag of the query, and set the lag metrics of its topics. Rows that the query has read count as acknowledged,
        although the cursors move over these rows only with the next batch.
        """
        found: dict[str, Lag] = {}
        for reading in readings:
            done = acknowledged(self._client(), reading, self.subscription)
            read = {s.name: before(end_of(s.ledger_id(reached.number(reading.log)))) for s in reading.segments}
            lags = {s.name: lag(reading, s, union(done[s.name], read[s.name]), reading.cut) for s in reading.segments}
            for topic in reading.topics:
                measure(str(topic.name), self.subscription, total({s: one for s, one in lags.items() if topic_of(s) == topic.name}))
            found |= lags
        return total(found)

    def commit(self, to: StreamOffset, readings: Sequence[Reading]) -> None:
        """Acknowledge the rows of the batch that ends at `to`. Idempotent. Raises the errors of `StreamReader.commit`."""
        self.join(readings)
        ends: dict[str, Row] = {}
        numbers, acked_to = to.numbers(), self._acked_before(to)
        # Topics without a reading were deleted, or migrated and trimmed, and have no cursor any more. A persistent topic without a
        # position in `to` was not read by the batch, so none of its rows are acknowledged.
        for reading in readings:
            done = acknowledged(self._client(), reading, self.subscription)
            through = {one.name: ledger_at(one, numbers, reading.log) for one in reading.segments}
            if acked_to:
                beyond = {one.name: to.acked_beyond(one.name) for one in reading.segments}
                were = {
                    s.name: union(through_ledger(ledger_at(s, acked_to, reading.log)), beyond[s.name]) for s in reading.segments
                }
                self._check_not_moved_back(reading, done, were, through)
            for segment in reading.segments:
                for ledger, _ in pending(segment, done[segment.name], 0, segment.number(through[segment.name])):
                    # The acknowledgement ends right after the last row of the ledger. It does not cover the empty positions that
                    # follow, because a consumer's acknowledgement of the next row begins with these positions.
                    ends[segment.name] = end_of(ledger.id, ledger.last_entry)
        Providers(self._client()).advance(up_to(name, self.subscription, row) for name, row in sorted(ends.items()))
        # A persistent topic that is not read now keeps its position in the offset, but its rows were not acknowledged up to that
        # position.
        there = {reading.log for reading in readings}
        self._acked_to = {log: numbers[log] if log in there else acked_to.get(log, 0) for log in numbers}

    def _check_not_moved_back(
        self, reading: Reading, done: Mapping[str, Rows], were: Mapping[str, Rows], ends: Mapping[str, int]
    ) -> None:
        """Raise AckConflict if rows that were acknowledged when the batch was planned (`were`) are not acknowledged any more
        (`done`). `ends`: the id of the last ledger of the batch. `done`, `were` and `ends` have one value for each segment.
        """
        for segment in reading.segments:
            found = first_unacknowledged_ledger(segment, done[segment.name], were[segment.name])
            if found is None:
                continue
            topic = segment.topic.name
            others = [one for one in reading.segments if one.topic.name == topic]
            to = max(one.number(max(ends[one.name], last_ledger(were[one.name]))) for one in others)
            there, to = where_now(self._client(), segment.topic, to)
            raise AckConflict(
                f"The subscription {self.subscription!r} of {topic} was moved back, or deleted and made again, while this query "
                f"used it: rows of {segment.name} at {segment.number(found.id)} were acknowledged, and are unacknowledged again. "
                "The query does not read them again. Nothing was acknowledged.",
                advice="Use a new checkpoint location: it starts at the first unacknowledged row. Or give the rows up: txnsegment "
                f"subscriptions seek {there} {self.subscription} --to {to}",
            )

    def _acked_before(self, offset: StreamOffset) -> Mapping[str, int]:
        """Return, for each log, a number up to which all rows were acknowledged. After a commit by this process the number is the
        end of the committed batch. Before the first commit it is the number that was known when `offset` was planned.
        """
        if self._acked_to:
            return self._acked_to
        return acked_when_planned(self._client(), offset)

    def acked_now(self, readings: Sequence[Reading], offset: StreamOffset) -> Mapping[str, int]:
        """Return, for each log, the number up to which all rows are acknowledged when a batch is planned after `offset`.

        After a commit the process knows this number. Before its first commit it reads the cursors. (A process that runs a single
        batch always reads them.)
        """
        known = self._acked_before(offset)
        if self._acked_to:
            return known
        numbers, found = offset.numbers(), dict(known)
        for reading in readings:
            if reading.log in numbers:
                first = first_pending(reading, acknowledged(self._client(), reading, self.subscription), numbers[reading.log])
                found[reading.log] = max(first, known.get(reading.log, 0))
        return found
