"""Routing of rows: `key_hash` decides the segment of each key, the order is kept, no row is lost, and one segment needs no copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import OptionError, SegmentSealed
from metadata.records.names import even_ranges, key_hash, topic_name
from metadata.topics.routing import Router, Target

TOPIC = topic_name("t")


def active(count: int) -> list[Target]:
    return [Target(TOPIC.segment(r, i), r) for i, r in enumerate(even_ranges(count))]


def home(to: Sequence[Target], key: bytes) -> str:
    return next(t.segment for t in to if key_hash(key) in t.hash_range)


def key_bytes(value: str | bytes | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def routed(router: Router, batches: Sequence[pa.RecordBatch]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        for segment, rows in router.route(batch):
            assert rows.num_rows
            assert rows.schema.equals(batch.schema)
            found[segment] += rows.column("n").to_pylist()
    return found


KEYS = st.one_of(
    st.tuples(st.just(pa.string()), st.lists(st.none() | st.text(max_size=9), max_size=60)),
    st.tuples(st.just(pa.large_string()), st.lists(st.text(max_size=9), max_size=60)),
    st.tuples(st.just(pa.binary()), st.lists(st.none() | st.binary(max_size=9), max_size=60)),
    st.tuples(st.just(pa.large_binary()), st.lists(st.binary(max_size=9), max_size=60)),
    st.tuples(st.just(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=60)),
    st.tuples(st.just(pa.int8()), st.lists(st.integers(-128, 127), max_size=60)),
)


@given(typed=KEYS, segments=st.integers(1, 9), cut=st.integers(0, 60), start=st.integers(0, 100))
def test_each_row_goes_to_the_segment_of_its_key_in_order(
    typed: tuple[pa.DataType, list[str | bytes | int | None]], segments: int, cut: int, start: int
) -> None:
    kind, keys = typed
    whole = pa.record_batch({"k": pa.array(keys, kind), "n": pa.array(range(len(keys)), pa.int64())})
    to = active(segments)
    router = Router(to, "k", whole.schema, start=start)
    # the batches are slices, because the arrays of slices have offsets
    found = routed(router, [whole.slice(0, cut), whole.slice(cut)])
    assert sorted(n for rows in found.values() for n in rows) == list(range(len(keys)))
    for segment, rows in found.items():
        assert rows == sorted(rows)
        for n in rows:
            key = keys[n]
            expected = to[start % segments].segment if key is None else home(to, key_bytes(key))
            assert segment == expected


def test_rows_without_a_key_move_on_with_each_entry() -> None:
    batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    router = Router(active(3), None, batch.schema, start=4, entry_rows=25)
    went = [segment for _ in range(8) for segment, _ in router.route(batch)]
    names = [t.segment for t in active(3)]
    assert went == [names[1], names[1], names[2], names[2], names[0], names[0], names[1], names[1]]


def test_rows_without_a_key_move_on_by_bytes_too() -> None:
    batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    router = Router(active(2), None, batch.schema, entry_bytes=100)
    assert len({segment for _ in range(4) for segment, _ in router.route(batch)}) == 2


def test_a_batch_larger_than_an_entry_is_routed() -> None:
    batch = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    router = Router(active(2), None, batch.schema, entry_rows=3)
    assert [s for _ in range(3) for s, _ in router.route(batch)] == [active(2)[i].segment for i in (0, 1, 0)]


@pytest.mark.parametrize("key", ["k", None])
def test_one_segment_copies_nothing(key: str | None) -> None:
    batch = pa.record_batch({"k": ["a", None, "b"], "n": [1, 2, 3]})
    ((segment, rows),) = Router(active(1), key, batch.schema).route(batch)
    assert segment == active(1)[0].segment
    assert rows is batch


def test_a_batch_that_goes_to_one_of_many_segments_is_not_copied() -> None:
    batch = pa.record_batch({"k": ["same"] * 5, "n": range(5)})
    ((_, rows),) = Router(active(7), "k", batch.schema).route(batch)
    assert rows is batch


def test_an_empty_batch_is_routed_to_no_segment() -> None:
    batch = pa.record_batch({"k": pa.array([], pa.string())})
    assert list(Router(active(2), "k", batch.schema).route(batch)) == []
    assert list(Router(active(1), None, batch.schema).route(batch)) == []


@pytest.mark.parametrize(
    ("key", "kind", "says"),
    [
        ("kee", pa.string(), "Did you mean key"),
        ("zzz", pa.string(), "There are: key, n"),
        ("key", pa.float64(), "double"),
        ("key", pa.bool_(), "bool"),
        ("key", pa.date32(), "date32"),
        ("key", pa.timestamp("us", "UTC"), "timestamp"),
        ("key", pa.decimal128(10, 0), "decimal"),
        ("key", pa.list_(pa.string()), "list"),
    ],
)
@pytest.mark.parametrize("segments", [1, 4])
def test_a_column_that_cannot_be_the_key_is_refused(key: str, kind: pa.DataType, says: str, segments: int) -> None:
    schema = pa.schema([("key", kind), ("n", pa.int64())])
    with pytest.raises(OptionError, match=says):
        Router(active(segments), key, schema)


def test_a_topic_without_active_segments_takes_no_rows() -> None:
    with pytest.raises(SegmentSealed):
        Router([], None, pa.schema([("n", pa.int64())]))


def test_segments_that_leave_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="tile"):
        Router(active(3)[:2], "k", pa.schema([("k", pa.string())]))
