"""Avro values that are read with numpy give the same rows as the codec that reads value by value, or are left to that codec."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.avro.parsing import parse
from ledgers.avro.rows import Codec
from pulsar_protocol.avro_columns import Unusual, decode, supported
from tests.support.avro_schemas import records, values

KINDS = records(depth=0) | records(depth=1).filter(lambda kind: supported(parse(kind)))


def binary(kind: Any, rows: list[Any]) -> list[bytes]:
    found, schema = [], fastavro.parse_schema(kind)
    for row in rows:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        found.append(stream.getvalue())
    return found


def by_codec(kind: Any, data: list[bytes]) -> pa.RecordBatch:
    return Codec(parse(kind)).decode(pa.array(data, pa.binary()), str)


@given(st.data())
def test_all_rows_are_those_of_the_codec(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    rows = binary(kind, data.draw(st.lists(values(kind), max_size=5)))
    assert decode(rows, parse(kind), Codec(parse(kind)).arrow).equals(by_codec(kind, rows))


@given(st.data())
def test_damaged_rows_are_left_to_the_codec_or_are_the_same(data: st.DataObject) -> None:
    kind = data.draw(KINDS)
    rows = binary(kind, data.draw(st.lists(values(kind), min_size=1, max_size=3)))
    at = data.draw(st.integers(0, len(rows) - 1))
    row = bytearray(rows[at])
    if row:
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
    rows[at] = bytes(row[: data.draw(st.integers(0, len(row)))]) if data.draw(st.booleans()) else bytes(row)
    try:
        found = decode(rows, parse(kind), Codec(parse(kind)).arrow)
    except Unusual:
        return
    expected = by_codec(kind, rows)
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # damage may make a NaN, which is not equal to itself


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.binary(max_size=12))
def test_numbers_of_every_length(numbers: list[int], more: bytes) -> None:
    kind = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    rows = binary(kind, [{"n": number} for number in numbers])
    assert decode(rows, parse(kind), Codec(parse(kind)).arrow).column("n").to_pylist() == numbers
    try:
        found = decode([more], parse(kind), Codec(parse(kind)).arrow)
    except Unusual:
        return
    assert found.equals(by_codec(kind, [more]))


@pytest.mark.parametrize("row", ["", "80", "ffffffffffffffffff02", "ffffffffffffffffffff01", "0200"])
def test_a_number_that_is_cut_or_too_long_is_left_to_the_codec(row: str) -> None:
    kind = parse({"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]})
    with pytest.raises(Unusual):
        decode([b"\x02", bytes.fromhex(row)], kind, Codec(kind).arrow)


def test_arrays_and_maps_are_left_to_the_codec() -> None:
    for kind in ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}):
        assert not supported(parse({"type": "record", "name": "r", "fields": [{"name": "n", "type": kind}]}))
