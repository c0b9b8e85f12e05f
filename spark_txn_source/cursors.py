"""A stream's side of its subscription: where it begins, what its commits acknowledge, and what is left (protocol.md section 6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import OptionError, SubscriptionExists
from metadata.read.backlog import Lag, first_pending, lag, measure, pending, total
from metadata.read.reading import Reading
from metadata.records.names import topic_of
from metadata.records.row_ranges import NONE, Row, Rows, before, end_of, minus, texts, union
from metadata.rules.acks import up_to
from spark_txn_source import persistent
from spark_txn_source.acked import acknowledged, first_left, last_ledger, ledger_at, upto
from spark_txn_source.losses import NOTHING, check_cursors, known_trims
from spark_txn_source.offsets import StreamOffset
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import (
    check_not_moved_back,
    deleted_to,
)
from spark_txn_source.selection import Earliest, Pattern, selection_of
from spark_txn_source.topics import onward, reads_log

if TYPE_CHECKING:
    from metadata.instream.reading import TopicReading


class StreamCursors:
    """The cursors of one stream's subscription, in the process that plans the stream. `client`: opens the process's client."""

    def __init__(self, client: Callable[[], Client], options: ReadOptions, subscription: str) -> None:
        self._client, self._options, self._selection, self.subscription = client, options, options.selection, subscription
        self._joined: dict[str, set[int]] = {}
        self._acked_to: dict[str, int] = {}

    def start(self, reading: Reading, topics: Sequence[TopicReading]) -> StreamOffset:
        """The start offset: before the first row that is not acknowledged. It carries the acknowledged ranges above it."""
        self.join(reading, topics)
        done = acknowledged(self._client(), reading, self.subscription)
        number = reading.cluster.before_lost(first_pending(reading, done, reading.cut))
        beyond = {s.name: minus(done[s.name], before(end_of(s.ledger_id(number)))) for s in reading.segments}
        positions = {}
        for one in topics:
            at, rows = persistent.at_cursor(self._client(), one, self.subscription, one.cut, fail=self._options.fail_on_data_loss)
            positions[one.name] = persistent.position(one, at)
            beyond[one.name] = minus(rows, before(end_of(at)))
        acked = tuple((segment, tuple(texts(rows))) for segment, rows in sorted(beyond.items()) if rows)
        if self._options.fail_on_data_loss:
            check_cursors(reading, done, self.subscription)
        known = deleted_to(reading, Earliest(), self._options.end)
        trims = known_trims(reading, self._options.start, cursors=True)
        found = StreamOffset(number, self._selection.key, known, acked, trims, positions)
        return dataclasses.replace(found, acked_to=found.numbers())

    def join(self, reading: Reading, topics: Sequence[TopicReading]) -> None:
        """Of a pattern: topics that this query meets for the first time get the subscription, at their first row. So do those that
        were deleted and made again, which have none of the segments that they had.
        """
        there = {str(topic.name): topic for topic in [*reading.topics, *map(persistent.topic, topics)]}
        segments = {name: {info.segment_id for info in topic.layout.kept()} for name, topic in there.items()}
        met, self._joined = self._joined, segments
        if isinstance(self._selection, Pattern):
            for name in sorted(segments):
                if name in met and (segments[name] == met[name] or segments[name] & met[name]):
                    continue
                with suppress(SubscriptionExists):  # another query beside us has just made it
                    Providers(self._client()).subscribe(there[name].name, self.subscription, at=0)

    def check_added(self, reading: Reading, topics: Sequence[TopicReading], offset: StreamOffset) -> bool:
        """What a restart adds starts where the stream stands: topics (`topicsChanged=continue`), or the subscription itself. Raises
        OptionError if the subscription has rows of it left that this query would acknowledge and never give out: below, or among
        those that the stream leaves out, since its earlier subscription had acknowledged them. False: nobody knows yet, since not
        all is decided there.
        """
        before = selection_of(offset.read)
        if before is None:
            return True
        added = [(reading, segment, offset.log) for segment in reading.segments]
        left_out: Mapping[str, Rows] = NOTHING
        if offset.subscription == self.subscription or offset.cluster is None:  # (an older version did not say which it was)
            if offset.read == self._selection.key:
                return True
            begun = set(onward(self._client(), before))
            added = [one for one in added if one[1].topic.name not in begun and not before.covers(one[1].name, one[1].topic.name)]
        else:
            views = [(persistent.view(one), offset.number(one.name)) for one in topics if one.name in offset.positions]
            added += [(view, segment, number) for view, number in views for segment in view.segments]
            left_out = offset.done()
        for view, segment, number in added:
            done = acknowledged(self._client(), view, self.subscription)[segment.name]
            wanted = union(upto(segment.ledger_id(number)), left_out.get(segment.name, NONE))
            if first_left(segment, done, wanted) is not None:
                through = max(number, segment.number(last_ledger(wanted)))
                to = through if view is reading else "latest"
                why = "where the stream stands" if through == number else "and the stream leaves out what another one acknowledged"
                raise OptionError(
                    f"{self.subscription!r} has rows of {segment.topic.name} left at or below {through}, {why}. It "
                    "began without them, so they would be acknowledged without having been read.",
                    advice="Use a new checkpoint location: it starts at the first row that is left. Or give the rows up: "
                    f"txnsegment subscriptions seek {segment.topic.name} {self.subscription} --to {to}",
                )
        return not added or reading.cut >= offset.log or not reads_log(reading)

    def lag(self, reading: Reading, topics: Sequence[TopicReading], reached: StreamOffset) -> Lag:
        """What this query has still to get for its subscription: what it has read already counts as done, though the cursor follows
        only with the next batch."""
        found: dict[str, Lag] = {}
        views = [(reading, reached.log), *((persistent.view(one), reached.number(one.name)) for one in topics)]
        for view, number in views:
            done = acknowledged(self._client(), view, self.subscription)
            read = {s.name: before(end_of(s.ledger_id(number))) for s in view.segments}
            lags = {s.name: lag(view, s, union(done[s.name], read[s.name]), view.cut) for s in view.segments}
            for topic in view.topics:
                measure(str(topic.name), self.subscription, total({s: one for s, one in lags.items() if topic_of(s) == topic.name}))
            found |= lags
        return total(found)

    def commit(self, to: StreamOffset, reading: Reading, topics: Sequence[TopicReading]) -> None:
        """Move the cursors behind the batch that ends at `to`. Idempotent. Raises as `StreamReader.commit` does."""
        self.join(reading, topics)
        ends: dict[str, Row] = {}
        numbers, acked_to = to.numbers(), self._acked_before(to)
        # (A topic that was migrated, or deleted, and let go since has no cursor any more.)
        # (A persistent topic without a position was not read: its log is not the one that `to.log` counts.)
        views = self._views(reading, topics)
        for log, shown in views.items():
            done = acknowledged(self._client(), shown, self.subscription)
            through = {one.name: ledger_at(one, numbers, log) for one in shown.segments}
            if acked_to:
                beyond = {one.name: to.acked_beyond(one.name) for one in shown.segments}
                were = {one.name: union(upto(ledger_at(one, acked_to, log)), beyond[one.name]) for one in shown.segments}
                check_not_moved_back(self._client(), shown, done, were, through, subscription=self.subscription)
            for segment in shown.segments:
                for ledger, _ in pending(segment, done[segment.name], 0, segment.number(through[segment.name])):
                    # Behind the last row, and not behind the empty space after it: that is where acks of consumers begin.
                    ends[segment.name] = end_of(ledger.id, ledger.last_entry)
        Providers(self._client()).advance(up_to(name, self.subscription, row) for name, row in sorted(ends.items()))
        # (A persistent topic that is not read now has a position still, and was not acknowledged up to there.)
        self._acked_to = {log: numbers[log] if log in views else acked_to.get(log, 0) for log in numbers}

    @staticmethod
    def _views(reading: Reading, topics: Sequence[TopicReading]) -> dict[str, Reading]:
        """What is read, by the logs that an offset has numbers of."""
        log = {"log": reading} if reads_log(reading) else {}
        return log | {one.name: persistent.view(one) for one in topics}

    def _acked_before(self, offset: StreamOffset) -> Mapping[str, int]:
        """Up to where everything has been acknowledged: by this process, else when the offset was planned."""
        if self._acked_to:
            return self._acked_to
        return acked_when_planned(self._client(), offset)

    def acked_now(self, reading: Reading, topics: Sequence[TopicReading], offset: StreamOffset) -> Mapping[str, int]:
        """Up to where everything is acknowledged when a batch is planned after `offset`. A run that has not committed yet asks the
        cursors: it may be one of one batch, of which none ever plans after a commit.
        """
        known = self._acked_before(offset)
        if self._acked_to:
            return known
        numbers, found = offset.numbers(), dict(known)
        for log, shown in self._views(reading, topics).items():
            if log in numbers:
                first = first_pending(shown, acknowledged(self._client(), shown, self.subscription), numbers[log])
                found[log] = max(first, known.get(log, 0))
        return found


def acked_when_planned(client: Client, offset: StreamOffset) -> Mapping[str, int]:
    """Up to where everything had been acknowledged when the offset was planned. Of one from before a restore nothing is known,
    since the backup may have the cursors as they were earlier.
    """
    return offset.acked_to if offset.cluster == client.cluster.id else {}
