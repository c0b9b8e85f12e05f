"""The option `valueFormat=avro`. A read returns each row as Avro binary, and a write takes each row as Avro binary. The schema is
the topic's latest one, or a chosen version of it.
"""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from metadata.common.errors import OptionError

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": ["null", "string"]}, {"name": "n", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}  # fmt: skip
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "channel", "type": "string", "default": "web"}]}
VALUE = StructType([StructField("value", BinaryType())])
AT = datetime.datetime(2026, 11, 21, 12, 0, 0, 123_000, tzinfo=datetime.UTC)


def order(number: int, **more: Any) -> dict[str, Any]:
    lines = [{"sku": None if i else f"s{number}", "n": i} for i in range(number % 3)]
    row = {"id": number, "customer": f"c{number % 7}", "amount": Decimal(number).scaleb(-2), "at": AT, "kind": "NEW"}
    return row | {"lines": lines, "tags": {"n": str(number)}} | more


def values(schema: dict[str, Any], *rows: dict[str, Any]) -> list[bytes]:
    found = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
        found.append(stream.getvalue())
    return found


def put(here: Deployment, given: list[bytes], partitions: int = 2, **options: Any) -> None:
    frame = here.spark.createDataFrame([(v,) for v in given], VALUE).repartition(partitions)
    here.write(frame, valueFormat="avro", **options)


def got(here: Deployment, topic: str = "t", **options: Any) -> list[bytes]:
    return sorted(bytes(r["value"]) for r in here.read(topic, valueFormat="avro", **options).collect())


def test_avro_bytes_of_other_programs_round_trip_unchanged(here: Deployment) -> None:
    here.cluster.topics.create("t", segments=3)
    here.cluster.topics.set_schema("t", FIRST)
    given = values(FIRST, *(order(n) for n in range(40)))
    put(here, given, keyColumn="customer")
    assert got(here) == sorted(given)
    assert here.cluster.topics.describe("t").key == "customer"
    columns = here.read().orderBy("id").collect()
    assert [r["id"] for r in columns] == list(range(40))
    assert columns[5].asDict(recursive=True)["lines"] == [{"sku": "s5", "n": 0}, {"sku": None, "n": 1}]
    assert (columns[5]["amount"], columns[5]["kind"], columns[5]["tags"]) == (Decimal("0.05"), "NEW", {"n": "5"})
    placed = here.read(valueFormat="avro", includeMetadata="true")
    assert placed.schema.fieldNames()[:2] == ["value", "__topic"]
    assert placed.where("__messageId like '1:%'").count() == 40


def test_bad_bytes_name_topic_and_row_and_nothing_is_committed(here: Deployment) -> None:
    here.cluster.topics.create("t")
    with pytest.raises(PySparkException, match="no schema to read the values by"):
        put(here, [b"x"])
    here.cluster.topics.set_schema("t", FIRST)
    good = values(FIRST, *(order(n) for n in range(5)))
    with pytest.raises(PySparkException) as caught:
        put(here, [*good, b"\x01nonsense", *good], partitions=1)
    for word in (
        "ValueFormatError",
        "topic://public/default/t",
        "is not Avro of the schema shop.Order",
        "6e6f6e73656e7365",
        "partition 0",
    ):
        assert word in str(caught.value)
    with pytest.raises(PySparkException, match="has no value"):
        here.write(here.spark.createDataFrame([(None,)], VALUE), valueFormat="avro")
    with pytest.raises(PySparkException, match=r"one column, value \(binary\), and not struct<value:binary,key:int>"):
        here.write(here.spark.createDataFrame([(b"", 1)], "value binary, key int"), valueFormat="avro")
    assert here.read().count() == 0
    assert here.files() == []


def test_readers_choose_a_schema_version_while_writers_differ(here: Deployment) -> None:
    """Writers of the old and of the new schema write at the same time. Each reader chooses a version. A running stream fails with
    SchemaChanged.
    """
    here.cluster.topics.create("t")
    here.cluster.topics.set_schema("t", FIRST)
    first = values(FIRST, order(1))
    put(here, first)
    stream = here.stream(startingOffsets="earliest", valueFormat="avro")
    patient = here.stream(startingOffsets="earliest", valueFormat="avro", schemaChange="ignoreNewColumns")
    pinned = here.stream(startingOffsets="earliest", valueFormat="avro", schemaVersion="0")
    live = stream.writeStream.format("memory").queryName("live").option("checkpointLocation", f"{here.folder}/live").start()
    here.queries.append(live)
    live.processAllAvailable()
    assert here.cluster.topics.set_schema("t", SECOND).version == 1
    late = values(FIRST, order(2))
    put(here, late, schemaVersion=0)
    with pytest.raises(PySparkException, match=r"SchemaChanged.*version 1 now; this stream gives values by version 0"):
        live.processAllAvailable()
    put(here, values(SECOND, order(3, channel="shop")))
    with pytest.raises(PySparkException, match="is not Avro of the schema"):
        put(here, values(SECOND, order(4, channel="shop")), schemaVersion=0)
    # In a read by the new schema, old rows have the default. In a read by the old schema, no row has the new column.
    assert got(here) == sorted(values(SECOND, order(1, channel="web"), order(2, channel="web"), order(3, channel="shop")))
    old = sorted(values(FIRST, order(1), order(2), order(3)))
    assert got(here, schemaVersion=0) == old
    assert here.read(schemaVersion=0).columns == [f["name"] for f in FIRST["fields"]]
    assert sorted(r["channel"] or "" for r in here.read().select("channel").collect()) == ["", "", "shop"]
    assert here.scan(schemaVersion=0).columns == here.read(schemaVersion=0).columns
    with pytest.raises(PySparkException, match=r"no schema version 9.*versions are: 0, 1\."):
        here.read(schemaVersion=9)
    assert sorted(bytes(r[0]) for batch in here.drain(pinned, "p") for r in batch) == old
    assert len([r for batch in here.drain(patient, "q") for r in batch]) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": "id bigint"}, r"column value \(binary\), and not struct<id:bigint>"),
        ({"schema": "value binary, __topic string"}, "includeMetadata"),
        ({"columns": "id"}, "valueFormat=avro and columns"),
        ({"topics": "t, u", "topic": None}, "several topics are read"),
    ],
)
def test_impossible_reads_of_values_are_refused(here: Deployment, options: dict[str, Any], words: str) -> None:
    here.cluster.topics.create("t", schema="id bigint")
    with pytest.raises(PySparkException, match=words):
        here.read(**({"topic": "t"} | options), valueFormat="avro").collect()


def test_columns_without_an_avro_type_are_refused(here: Deployment) -> None:
    here.cluster.topics.create("t", schema="id bigint, m map<int, int>")
    with pytest.raises(PySparkException, match=r"column m has the type map<int,int>, which Avro does not have"):
        here.read(valueFormat="avro")
    with pytest.raises(OptionError, match="cannot return Avro values"):
        here.scan(valueFormat="avro")
    here.append("t", pa.table({"id": [1]}))
    here.cluster.topics.create("u", schema="id bigint")
    here.append("u", pa.table({"id": pa.array([None], pa.int64())}))
    assert got(here, "u") == [b"\x00"]
    here.cluster.topics.set_compatibility("u", "none")
    here.cluster.topics.set_schema("u", {"type": "record", "name": "u", "fields": [{"name": "id", "type": "long"}]})
    with pytest.raises(PySparkException, match=r"row 2:0:0 of segment://public/default/u/0000-ffff-0 .* column id is null"):
        got(here, "u")
