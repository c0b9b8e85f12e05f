"""`scan` is a batch read by Spark's own vectorised Parquet reader, with column pruning and filter pushdown."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import reduce
from itertools import accumulate

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from ledgers.model import CompactedPart
from ledgers.parts import check_part
from ledgers.schema import has_floats, quoted
from ledgers.storage import LedgerStorage
from metadata.client.client import shared_client
from metadata.common.errors import OptionError
from metadata.common.options import option_text
from metadata.records.names import topic_of
from spark_txn_source import s3a
from spark_txn_source.columns import METADATA_NAMES, Columns, columns_now
from spark_txn_source.current_names import with_current_names
from spark_txn_source.options import ReadOptions
from spark_txn_source.plan import read_batch
from spark_txn_source.planned import Piece
from spark_txn_source.schema_checks import check_schema

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
_ENTRY = StructType(
    [
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("ledger", LongType()),
        StructField("entry", LongType()),
        StructField("publishMs", LongType()),
        StructField("txn", StringType()),
        StructField("topic", StringType()),
        StructField("segment", StringType()),
    ]
)


def scan(
    spark: SparkSession, topic: str | Sequence[str] | None = None, *, where: str | Column | None = None, **options: object
) -> DataFrame:
    """Return the committed rows of a topic as a DataFrame that Spark's own Parquet reader scans. It has the same rows as
    `spark.read.format("txnsegment")` at the same cut. Spark can leave out columns and push filters down, and decides the order of
    the rows.

    `topic`: a name or a list of names. Without it give one of the options `topics` and `topicsPattern`. `options`: the batch
    options of the source as keywords, e.g. `serviceUrl=..., startingOffsets={"log": 41}, includeMetadata=True`. Spark's own
    settings divide the files among tasks. The planning checks every part against its registration (length, rows, footer CRC), and
    the scan verifies page checksums, so a missing or damaged file raises an error. Raises the errors of a batch read.

    `where`: a filter, as `DataFrame.where` takes it. The result has the rows that it gives. Parts that cannot hold such a row are
    not opened: the statistics in the metadata show which (docs/guide.md, Skipping).
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
            "scan() reads whole files and cannot leave out the rows that a subscription has acknowledged.",
            advice='Read it with spark.read.format("txnsegment").option("subscription", name).',
        )
    if parsed.value_format == "avro":
        raise OptionError(
            "scan() cannot return Avro values: Spark's own reader returns columns.",
            advice='Read them with spark.read.format("txnsegment").option("valueFormat", "avro").',
        )
    client = shared_client(parsed.service_url.text)
    parsed = with_current_names(client, parsed)
    columns = columns_now(client, parsed)
    ranges = read_batch(client, parsed)
    topics = [topic for one in ranges for topic in one.reading.topics]
    check_schema(client, topics, columns, streaming=False, ignore_new=True)
    marks = bool(METADATA_NAMES.intersection(columns.output.fieldNames()))
    found = [piece for one in ranges for some in one.pieces(marks=marks) for piece in some]
    if where is not None:
        found = _skipped(spark, found, where, columns)
    if not found:
        rows = spark.createDataFrame([], columns.output)
        return rows if where is None else rows.where(where)  # an error in the filter does not depend on the rows
    storage = client.cluster.storage
    _check(storage, found)
    rows = _frame(spark, storage, found, columns)
    return rows if where is None else rows.where(where)


def _skipped(spark: SparkSession, found: Sequence[Piece], where: str | Column, columns: Columns) -> list[Piece]:
    """Return the pieces that may hold rows of the result. Raises CorruptRecord, and the errors of Spark for the filter."""
    from spark_txn_source.catalyst import conditions  # imported late, because most scans have no filter
    from spark_txn_source.skipping import left

    return left(found, conditions(spark, where, columns.output))


def _check(storage: LedgerStorage, found: Sequence[Piece]) -> None:
    """Check every part against its registration before Spark reads the file. Raises CorruptPart."""

    def one(piece: Piece) -> None:
        check_part(storage, piece.part, where=piece.where)

    with ThreadPoolExecutor(max_workers=16) as pool:
        for _ in pool.map(one, found):
            continue


def _frame(spark: SparkSession, storage: LedgerStorage, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Return the rows of all files as one DataFrame. It is the union of a frame for each kind of file: files of one part, compacted
    files that are read whole, and compacted files of which some rows are read. If the read has metadata columns, the two kinds of
    compacted files share one frame.
    """
    wanted = METADATA_NAMES.intersection(columns.output.fieldNames())
    own = [p for p in found if not isinstance(p.part, CompactedPart)]
    compacted = [p for p in found if isinstance(p.part, CompactedPart)]
    cut = [p for p in compacted if p.part.rows != sum(_groups(p))]
    whole = [p for p in compacted if p.part.rows == sum(_groups(p))]
    frames = []
    if wanted:
        frames += [_with_metadata(spark, _rows(spark, storage, own, columns), own, columns)] if own else []
        frames += [_with_marks(spark, _rows(spark, storage, compacted, columns), compacted, columns)] if compacted else []
    else:
        frames += [_rows(spark, storage, [*own, *whole], columns)] if own or whole else []
        frames += [_some(_rows(spark, storage, cut, columns), cut, columns)] if cut else []
    rows = reduce(DataFrame.unionAll, frames)
    return rows if all(p.part.stats is not None for p in found) else _with_nan(rows)


def _with_nan(rows: DataFrame) -> DataFrame:
    """Return the same rows, so that Spark's Parquet reader gets no filter on floating-point numbers.

    Earlier versions wrote bounds of such numbers into the footers, without NaN. Spark takes NaN for the largest number. Its reader
    would skip rows with NaN by these bounds.
    """
    return rows.select(*(F.coalesce(c, c).alias(f.name) if has_floats(f.dataType) else c for f, c in _columns_of(rows)))


def _columns_of(rows: DataFrame) -> Iterator[tuple[StructField, Column]]:
    return ((field, F.col(quoted(field.name))) for field in rows.schema)


def _groups(piece: Piece) -> tuple[int, ...]:
    assert isinstance(piece.part, CompactedPart)
    return piece.part.groups


def _rows(spark: SparkSession, storage: LedgerStorage, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Return all rows of the files as a DataFrame of Spark's own reader."""
    uris = [storage.spark_uri(path) for path in dict.fromkeys(p.part.path for p in found)]
    with _listing_by_driver(spark, len(uris)), s3a.pointed(spark, storage):
        rows = (
            spark.read.schema(columns.wanted)
            .options(**s3a.settings(spark, storage))
            .option("mergeSchema", "false")
            .option("ignoreMissingFiles", "false")
            .option("ignoreCorruptFiles", "false")
            .option("recursiveFileLookup", "true")
            .option("parquet.page.verify-checksum.enabled", "true")
            .parquet(*uris)
        )
        if not storage.is_local:
            _ = rows.schema  # a Spark Connect server looks at the files only when it is asked for something
        return rows


def _placed(rows: DataFrame, columns: Columns) -> tuple[DataFrame, str, str]:
    """Add two columns to the rows: the name of the row's file, and the row's index in the file. Return the rows and the names of
    the two columns.
    """
    taken = {name.lower() for name in columns.output.fieldNames()}
    file_name, row_number = _free("__file", taken), _free("__row", taken)
    place = rows.metadataColumn("_metadata")
    placed = rows.select(
        "*",
        F.element_at(F.split(place.getField("file_path"), "/"), -1).alias(file_name),
        place.getField("row_index").alias(row_number),
    )
    return placed, file_name, row_number


def _some(rows: DataFrame, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Return the rows of compacted files, without the rows outside of the range of the read."""
    placed, file_name, row_number = _placed(rows, columns)
    row = F.col(row_number)
    kept = [(F.col(file_name) == _name(p)) & (row >= begin) & (row < end) for p in found for begin, end in [_range(p)]]
    return placed.where(reduce(Column.__or__, kept)).select(*(F.col(quoted(f.name)) for f in columns.output))


def _range(piece: Piece) -> tuple[int, int]:
    assert isinstance(piece.part, CompactedPart)
    return piece.part.first_row, piece.part.first_row + piece.part.rows


def _name(piece: Piece) -> str:
    """Return the file name of a part. No other file in any folder has this name."""
    return piece.part.path.rsplit("/", 1)[1]


def _with_marks(spark: SparkSession, rows: DataFrame, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Add metadata columns to rows of compacted files, as `_with_metadata` does for rows of other files. A compacted file has many
    entries, so the rows are joined with the entries block by block (`_blocks`). Rows outside of the range of the read match no
    entry in this join, and are dropped.
    """
    placed, file_name, row_number = _placed(rows, columns)
    step = max(256, sum(p.part.rows for p in found) // 10_000)
    taken = {name.lower() for name in placed.columns}
    known_file, known_block, entry = (_free(name, taken) for name in ("__part", "__block", "__entry"))
    facts = spark.createDataFrame(
        [fact for p in found for fact in _blocks(p, step)],
        StructType(
            [StructField(known_file, StringType()), StructField(known_block, LongType()), StructField(entry, ArrayType(_ENTRY))]
        ),
    )
    row = F.col(row_number)
    joined = placed.join(F.broadcast(facts), (F.col(file_name) == F.col(known_file)) & (F.floor(row / step) == F.col(known_block)))
    one = joined.withColumn(entry, F.try_element_at(F.filter(F.col(entry), lambda e: (e.start <= row) & (row < e.end)), F.lit(1)))
    one = one.where(F.col(entry).isNotNull())
    number, index = F.col(f"{entry}.entry"), row - F.col(f"{entry}.start")
    return _shown(one, entry, number, index, columns)


def _blocks(piece: Piece, step: int) -> Iterator[tuple[object, ...]]:
    """Divide the file into blocks of `step` rows. Yield each block that has rows of the piece, with the entries in the block."""
    marks, (begin, end) = piece.marks, _range(piece)
    assert marks is not None
    topic = str(topic_of(piece.segment))
    starts = marks.starts.tolist()
    ends = [*starts[1:], end]
    known = list(
        zip(
            starts,
            ends,
            marks.ledgers.tolist(),
            marks.entries.tolist(),
            marks.publish_ms.tolist(),
            marks.txns.to_pylist(),
            strict=True,
        )
    )
    at = 0
    for block in range(begin // step, (end - 1) // step + 1):
        while ends[at] <= block * step:
            at += 1
        last = at
        while last < len(known) and starts[last] < (block + 1) * step:
            last += 1
        yield _name(piece), block, [(*facts, topic, piece.segment) for facts in known[at:last]]


def _with_metadata(spark: SparkSession, rows: DataFrame, found: Sequence[Piece], columns: Columns) -> DataFrame:
    """Add metadata columns to rows of files of one part. Join the rows with the metadata of their parts by the file name, and
    compute their positions from their indexes in the file.
    """
    placed, file_name, row_number = _placed(rows, columns)
    taken = {name.lower() for name in placed.columns}
    known_file, fact = (_free(name, taken) for name in ("__part", "__fact"))
    facts = spark.createDataFrame(
        [_fact(p) for p in found], StructType([StructField(known_file, StringType()), StructField(fact, _FACT)])
    )
    joined = placed.join(F.broadcast(facts), F.col(file_name) == F.col(known_file))
    row = F.col(row_number)
    starts = F.col(f"{fact}.starts")
    entry = F.size(F.filter(starts, lambda first: first <= row)) - 1
    index = row - F.element_at(starts, entry + 1)
    return _shown(joined, fact, F.col(f"{fact}.base") + entry, index, columns)


def _shown(rows: DataFrame, fact: str, entry: Column, index: Column, columns: Columns) -> DataFrame:
    """Select the output columns. `fact`: the struct column with the metadata of a row's part. `entry`, `index`: the row's entry,
    and the row's index in this entry.
    """
    position = (F.col(f"{fact}.ledger"), F.lit(":"), entry, F.lit(":"), index)
    made = {
        "__topic": F.col(f"{fact}.topic"),
        "__segment": F.col(f"{fact}.segment"),
        "__messageId": F.concat(*(c.cast("string") for c in position)),
        "__publishTime": F.timestamp_millis(F.col(f"{fact}.publishMs")),
        "__txnId": F.col(f"{fact}.txn"),
    }
    return rows.select(*(made[f.name].alias(f.name) if f.name in made else F.col(quoted(f.name)) for f in columns.output))


def _free(name: str, taken: set[str]) -> str:
    """Return a column name that is not in use yet."""
    while name in taken:
        name += "_"
    return name


def _fact(piece: Piece) -> tuple[object, ...]:
    """Return the values of one part from which the metadata columns of its rows are computed."""
    starts = [0, *accumulate(piece.part.entries)][:-1]
    topic = str(topic_of(piece.segment))
    return _name(piece), (topic, piece.segment, piece.ledger, piece.base, starts, piece.publish_ms, piece.txn)


@contextmanager
def _listing_by_driver(spark: SparkSession, count: int) -> Iterator[None]:
    """Let the driver list the paths of the reads that are made in the `with` block. Otherwise Spark runs a job to list more than 32
    paths. For 4,000 files the job takes 15 s, and the driver takes 1 s.
    """
    with _listing:  # one thread at a time: a second thread would restore the temporary value, as if the user had set it
        before = spark.conf.get(_THRESHOLD, None)
        spark.conf.set(_THRESHOLD, str(count + 1))
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_THRESHOLD)
            else:
                spark.conf.set(_THRESHOLD, before)
