"""Tests of Avro values in the sink and the source, called without Spark: the schema version of a read, and the values of fields
added later.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from conformance.harness.spark_driver import read_batch, rows_of, run_tasks
from metadata.client.client import shared_client
from metadata.common.errors import OptionError, SchemaChanged, SchemaError, ValueFormatError
from metadata.read.reading import LogSelection
from spark_txn_sink.commit import commit
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.planned import Identity
from spark_txn_sink.staging import stage
from spark_txn_source.stream import StreamReader
from tests.ledgers.test_avro import written
from txnsegment import Cluster

VALUE = StructType([StructField("value", BinaryType())])
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "a", "type": "int"}, {"name": "s", "type": "string", "default": "none"}],
}
SECOND: dict[str, Any] = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "a", "type": "long"},
        {"name": "n", "type": ["int", "null"], "default": 7},
    ],
}
ROW = {"a": 1, "s": "x"}


def put(cluster: Cluster, given: list[bytes | None], schema: StructType = VALUE, **options: Any) -> None:
    """Write the values as a Spark write with one task does."""
    texts = {"serviceUrl": cluster.url, "path": "t", "valueFormat": "avro"} | {k: str(v) for k, v in options.items()}
    client = shared_client(cluster.url)
    plan = plan_write(client, WriteOptions.parse(texts, streaming=False), schema)
    staged = stage(plan, [pa.record_batch({"value": pa.array(given, pa.binary())})] if given else [])
    commit(client, plan, Identity(f"app-{cluster.client.cluster.unique()}", 1, True, False), 30_000, [staged])


def got(cluster: Cluster, schema: StructType = VALUE, **options: Any) -> list[Any]:
    texts = {"serviceUrl": cluster.url, "path": "t", "valueFormat": "avro"} | {k: str(v) for k, v in options.items()}
    return [row["value"] for row in rows_of(read_batch(texts, schema))]


@pytest.fixture(autouse=True)
def _topic(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", FIRST)


def schema_ids(cluster: Cluster) -> list[int]:
    """Return the schema ids of all parts, in order, from the log and from index snapshots."""
    reading = cluster.client.buffer.read(LogSelection(("topic://public/default/t",)))
    return [part.schema for segment in reading.segments for ledger in segment.ledgers(0, reading.cut) for part in ledger.parts]


def test_values_are_read_by_the_version_they_were_written_in(cluster: Cluster) -> None:
    put(cluster, list(written(FIRST, [ROW])))
    cluster.topics.set_schema("t", SECOND)
    put(cluster, list(written(FIRST, [ROW | {"a": 2}])), schemaVersion=0)
    put(cluster, list(written(SECOND, [ROW | {"a": 2**40, "n": None}])))
    assert schema_ids(cluster) == [0, 0, 1]
    with pytest.raises(ValueFormatError, match=r"value 1 \(from 0\) of partition 0 in a write to topic://public/default/t is"):
        put(cluster, [*written(SECOND, [ROW | {"n": 1}]), *written(FIRST, [ROW])])
    with pytest.raises(SchemaError, match="versions are: 0, 1"):
        put(cluster, [], schemaVersion=2)
    assert len(schema_ids(cluster)) == 3


def test_rows_older_than_a_field_have_its_default(cluster: Cluster) -> None:
    put(cluster, list(written(FIRST, [ROW])))
    assert got(cluster) == written(FIRST, [ROW])
    cluster.topics.set_schema("t", SECOND)
    put(cluster, list(written(SECOND, [ROW | {"n": None}])))
    assert got(cluster) == written(SECOND, [ROW | {"n": 7}, ROW | {"n": None}])
    with pytest.raises(SchemaError, match="column a is bigint; it cannot be read as int"):
        got(cluster, schemaVersion=0)
    cluster.client.sweeper.sweep()
    assert got(cluster) == written(SECOND, [ROW | {"n": 7}, ROW | {"n": None}])


def test_writers_of_columns_respect_the_registered_schema(cluster: Cluster) -> None:
    with cluster.begin() as txn:
        with pytest.raises(SchemaError, match="In a write to topic://public/default/t the column a is missing"):
            txn.append("t", pa.table({"s": ["x"]}))
        with pytest.raises(SchemaError, match="the column a is null"):
            txn.append("t", pa.table({"a": pa.array([None], pa.int32())}))
        txn.append("t", pa.table({"a": pa.array([5], pa.int32())}))
        txn.commit()
    assert got(cluster) == written(FIRST, [{"a": 5, "s": "none"}])
    columns = StructType([StructField("a", IntegerType())])
    options = WriteOptions.parse({"serviceUrl": cluster.url, "path": "t"}, streaming=False)
    plan = plan_write(shared_client(cluster.url), options, columns)
    with pytest.raises(SchemaError, match="In a write to topic://public/default/t the column a is null"):
        stage(plan, [pa.record_batch({"a": pa.array([1, None], pa.int32())})])


def stream(cluster: Cluster, **options: str) -> StreamReader:
    texts = {"serviceUrl": cluster.url, "path": "t", "valueFormat": "avro", "startingOffsets": "earliest"} | options
    return StreamReader(texts, VALUE)


def next_batch(reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[pa.RecordBatch]]:
    end = reader.latestOffset(start, ReadAllAvailable())
    return end, run_tasks(reader, reader.partitions(start, end))


def test_a_stream_of_values_goes_by_one_version_into_another_topic(cluster: Cluster) -> None:
    first, second = written(FIRST, [ROW, ROW | {"a": 2}]), written(FIRST, [ROW | {"a": 3}])
    put(cluster, list(first))
    reader, patient, pinned = stream(cluster), stream(cluster, schemaChange="ignoreNewColumns"), stream(cluster, schemaVersion="0")
    end, batches = next_batch(reader, reader.initialOffset())
    assert [v for batch in batches for v in batch.column("value").to_pylist()] == first

    cluster.topics.create("u", segments=2)
    cluster.topics.set_schema("u", FIRST)
    texts = {"serviceUrl": cluster.url, "path": "u", "valueFormat": "avro", "keyColumn": "s"}
    client = shared_client(cluster.url)
    plan = plan_write(client, WriteOptions.parse(texts, streaming=True), VALUE)
    commit(client, plan, Identity("query", 0, False, True), 30_000, [stage(plan, batches)])
    assert got(cluster, path="u") == first
    assert cluster.topics.describe("u").key == "s"

    cluster.topics.set_schema("t", FIRST | {"fields": [*FIRST["fields"], {"name": "n", "type": "int", "default": 7}]})
    put(cluster, list(second), schemaVersion=0)
    with pytest.raises(SchemaChanged, match="is version 1 now; this stream gives values by version 0"):
        next_batch(reader, end)
    for other in (patient, pinned):
        _, batches = next_batch(other, end)
        assert [v for batch in batches for v in batch.column("value").to_pylist()] == second


def test_a_read_of_values_has_one_column(cluster: Cluster) -> None:
    with pytest.raises(SchemaError, match=r"column value \(binary\), and not struct<a:int,s:string>"):
        got(cluster, cluster.topics.schemas("t")[0].columns)
    with pytest.raises(SchemaError, match=r"one column, value \(binary\), and not struct<a:int,s:string>"):
        put(cluster, [], cluster.topics.schemas("t")[0].columns)
    cluster.topics.delete("t")
    cluster.topics.create("t")
    with pytest.raises(SchemaError, match="has no schema"):
        put(cluster, [])
    with pytest.raises(SchemaError, match="no schema yet"):
        got(cluster)


# --- Consumer and Producer ----------------------------------------------------------------------------------------


def test_programs_without_spark_share_a_topic_as_avro(cluster: Cluster) -> None:
    first = written(FIRST, [ROW, ROW | {"a": 2}])
    with cluster.producer("t", value_format="avro") as producer:
        for value in first:
            producer.send(value)
        with pytest.raises(ValueFormatError, match=r"value 0 \(from 0\) in a write to topic://public/default/t is not Avro"):
            producer.send(b"\x02")
        with pytest.raises(SchemaError, match="bytes, not dict"):
            producer.send({"a": 1})
    with cluster.consumer("t", "s", start="earliest", value_format="avro") as consumer:
        assert [m.value for m in consumer.messages(timeout=0)] == [{"value": value} for value in first]
        cluster.topics.set_schema("t", SECOND)
        late = cluster.producer("t", value_format="avro", schema_version=0)
        with cluster.begin() as txn:
            late.write(pa.table({"value": pa.array(written(FIRST, [ROW | {"a": 3}]), pa.binary())}), txn=txn)
            txn.commit()
        cluster.producer("t", value_format="avro").write(pa.table({"value": written(SECOND, [ROW | {"a": 4, "n": 1}])}))
        assert [m.value["value"] for m in consumer.messages(timeout=0)] == written(
            SECOND, [ROW | {"a": 3, "n": 7}, ROW | {"a": 4, "n": 1}]
        )
        consumer.rewind()
        whole = [batch.rows.column("value").to_pylist() for batch in consumer.batches(timeout=0)]
        assert [value for values in whole for value in values] == written(
            SECOND, [ROW | {"a": n, "n": m} for n, m in ((1, 7), (2, 7), (3, 7), (4, 1))]
        )
    assert got(cluster) == written(SECOND, [ROW | {"a": n, "n": m} for n, m in ((1, 7), (2, 7), (3, 7), (4, 1))])


def test_impossible_requests_of_programs_are_refused(cluster: Cluster) -> None:
    cluster.topics.create("u")
    for make, words in (
        (lambda: cluster.producer("t", value_format="json"), "must be one of columns, avro"),
        (lambda: cluster.producer("t", schema_version=0), "schema_version is given without"),
        (lambda: cluster.consumer("t", "s", start="earliest", schema_version=0), "schema_version is given without"),
        (lambda: cluster.consumer(["t", "u"], "s", start="earliest", value_format="avro"), "reads one topic"),
        (
            lambda: cluster.consumer("t", "s", start="earliest", value_format="avro", columns=["a"]),
            "value_format='avro' and columns",
        ),
    ):
        with pytest.raises(OptionError, match=words):
            make()
    with pytest.raises(SchemaError, match="has no schema yet"):
        cluster.producer("u", value_format="avro")
    with pytest.raises(SchemaError, match="one column value"):
        cluster.producer("t", value_format="avro").write(pa.table({"a": [1]}))
    with pytest.raises(SchemaError, match="by its columns"):
        cluster.producer("t").send(b"")
