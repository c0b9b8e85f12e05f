"""Spark writes and reads topics whose ledgers are on a real object store: batches, streams, transactions, `scan`, a killed job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from conformance.harness.spark_start import FEW_ROWS, python_environment, spark_environment
from conformance.object_stores import SECRET_KEY
from conformance.s3a_jars import VERSION, s3a_jars
from metadata.common.errors import ConfigurationError
from spark_txn_source.s3a import hadoop_version
from tests.support.object_places import Place, append, rows, values, while_the_server_restarts
from txnsegment import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.objects

ROOT = Path(__file__).parents[2]

HEAD = """if True:
    import sys
    from pyspark.sql import SparkSession, functions as F
    from txnsegment import connect, scan
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    url, folder = sys.argv[1:]
    def load(topic, **options):
        return spark.read.format("txnsegment").option("serviceUrl", url).options(**options).load(topic)
"""


def load(spark: SparkSession, url: str, topic: str = "t", **options: Any) -> DataFrame:
    return spark.read.format("txnsegment").option("serviceUrl", url).options(**options).load(topic)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["v"] for row in frame.collect())


def copied(spark: SparkSession, real: Place, topic: str, **options: Any) -> None:
    """Copy the topic `t` to another one by a stream that ends at the available rows."""
    stream = spark.readStream.format("txnsegment").option("serviceUrl", real.url).option("startingOffsets", "earliest")
    query = (
        stream.options(**options)
        .load("t")
        .writeStream.format("txnsegment")
        .option("serviceUrl", real.url)
        .option("checkpointLocation", str(real.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(topic)
    )
    query.awaitTermination()


def driver(code: str, real: Place, **settings: str) -> subprocess.Popen[bytes]:
    """Start a program with a Spark session of its own."""
    small = {**FEW_ROWS, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **settings}
    submit = " ".join(f"--conf {name}={value}" for name, value in small.items())
    environment = {
        **os.environ,
        **spark_environment(warm=True, tasks=False),
        **python_environment(),
        "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
    }
    command = [sys.executable, "-c", HEAD + code, real.url, str(real.folder)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_batches_streams_and_transactions(spark: SparkSession, real: Place) -> None:
    with real.cluster() as cluster:
        frame = spark.range(20).selectExpr("cast(id % 3 as string) k", "id v")
        frame.write.format("txnsegment").option("serviceUrl", real.url).mode("append").save("t")
        assert numbers(load(spark, real.url)) == list(range(20))
        assert values(cluster) == list(range(20))
        copied(spark, real, "copy")
        with cluster.transaction() as txn:
            writer = spark.range(20, 30).selectExpr("cast(id as string) k", "id v").write.format("txnsegment")
            writer.options(**txn.options).mode("append").save("t")
            txn.append("copy", rows(90, 10))
        copied(spark, real, "copy")
        assert values(cluster, "copy") == [*range(30), *range(90, 100)]
        with cluster.consumer("copy", "s", start="earliest") as consumer:
            assert sum(batch.rows.num_rows for batch in consumer.batches(timeout=0.2)) == 40
        assert cluster.verify("t").damaged == []


def test_requests_of_a_micro_batch(spark: SparkSession, real: Place) -> None:
    """docs/storage.md has these numbers. Each micro-batch copies one part."""
    with real.cluster() as cluster:
        append(cluster, 0)
        copied(spark, real, "copy")
        for _ in range(4):
            append(cluster, 0)
        with real.proxy.counting() as requests:
            copied(spark, real, "copy", maxBytesPerTrigger=1)
        assert len(values(cluster, "copy")) == 50
    start, fold = 2, 2  # reads of the mark when a query starts; a fold, if one was due
    assert 4 <= requests["PutObject"] <= 4 + fold
    assert 4 * 4 <= requests["HeadObject"] <= 4 * 4 + start + fold
    assert 4 * 2 <= requests["GetObject"] <= 4 * 2 + start + fold
    assert set(requests) == {"PutObject", "HeadObject", "GetObject"}


def test_scan_without_the_jar_names_it(spark: SparkSession, real: Place) -> None:
    with real.cluster() as cluster:
        append(cluster, 0)
    with pytest.raises(ConfigurationError) as refused:
        scan(spark, "t", serviceUrl=real.url)
    text = str(refused.value)
    assert f"org.apache.hadoop:hadoop-aws:{hadoop_version(spark)}" in text
    assert f"spark.hadoop.fs.s3a.bucket.{real.bucket}.endpoint=http://{real.proxy.hosts}" in text
    assert "spark.jars.packages" in text
    assert SECRET_KEY not in text


def test_the_version_of_the_jars_is_that_of_spark(spark: SparkSession) -> None:
    """Else the tests of `scan` run with jars that a user does not have."""
    assert hadoop_version(spark) == VERSION
    jars = Path(pyspark.__file__).parent / "jars"
    assert next(jars.glob("hadoop-client-api-*.jar")).name == f"hadoop-client-api-{VERSION}.jar"


def test_scan_with_the_jars_reads_the_same_rows(real: Place) -> None:
    """Spark gets the endpoint and the region from `scan`, and the credentials from the environment."""
    with real.cluster() as cluster:
        for first in range(0, 40, 10):
            append(cluster, first)
        cluster.sweep()
        cluster.compact("t", min_files=2)
        append(cluster, 40)
    code = """
    found = scan(spark, "t", serviceUrl=url, includeMetadata=True)
    print("ROWS", sorted(map(str, found.collect())) == sorted(map(str, load("t", includeMetadata=True).collect())), found.count())
    print("FEW", scan(spark, "t", serviceUrl=url, where="v >= 45").count())
    """
    ran = driver(code, real, **{"spark.jars": ",".join(map(str, s3a_jars()))})
    out, err = ran.communicate(timeout=300)
    assert b"ROWS True 50" in out, err.decode()[-3000:]
    assert b"FEW 5" in out


def test_scan_without_credentials_in_the_jvm_says_so(real: Place) -> None:
    with real.cluster() as cluster:
        append(cluster, 0)
    code = f"""
    import os
    os.environ["AWS_SECRET_ACCESS_KEY"] = "{SECRET_KEY}"
    try:
        print(scan(spark, "t", serviceUrl=url).count())
    except Exception as error:
        print("SAID", type(error).__name__, str(error).replace(chr(10), " "))
    """
    os.environ["AWS_SECRET_ACCESS_KEY"], before = "wrong", os.environ["AWS_SECRET_ACCESS_KEY"]
    try:
        ran = driver(code, real, **{"spark.jars": ",".join(map(str, s3a_jars()))})
    finally:
        os.environ["AWS_SECRET_ACCESS_KEY"] = before
    out, err = ran.communicate(timeout=300)
    said = re.search(rb"SAID (.*)", out)
    assert said is not None, err.decode()[-3000:]
    assert b"ConfigurationError" in said[1]
    assert b"Spark's JVM" in said[1]
    assert SECRET_KEY.encode() not in out


def test_a_driver_killed_between_upload_and_commit_commits_its_rows_once(spark: SparkSession, real: Place) -> None:
    """The stream is run again with the same checkpoint."""
    with real.cluster() as cluster:
        append(cluster, 0)
        uploaded = False

        def committing(name: str, target: str) -> bool:
            """The driver looks at the mark of the root when all uploads are complete, before it commits."""
            nonlocal uploaded
            uploaded = uploaded or (name == "PutObject" and target.endswith(".parquet"))
            return uploaded and name == "HeadObject" and target.endswith("cluster.json")

        code = """
    stream = spark.readStream.format("txnsegment").option("serviceUrl", url).option("startingOffsets", "earliest").load("t")
    writer = stream.writeStream.format("txnsegment").option("serviceUrl", url).option("checkpointLocation", folder + "/checkpoint")
    writer.trigger(availableNow=True).start("copy").awaitTermination()
    """
        with real.proxy.holding(when=committing) as held:
            killed = driver(code, real)
            held.wait(120)
            killed.send_signal(signal.SIGKILL)
            killed.communicate()
        assert "copy" not in {one.name.rpartition("/")[2] for one in cluster.topics.list()} or values(cluster, "copy") == []
        copied(spark, real, "copy")
        assert values(cluster, "copy") == list(range(10))


@pytest.mark.parametrize("request_of", ["PutObject", "GetObject"])
def test_a_stream_survives_a_restart_of_the_server(request_of: str, spark: SparkSession, real: Place) -> None:
    """The server is killed while a task writes or reads a part."""
    with real.cluster() as cluster:
        append(cluster, 0)

        def of_a_part(name: str, target: str) -> bool:
            return name == request_of and ".parquet" in target

        with real.proxy.holding(when=of_a_part) as held:
            while_the_server_restarts(real, held, lambda: copied(spark, real, "copy"))
        assert values(cluster, "copy") == list(range(10))
