"""Builds the acknowledgements of a transaction: of all rows that a subscription has not acknowledged, or of a DataFrame's rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from metadata.client.client import Client
from metadata.client.providers import logs_of_segments
from metadata.common.errors import SchemaError
from metadata.read.backlog import all_rows, pending, taken
from metadata.read.segment_view import SegmentView
from metadata.read.selection import LOG, Position, offset_json
from metadata.records.row_ranges import FIRST, Row, Rows, Span, minus, rows, texts, union
from metadata.rules.acks import Ack
from metadata.topics.subscriptions import checked
from spark_txn_source.acked import acknowledged
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import read_batch


@dataclass(frozen=True)
class Unread:
    """The unacknowledged rows of a subscription, log by log. `acks`: acknowledgements of exactly these rows."""

    ranges: tuple[LogRange, ...]
    acks: list[Ack]

    def options(self) -> dict[str, str]:
        """Return the options with which a batch read returns exactly these rows, independent of later movements of the cursor."""
        done = {name: rows for one in self.ranges for name, rows in one.done.items()}
        kept = {name: texts(found) for name, found in sorted(done.items()) if found}
        places = {LOG: (Position(0, 0), Position(0, 0))} | {one.log: one.places for one in self.ranges}
        start, end = (json.dumps(offset_json({log: both[i] for log, both in places.items()})) for i in (0, 1))
        return {"startingOffsets": start, "endingOffsets": end, "acknowledged": json.dumps(kept)}


def unread(client: Client, options: ReadOptions) -> Unread:
    """Return the unacknowledged rows up to the current cut. `options` name the topics and the subscription. Raises the errors of
    `read_batch`.
    """
    assert options.subscription is not None
    ranges = read_batch(client, options)
    found = [
        taken(segment.name, options.subscription, one.done_of(segment), one.left(segment))
        for one in ranges
        for segment in one.reading.segments
    ]
    return Unread(ranges, [ack for ack in found if ack is not None])


_COLUMNS = ("__segment", "__messageId")


def acks_of(client: Client, df: DataFrame, subscription: str) -> list[Ack]:
    """Return the acknowledgements of a DataFrame's rows, one for each segment.

    Each acknowledgement also covers the neighbouring positions that have no visible unacknowledged row. So acknowledgements of
    consecutive rows join in the cursor. Raises SchemaError (the metadata columns are missing), TopicNotFound, SubscriptionNotFound.
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
    for log in logs_of_segments(client, tuple(found)):
        reading = log.now()
        done = acknowledged(client, reading, name)
        made += [Ack(view.name, name, closed(view, found[view.name], done[view.name])) for view in reading.segments]
    return made


def _spans(df: DataFrame) -> dict[str, list[Span]]:
    """Return the runs of consecutive rows within an entry, by segment. Runs a Spark job."""
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
    """Extend `found` (rows of this segment) over the neighbouring positions that have no visible unacknowledged row. Return the
    result, without the rows of `done` (acknowledged rows) that are not in `found`.
    """
    both, first, end = union(found, done), found[0][0], found[-1][1]
    number = segment.number(end.ledger_id)
    for ledger in segment.ledgers(number - 1, number):
        sizes = [size for part in ledger.parts for size in part.entries]
        if end.batch_index == sizes[end.entry_id]:
            end = Row(end.ledger_id, end.entry_id + 1, 0)
    if next(pending(segment, both, 0, segment.number(first.ledger_id)), None) is None:
        first = FIRST  # no unacknowledged row precedes `found`
    remaining = rows(_remaining(segment, both, found[0][0].ledger_id - 1, end.ledger_id))
    return union(minus(minus(((first, end),), remaining), done), found)


def _remaining(segment: SegmentView, done: Rows, after: int, through: int) -> Iterator[Span]:
    """Yield the visible rows that are not in `done`, of the ledgers with after < id <= through."""
    for ledger, remaining in pending(segment, done, segment.number(after), segment.number(through)):
        if remaining is None:
            yield all_rows(ledger)[0]
            continue
        bases = [0, *accumulate(len(part.entries) for part in ledger.parts)]
        for one in remaining:
            entry = bases[one.part] + one.entry
            end = Row(ledger.id, entry + 1, 0) if one.stop == one.of else Row(ledger.id, entry, one.stop)
            yield Row(ledger.id, entry, one.first), end
