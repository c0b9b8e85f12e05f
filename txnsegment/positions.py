"""The acknowledgements of a transaction: of everything that a subscription has not acknowledged, or of the rows of a DataFrame."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import SchemaError
from metadata.read.backlog import extent, pending, taken
from metadata.read.reading import Reading, Selection
from metadata.read.segment_view import SegmentView
from metadata.records.names import is_persistent
from metadata.records.row_ranges import FIRST, Row, Rows, Span, minus, rows, texts, union
from metadata.rules.acks import Ack
from metadata.topics.subscriptions import checked
from spark_txn_source.acked import acknowledged
from spark_txn_source.options import ReadOptions
from spark_txn_source.persistent import Range, position
from spark_txn_source.persistent import read_batch as read_marker_based
from spark_txn_source.plan import read_batch


@dataclass(frozen=True)
class Unread:
    """The unacknowledged rows of a subscription: rows with start < number <= end, without those in `done` (by segment).

    `acks`: acknowledgements of exactly these rows. `ranges`: the same for marker-based topics, each of which has a log of its
    own.
    """

    start: int
    end: int
    done: Mapping[str, Rows]
    acks: list[Ack]
    ranges: tuple[Range, ...] = ()

    def options(self) -> dict[str, str]:
        """The options with which a batch read returns exactly these rows, independent of later movements of the cursor."""
        kept = {name: texts(found) for name, found in sorted(self.done.items()) if found}
        starts = {one.reading.name: str(position(one.reading, one.start)) for one in self.ranges}
        ends = {one.reading.name: str(position(one.reading, one.end)) for one in self.ranges}
        start, end = (json.dumps({"log": number} | found) for number, found in ((self.start, starts), (self.end, ends)))
        return {"startingOffsets": start, "endingOffsets": end, "acknowledged": json.dumps(kept)}


def unread(client: Client, options: ReadOptions) -> Unread:
    """The unacknowledged rows up to the cut of now; `options` name the topics and the subscription. Raises what `read_batch`
    raises.
    """
    assert options.subscription is not None
    reading, start, end, done = read_batch(client, options)
    acks = []
    for segment in reading.segments:
        acked = done[segment.name]
        ledgers = [ledger for ledger, _ in pending(segment, acked, start, end)]
        if (ack := taken(segment.name, options.subscription, acked, ledgers)) is not None:
            acks.append(ack)
    ranges = read_marker_based(client, options, reading)
    for one in ranges:
        if (ack := taken(one.reading.name, options.subscription, one.done, one.left())) is not None:
            acks.append(ack)
    return Unread(start, end, {**done, **{one.reading.name: one.done for one in ranges}}, acks, ranges)


_COLUMNS = ("__segment", "__messageId")


def acks_of(client: Client, df: DataFrame, subscription: str) -> list[Ack]:
    """The acknowledgements of a DataFrame's rows, one for each segment.

    Each acknowledgement also covers the positions between and around these rows at which no visible row is unacknowledged. So
    acknowledgements of consecutive rows join in the cursor. Raises SchemaError (the metadata columns are missing),
    TopicNotFound, SubscriptionNotFound.
    """
    missing = [name for name in _COLUMNS if name not in df.columns]
    if missing:
        raise SchemaError(
            f"The rows cannot be acknowledged: the DataFrame has no column {' and '.join(missing)}.",
            advice="Read the rows with includeMetadata=true, and keep these columns.",
        )
    name = checked(subscription)
    found = {segment: rows(spans) for segment, spans in sorted(_spans(df).items())}
    if not found:
        return []
    made = []
    for reading in _readings(client, found):
        done = acknowledged(client, reading, name)
        made += [Ack(view.name, name, closed(view, found[view.name], done[view.name])) for view in reading.segments]
    return made


def _readings(client: Client, names: Collection[str]) -> Iterator[Reading]:
    """One reading for all `topic://` segments, which share a log, and one for each marker-based topic."""
    segments = tuple(name for name in names if not is_persistent(name))
    if segments:
        yield client.buffer.read(Selection(segments))
    for name in names:
        if is_persistent(name):
            yield Providers(client).of([name]).buffer.read(name)


def _spans(df: DataFrame) -> dict[str, list[Span]]:
    """Runs of consecutive rows of an entry, by segment. Runs a Spark job."""
    position = F.split("__messageId", ":")
    parts = [position.getItem(i).cast("long").alias(part) for i, part in enumerate(("ledger", "entry", "row"))]
    entry = ("__segment", "ledger", "entry")
    run = F.col("row") - F.row_number().over(Window.partitionBy(*entry).orderBy("row"))
    placed = df.select("__segment", *parts).withColumn("run", run)
    spans: dict[str, list[Span]] = defaultdict(list)
    for one in placed.groupBy(*entry, "run").agg(F.min("row").alias("first"), F.max("row").alias("last")).collect():
        first = Row(one["ledger"], one["entry"], one["first"])
        spans[one["__segment"]].append((first, first._replace(batch_index=one["last"] + 1)))
    return spans


def closed(segment: SegmentView, found: Rows, done: Rows) -> Rows:
    """`found` (rows of this segment), extended over neighbouring positions without a visible unacknowledged row. Of `done`
    (acknowledged rows) only those that are also in `found` are returned.
    """
    both, first, end = union(found, done), found[0][0], found[-1][1]
    number = segment.number(end.ledger_id)
    for ledger in segment.ledgers(number - 1, number):
        sizes = [size for part in ledger.parts for size in part.entries]
        if end.batch_index == sizes[end.entry_id]:
            end = Row(end.ledger_id, end.entry_id + 1, 0)
    if next(pending(segment, both, 0, segment.number(first.ledger_id)), None) is None:
        first = FIRST  # no unacknowledged row precedes it
    remaining = rows(_remaining(segment, both, found[0][0].ledger_id - 1, end.ledger_id))
    return union(minus(minus(((first, end),), remaining), done), found)


def _remaining(segment: SegmentView, done: Rows, after: int, through: int) -> Iterator[Span]:
    """The visible rows that are not in `done`, of the ledgers after `after` up to `through`."""
    for ledger, remaining in pending(segment, done, segment.number(after), segment.number(through)):
        if remaining is None:
            yield extent(ledger)[0]
            continue
        bases = [0, *accumulate(len(part.entries) for part in ledger.parts)]
        for one in remaining:
            entry = bases[one.part] + one.entry
            end = Row(ledger.id, entry + 1, 0) if one.stop == one.of else Row(ledger.id, entry, one.stop)
            yield Row(ledger.id, entry, one.first), end
