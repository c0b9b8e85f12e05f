"""The offset of a query's progress (`query.lastProgress`) is taken as the start or the end of another read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from metadata.common.errors import OffsetOutOfRange, OptionError
from txnsegment import connect

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.fixture
def progress(here: Deployment) -> dict[str, Any]:
    """The progress of a query that has read the rows 1 and 2 of `t`. The row 3 came after it."""
    for topic in ("t", "u"):
        here.cluster.topics.create(topic, schema="n bigint")
    here.append("t", numbers(1, 2))
    query = here.start(here.stream(startingOffsets="earliest"), "checkpoint", [])
    query.awaitTermination()
    here.append("t", numbers(3))
    last = query.lastProgress
    assert last is not None
    found = json.loads(last.json)["sources"][0]
    assert json.loads(last["sources"][0]["endOffset"]) == found["endOffset"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("form", ["text", "dict"])
def test_the_end_of_a_query_is_the_start_or_the_end_of_a_read(here: Deployment, progress: dict[str, Any], form: str) -> None:
    """As a text, and as a dict, which Spark turns into the text of a dict of Python."""
    end = json.dumps(progress["endOffset"]) if form == "text" else progress["endOffset"]
    assert [row.n for row in here.read(startingOffsets=end).collect()] == [3]
    assert sorted(row.n for row in here.read(endingOffsets=end).collect()) == [1, 2]
    assert [row.n for row in here.scan(startingOffsets=end).collect()] == [3]
    assert [[row.n for row in batch] for batch in here.drain(here.stream(startingOffsets=end), "second")] == [[3]]
    begin = progress["startOffset"]
    assert begin is None or sorted(row.n for row in here.read(startingOffsets=json.dumps(begin)).collect()) == [1, 2, 3]


def test_the_end_of_a_query_over_other_topics_is_refused(here: Deployment, progress: dict[str, Any]) -> None:
    end = json.dumps(progress["endOffset"])
    told = r'query that reads \["topic://public/default/t"\], and this read has \["topic://public/default/u"\]\. .*"log": 1'
    with pytest.raises(PySparkException, match=f"OptionError.*{told}"):
        here.read("u", startingOffsets=end).collect()
    with pytest.raises(OptionError, match=told):
        here.scan("u", endingOffsets=end)
    with pytest.raises(PySparkException, match=f"OptionError.*{told}"):
        here.drain(here.stream("u", startingOffsets=end), "second")


def test_the_end_of_a_query_of_another_cluster_is_refused(here: Deployment, progress: dict[str, Any]) -> None:
    end = json.dumps(progress["endOffset"])
    here.url += "-anew"
    with connect(here.url) as other:
        other.topics.create("t", schema="n bigint")
        with other.begin() as txn:
            txn.append("t", numbers(1, 2, 3))
            txn.commit()
    for call in (lambda: here.read(startingOffsets=end).collect(), lambda: here.drain(here.stream(startingOffsets=end), "second")):
        with pytest.raises(PySparkException, match=r"OffsetOutOfRange.*is one of the cluster"):
            call()
    with pytest.raises(OffsetOutOfRange, match="is one of the cluster"):
        here.scan(endingOffsets=end)


def test_a_restarted_query_takes_no_notice_of_the_option(here: Deployment, progress: dict[str, Any]) -> None:
    """The option counts for a new checkpoint only, so a query may read more topics later."""
    end = json.dumps(progress["endOffset"])
    assert [[row.n for row in batch] for batch in here.drain(here.stream(startingOffsets=end), "second")] == [[3]]
    here.append("u", numbers(7))
    more = here.stream(["t", "u"], startingOffsets=end, topicsChanged="continue")
    assert [[row.n for row in batch] for batch in here.drain(more, "second")] == [[7]]
