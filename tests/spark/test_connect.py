"""Programs and pipelines that use a Spark Connect server. The server is a real one, in a process of its own. The programs are other
processes, which have no JVM.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from conformance.harness.spark_start import FEW_ROWS, python_environment, spark_environment
from conformance.ports import LOCAL, free_ports
from conformance.processes import Session
from txnsegment import connect

ROOT = Path(__file__).parents[2]
readme = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "readme.py")))
DEPLOYMENT = ROOT / "docs" / "deployment.md"

START_SECONDS = 120.0
PROGRAM_SECONDS = 300.0

HEAD = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
from txnsegment import connect, scan
url, folder = sys.argv[1:]
spark = SparkSession.builder.remote(os.environ["SERVER"]).getOrCreate()
def rows(topic): return sorted([*row] for row in spark.read.format("txnsegment").option("serviceUrl", url).load(topic).collect())
def end(**found): print(json.dumps(found))
some = spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "k string, v int")
"""


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The service URL that is in the environment of the server."""
    return f"{tmp_path_factory.mktemp('connect-cluster').as_uri()}/cluster"


@pytest.fixture(scope="module")
def server(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server, as `SparkSession.builder.remote` takes it."""
    import pyspark

    folder = tmp_path_factory.mktemp("connect")
    (port,) = free_ports(1)
    settings = {
        **FEW_ROWS,
        "spark.connect.grpc.binding.address": LOCAL,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--master=local[2]",
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        *(f"--conf={name}={value}" for name, value in settings.items()),
        "spark-internal",
    ]
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_", "TXNSEGMENT_"))}
    environment = {
        **ours,
        **spark_environment(warm=True, tasks=False),
        **python_environment(),
        "TXNSEGMENT_SERVICE_URL": server_url,
    }
    with Session(command, folder / "server.log", environment=environment, folder=folder) as session:
        until = time.monotonic() + START_SECONDS
        while "Spark Connect server started" not in (folder / "server.log").read_text(encoding="utf-8"):
            assert session.running(), session.tail()
            assert time.monotonic() < until, session.tail()
            time.sleep(0.1)
        yield f"sc://{LOCAL}:{port}"


def run(server: str, url: str, folder: Path, program: str) -> dict[str, object]:
    """Run a program in a process of its own. Return what it gave to `end`."""
    (folder / "program.py").write_text(HEAD + program, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "program.py", url, str(folder)],
        cwd=folder,
        env={**os.environ, "SERVER": server},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_rows_are_written_streamed_and_read(server: str, url: str, tmp_path: Path) -> None:
    found = run(
        server,
        url,
        tmp_path,
        """
some.write.format("txnsegment").mode("append").options(serviceUrl=url, segments=2, keyColumn="k").save("t")
stream = spark.readStream.format("txnsegment").options(serviceUrl=url, startingOffsets="earliest").load("t")
def run():
    late = stream.where("v > 1").writeStream.format("txnsegment").option("serviceUrl", url)
    late.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start("u").awaitTermination()
run()
run()  # goes on after the rows of the first run
scanned = sorted([*row] for row in scan(spark, "t", where=F.col("v") > 1, serviceUrl=url).collect())
spark.sql(f"CREATE TEMPORARY VIEW t USING txnsegment OPTIONS (serviceUrl '{url}', path 't')")
end(t=rows("t"), u=rows("u"), scanned=scanned, total=spark.sql("SELECT sum(v) FROM t").first()[0])
""",
    )
    late = [["b", 2], ["c", 3]]
    assert found == {"t": [["a", 1], *late], "u": late, "scanned": late, "total": 6}


def test_a_transaction_over_topics_counts_as_a_whole_or_not_at_all(server: str, url: str, tmp_path: Path) -> None:
    """A write that fails leaves nothing, also if the program catches its error and commits the transaction."""
    found = run(
        server,
        url,
        tmp_path,
        """
some.write.format("txnsegment").mode("append").option("serviceUrl", url).save("t")
def write(rows, topic, txn): rows.write.format("txnsegment").mode("append").options(**txn.options).save(topic)
failing = some.withColumn("v", F.when(F.col("k") == "c", F.raise_error(F.lit("stop")).cast("int")).otherwise(F.col("v")))
with connect(url) as cluster:
    cluster.subscriptions.create("t", "etl")
    with cluster.transaction(app="etl", version=1) as txn:
        given = txn.read(spark, "t", subscription="etl")
        write(given.where("v > 1"), "large", txn)
        write(given.where("v <= 1"), "small", txn)
    try:
        with cluster.transaction(app="etl", version=2) as txn:
            write(some, "large", txn)
            raise KeyError("stop")
    except KeyError:
        pass
    with cluster.transaction(app="etl", version=3) as txn:
        write(some.where("k = 'a'"), "small", txn)
        try:
            write(failing, "large", txn)
            failed = False
        except Exception:
            failed = True
end(large=rows("large"), small=rows("small"), failed=failed)
""",
    )
    assert found == {"large": [["b", 2], ["c", 3]], "small": [["a", 1], ["a", 1]], "failed": True}


def test_foreach_batch_writes_several_topics_once(server: str, url: str, tmp_path: Path) -> None:
    """The function runs in a process of the server. A batch that is repeated, because the driver was lost, has the same version."""
    found = run(
        server,
        url,
        tmp_path,
        """
import shutil
some.write.format("txnsegment").mode("append").option("serviceUrl", url).save("t")
def each(batch, number):
    with connect(url) as cluster, cluster.transaction(app="query", version=number) as txn:
        for topic in ("u", "v"):
            batch.write.format("txnsegment").mode("append").options(**txn.options).save(topic)
stream = spark.readStream.format("txnsegment").options(serviceUrl=url, startingOffsets="earliest").load("t")
def run():
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", folder + "/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
run()
shutil.rmtree(folder + "/checkpoint/commits")  # Spark repeats the batch
run()
end(u=rows("u"), v=rows("v"))
""",
    )
    assert found == {name: [["a", 1], ["b", 2], ["c", 3]] for name in ("u", "v")}


def test_an_error_names_what_the_user_can_change(server: str, url: str, tmp_path: Path) -> None:
    found = run(
        server,
        url,
        tmp_path,
        """
def told(call):
    try:
        call()
    except Exception as error:
        return str(error)
read = spark.read.format("txnsegment").option("serviceUrl", url)
topic = told(lambda: read.load("missing").count())
end(topic=topic, option=told(lambda: read.option("startingOffset", "1").load("missing").count()))
""",
    )
    assert "There is no topic topic://public/default/missing. Create it" in str(found["topic"])
    assert "Did you mean startingOffsets?" in str(found["option"])


def test_a_declarative_pipeline_writes_each_row_once(server: str, server_url: str, tmp_path: Path) -> None:
    """The pipeline of docs/deployment.md runs once for each row that is added."""
    (pipeline,) = (b.text for b in readme.blocks(DEPLOYMENT.read_text(encoding="utf-8")) if b.purpose == "pipeline")
    spec = f"name: flights\nstorage: {(tmp_path / 'storage').as_uri()}\nlibraries:\n  - glob:\n      include: late.py\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    (tmp_path / "late.py").write_text(pipeline, encoding="utf-8")
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", "spark-pipeline.yml"]
    with connect(server_url) as cluster:
        cluster.topics.create("delays", schema="airport string, minutes int")
        for airport, minutes in (("EWR", 14), ("JFK", 3), ("LGA", 15)):
            with cluster.begin() as txn:
                txn.append("delays", pa.table({"airport": [airport], "minutes": pa.array([minutes], pa.int32())}))
                txn.commit()
            ran = subprocess.run(
                command,
                cwd=tmp_path,
                env={**os.environ, "SPARK_REMOTE": server},
                capture_output=True,
                text=True,
                timeout=PROGRAM_SECONDS,
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        with cluster.consumer("late", "test", start="earliest") as consumer:
            late = [message.value["airport"] for message in consumer.messages(timeout=0)]
    assert late == ["EWR", "LGA"]
