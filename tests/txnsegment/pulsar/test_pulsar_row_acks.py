"""The rules of `txn.read` and `txn.acknowledge_rows` of a Pulsar cluster that need no broker."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from metadata.common.errors import OptionError, SchemaError
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, common, minus, rows, union
from pulsar_protocol.layout import EARLIEST, Position
from spark_txn_source.pulsar.tasks import shown
from txnsegment.pulsar.row_acks import Stretch, covered, given_rows, identified
from txnsegment.pulsar.unread import check_options, hidden_between

SIZES = {(1, 0): 3, (1, 1): 0, (1, 2): 1, (2, 0): 0, (2, 1): 2, (4, 0): 4, (4, 1): 1, (4, 2): 0, (4, 3): 2}
"""The entries of a segment, each with the number of its rows. Those of aborted transactions and the markers have none."""
ALL = [Row(*entry, index) for entry, size in SIZES.items() for index in range(size)]


def stretches_of(left: list[Row], given: set[Row]) -> list[Stretch]:
    """Return the stretches of the unacknowledged rows `left`, as Spark finds them: from the first given row on, to the end of the
    entry of the last one.
    """
    last = max(given)
    found: list[Stretch] = []
    for row in left:
        if row < Row(*min(given)[:2], 0) or row[:2] > last[:2]:
            continue
        if found and found[-1].given == (row in given):
            found[-1] = Stretch(found[-1].given, found[-1].first, row, found[-1].count + 1)
        else:
            found.append(Stretch(row in given, row, row, 1))
    return found


def having(known: list[Row], done: Rows) -> list[Row]:
    return [row for row in known if common(done, ((row, row._replace(batch_index=row.batch_index + 1)),))]


@pytest.mark.parametrize("seed", range(300))
def test_an_acknowledgement_covers_the_given_rows_and_leaves_no_gap_without_a_row(seed: int) -> None:
    """However the rows of a segment are divided into acknowledgements, those of all rows join to one range."""
    chance = random.Random(seed)
    done: Rows = NONE
    left = list(ALL)
    while left:
        given = set(chance.sample(left, chance.randint(1, len(left))))

        def has_row(at: Row, to: Row) -> bool:
            return any(at <= row < to for row in ALL)

        made = covered(stretches_of(left, given), done, has_row)
        assert not common(made, done)
        assert set(having(ALL, made)) == given
        done, left = union(done, made), [row for row in left if row not in given]
        assert having(ALL, done) == [row for row in ALL if row not in left]
        gaps = minus(((done[0][0], done[-1][1]),), done)
        assert all(having(ALL, (gap,)) for gap in gaps), "a gap between two ranges has a row"
    assert done == ((FIRST, Row(4, 4, 0)),)


def test_hidden_rows_are_left_out_of_an_entry() -> None:
    hidden = rows([(Row(1, 0, 2), Row(1, 1, 0)), (Row(1, 1, 1), Row(1, 1, 2)), (Row(1, 3, 0), Row(1, 5, 0))])
    entries = {entry: shown(hidden, Position(1, entry), range(3)) for entry in range(6)}
    assert entries == {
        0: [True, True, False],
        1: [True, False, True],
        2: [True, True, True],
        3: [False, False, False],
        4: [False, False, False],
        5: [True, True, True],
    }
    assert shown(hidden, Position(1, 1), [1, 5]) == [False, True]
    assert shown(NONE, Position(1, 1), range(2)) == [True, True]


def test_only_the_rows_between_the_start_and_the_end_are_hidden() -> None:
    done = {"a": rows([(FIRST, Row(1, 2, 0)), (Row(1, 4, 0), Row(1, 9, 0))]), "b": rows([(FIRST, Row(9, 0, 0))])}
    ends = {"a": Position(1, 5), "c": Position(1, 1)}
    assert hidden_between(done, {"a": Position(1, 1)}, ends) == {"a": ((Row(1, 4, 0), Row(1, 6, 0)),)}
    assert hidden_between(done, {}, {"b": Position(8, 0)}) == {"b": ((FIRST, Row(8, 1, 0)),)}
    assert hidden_between({}, {"a": EARLIEST}, ends) == {}


@pytest.mark.parametrize("name", ["startingOffsets", "STARTINGTIMESTAMP", "subscription", "acknowledged"])
def test_the_subscription_decides_where_a_read_begins(name: str) -> None:
    with pytest.raises(OptionError, match=r"the subscription says which rows are read"):
        check_options([name])
    check_options(["endingOffsets", "columns"])


@pytest.mark.parametrize("place", [(None, None), ("topic://public/default/t/0000-ffff-0", None), (None, "1:2:0")])
def test_rows_that_do_not_say_where_they_are_cannot_be_acknowledged(spark: SparkSession, place: tuple[str | None, ...]) -> None:
    """An outer join makes such rows."""
    known = ("topic://public/default/t/0000-ffff-0", "1:0:0")
    rows = spark.createDataFrame([known, place], "__segment string, __messageId string")
    with pytest.raises(SchemaError, match="is null") as raised:
        given_rows(identified(rows))
    assert "outer join" in raised.value.advice
