"""A write to a persistent name may set a key or segments only if the name stands for a `topic://` topic (docs/in_stream.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.harness.spark_driver import spark_write
from metadata.client.providers import Providers
from metadata.common.errors import OptionError
from metadata.records.names import persistent_name, topic_name
from metadata.records.persistent_records import Model
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from spark_txn_sink.staging import stage
from tests.support.spark_bench import SparkBench, X
from txnsegment import connect
from txnsegment.schemas import from_arrow

TO = "topic://public/default/went-on"
NEW, STANDS_FOR = "persistent://public/new/a", "topic://public/new/a"
ROWS = pa.table({"n": pa.array(range(50), pa.int64())})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SparkBench]:
    found = SparkBench(f"file://{tmp_path}/cluster")
    yield found
    found.client.close()


def write(bench: SparkBench, topic: str, rows: pa.Table = ROWS, **options: str) -> None:
    spark_write({"serviceUrl": bench.url, **options}, topic, rows)


@pytest.mark.parametrize(("name", "to"), [(X, TO), (NEW, STANDS_FOR)], ids=["migrated", "its namespace says so"])
def test_a_name_that_resolves_to_a_segmented_topic_takes_a_key(bench: SparkBench, name: str, to: str) -> None:
    bench.plain(X, [100])
    bench.client.instream.migrator.migrate(persistent_name(X), topic_name(TO), segments=4)
    Providers(bench.client).set_namespace("public", "new", Model.METADATA)
    write(bench, name, keyColumn="n", segments="4")
    made = bench.client.topics.get(topic_name(to))
    assert (len(made.active()), made.layout.key) == (4, "n")
    segments = {row["__segment"] for row in bench.batch(name, includeMetadata="true") if row["n"] < 50}
    assert segments == {made.segment(info) for info in made.active()}


def test_names_are_those_of_the_cluster(bench: SparkBench) -> None:
    """The cluster's `unique` makes the random application id of a write. `name_source` makes the file names of a task's parts and
    the id of its staging.
    """
    names = map("name-{}".format, count())
    bench.client.cluster.unique = names.__next__
    write(bench, "t")
    with connect(bench.url) as cluster:
        (shown,) = cluster.transactions.list()
    assert shown.app is not None
    assert re.fullmatch("write-name-[0-9]+", shown.app)
    plan = plan_write(
        bench.client, WriteOptions.parse({"serviceUrl": bench.url, "path": X}, streaming=True), from_arrow(ROWS.schema)
    )
    staged = stage(plan, ROWS.to_batches(), name_source=names.__next__)
    ((_, part),) = staged.parts
    assert (staged.staging_id[:5], Path(part.path).name[:5]) == ("name-", "name-")


@pytest.mark.parametrize("given", [{"keyColumn": "n"}, {"segments": "1"}])
def test_a_persistent_topic_is_one_log(bench: SparkBench, given: dict[str, str]) -> None:
    """A persistent topic has no segments to route between. So a write with the option `keyColumn` or `segments` raises an error,
    and creates no topic.
    """
    (option,) = given
    with pytest.raises(OptionError, match=f"option {option} is given, but {X} is a persistent:// topic.*Leave {option} out"):
        write(bench, X, **given)
    assert bench.client.instream.topics.find(persistent_name(X)) is None
    bench.plain(X, [1])
    with pytest.raises(OptionError, match=f"option {option} is given, but {X}"):
        write(bench, X, **given)
    values = pa.table({"value": pa.array([], pa.binary())})
    with pytest.raises(OptionError, match="option keyColumn is given, but persistent"):
        write(bench, X, values, valueFormat="avro", keyColumn="n")
