"""Conditions exclude a part only if no row of it meets them. What a row meets is computed here as Spark does, value by value."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from ledgers.model import Part
from ledgers.part_statistics import Bounds, KeyFilter, Statistics, encode
from ledgers.statistics_writer import Gathering
from metadata.common.errors import CorruptRecord
from metadata.records.names import key_hash
from spark_txn_source import skipping
from spark_txn_source.planned import Piece
from spark_txn_source.skipping import Condition, kind_of_column, left

SEGMENT = "segment://public/default/t/0000-ffff-0"
COMPARISONS = [
    skipping.EQUAL,
    skipping.DIFFERS,
    skipping.LESS,
    skipping.LESS_OR_EQUAL,
    skipping.GREATER,
    skipping.GREATER_OR_EQUAL,
]
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]) | st.floats()),
    "f32": (pa.float32(), st.floats(width=32)),
    "s": (pa.string(), st.text(alphabet="aäz\U0001f600", max_size=4) | st.text(alphabet="az", min_size=40, max_size=60)),
    "x": (pa.binary(), st.binary(max_size=3) | st.binary(min_size=40, max_size=60)),
    "m": (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2, allow_nan=False)),
    "b": (pa.bool_(), st.booleans()),
}


def piece(stats: Statistics | str | None, *, segment: str = SEGMENT, publish_ms: int = 7, txn: str | None = "0_1") -> Piece:
    text = encode(stats) if isinstance(stats, Statistics) else stats
    return Piece(segment, 1, 0, publish_ms, txn, Part("p.parquet", 3, 9, 1, (3,), 0, stats=text), 0, 0)


def raw(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value.encode() if isinstance(value, str) else value


def meets(value: Any, operator: str, wanted: Any) -> bool:
    """Return whether a value meets a condition, as Spark evaluates it: NaN equals NaN and is larger than every number."""
    if value is None:
        return False
    if isinstance(value, float):
        value, wanted = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (value, wanted))
    return {
        skipping.EQUAL: value == wanted,
        skipping.DIFFERS: value != wanted,
        skipping.LESS: value < wanted,
        skipping.LESS_OR_EQUAL: value <= wanted,
        skipping.GREATER: value > wanted,
        skipping.GREATER_OR_EQUAL: value >= wanted,
        skipping.STARTS: isinstance(value, bytes) and value.startswith(wanted),
    }[operator]


def statistics(column: pa.Array, key: str | None = None) -> str | None:
    """Return the statistics of a part with one column, `c`, as a writer takes them."""
    import io

    import pyarrow.parquet as pq

    table = pa.table({"c": column})
    gathering, footers = Gathering(table.schema, key), []
    with pq.ParquetWriter(io.BytesIO(), table.schema, metadata_collector=footers) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
            gathering.add([batch])
    return gathering.encoded(footers[0])


@settings(max_examples=400, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(TYPES)), operator=st.sampled_from([*COMPARISONS, skipping.STARTS]))
def test_no_part_with_a_row_of_the_result_is_left_out(data: st.DataObject, kind: str, operator: str) -> None:
    assume(operator != skipping.STARTS or kind == "s")
    arrow, values = TYPES[kind]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    wanted = data.draw((st.sampled_from(rows) if any(row is not None for row in rows) else values) | values)
    assume(wanted is not None and wanted == wanted)
    part = piece(statistics(pa.array(rows, arrow), data.draw(st.sampled_from(["c", None])) if kind in "isx" else None))
    cut = data.draw(st.integers(0, 60))
    value = raw(wanted)[:cut] if operator == skipping.STARTS else raw(wanted)
    kept = left([part], [Condition("c", operator, kind[0], (value,))])
    assert kept or not any(meets(raw(row), operator, value) for row in rows)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.none() | st.integers(0, 20), min_size=1, max_size=4), wanted=st.lists(st.integers(0, 20), min_size=1))
def test_a_list_of_values_leaves_a_part_out_only_if_it_has_none_of_them(rows: list[int | None], wanted: list[int]) -> None:
    part = piece(statistics(pa.array(rows, pa.int64()), "c"))
    kept = left([part], [Condition("c", skipping.EQUAL, "i", tuple(wanted))])
    assert kept or not set(rows) & set(wanted)
    assert bool(left([part], [Condition("c", skipping.NULL)])) is (None in rows)
    assert bool(left([part], [Condition("c", skipping.NOT_NULL)])) is (rows != [None] * len(rows))


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (skipping.EQUAL, 4),
        (skipping.EQUAL, 10),
        (skipping.LESS, 5),
        (skipping.LESS_OR_EQUAL, 4),
        (skipping.GREATER, 9),
        (skipping.GREATER_OR_EQUAL, 10),
    ],
)
def test_a_part_without_a_row_of_the_result_is_left_out(operator: str, value: int) -> None:
    assert left([piece(statistics(pa.array([5, None, 9])))], [Condition("c", operator, "i", (value,))]) == []


def test_a_part_of_one_value_is_left_out_where_another_is_wanted() -> None:
    same = piece(statistics(pa.array(["a", "a", None])))
    assert left([same], [Condition("c", skipping.DIFFERS, "s", (b"a",))]) == []
    assert left([same], [Condition("c", skipping.DIFFERS, "s", (b"b",))]) == [same]
    assert left([same], [Condition("c", skipping.STARTS, "s", (b"b",))]) == []


def test_a_column_of_another_type_and_a_part_without_statistics_may_have_any_value() -> None:
    unknown, other = piece(None), piece(Statistics({"c": Bounds("s", b"a", b"b")}))
    wanted = [Condition("c", skipping.EQUAL, "i", (3,)), Condition("added", skipping.EQUAL, "i", (3,))]
    assert left([unknown, other], wanted) == [unknown, other]


def test_decimals_of_another_scale_are_compared_exactly() -> None:
    large = 12345678901234567890123456789012345678
    part = piece(Statistics({"c": Bounds("m", large, large, 2)}))
    for value, kept in ((Decimal(f"{large}E-2"), True), (Decimal(f"{large}1E-3"), False), (Decimal(f"{large - 1}E-2"), False)):
        assert bool(left([part], [Condition("c", skipping.EQUAL, "m", (value,))])) is kept


def test_a_key_is_looked_for_in_its_segment_alone() -> None:
    keyed, by_other = Statistics({}, "k"), Statistics({}, "other")
    wanted = [Condition("k", skipping.EQUAL, "s", (b"ann",))]
    lower = key_hash(b"ann") <= 0x7FFF
    here, there = ("0000-7fff-0", "8000-ffff-1") if lower else ("8000-ffff-1", "0000-7fff-0")
    near, far = (piece(keyed, segment=f"segment://public/default/t/{name}") for name in (here, there))
    assert left([near, far], wanted) == [near]
    unkeyed = [piece(stats, segment=far.segment) for stats in (by_other, None)]
    assert left(unkeyed, wanted) == unkeyed, "rows that were routed without this key can be in any segment"
    assert left([far], [Condition("k", skipping.NULL)]) == [far], "rows without a key can be in any segment"


def test_an_integer_key_is_looked_for_by_its_digits() -> None:
    part = piece(Statistics({}, "k", KeyFilter.of([b"7", b"-3"])))
    for value, kept in ((7, True), (-3, True), (70, False)):
        assert bool(left([part], [Condition("k", skipping.EQUAL, "i", (value,))])) is kept


def test_metadata_columns_leave_parts_out_too() -> None:
    part = piece(None, publish_ms=1_000)
    for column, kind, same, other in (
        ("__publishTime", "t", 1_000_000, 999_999),
        ("__segment", "s", SEGMENT.encode(), b"segment://x"),
        ("__topic", "s", b"topic://public/default/t", b"topic://public/default/u"),
        ("__txnId", "s", b"0_1", b"0_2"),
    ):
        assert left([part], [Condition(column, skipping.EQUAL, kind, (same,))]) == [part]
        assert left([part], [Condition(column, skipping.EQUAL, kind, (other,))]) == []
    assert left([part], [Condition("__txnId", skipping.NULL)]) == []
    assert left([piece(None, txn=None)], [Condition("__txnId", skipping.NOT_NULL)]) == []
    assert left([part], [Condition("__messageId", skipping.EQUAL, "s", (b"1:0:0",))]) == [part]


def test_damaged_statistics_are_an_error_that_names_the_part() -> None:
    with pytest.raises(CorruptRecord, match=r"p\.parquet"):
        left([piece("AQAF")], [Condition("c", skipping.NULL)])


def test_columns_with_a_collation_and_nested_ones_are_not_compared() -> None:
    assert kind_of_column(T.StringType("UTF8_LCASE")) == ""
    assert kind_of_column(T.StructType([T.StructField("a", T.IntegerType())])) == ""
    assert kind_of_column(T.StringType()) == "s"
    assert kind_of_column(T.DayTimeIntervalType()) == ""
