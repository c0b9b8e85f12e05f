"""The statistics of parts: what a writer takes, their text, and that they never exclude a row which a part has."""

from __future__ import annotations

import datetime
import math
from base64 import b64encode
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers.errors import CorruptPart
from ledgers.model import MOST_STATISTICS, Part
from ledgers.part_statistics import MOST_KEYS, REST, SHARED, Bounds, KeyFilter, Statistics, decode, encode
from ledgers.parts import PartWriter, verify_part
from ledgers.statistics_writer import outside
from ledgers.storage import LedgerStorage

NAMES = count()
UTC = pa.timestamp("us", tz="UTC")


def written(folder: Path, table: pa.Table, *, key: str | None = None, entry_rows: int = 1_000_000) -> Part:
    storage = LedgerStorage(folder.as_uri())
    name = f"p{next(NAMES)}"
    writer = PartWriter(
        storage, "t", table.schema, 0, staging_id="s", key=key, entry_rows=entry_rows, name_source=lambda: name, compression="none"
    )
    for batch in table.to_batches():
        writer.write(batch)
    part = writer.close()
    assert part is not None
    return part


def known(folder: Path, table: pa.Table, **how: Any) -> Statistics:
    part = written(folder, table, **how)
    verify_part(LedgerStorage(folder.as_uri()), part)
    return Statistics({}) if part.stats is None else decode(part.stats)


def test_each_type_whose_order_is_sparks_has_exact_bounds(tmp_path: Path) -> None:
    instants = [datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC), datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC)]
    found = known(
        tmp_path,
        pa.table(
            {
                "small": pa.array([-3, 5], pa.int8()),
                "long": pa.array([-(2**63), 2**63 - 1]),
                "flag": [False, True],
                "day": pa.array([datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]),
                "at": pa.array(instants, UTC),
                "local": pa.array([-1, 7], pa.timestamp("us")),
                "price": pa.array([Decimal("-1.50"), Decimal("99999999999999999999999999999999.99")], pa.decimal128(38, 2)),
                "float": pa.array([0.1, -0.5], pa.float32()),
                "double": [1.5, -0.0],
                "word": ["über", "a"],
                "raw": [b"\xff", b""],
            }
        ),
    ).columns
    assert found["small"] == Bounds("i", -3, 5, nulls=False)
    assert found["long"] == Bounds("i", -(2**63), 2**63 - 1, nulls=False)
    assert found["flag"] == Bounds("b", 0, 1, nulls=False)
    assert found["day"] == Bounds("d", -1, 20454, nulls=False)
    assert found["at"] == Bounds("t", -2208988800000000, 1793491200000000, nulls=False)
    assert found["local"] == Bounds("n", -1, 7, nulls=False)
    assert found["price"] == Bounds("m", -150, 9999999999999999999999999999999999, 2, nulls=False)
    assert found["word"] == Bounds("s", b"a", "über".encode(), nulls=False)


def test_columns_of_other_types_and_fields_of_structs_have_no_bounds(tmp_path: Path) -> None:
    table = pa.table(
        {
            "list": [[1], [2]],
            "pair": [{"a": 1, "b": 2}, {"a": 3, "b": 4}],
            "took": pa.array([1, 2], pa.duration("us")),
            "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "after": [8, 9],
        }
    )
    assert known(tmp_path, table).columns == {"after": Bounds("i", 8, 9, nulls=False)}


def test_nan_has_no_upper_bound_since_it_is_above_every_number(tmp_path: Path) -> None:
    found = known(tmp_path, pa.table({"a": [1.0, float("nan")], "b": [1.0, 2.0], "c": [float("nan")] * 2})).columns
    assert found == {"a": Bounds("f", 1.0, None, nulls=False), "b": Bounds("f", 1.0, 2.0, nulls=False)}


def test_the_footer_has_no_bounds_of_floating_point_numbers(tmp_path: Path) -> None:
    """Arrow leaves NaN out of the bounds in a footer. Spark's Parquet reader would skip row groups with NaN by such bounds."""
    import pyarrow.parquet as pq

    pair = pa.array([{"a": 1.0, "b": 1}], pa.struct([("a", pa.float32()), ("b", pa.int64())]))
    table = pa.table({"f": [math.nan], "n": [1], "pair": pair, "list": pa.array([[1.5]]), "pair.a": [3]})
    part = written(tmp_path, table)
    group = pq.read_metadata(tmp_path / part.path).row_group(0)
    found = {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(group.num_columns)}
    assert [name for name, is_set in found.items() if is_set] == ["n"]


def test_nan_in_a_later_entry_counts(tmp_path: Path) -> None:
    found = known(tmp_path, pa.table({"a": [1.0, 2.0, 3.0, float("nan")]}), entry_rows=2).columns
    assert found == {"a": Bounds("f", 1.0, None, nulls=False)}


def test_nulls_are_told_and_a_column_of_nulls_alone_has_no_bounds(tmp_path: Path) -> None:
    found = known(tmp_path, pa.table({"a": [None, 1], "b": pa.array([None, None], pa.int64())})).columns
    assert found == {"a": Bounds("i", 1, 1, nulls=True), "b": Bounds(nulls=True, only_nulls=True)}


def test_bounds_are_those_of_all_entries(tmp_path: Path) -> None:
    found = known(tmp_path, pa.table({"a": [5, 6, 1, 2, None, None, 9, 3]}), entry_rows=2).columns
    assert found == {"a": Bounds("i", 1, 9, nulls=True)}


def test_long_texts_are_cut_off_after_what_they_share(tmp_path: Path) -> None:
    shared = "https://example.org/" * 3
    found = known(tmp_path, pa.table({"a": [shared + "ä" * 30, shared + "z" * 30], "b": ["ä" * 30, "é" * 30]})).columns
    assert found["a"] == Bounds("s", shared[: SHARED + REST].encode(), shared[: SHARED + REST].encode(), cut=True, nulls=False)
    assert found["b"] == Bounds(
        "s", b"\xc3" + ("ä" * 30).encode()[1 : 1 + REST], b"\xc3" + ("é" * 30).encode()[1 : 1 + REST], cut=True, nulls=False
    )


def test_a_part_with_few_keys_has_a_filter_of_them(tmp_path: Path) -> None:
    keys = [f"key-{n}" for n in range(20)]
    found = known(tmp_path, pa.table({"n": list(range(21)), "k": [*keys, None]}), key="k", entry_rows=5)
    assert found.key == "k"
    assert found.keys is not None
    assert len(found.keys.bits) == 20
    assert all(found.keys.may_have(key.encode()) for key in keys)
    others = sum(found.keys.may_have(f"other-{n}".encode()) for n in range(10_000))
    assert others < 400, "8 bits for each key let about 2 of 100 others pass"


def test_a_part_with_many_keys_is_known_to_be_routed_by_its_key(tmp_path: Path) -> None:
    table = pa.table({"k": list(range(MOST_KEYS + 1))})
    assert known(tmp_path, table, key="k") == Statistics({"k": Bounds("i", 0, MOST_KEYS, nulls=False)}, "k", None)
    assert known(tmp_path, table, key="k", entry_rows=10).keys is None
    assert known(tmp_path, table).key is None


@pytest.mark.parametrize("name", ["x" * 100, "ü"])
def test_wide_tables_keep_within_the_limit_and_times_come_first(tmp_path: Path, name: str) -> None:
    columns: dict[str, pa.Array] = {f"{name}{n}": pa.array(["a" * 80, "z" * 80]) for n in range(100)}
    keys = [f"{n:030}" for n in range(2)]
    part = written(tmp_path, pa.table({**columns, "at": pa.array([1, 2], UTC), "k": keys}), key="k")
    assert part.stats is not None
    assert len(part.stats) <= MOST_STATISTICS * 3 // 4
    assert {"at", "k"} <= decode(part.stats).columns.keys()


def test_a_writer_without_statistics_takes_none(tmp_path: Path) -> None:
    writer = PartWriter(LedgerStorage(tmp_path.as_uri()), "t", pa.schema([("n", pa.int64())]), 0, staging_id="s", statistics=False)
    writer.write(pa.record_batch({"n": [1]}))
    part = writer.close()
    assert part is not None
    assert part.stats is None


BOUNDS = st.one_of(
    st.builds(
        lambda kind, low, step: Bounds(kind, low, low + step),
        st.sampled_from("ibdtn"),
        st.integers(-(2**62), 2**62),
        st.integers(0, 2**62),
    ),
    st.builds(
        lambda low, step, scale: Bounds("m", low, low + step, scale),
        st.integers(-(10**37), 10**37),
        st.integers(0, 10**37),
        st.integers(0, 38),
    ),
    st.builds(lambda a, b: Bounds("f", min(a, b), max(a, b)), *[st.floats(allow_nan=False)] * 2),
    st.builds(lambda a: Bounds("f", a, None, nulls=False), st.floats(allow_nan=False)),
    st.builds(lambda kind, a, b: Bounds(kind, min(a, b), max(a, b)), st.sampled_from("sx"), *[st.binary(max_size=12)] * 2),
    st.sampled_from([Bounds(only_nulls=True), Bounds(nulls=False)]),
)


@given(
    st.dictionaries(st.text(max_size=5), BOUNDS, max_size=3),
    st.none() | st.text(min_size=1, max_size=10),
    st.none() | st.lists(st.binary(), max_size=MOST_KEYS),
)
def test_statistics_are_what_their_text_says(columns: dict[str, Bounds], key: str | None, keys: list[bytes] | None) -> None:
    filter_of = None if key is None or keys is None else KeyFilter.of(keys)
    text = encode(Statistics(columns, key, filter_of))
    assert (Statistics({}) if text is None else decode(text)) == Statistics(columns, key, filter_of)
    if text is not None and columns:
        name = next(iter(columns))
        assert decode(text, [name]).columns == {name: columns[name]}


@given(st.binary(max_size=120))
def test_a_damaged_text_is_a_value_error_or_readable(data: bytes) -> None:
    for raw in (data, b"\x01" + data, b"\x01\x01" + data):
        try:
            encode(decode(b64encode(raw).decode()))
        except ValueError:
            continue


def test_statistics_of_a_later_version_have_no_bounds() -> None:
    assert decode(b64encode(b"\x02\x00abc").decode()) == Statistics({})


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f": (pa.float64(), st.floats()),
    "s": (pa.string(), st.text(alphabet="aäz\U0001f600", max_size=60)),
    "x": (pa.binary(), st.binary(max_size=60)),
    "m": (pa.decimal128(38, 3), st.decimals(-(10**30), 10**30, places=3, allow_nan=False)),
    "d": (pa.date32(), st.dates()),
    "b": (pa.bool_(), st.booleans()),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_row_lies_outside_of_the_statistics_of_its_part(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    table = pa.table(
        {
            name: pa.array(data.draw(st.lists(st.none() | values, min_size=6, max_size=6)), kind)
            for name, (kind, values) in VALUES.items()
        }
    )
    key = data.draw(st.sampled_from(["s", "i", "x", None]))
    part = written(tmp_path_factory.mktemp("p"), table, key=key, entry_rows=data.draw(st.sampled_from([2, 6])))
    assert part.stats is not None
    found = decode(part.stats)
    for batch in table.to_batches(max_chunksize=1):
        assert outside(found, batch) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": Bounds("i", 2, 9, nulls=False)},
        {"n": Bounds("i", 1, 8, nulls=False)},
        {"n": Bounds("t", 1, 9, nulls=False)},
        {"n": Bounds(only_nulls=True)},
        {"s": Bounds("s", b"a", b"y", nulls=False)},
        {"s": Bounds("s", b"a", b"z", nulls=False), "m": Bounds("i", 1, 1, nulls=False)},
        {"x": Bounds("i", 1, 1, nulls=False)},
    ],
    ids=str,
)
def test_verify_refuses_rows_outside_of_the_statistics(tmp_path: Path, wrong: dict[str, Bounds]) -> None:
    part = written(tmp_path, pa.table({"n": [1, 9], "s": ["a", "z"], "m": pa.array([None, 1], pa.int64())}))
    storage = LedgerStorage(tmp_path.as_uri())
    verify_part(storage, part)
    damaged = Part(part.path, part.rows, part.bytes, part.crc, part.entries, part.schema, stats=encode(Statistics(wrong)))
    with pytest.raises(CorruptPart, match="statistics"):
        verify_part(storage, damaged)


def test_verify_refuses_a_key_that_the_filter_does_not_have(tmp_path: Path) -> None:
    part = written(tmp_path, pa.table({"k": ["a", "b"]}), key="k")
    stats = encode(Statistics({}, "k", KeyFilter(b"\x00", 3)))
    damaged = Part(part.path, part.rows, part.bytes, part.crc, part.entries, part.schema, stats=stats)
    with pytest.raises(CorruptPart, match="a key that its statistics do not have"):
        verify_part(LedgerStorage(tmp_path.as_uri()), damaged)
