"""The benchmarks of `make bench` run in their smallest form on SQLite, so that no long benchmark crashes in its last minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import catching, history, models, segments, start
from conformance.mutants.catalogue import by_name
from metadata.client.client import client
from metadata.cluster.cluster import open_cluster
from spark_txn_source.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_two_models(tmp_path: Path) -> None:
    cluster, fresh, older, newer = (open_cluster(f"file://{tmp_path}/{name}") for name in ("all", "fresh", "older", "newer"))
    assert models.end_in_stream(cluster, 2, 1) > 0
    assert models.end_in_store(cluster, 2, 1) > 0
    assert all(ms > 0 for ms in models.open_in_stream(cluster, 2, 1).values())
    assert "its rows never seen" in models.sealed_in_stream(cluster, sweeps=1)
    assert models.sealed_in_store(cluster).startswith("committed")
    cluster.close()
    assert models.open_in_store(fresh, 2, 1) > 0  # this call closes the cluster that it gets, and so do the calls below
    assert models.written_in_stream(older, 2).entries == 2, "the message and its marker"
    assert models.written_in_store(newer, 2).entries == 1


def test_the_spread_of_commits(tmp_path: Path) -> None:
    for count, kinds in enumerate(((1, 2), (2, 1))):
        trips, median, deciding = segments.spread(f"file://{tmp_path}/{count}", *kinds, runs=1)
        assert 0 < trips <= 7
        assert 0 < deciding < median
    _, median, _ = segments.spread(f"file://{tmp_path}/busy", 1, 1, runs=1, busy_ms=5)
    assert median > 5


def test_the_detection_rate_of_schedules_is_measured() -> None:
    assert catching.rate(by_name("drop-before-folding"), "", 20)[1] > 0
    (claim,) = catching.run(("drop-before-folding",), {"quick": 20, "wide": 5}).claims
    assert claim.holds


def test_a_full_latest_offset_over_many_folded_ledgers(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cluster"
    made = client(open_cluster(url))
    history.folded(made, "small", 1, 10, history.one_part(made, "small"))
    reader = StreamReader({"serviceurl": url, "path": "small", "startingOffsets": "earliest"}, history.SCHEMA)
    assert history.latest_offset_ms(reader) > 0
    reader.stop()
    made.close()


def test_the_start_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    start.prepare(tmp_path)
    queries = start.Queries(spark, tmp_path)
    for system in (start.TRIVIAL, start.OURS):
        for one in (queries.read(system), queries.write(system)):
            assert min(one.before, one.first, one.processor) > 0
