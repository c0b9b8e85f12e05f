"""`conform` gives a batch the columns that a part or Spark expects, by name at every level. Matching arrays are not copied."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType, VariantType, YearMonthIntervalType

from ledgers.arrow import arrow_schema, conform
from ledgers.errors import SchemaError


def one(kind: pa.DataType, values: list[Any], name: str = "a", nullable: bool = True) -> pa.RecordBatch:
    plain = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
    array = plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field(name, kind, nullable)]))


def target(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("a", kind)])


D = decimal.Decimal
ENTRY = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.string())])
WIDE = pa.struct([pa.field("new", pa.float64()), pa.field("y", pa.string()), pa.field("x", pa.int64())])

WIDENS = [
    (pa.int8(), pa.int64(), [1, None], [1, None]),
    (pa.float32(), pa.float64(), [1.5, None], [1.5, None]),
    (pa.decimal128(5, 2), pa.decimal128(9, 4), [D("1.23")], [D("1.2300")]),
    (pa.large_string(), pa.string(), ["x", None], ["x", None]),
    (pa.large_binary(), pa.binary(), [b"x", None], [b"x", None]),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), ["x", None, "x"], ["x", None, "x"]),
    (pa.null(), pa.int32(), [None], [None]),
    (pa.large_list(pa.large_string()), pa.list_(pa.string()), [["x"], None, []], [["x"], None, []]),
    (
        ENTRY,
        WIDE,
        [{"x": 1, "y": "q"}, None, {"x": 2, "y": None}],
        [{"new": None, "y": "q", "x": 1}, None, {"new": None, "y": None, "x": 2}],
    ),
    (pa.list_(ENTRY), pa.list_(WIDE), [[{"x": 1, "y": "q"}], None], [[{"new": None, "y": "q", "x": 1}], None]),
    (
        pa.map_(pa.large_string(), ENTRY),
        pa.map_(pa.string(), WIDE),
        [[("k", {"x": 1, "y": "q"})], None, [("l", None), ("m", {"x": 2, "y": "r"})]],
        [[("k", {"new": None, "y": "q", "x": 1})], None, [("l", None), ("m", {"new": None, "y": "r", "x": 2})]],
    ),
]


@pytest.mark.parametrize(("source", "kind", "values", "expected"), WIDENS)
def test_values_survive_and_slices_too(source: pa.DataType, kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    batch = one(source, values * 3)
    for start, length in ((0, len(values) * 3), (1, len(values) * 2), (len(values), 1), (0, 0)):
        found = conform(batch.slice(start, length), target(kind))
        found.validate(full=True)
        assert found.schema.equals(target(kind), check_metadata=True)
        assert found.column(0).to_pylist() == (expected * 3)[start : start + length]


def test_matching_arrays_are_not_copied() -> None:
    batch = one(pa.int64(), [1, 2])
    assert conform(batch, target(pa.int64())) is batch
    tight = one(pa.int64(), [1, 2], nullable=False)
    assert conform(tight, target(pa.int64())).column(0).buffers()[1].address == tight.column(0).buffers()[1].address
    zoned = one(pa.timestamp("us", "America/Los_Angeles"), [1, 2])
    found = conform(zoned, target(pa.timestamp("us", "UTC")))
    assert found.column(0).cast(pa.int64()).to_pylist() == [1, 2]
    assert found.column(0).buffers()[1].address == zoned.column(0).buffers()[1].address


def test_order_missing_columns_and_no_columns() -> None:
    batch = pa.record_batch({"b": [1, 2], "a": ["x", "y"]})
    wanted = pa.schema([("a", pa.string()), ("c", pa.date32()), ("b", pa.int64())])
    assert conform(batch, wanted).to_pydict() == {"a": ["x", "y"], "c": [None, None], "b": [1, 2]}
    assert conform(batch.select([]), wanted).to_pydict() == {"a": [None] * 2, "c": [None] * 2, "b": [None] * 2}
    assert conform(batch.select([]), pa.schema([])).num_rows == 2


REFUSED = [
    (pa.int64(), pa.int32()),
    (pa.int32(), pa.float64()),
    (pa.float64(), pa.float32()),
    (pa.string(), pa.binary()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.decimal128(9, 2), pa.decimal128(9, 1)),
    (pa.decimal128(9, 2), pa.decimal128(9, 3)),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (WIDE, ENTRY),
]


@pytest.mark.parametrize(("source", "kind"), REFUSED)
def test_a_column_of_a_wrong_type_is_named(source: pa.DataType, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"\ba\b"):
        conform(one(source, []), target(kind))


def test_integers_that_fit_become_narrower_at_every_level() -> None:
    wide = pa.struct([("n", pa.int64()), ("l", pa.list_(pa.int64()))])
    narrow = pa.struct([("n", pa.int8()), ("l", pa.list_(pa.int16()))])
    found = conform(one(wide, [{"n": 5, "l": [300]}, None]), target(narrow), "fitting")
    assert found.column(0).type == narrow
    assert found.column(0).to_pylist() == [{"n": 5, "l": [300]}, None]
    with pytest.raises(SchemaError, match=r"a\.n has a value that int8 cannot hold: Integer value 128") as raised:
        conform(one(wide, [{"n": 128, "l": []}]), target(narrow), "fitting")
    assert "tinyint" in raised.value.advice
    with pytest.raises(SchemaError, match="should have float"):
        conform(one(pa.float64(), [0.5]), target(pa.float32()), "fitting")


def test_the_numbers_of_python_take_the_float_type_of_the_column() -> None:
    assert conform(one(pa.int64(), [5, None]), target(pa.float64()), "python").column(0).to_pylist() == [5.0, None]
    assert conform(one(pa.float64(), [0.5, float("inf")]), target(pa.float32()), "python").column(0).to_pylist() == [
        0.5,
        float("inf"),
    ]
    for source, kind, value in (
        (pa.float64(), pa.float32(), 1e300),
        (pa.int64(), pa.float64(), 2**53 + 1),
        (pa.int64(), pa.int8(), 200),
    ):
        with pytest.raises(SchemaError, match="cannot hold"):
            conform(one(source, [value]), target(kind), "python")
    with pytest.raises(SchemaError, match="should have int32"):
        conform(one(pa.float64(), [1.0]), target(pa.int32()), "python")


def test_a_wrong_type_says_to_which_type_of_spark_to_cast() -> None:
    with pytest.raises(SchemaError) as raised:
        conform(one(pa.int64(), [1]), target(pa.int32()))
    assert raised.value.advice == "Cast a to int before the write."


def test_unknown_doubled_and_null_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match="column z"):
        conform(one(pa.int64(), [1], "z"), target(pa.int64()))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SchemaError, match="twice"):
        conform(twice, target(pa.int64()))
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="null"):
        conform(one(pa.int64(), [None]), strict)
    with pytest.raises(SchemaError, match="null"):
        conform(one(pa.int64(), [1]).select([]), strict)


def test_a_null_variant_of_large_binaries() -> None:
    """With useLargeVarTypes, Spark sends a null variant with null children. Parquet refuses nulls in these NOT NULL fields, so
    `conform` replaces them.
    """
    source = pa.struct([pa.field("value", pa.large_binary()), pa.field("metadata", pa.large_binary())])
    fields = [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, {"variant": "true"})]
    values = [{"value": b"v", "metadata": b"m"}, None, {"value": b"", "metadata": b"n"}]
    found = conform(one(source, values), target(pa.struct(fields)))
    found.validate(full=True)
    assert found.column(0).to_pylist() == values
    assert found.column(0).field("value").null_count == 0
    with pytest.raises(SchemaError, match=r"a\.value"):
        conform(one(source, [{"value": None, "metadata": b"m"}, None]), target(pa.struct(fields)))


def test_spark_types_in_arrow() -> None:
    found = arrow_schema(StructType([StructField("t", TimestampType()), StructField("v", VariantType())]))
    assert found.field("t").type == pa.timestamp("us", tz="UTC")
    assert found.field("v").type.field("metadata").metadata == {b"variant": b"true"}
    with pytest.raises(SchemaError, match=r"y\.z"):
        arrow_schema(StructType([StructField("y", StructType([StructField("z", YearMonthIntervalType())]))]))
    metadata_column = StructType([StructField("__txnId", LongType())])
    assert arrow_schema(metadata_column).names == ["__txnId"]
