"""Tests of `cluster.topics.read(filter=)`: it returns exactly the rows that meet the conditions, and skips files that have none."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from metadata.common import metrics
from metadata.common.errors import OptionError, SchemaError
from txnsegment import Cluster

SCHEMA = (
    "n int, x double, f float, s string, b boolean, d date, t timestamp, z timestamp_ntz, m decimal(6,2), y binary, l array<int>"
)
UTC = datetime.UTC
COUNT = 24


def row(i: int) -> dict[str, Any]:
    """Return a row whose values rise with `i`. Every seventh row has nulls only."""
    if i % 7 == 6:
        return {"n": None}
    return {
        "n": i - 5,
        "x": float("nan") if i == 9 else i / 4,
        "f": i / 8,
        "s": f"é{i:03}",
        "b": i >= COUNT // 2,
        "d": datetime.date(2026, 1, 1) + datetime.timedelta(i),
        "t": datetime.datetime(2026, 1, 1, i, tzinfo=UTC),
        "z": datetime.datetime(2026, 1, 1, i),
        "m": Decimal(i).scaleb(-1),
        "y": bytes([i]),
        "l": [i],
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cluster whose topic has eight transactions of three rows, some of which are compacted."""
    from txnsegment import connect

    with connect(f"file://{tmp_path_factory.mktemp('filters')}/cluster") as cluster:
        cluster.topics.create("t", schema=SCHEMA, segments=2, key="n")
        for first in range(0, COUNT, 3):
            with cluster.begin() as txn:
                txn.append("t", [row(i) for i in range(first, first + 3)])
                txn.commit()
            if first == 9:
                cluster.sweep()
                cluster.compact("t")
        yield cluster


def found(cluster: Cluster, *conditions: tuple[str, str, object], **more: Any) -> list[dict[str, Any]]:
    return cluster.topics.read("t", filter=list(conditions), **more).read_all().to_pylist()


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda value, among: value in among, "not in": lambda value, among: value not in among,
}  # fmt: skip


@pytest.mark.parametrize("column", ["n", "x", "f", "s", "b", "d", "t", "z", "m", "y"])
def test_a_filter_gives_the_rows_that_the_same_comparison_of_python_gives(filled: Cluster, column: str) -> None:
    rows = found(filled)
    for i in (0, 8, 14, 23):
        value = row(i)[column]
        for name, compare in COMPARE.items():
            given = [value, row(1)[column]] if name.endswith("in") else value
            wanted = [one["n"] for one in rows if one[column] is not None and compare(one[column], given)]
            assert [one["n"] for one in found(filled, (column, name, given))] == wanted, (column, name, given)
    nulls = found(filled, (column, "=", None))
    assert [one[column] for one in nulls] == [None] * 3
    assert len(found(filled, (column, "!=", None))) == COUNT - 3


def test_all_conditions_hold_and_their_columns_need_not_be_read(filled: Cluster) -> None:
    days = found(filled, ("n", ">", 3), ("s", "<=", "é012"), columns=["d"])
    assert sorted(one["d"] for one in days) == [row(i)["d"] for i in range(9, 13)]
    assert {tuple(one) for one in days} == {("d",)}
    assert found(filled, ("n", "in", []), columns=["n"]) == []
    placed = found(filled, ("__segment", "=", filled.topics.describe("t").segments[0].name), columns=["n"], metadata=True)
    assert {one["__segment"] for one in placed} == {filled.topics.describe("t").segments[0].name}
    assert 0 < len(placed) < COUNT


def test_files_without_such_a_row_are_not_read(filled: Cluster) -> None:
    before = metrics.PARTS_SKIPPED._value.get()
    assert sorted(one["n"] for one in found(filled, ("s", ">=", "é021"))) == [16, 17, 18]
    assert metrics.PARTS_SKIPPED._value.get() - before > 4


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ("n > 3", OptionError, "filter='n > 3' is no list of conditions"),
        ([("n", ">")], OptionError, "which is no condition"),
        ([("n", "~", 3)], OptionError, "the operator '~', which there is not"),
        ([("no", "=", 3)], SchemaError, "names the column no"),
        ([("l", "=", [3])], OptionError, "the type array<int>, whose values are not compared"),
        ([("n", "in", 3)], OptionError, "which is no list"),
        ([("n", ">", None)], OptionError, "null is compared by"),
        ([("n", "=", "3")], OptionError, "compares the column n, of the type int, with '3'"),
        ([("n", "=", 2.5)], OptionError, "compares the column n, of the type int, with 2.5"),
        ([("m", ">", Decimal("1.234"))], OptionError, "compares the column m"),
        ([("m", ">", 1.5)], OptionError, "compares the column m"),
        ([("n", "=", 2**40)], OptionError, "compares the column n"),
        ([("n", "=", True)], OptionError, "only booleans are compared with booleans"),
        ([("b", "=", 1)], OptionError, "only booleans are compared with booleans"),
        ([("s", "=", 3)], OptionError, "compares the column s"),
        ([("t", ">", datetime.datetime(2026, 1, 1))], OptionError, "a timestamp is compared with a datetime with a time zone"),
        ([("z", ">", datetime.datetime(2026, 1, 1, tzinfo=UTC))], OptionError, "a timestamp_ntz with one without"),
        ([("d", ">", datetime.datetime(2026, 1, 1))], OptionError, "a date is compared with a date"),
        ([("f", "<=", 1e39)], OptionError, "a float cannot hold this number"),
        ([("t", ">", pd.Timestamp(1, tz="UTC"))], OptionError, "this time has nanoseconds"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(filled: Cluster, given: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told.replace("(", r"\(")):
        filled.topics.read("t", filter=given)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_the_two_zeros_are_one_number(cluster: Cluster, kind: str) -> None:
    """Arrow finds 0.0 not in [-0.0], although the two are equal: `in` lost rows that `=` gave, and `not in` gave them."""
    cluster.topics.create("t", schema=f"x {kind}")
    with cluster.begin() as txn:
        txn.append("t", [{"x": 0.0}, {"x": -0.0}, {"x": 1.0}])
        txn.commit()
    for zero in (0.0, -0.0):
        assert len(found(cluster, ("x", "=", zero))) == len(found(cluster, ("x", "in", [zero, 5.0]))) == 2
        assert found(cluster, ("x", "not in", [zero])) == [{"x": 1.0}]
