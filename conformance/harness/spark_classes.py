"""A Spark job that loads the Java classes of the suites' drivers and executors. `conformance.harness.spark_start` stores these
classes in an archive.

    python -m conformance.harness.spark_classes FOLDER

The job writes a topic, reads it by the source and by `scan`, and runs one streaming query. All its files are in FOLDER. It also
writes the driver's class path to the file `class_path` there.
"""

from __future__ import annotations

import sys
from pathlib import Path

CLASS_PATH = "class_path"


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession  # imported here, since a module that imports only CLASS_PATH needs no pyspark

    from txnsegment import scan

    url = f"file://{folder}/cluster"
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    try:
        rows = spark.range(100).selectExpr("id", "cast(id % 7 as string) as name", "current_timestamp() as moment")
        rows.write.format("txnsegment").mode("append").options(serviceUrl=url, segments=2, keyColumn="name").save("numbers")
        rows.write.parquet(str(folder / "parquet"))
        counted = scan(spark, "numbers", serviceUrl=url).groupBy("name").count().orderBy("name").collect()
        assert len(counted) == 7, counted
        stream = spark.readStream.format("txnsegment").options(serviceUrl=url, startingOffsets="earliest").load("numbers")
        query = (
            stream.writeStream.format("txnsegment")
            .option("serviceUrl", url)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start("copy")
        )
        query.awaitTermination()
        assert spark.read.format("txnsegment").option("serviceUrl", url).load("copy").count() == 100
        spark.sql("select 1 as one union all select 2").createOrReplaceTempView("few")
        (folder / CLASS_PATH).write_text(spark.sparkContext._jvm.System.getProperty("java.class.path"), encoding="utf-8")
        assert spark.sql("select sum(one) from few").first() is not None
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
