"""Batch writes with an application and a version (txnAppId, txnVersion). In the `foreachBatch` of a query, a write with a version
that another query has committed is an error, and not a repetition.

tests/spark/test_sink.py does the same in a real streaming query.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import spark_write
from metadata.common.errors import TxnSegmentError, VersionConflict
from tests.support.rows import rows
from txnsegment import Cluster

Write = Callable[..., None]
"""A function that writes rows to the topic t as the application `app`. It takes a version, and in `foreachBatch` a query."""


def numbers(cluster: Cluster) -> list[int]:
    return sorted(row["n"] for row in rows(cluster, "t"))


def table(*given: int) -> pa.Table:
    return pa.table({"n": pa.array(given, pa.int64())})


@pytest.fixture(params=["one write", "a transaction"])
def write(request: pytest.FixtureRequest, cluster: Cluster) -> Write:
    cluster.topics.create("t", schema="n bigint")

    def alone(*given: int, version: int, query: str | None = None) -> None:
        options = {"serviceUrl": cluster.url, "txnAppId": "app", "txnVersion": str(version)}
        spark_write(options, "t", table(*given), query=query)

    def together(*given: int, version: int, query: str | None = None) -> None:
        with cluster.transaction(app="app", version=version) as txn:
            spark_write(txn.options, "t", table(*given), query=query)

    return alone if request.param == "one write" else together


def test_the_same_query_repeats_its_last_version(cluster: Cluster, write: Write) -> None:
    for _ in range(2):
        write(1, version=0, query="q")
    assert numbers(cluster) == [1]
    write(2, version=1, query="q")
    with pytest.raises(VersionConflict, match="Version 0 of query q is not above 1 of query q"):
        write(1, version=0, query="q")
    assert numbers(cluster) == [1, 2]


def test_another_query_repeats_nothing(cluster: Cluster, write: Write) -> None:
    write(1, version=0, query="q")
    with pytest.raises(VersionConflict, match="Version 0 of query new is not above 0 of query q, which is committed"):
        write(2, version=0, query="new")
    write(2, version=1, query="new")
    with pytest.raises(VersionConflict, match="Version 1 of query q is not above 1 of query new"):
        write(1, version=1, query="q")
    assert numbers(cluster) == [1, 2]


def test_without_a_query_the_application_and_the_version_decide(cluster: Cluster, write: Write) -> None:
    for query in (None, None, "q"):  # the application record names no query, as if an older version of the product had written it
        write(1, version=4, query=query)
    write(2, version=5, query="q")
    write(3, version=5)
    assert numbers(cluster) == [1, 2]
    with pytest.raises(VersionConflict):
        write(3, version=4)


def test_empty_batches_follow_the_rules_of_other_batches(cluster: Cluster, write: Write) -> None:
    write(version=0, query="q")
    write(version=0, query="q")
    with pytest.raises(TxnSegmentError, match="query new"):
        write(1, version=0, query="new")
    assert cluster.topics.describe("t").name
    write(1, version=1, query="new")
    assert numbers(cluster) == [1]
