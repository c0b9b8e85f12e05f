"""`scan`: the same cut, read by Spark's own Parquet reader: column pruning, filter pushdown, vectorised (issue 2, section 3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from ledgers.parts import check_part
from ledgers.schema import quoted
from metadata.client import shared_client
from metadata.errors import OptionError
from metadata.names import segment_name
from metadata.options import option_text
from metadata.transaction_buffer import Reading
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import check_schema, pieces, read_batch
from spark_txn_source.tasks import Piece
from spark_txn_source.topics import METADATA_NAMES, Columns, columns_of, full_schema, topics_now

_NOT_HERE = ("minPartitions", "maxPartitionBytes")
_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_listing = threading.Lock()
_FACT = StructType(
    [
        StructField("topic", StringType()),
        StructField("segment", StringType()),
        StructField("ledger", LongType()),
        StructField("base", IntegerType()),
        StructField("starts", ArrayType(LongType())),
        StructField("publishMs", LongType()),
        StructField("txn", StringType()),
    ]
)


def scan(spark: SparkSession, topic: str | Sequence[str] | None = None, **options: object) -> DataFrame:
    """The committed rows of a topic as a DataFrame that Spark's own Parquet reader scans: the same rows as
    `spark.read.format("txnsegment")` at the same cut, with column pruning and filter pushdown. Row order is Spark's.

    `topic`: a name or a list of names (or one of the options topics, topicsPattern). `options`: the batch options of the source
    as keywords, e.g. `serviceUrl=..., startingOffsets={"log": 41}, includeMetadata=True`; tasks are split by Spark's own settings.
    Every part is checked against its registration (length, rows, footer CRC) when the scan is planned and page checksums are
    verified when it runs: a missing or damaged file is an error. Raises what reading raises.
    """
    given = {name: text for name, value in options.items() if (text := option_text(name, value)) is not None}
    for name in given:
        if name.lower() in {n.lower() for n in _NOT_HERE}:
            raise OptionError(
                f"scan() does not take {name}: Spark's own reader splits the files.",
                advice="Set spark.sql.files.maxPartitionBytes or spark.sql.files.minPartitionNum instead.",
            )
    if isinstance(topic, str):
        given["path"] = topic
    elif topic is not None:
        given["topics"] = option_text("topics", list(topic)) or ""
    parsed = ReadOptions.parse(given, streaming=False)
    if parsed.subscription is not None or parsed.acknowledged is not None:
        raise OptionError(
            "scan() reads whole files and cannot leave out what a subscription has acknowledged.",
            advice='Read it with spark.read.format("txnsegment").option("subscription", name).',
        )
    client = shared_client(parsed.service_url.text)
    columns = columns_of(full_schema(client, topics_now(client, parsed.selection)), parsed)
    reading, start, end, _ = read_batch(client, parsed)
    check_schema(client, reading, columns, streaming=False, ignore_new=True)
    found = [p for s in reading.segments for p in pieces(reading, s, start, end, fail_on_data_loss=parsed.fail_on_data_loss)]
    if not found:
        return spark.createDataFrame([], columns.output)
    _check(reading, found)
    return _frame(spark, reading, found, columns)


def _check(reading: Reading, found: Sequence[Piece]) -> None:
    """Compare every part with its registration before Spark reads it by name. Raises CorruptPart."""
    storage = reading.cluster.storage

    def one(piece: Piece) -> None:
        last = piece.base + len(piece.part.entries) - 1
        check_part(storage, piece.part, where=f"{piece.segment}, ledger {piece.ledger}, entries {piece.base} to {last}")

    with ThreadPoolExecutor(max_workers=16) as pool:
        for _ in pool.map(one, found):
            continue


def _frame(spark: SparkSession, reading: Reading, found: Sequence[Piece], columns: Columns) -> DataFrame:
    uris = [reading.cluster.storage.spark_uri(p.part.path) for p in found]
    with _listing_by_driver(spark, len(uris)):
        rows = (
            spark.read.schema(columns.wanted)
            .option("mergeSchema", "false")
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .option("recursiveFileLookup", "true")
            .option("parquet.page.verify-checksum.enabled", "true")
            .parquet(*uris)
        )
    if not METADATA_NAMES.intersection(columns.output.fieldNames()):
        return rows
    return _with_metadata(spark, rows, found, columns)


def _with_metadata(spark: SparkSession, rows: DataFrame, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Join each row's file and number in it, which Spark's reader tells, with what is known of the part."""
    taken = {name.lower() for name in columns.output.fieldNames()}
    file_name, row_number, known_file, fact = (_free(name, taken) for name in ("__file", "__row", "__part", "__fact"))
    place = rows.metadataColumn("_metadata")
    placed = rows.select(
        "*",
        F.element_at(F.split(place.getField("file_path"), "/"), -1).alias(file_name),
        place.getField("row_index").alias(row_number),
    )
    facts = spark.createDataFrame(
        [_fact(p) for p in found], StructType([StructField(known_file, StringType()), StructField(fact, _FACT)])
    )
    joined = placed.join(F.broadcast(facts), F.col(file_name) == F.col(known_file))
    row = F.col(row_number)
    starts = F.col(f"{fact}.starts")
    entry = F.size(F.filter(starts, lambda first: first <= row)) - 1
    index = row - F.element_at(starts, entry + 1)
    position = (F.col(f"{fact}.ledger"), F.lit(":"), F.col(f"{fact}.base") + entry, F.lit(":"), index)
    made = {
        "__topic": F.col(f"{fact}.topic"),
        "__segment": F.col(f"{fact}.segment"),
        "__messageId": F.concat(*(c.cast("string") for c in position)),
        "__publishTime": F.timestamp_millis(F.col(f"{fact}.publishMs")),
        "__txnId": F.col(f"{fact}.txn"),
    }
    return joined.select(*(made[f.name].alias(f.name) if f.name in made else F.col(quoted(f.name)) for f in columns.output))


def _free(name: str, taken: set[str]) -> str:
    """A column name that the rows do not have."""
    while name in taken:
        name += "_"
    return name


def _fact(piece: Piece) -> tuple[object, ...]:
    """What the metadata columns of one part's rows come from. Part names are unique, whatever their folder."""
    starts = [0, *accumulate(piece.part.entries)][:-1]
    name = piece.part.path.rsplit("/", 1)[1]
    topic = str(segment_name(piece.segment).topic)
    return name, (topic, piece.segment, piece.ledger, piece.base, starts, piece.publish_ms, piece.txn)


@contextmanager
def _listing_by_driver(spark: SparkSession, count: int) -> Iterator[None]:
    """Spark lists more than 32 explicit paths by a job of its own: 15 s for 4,000 files instead of 1 s."""
    with _listing:  # threads share the session: the second must not take the first one's value for the user's
        before = spark.conf.get(_THRESHOLD, None)
        spark.conf.set(_THRESHOLD, str(count + 1))
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_THRESHOLD)
            else:
                spark.conf.set(_THRESHOLD, before)
