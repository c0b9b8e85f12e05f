"""The systems that are compared: how each of them writes and reads a table with Spark.

Every system is set up as its users would, with the same compression (zstd), and with four partitions by key where a workload is
keyed. They differ in what a commit promises: txnsegment flushes its files to the disk (fsync) before a commit; Delta and Parquet do
not on a local disk; Kafka does not by default, and its sink in Spark is at-least-once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

from benchmarks.peers.rows import COLUMNS, SCHEMA
from metadata.store.sqlite_database import FILE

PARTS: Final = 4


class System:
    """One system. A table is known by its name; its files lie below `root`, or on the system's server.

    The base class is the floor: a sink that drops the rows.
    """

    def __init__(self, name: str, root: Path, servers: Mapping[str, str]) -> None:
        """`servers`: the addresses of the servers that run for this cell, by the server's name."""
        self.name, self.root, self.servers = name, root, servers
        root.mkdir(parents=True, exist_ok=True)

    def settings(self) -> dict[str, str]:
        """Return the settings of the Spark session."""
        return {}

    def prepare(self, table: str) -> None:
        """Create a table, if the system wants it to be created before it is written."""

    def drop(self, table: str) -> None:
        shutil.rmtree(self.root / table, ignore_errors=True)

    def folders(self, table: str) -> list[Path]:
        """Return the folders of a table's files."""
        return [self.root / table] if (self.root / table).exists() else []

    def size(self, table: str) -> dict[str, int]:
        files = [file for folder in self.folders(table) for file in folder.rglob("*") if file.is_file()]
        return {"bytes": sum(file.stat().st_size for file in files), "files": len(files)}

    def compaction(self, table: str) -> Mapping[str, Callable[[], object]]:
        """Return the steps that join the small files of a table, by name; none if the system needs or has none."""
        return {}

    def records(self) -> int:
        """Return the bytes of the system's records outside of the folders of its tables."""
        return 0

    def write(self, rows: DataFrame, table: str, *, keyed: bool) -> None:
        rows.write.format("noop").mode("overwrite").save()

    def write_stream(self, rows: DataFrame, table: str) -> DataStreamWriter:
        return rows.writeStream.format("noop")

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        raise NotImplementedError(f"{self.name} keeps no rows")

    def scan(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the rows for a query of few columns with a filter."""
        return self.read(spark, table)

    def find(self, spark: SparkSession, table: str, where: str) -> DataFrame:
        """Return the rows that a filter keeps, for a query of few of many files."""
        return self.scan(spark, table).where(where)

    def read_stream(self, spark: SparkSession, table: str) -> DataFrame:
        raise NotImplementedError(f"{self.name} keeps no rows")

    def as_read(self, rows: DataFrame) -> DataFrame:
        """Return what `read` returns if these rows were written."""
        return rows.select(*COLUMNS)


class Txnsegment(System):
    """txnsegment, with its records in SQLite or, if the cell has a ZooKeeper server, there."""

    @cached_property
    def url(self) -> str:
        if "zookeeper" not in self.servers:
            return f"file://{self.root}"
        from txnsegment import connect

        url = f"zk://{self.servers['zookeeper']}/peers"
        connect(url, ledgers=f"file://{self.root}/ledgers").close()
        return url

    def options(self, *, keyed: bool) -> dict[str, str]:
        return {"serviceUrl": self.url} | ({"keyColumn": "k", "segments": str(PARTS)} if keyed else {})

    def write(self, rows: DataFrame, table: str, *, keyed: bool) -> None:
        rows.write.format("txnsegment").options(**self.options(keyed=keyed)).mode("append").save(table)

    def write_stream(self, rows: DataFrame, table: str) -> DataStreamWriter:
        return rows.writeStream.format("txnsegment").options(**self.options(keyed=True)).option("topic", table)

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.format("txnsegment").option("serviceUrl", self.url).load(table)

    def scan(self, spark: SparkSession, table: str) -> DataFrame:
        from txnsegment import scan

        return scan(spark, table, serviceUrl=self.url)

    def find(self, spark: SparkSession, table: str, where: str) -> DataFrame:
        from txnsegment import scan

        return scan(spark, table, serviceUrl=self.url, where=where)

    def read_stream(self, spark: SparkSession, table: str) -> DataFrame:
        reader = spark.readStream.format("txnsegment").option("serviceUrl", self.url)
        return reader.option("startingOffsets", "earliest").load(table)

    def drop(self, table: str) -> None:
        from txnsegment import connect

        with connect(self.url) as cluster:
            cluster.topics.delete(table)

    def compaction(self, table: str) -> Mapping[str, Callable[[], object]]:
        from txnsegment import connect

        def sweep() -> None:
            with connect(self.url) as cluster:
                cluster.sweep()

        def compact() -> None:
            with connect(self.url) as cluster:
                cluster.compact(table)

        return {"sweep": sweep, "compact": compact}

    def records(self) -> int:
        """Return the size of the SQLite database. A ZooKeeper server allocates its log in advance, so its files tell nothing."""
        return sum(file.stat().st_size for file in self.root.glob(f"{FILE}*"))

    def folders(self, table: str) -> list[Path]:
        # a folder's name is that of the topic with "-" for "_", and a hash
        return list((self.root / "ledgers" / "public" / "default").glob(f"{table.replace('_', '-')}*"))


class Kafka(System):
    """A topic of four partitions. `form`: how the four columns become the value of a message: `raw` (their bytes one after the
    other, which is the cheapest way, and not decoded by the reader), `json` or `avro`.
    """

    def __init__(self, name: str, root: Path, servers: Mapping[str, str]) -> None:
        super().__init__(name, root, servers)
        self.hosts, self.form = servers["kafka"], name.split("_")[1]

    def settings(self) -> dict[str, str]:
        # `cast(id as binary)` of the raw form is no ANSI SQL
        return {"spark.sql.ansi.enabled": "false"} if self.form == "raw" else {}

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.hosts})

    def topic(self, table: str) -> str:
        return f"{self.form}-{table}"

    def prepare(self, table: str) -> None:
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(self.topic(table), num_partitions=PARTS, replication_factor=1, config={"compression.type": "producer"})
        (created,) = self._admin.create_topics([topic], operation_timeout=120, request_timeout=120).values()
        created.result(120)

    def drop(self, table: str) -> None:
        (deleted,) = self._admin.delete_topics([self.topic(table)], operation_timeout=120).values()
        deleted.result(120)

    def folders(self, table: str) -> list[Path]:
        return [path for path in Path(self.servers["kafka logs"]).glob(f"{self.topic(table)}-[0-9]*") if path.suffix != ".delete"]

    def size(self, table: str) -> dict[str, int]:
        logs = [file for folder in self.folders(table) for file in folder.glob("*.log")]  # indexes are allocated in advance
        return {"bytes": sum(log.stat().st_size for log in logs), "files": len(logs)}

    def _encoded(self, rows: DataFrame, *, keyed: bool) -> DataFrame:
        if self.form == "raw":
            value = F.expr("concat(cast(id as binary), cast(unix_micros(ts) as binary), payload)")
        elif self.form == "json":
            value = F.to_json(F.struct(*COLUMNS))
        else:
            from pyspark.sql.avro.functions import to_avro

            value = to_avro(F.struct(*COLUMNS))
        return rows.select(F.col("k").alias("key"), value.alias("value")) if keyed else rows.select(value.alias("value"))

    def _decoded(self, messages: DataFrame) -> DataFrame:
        if self.form == "raw":
            return messages.select("value")
        if self.form == "json":
            return messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("v")).select("v.*")
        from pyspark.sql.avro.functions import from_avro

        types = {"id": "long", "k": "string", "payload": "bytes", "ts": {"type": "long", "logicalType": "timestamp-micros"}}
        fields = [{"name": name, "type": [kind, "null"]} for name, kind in types.items()]
        schema = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
        return messages.select(from_avro("value", schema).alias("v")).select("v.*")

    def as_read(self, rows: DataFrame) -> DataFrame:
        return self._encoded(rows, keyed=False) if self.form == "raw" else super().as_read(rows)

    def _out(self, writer: Any, table: str) -> Any:
        options = {
            "kafka.bootstrap.servers": self.hosts,
            "topic": self.topic(table),
            "kafka.acks": "all",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": str(256 << 10),
            "kafka.linger.ms": "20",
            "kafka.buffer.memory": str(64 << 20),
        }
        return writer.format("kafka").options(**options)

    def _from(self, reader: Any, table: str) -> Any:
        options = {
            "kafka.bootstrap.servers": self.hosts,
            "subscribe": self.topic(table),
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "kafka.max.poll.records": "10000",
            "kafka.max.partition.fetch.bytes": str(8 << 20),
            # After each poll Spark asks for the offsets of the partition. A broker answers a connection's requests one after the
            # other, and the next fetch is before this one: it waits for rows, 500 ms by default.
            "kafka.fetch.max.wait.ms": "10",
        }
        return reader.format("kafka").options(**options)

    def write(self, rows: DataFrame, table: str, *, keyed: bool) -> None:
        writer: DataFrameWriter = self._out(self._encoded(rows, keyed=keyed).write, table)
        writer.save()

    def write_stream(self, rows: DataFrame, table: str) -> DataStreamWriter:
        writer: DataStreamWriter = self._out(self._encoded(rows, keyed=True).writeStream, table)
        return writer

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        reader: DataFrameReader = self._from(spark.read, table)
        return self._decoded(reader.load())

    def scan(self, spark: SparkSession, table: str) -> DataFrame:
        if self.form != "raw":
            return self.read(spark, table)
        id_ = F.expr("cast(conv(hex(substring(value, 1, 8)), 16, 10) as bigint)")
        return self.read(spark, table).select(id_.alias("id"))

    def read_stream(self, spark: SparkSession, table: str) -> DataFrame:
        reader: DataStreamReader = self._from(spark.readStream, table)
        return self._decoded(reader.load())


class Parquet(System):
    """Spark's own Parquet files. A keyed write makes a folder for each of four hash buckets of the key: by `partitionBy`, for which
    Spark sorts the rows of each task, or by `repartition` (the systems named `.._repartition`), which shuffles them instead.
    """

    form = "parquet"

    def settings(self) -> dict[str, str]:
        return {"spark.sql.parquet.compression.codec": "zstd"}

    @property
    def _shuffles(self) -> bool:
        return self.name.endswith("_repartition")

    def _bucketed(self, rows: DataFrame) -> DataFrame:
        bucketed = rows.withColumn("bucket", F.expr(f"pmod(hash(k), {PARTS})"))
        return bucketed.repartition(PARTS, "bucket") if self._shuffles else bucketed

    def write(self, rows: DataFrame, table: str, *, keyed: bool) -> None:
        if keyed:
            rows = self._bucketed(rows)
        writer = rows.write.format(self.form).mode("append")
        (writer.partitionBy("bucket") if keyed else writer).save(str(self.root / table))

    def write_stream(self, rows: DataFrame, table: str) -> DataStreamWriter:
        return self._bucketed(rows).writeStream.format(self.form).partitionBy("bucket").option("path", str(self.root / table))

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.read.format(self.form).load(str(self.root / table)).select(*COLUMNS)

    def read_stream(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.readStream.format(self.form).schema(SCHEMA).load(str(self.root / table)).select(*COLUMNS)


class Delta(Parquet):
    """Delta Lake. Its default of 50 partitions for the state of a table is made for large tables: it costs small ones most of a
    commit. So all but `delta_default` take two.
    """

    form = "delta"

    def settings(self) -> dict[str, str]:
        return {
            **super().settings(),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            **({} if self.name == "delta_default" else {"spark.databricks.delta.snapshotPartitions": "2"}),
        }

    def compaction(self, table: str) -> Mapping[str, Callable[[], object]]:
        from deltalake import DeltaTable

        def compact() -> None:
            opened = DeltaTable(str(self.root / table))
            opened.optimize.compact()
            opened.create_checkpoint()

        return {"compact": compact}

    def read_stream(self, spark: SparkSession, table: str) -> DataFrame:
        return spark.readStream.format("delta").load(str(self.root / table)).select(*COLUMNS)


KINDS: Final[dict[str, type[System]]] = {
    "noop": System,
    "txnsegment": Txnsegment,
    "txnsegment_zookeeper": Txnsegment,
    "kafka_json": Kafka,
    "kafka_avro": Kafka,
    "kafka_raw": Kafka,
    "parquet": Parquet,
    "parquet_repartition": Parquet,
    "delta": Delta,
    "delta_default": Delta,
    "delta_repartition": Delta,
}


def session(system: System, home: Path, jars: list[Path], python: str) -> SparkSession:
    """Start Spark with the settings of the system. `jars`: the connectors. `python`: the Python of its workers."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(home / "spark-local"),
        "spark.python.authenticate.socketTimeout": "120s",  # on a busy machine a worker may need more than the default of 15 s
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTS),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("peers")
    for name, value in (settings | system.settings()).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
