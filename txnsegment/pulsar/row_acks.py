"""The acknowledgement of the rows of a DataFrame, for `txn.acknowledge_rows` of `cluster.transaction()`.

A row of a DataFrame says where it is, but not which positions around it have no row: the end of its entry, entries of aborted
transactions, markers. An acknowledgement must cover these positions, too. Otherwise the acknowledgements of consecutive rows would
never join to one range, and the cursors of the broker would never move. So the positions of all unacknowledged rows between the
first and the last row are read again, by Spark, without their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from metadata.common.errors import AckConflict, OptionError, SchemaError
from metadata.common.service import SERVICE_URL
from metadata.records.names import segment_name
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, Span, minus, rows
from pulsar_protocol.chunks import whole
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Entry
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.reader import entries
from spark_txn_source.option_table import INCLUDE_METADATA, TOPIC
from spark_txn_source.pulsar.option_table import VALUE_FORMAT, At
from spark_txn_source.pulsar.places import Places
from spark_txn_source.pulsar.topics import layout
from txnsegment.pulsar.ack_records import RowsBySegment
from txnsegment.pulsar.unread import Unread, hidden_between, read_exactly

_COLUMNS = ("__segment", "__messageId")
_TASKS = 16
"""How many tasks read the places of rows. A micro-batch would have a task for each of Spark's 200 shuffle partitions."""
HasRow = Callable[[Row, Row], bool]
"""Returns whether a segment has a row from the first position on, and before the second one."""
_PARTITION = re.compile(r"(persistent://.+)-partition-(\d+)")


class RowsTaken(AckConflict):
    """The subscription has acknowledged some of the rows before. `left`: how many of the rows it has not acknowledged."""

    left: int = 0


@dataclass(frozen=True)
class GivenRows:
    """The rows of a DataFrame in one segment: the first, the last, and how many."""

    first: Row
    last: Row
    count: int


@dataclass(frozen=True)
class Stretch:
    """Unacknowledged rows of a segment that follow one another. `given`: whether they are in the DataFrame, or not in it."""

    given: bool
    first: Row
    last: Row
    count: int


def identified(df: DataFrame) -> DataFrame:
    """Return the segments and positions of the rows of a DataFrame, each once. Raises SchemaError if it does not have them."""
    missing = [name for name in _COLUMNS if name not in df.columns]
    if missing:
        raise SchemaError(
            f"The rows cannot be acknowledged: the DataFrame has no column {' and '.join(missing)}.",
            advice="Read the rows with includeMetadata=true, and keep these columns.",
        )
    return df.select(*_COLUMNS).distinct().coalesce(_TASKS)


def given_rows(ids: DataFrame) -> dict[str, GivenRows]:
    """Return where the rows are, by segment. Runs a Spark job. `ids`: what `identified` returned. Raises SchemaError if a row does
    not say where it is.
    """
    nowhere = F.col("__segment").isNull() | F.col("__messageId").isNull()
    place = F.struct(*_place())
    found = (F.min(place).alias("first"), F.max(place).alias("last"), F.count("*").alias("count"))
    made = ids.groupBy("__segment").agg(*found, F.max(nowhere).alias("nowhere")).coalesce(1).collect()
    if any(one["nowhere"] for one in made):
        raise SchemaError(
            "The rows cannot be acknowledged: the DataFrame has rows whose column __segment or __messageId is null.",
            advice="These rows were not read from a topic; an outer join makes such rows. Leave them out: "
            "where('__segment is not null and __messageId is not null').",
        )
    return {one["__segment"]: GivenRows(Row(*one["first"]), Row(*one["last"]), one["count"]) for one in made}


def topic_of(client: PulsarClient, segment: str) -> str:
    """Return the topic of a segment, as reads name it (`__segment`). Raises SchemaError, or the broker's error."""
    partition = _PARTITION.fullmatch(segment)
    if partition is not None and int(partition[2]) < client.partitions(partition[1]):
        return partition[1]
    if segment.startswith("persistent://"):
        return segment
    try:
        return str(segment_name(segment).topic)
    except OptionError as error:
        raise SchemaError(
            f"The column __segment has {segment!r}, which is no segment of a Pulsar topic.",
            advice="Acknowledge rows that were read from this cluster.",
        ) from error


def acks_of(
    spark: SparkSession,
    client: PulsarClient,
    topic: str,
    done: RowsBySegment,
    ids: DataFrame,
    wanted: Mapping[str, GivenRows],
) -> RowsBySegment:
    """Return what an acknowledgement of the rows of a topic covers, by segment. Runs a Spark job. `wanted`: where the rows of `ids`
    are in the segments of this topic. `done`: what is acknowledged already, by the subscription or in the same transaction.

    Raises RowsTaken if rows are in `done`, OffsetOutOfRange if they are not decided, or the broker's error.
    """
    names = {one.name: one for one in layout(client, topic).segments.values()}
    taken, total = dict[str, int](), sum(one.count for one in wanted.values())
    for segment, given in wanted.items():
        whole_range = ((given.first, _behind(given.last)),)
        if segment not in names or not minus(whole_range, done.get(segment, NONE)):
            taken[segment] = given.count
    wanted = {segment: given for segment, given in wanted.items() if segment not in taken}
    if taken and not wanted:
        raise _taken(topic, taken, total)
    starts = {name: Position(one.first.ledger_id, one.first.entry_id - 1) for name, one in wanted.items()}
    ends = {name: Position(one.last.ledger_id, one.last.entry_id) for name, one in wanted.items()}
    places = Places(client, topic)
    places.ends(At(ends), places.raised(places.cuts(names[name] for name in wanted), At(ends)))
    hidden = hidden_between(done, starts, ends)
    options = read_exactly([Unread(starts=starts, ends=ends, hidden=hidden, rows={}, held=(), sent={})])
    options |= {SERVICE_URL.name: client.url, TOPIC.name: topic, INCLUDE_METADATA.name: "true", VALUE_FORMAT.name: "binary"}
    found = spark.read.format("txnsegment").schema("__segment string, __messageId string").options(**options).load()
    stretches = _stretches(found, ids)
    made = {}
    for segment, given in wanted.items():
        mine = stretches.get(segment, [])
        if (count := sum(one.count for one in mine if one.given)) < given.count:
            taken[segment] = given.count - count
        elif not taken:
            made[segment] = covered(mine, done.get(segment, NONE), partial(_has_row, client, segment))
    if taken:
        raise _taken(topic, taken, total)
    return made


def covered(stretches: list[Stretch], done: Rows, has_row: HasRow) -> Rows:
    """Return what an acknowledgement of the given rows of a segment covers: the rows, and the positions around them that have no
    unacknowledged row. Pure but for `has_row`. `stretches`: all unacknowledged rows between the first and the last given row, in
    their order. `done`: the rows that are acknowledged.
    """
    spans: list[Span] = []
    for number, stretch in enumerate(stretches):
        if not stretch.given:
            continue
        before = stretches[number - 1].last if number else None
        after = stretches[number + 1].first if number + 1 < len(stretches) else None
        spans.append((_begin(stretch.first, before, done, has_row), _end(stretch.last, after, done, has_row)))
    return minus(rows(spans), done)


def _begin(first: Row, before: Row | None, done: Rows, has_row: HasRow) -> Row:
    """Return where the range of a stretch begins. `before`: the unacknowledged row before the stretch, if it is known."""
    behind = max((end for _, end in done if end <= first), default=FIRST)
    if before is not None and before >= behind:
        return first
    return behind if before is not None or behind == first or not has_row(behind, first) else first


def _end(last: Row, after: Row | None, done: Rows, has_row: HasRow) -> Row:
    """Return where the range of a stretch ends. `after`: the unacknowledged row after the stretch. None: all rows up to the end of
    the entry of `last` are known, and there is none.
    """
    if after is not None and after[:2] == last[:2]:
        return _behind(last)
    end = Row(last.ledger_id, last.entry_id + 1, 0)
    ahead = min((begin for begin, stop in done if stop > end), default=None)
    if ahead is None or ahead <= end or (after is not None and after < ahead):
        return end
    return ahead if after is not None or not has_row(end, ahead) else end


def _behind(row: Row) -> Row:
    return row._replace(batch_index=row.batch_index + 1)


def _place() -> list[Column]:
    parts = F.split("__messageId", ":")
    return [parts.getItem(number).cast("long").alias(name) for number, name in enumerate(("ledger", "entry", "index"))]


def _stretches(found: DataFrame, ids: DataFrame) -> dict[str, list[Stretch]]:
    """Return the stretches of the rows `found`, by segment, in their order. Runs a Spark job."""
    both = found.join(ids.withColumn("given", F.lit(True)), list(_COLUMNS), "left")
    placed = both.select("__segment", F.coalesce("given", F.lit(False)).alias("given"), F.struct(*_place()).alias("place"))
    number = F.row_number().over(Window.partitionBy("__segment").orderBy("place"))
    same = F.row_number().over(Window.partitionBy("__segment", "given").orderBy("place"))
    grouped = placed.withColumn("stretch", number - same).groupBy("__segment", "given", "stretch")
    made: dict[str, list[Stretch]] = {}
    for one in grouped.agg(F.min("place").alias("first"), F.max("place").alias("last"), F.count("*").alias("count")).collect():
        stretch = Stretch(one["given"], Row(*one["first"]), Row(*one["last"]), one["count"])
        made.setdefault(one["__segment"], []).append(stretch)
    return {segment: sorted(listed, key=lambda stretch: stretch.first) for segment, listed in made.items()}


def _has_row(client: PulsarClient, segment: str, at: Row, to: Row) -> bool:
    def read(start: Position, end: Position) -> Iterator[tuple[Position, Entry]]:
        return entries(client, segment, start, end)

    after = EARLIEST if at == FIRST else Position(at.ledger_id, at.entry_id - 1)
    last = Position(to.ledger_id, to.entry_id if to.batch_index else to.entry_id - 1)
    for place, entry in whole(read, after, last, fail_on_loss=False):
        if any(at <= Row(place.ledger, place.entry, index) < to for index in entry.rows().indexes):
            return True
    return False


def _taken(topic: str, taken: Mapping[str, int], total: int) -> RowsTaken:
    """Return the error. `taken`: how many rows are acknowledged already, by segment. `total`: how many rows were given."""
    segment = min(taken)
    error = RowsTaken(
        f"{taken[segment]} of the rows of {segment} are acknowledged already, or do not exist any more.",
        advice=f"Nothing was acknowledged. Acknowledge each row of {topic} once. If the rows were committed by an earlier run of "
        "the same version, give the transaction this app and version.",
    )
    error.left = total - sum(taken.values())
    return error
