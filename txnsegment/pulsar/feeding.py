"""The rows of one topic for a consumer, micro-batch by micro-batch. It reads as a stream of Spark does: up to the cut of each
segment, never only a part of a transaction of txnsegment's writers, and a segment after its parents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from metadata.common.errors import DataLoss, OptionError
from metadata.common.service import SERVICE_URL
from metadata.records.row_ranges import FIRST, Row, Rows, before
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.rest import admin_url
from pulsar_protocol.subscription import Subscription
from spark_txn_source.pulsar.columns import METADATA_FIELDS, columns_now
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.option_table import VALUE_FORMAT
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.stream import StreamReader
from spark_txn_source.pulsar.tasks import read_task
from spark_txn_source.pulsar.watermarks import RecordedCuts
from txnsegment.pulsar.ack_records import WHOLE, Positions, RowsBySegment, beginning

Where = str | int | datetime
_METADATA = frozenset(field.name for field in METADATA_FIELDS)


def read_options(url: str, topic: str, **more: str | None) -> dict[str, str]:
    """Return the options of a read of a topic. `more`: further ones; None: not given."""
    found = {SERVICE_URL.name: url, "topic": topic, "includeMetadata": "true", **more}
    return {name: value for name, value in found.items() if value is not None}


def starting(where: Where) -> dict[str, str]:
    """Return the options of a read that starts at a place. Raises OptionError."""
    if isinstance(where, datetime) and where.tzinfo is not None:
        return {"startingTimestamp": str(int(where.timestamp() * 1000))}
    if isinstance(where, str) and where in ("earliest", "latest"):
        return {"startingOffsets": where}
    raise OptionError(
        f"{where!r} is no place of a Pulsar subscription: a Pulsar cluster has no log numbers.",
        advice="Give earliest, latest, or a time with its zone, such as 2025-01-01T00:00:00Z.",
    )


def place_rows(place: Position) -> Rows:
    """Return all rows up to an entry, inclusive."""
    return before(Row(place.ledger, place.entry + 1, 0)) if place > EARLIEST else ()


def rows_before(options: Mapping[str, str], where: Where) -> tuple[dict[str, Rows], Positions]:
    """Return the rows before a place of a topic by segment, and `State.sent` for them. No row is at or after the first entry of the
    segment that is not decided. `options`: those of a read of the topic.
    """
    given = {**options, **starting(where), VALUE_FORMAT.name: "binary"}  # places do not depend on the schema
    given.pop("subscription", None)
    offset = PulsarOffset.of_json(_Reader(given, columns_now(given)).initialOffset())
    rows = {name: place_rows(place) for name, place in offset.segments.items()}
    rows |= {name: before(WHOLE) for name in offset.ended}
    return {name: found for name, found in rows.items() if found}, offset.sent or {}


class HeldPlaces(Places):
    """The places of a topic whose unread entries a subscription holds."""

    def __init__(self, client: PulsarClient, topic: str, subscription: str, recorded: RecordedCuts | None = None) -> None:
        super().__init__(client, topic, recorded)
        self._held_by = subscription

    def check_kept(self, starts: Mapping[str, Position]) -> None:
        """Raise DataLoss if entries after a start are gone. A consumer keeps the ledger of the last entry that it read, as a stream
        does (`StreamReader.commit`). But `subscriptions.create` and `seek` can put a cursor at the last entry, if it is decided. A
        broker deletes ledgers that all subscriptions have passed. So a ledger that is gone had no entry after the start, unless the
        cursor of the subscription was moved by other means.
        """
        try:
            super().check_kept(starts)
        except DataLoss:
            for name, place in starts.items():
                # A start that was made from acknowledged rows may be one entry before the cursor.
                if self._cursor(name) > Position(place.ledger, place.entry + 1):
                    super().check_kept({name: place})

    def kept(self, starts: Mapping[str, Position]) -> dict[str, Position]:
        """Return the starts for a read that other processes plan. They check the starts as `Places` does. So if the ledger of a
        start is gone, the start is moved to the first entry that is kept. Raises DataLoss as `check_kept`.
        """
        try:
            super().check_kept(starts)
            return dict(starts)
        except DataLoss:
            self.check_kept(starts)
        return {name: max(place, self._segment(name).before_first()) for name, place in starts.items()}

    def _cursor(self, segment: str) -> Position:
        """Return the position up to which the cursor has passed entries; EARLIEST: it is at the beginning of a ledger."""
        with Consumer.durable(self._client.broker_of(segment), segment, self._held_by) as consumer:
            return consumer.position if consumer.position.entry >= 0 else EARLIEST


class _Reader(StreamReader):
    """The reader of a stream with a subscription."""

    def _places(self) -> Places:
        subscription = self._options.subscription
        return super()._places() if subscription is None else HeldPlaces(self._client(), self._options.topic, subscription)

    def _subscription(self, name: str) -> Subscription:
        """Return the subscription, whose log of acknowledgements the consumer owns."""
        return Subscription(self._client(), self._options.topic, name, admin_url())


def offset_after(topic: str, rows: RowsBySegment, sent: Positions) -> PulsarOffset:
    """Return the offset from which a reader gets all rows of a topic that are not in `rows`. `sent`: see `State`."""
    places, ended = {}, set()
    for name, found in rows.items():
        end = beginning(found)
        if end >= WHOLE:
            ended.add(name)
        elif end > FIRST:
            places[name] = Position(end.ledger_id, end.entry_id - 1)
    return PulsarOffset(topic, 0, places, frozenset(ended), sent=sent)


@dataclass(frozen=True)
class Planned:
    """A micro-batch. `end`: the offset after it."""

    end: PulsarOffset
    tasks: tuple[InputPartition, ...]


class Feeding:
    """The unread rows of one topic. `options`: those of a stream from it. `offset`: what is read."""

    def __init__(self, options: Mapping[str, str], topic: str) -> None:
        self._options, self._topic = dict(options), topic
        self._columns = columns_now(self._options)
        self._reader = _Reader(self._options, self._columns)
        self.offset = PulsarOffset(topic, 0, {})

    @property
    def service_url(self) -> str:
        return self._options[SERVICE_URL.name]

    def begin(self, rows: RowsBySegment, sent: Positions) -> None:
        """Go to the first row that is not in `rows`, and let the subscription hold all rows from there on."""
        self.offset = offset_after(self._topic, rows, sent)
        self._renew(columns_now(self._options))
        self._reader.hold(self.offset.to_json())

    def plan(self) -> Planned | None:
        """Plan a micro-batch of all rows that can be read now. None: there are none. Raises DataLoss, the broker's error."""
        begin = self.offset.to_json()
        end = self._reader.latestOffset(begin, ReadAllAvailable())
        if end == begin:
            self.offset = replace(self.offset, ended=self.offset.ended | self._reader.ended)
            return None
        columns = columns_now(self._options)
        if columns != self._columns:
            self._renew(columns)
            return self.plan()
        alone, together = self._reader.undivided(begin, end)
        return Planned(PulsarOffset.of_json(end), (*alone, *together))

    def read(self, planned: Planned) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a micro-batch. Each batch has rows of one segment, with the metadata columns."""
        for task in planned.tasks:
            yield from read_task(task)

    def passed(self, places: Mapping[str, Position], ended: frozenset[str]) -> None:
        """Let the cursors of the subscription follow. Brokers may delete the entries up to these positions, and all entries of
        segments in `ended`.
        """
        self._reader.commit(PulsarOffset(self._topic, 0, places, ended).to_json())

    def _renew(self, columns: StructType) -> None:
        """Read from now on by another reader, which has these columns, and no knowledge of what was read."""
        self._reader.stop()
        self._columns = columns
        self._reader = _Reader(self._options, columns)

    def close(self) -> None:
        self._reader.stop()


def values_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of a batch without the metadata columns."""
    return batch.select([name for name in batch.schema.names if name not in _METADATA])


def origin(batch: pa.RecordBatch) -> tuple[str, list[tuple[int, ...]], list[Any], list[str | None]]:
    """Return the segment of a batch, and of each row the place (ledger, entry, index), the publish time in ms, and the
    transaction.
    """
    places = [tuple(map(int, text.split(":"))) for text in batch.column("__messageId").to_pylist()]
    published = [us // 1000 for us in batch.column("__publishTime").cast(pa.int64()).to_pylist()]
    return batch.column("__segment")[0].as_py(), places, published, batch.column("__txnId").to_pylist()
