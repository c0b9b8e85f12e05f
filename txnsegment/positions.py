"""What a transaction acknowledges: what a subscription has still to get, or the rows of a DataFrame by its metadata columns."""

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
from spark_txn_source.persistent import read_batch as read_older
from spark_txn_source.plan import read_batch


@dataclass(frozen=True)
class Unread:
    """What a subscription has still to get of a read: rows with start < number <= end but for those in `done` (by segment), and
    the acks of all of them. `ranges`: of persistent topics, each of which has a log of its own.
    """

    start: int
    end: int
    done: Mapping[str, Rows]
    acks: list[Ack]
    ranges: tuple[Range, ...] = ()

    def options(self) -> dict[str, str]:
        """What makes a batch read give exactly these rows, whatever becomes of the cursor meanwhile."""
        kept = {name: texts(found) for name, found in sorted(self.done.items()) if found}
        starts = {one.reading.name: str(position(one.reading, one.start)) for one in self.ranges}
        ends = {one.reading.name: str(position(one.reading, one.end)) for one in self.ranges}
        start, end = (json.dumps({"log": number} | found) for number, found in ((self.start, starts), (self.end, ends)))
        return {"startingOffsets": start, "endingOffsets": end, "acknowledged": json.dumps(kept)}


def unread(client: Client, options: ReadOptions) -> Unread:
    """As of now; `options` name the subscription. Raises what `read_batch` raises."""
    assert options.subscription is not None
    reading, start, end, done = read_batch(client, options)
    acks = []
    for segment in reading.segments:
        acked = done[segment.name]
        ledgers = [ledger for ledger, _ in pending(segment, acked, start, end)]
        if (ack := taken(segment.name, options.subscription, acked, ledgers)) is not None:
            acks.append(ack)
    ranges = read_older(client, options, reading)
    for one in ranges:
        if (ack := taken(one.reading.name, options.subscription, one.done, one.left())) is not None:
            acks.append(ack)
    return Unread(start, end, {**done, **{one.reading.name: one.done for one in ranges}}, acks, ranges)


_COLUMNS = ("__segment", "__messageId")


def acks_of(client: Client, df: DataFrame, subscription: str) -> list[Ack]:
    """One ack for each segment: exactly these rows, and what lies between them where nothing is visible, so that the acks of rows
    that follow each other grow together in the cursor.

    Raises SchemaError (no metadata columns), TopicNotFound, SubscriptionNotFound.
    """
    missing = [name for name in _COLUMNS if name not in df.columns]
    if missing:
        raise SchemaError(
            f"These rows have no column {' and '.join(missing)}, which says where they come from.",
            advice="Read them with includeMetadata=true and keep its columns.",
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
    """One of all segments of topic://, whose log is one, and one of each persistent topic."""
    segments = tuple(name for name in names if not is_persistent(name))
    if segments:
        yield client.buffer.read(Selection(segments))
    for name in names:
        if is_persistent(name):
            yield Providers(client).of([name]).buffer.read(name)


def _spans(df: DataFrame) -> dict[str, list[Span]]:
    """Runs of consecutive rows of an entry, by segment."""
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
    """`found` (rows of this segment) with the gaps around them in which nothing is visible; of what is `done` only `found`."""
    both, first, end = union(found, done), found[0][0], found[-1][1]
    number = segment.number(end.ledger_id)
    for ledger in segment.ledgers(number - 1, number):
        sizes = [size for part in ledger.parts for size in part.entries]
        if end.batch_index == sizes[end.entry_id]:
            end = Row(end.ledger_id, end.entry_id + 1, 0)
    if next(pending(segment, both, 0, segment.number(first.ledger_id)), None) is None:
        first = FIRST  # nothing before is left
    left = rows(_left(segment, both, found[0][0].ledger_id - 1, end.ledger_id))
    return union(minus(minus(((first, end),), left), done), found)


def _left(segment: SegmentView, done: Rows, after: int, through: int) -> Iterator[Span]:
    """The visible rows that are not in `done`."""
    for ledger, left in pending(segment, done, segment.number(after), segment.number(through)):
        if left is None:
            yield extent(ledger)[0]
            continue
        bases = [0, *accumulate(len(part.entries) for part in ledger.parts)]
        for one in left:
            entry = bases[one.part] + one.entry
            end = Row(ledger.id, entry + 1, 0) if one.stop == one.of else Row(ledger.id, entry, one.stop)
            yield Row(ledger.id, entry, one.first), end
