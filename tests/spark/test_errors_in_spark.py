"""What a user of Spark sees of an error of txnsegment: the message is the first and the last line, without frames of Python. Also
the calls that make tables of Spark's catalogue, which topics cannot be.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from txnsegment import connect

if TYPE_CHECKING:
    from tests.spark.conftest import Deployment


def told(call: Callable[[], Any]) -> str:
    """Return the text of the error that a call of Spark raises."""
    with pytest.raises(PySparkException) as raised:
        call()
    return str(raised.value)


def lines_of(text: str) -> list[str]:
    """Return the lines of an error without the lines that Spark adds."""
    return [
        line for line in text.split("\n=== Streaming Query ===")[0].splitlines() if line.strip() and "SQLSTATE: 38000" not in line
    ]


def is_plain(text: str, error: str) -> bool:
    """Return whether the text has no traceback, and names the error in its first line."""
    return "Traceback" not in text and 'File "' not in text and error in lines_of(text)[0]


def test_a_refused_option_is_told_in_one_line(here: Deployment) -> None:
    here.write(here.spark.range(3))
    for call in (
        lambda: here.read(startingOffset="latest"),
        lambda: here.read(startingOffsets='{"log":99}').collect(),
        lambda: here.write(here.spark.range(3), segment="3"),
    ):
        text = told(call)
        assert is_plain(text, "Error" if "OptionError" in text else "OffsetOutOfRange")
        assert len(lines_of(text)) == 1


def test_an_error_of_a_streams_plan_is_told_without_frames(here: Deployment) -> None:
    here.write(here.spark.range(3))
    checkpoint = str(here.folder / "checkpoint")
    rows = here.stream(startingOffsets='{"log":99}')
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert is_plain(told(query.awaitTermination), "OffsetOutOfRange")


def test_an_error_of_a_task_is_told_without_frames_of_python(here: Deployment) -> None:
    here.write(here.spark.range(1000).coalesce(1))
    planned = here.read()
    (part,) = here.files()
    (here.folder / part).unlink()
    text = told(planned.collect)
    assert "Traceback" not in text
    assert "the file is missing" in text


def test_a_write_to_a_table_of_the_catalogue_says_how_to_write_to_a_topic(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without options of the write, since Spark passes no name on."""
    rows = here.spark.range(3)
    for options in ({}, {"serviceUrl": here.url}):
        text = told(lambda found=options: rows.write.format("txnsegment").options(**found).mode("append").saveAsTable("no_table"))
        assert is_plain(text, "OptionError")
        assert "saveAsTable" in text
        assert "save(name)" in text
    assert not here.spark.catalog.tableExists("no_table")


def test_to_table_says_how_to_write_to_a_topic(here: Deployment) -> None:
    """Spark makes the table before the query starts."""
    here.write(here.spark.range(3))
    rows = here.stream(startingOffsets="earliest")
    writer = rows.writeStream.format("txnsegment").option("checkpointLocation", str(here.folder / "checkpoint"))
    try:
        query = writer.option("serviceUrl", here.url).trigger(availableNow=True).toTable("no_stream")
        text = told(query.awaitTermination)
    finally:
        here.spark.sql("DROP TABLE IF EXISTS no_stream")
    assert is_plain(text, "OptionError")
    assert "toTable(name)" in text
    assert "start(name)" in text


def test_a_table_of_sql_says_at_its_first_use_what_to_do(here: Deployment) -> None:
    """`CREATE TABLE` with columns calls no data source, so the first use tells. Without columns the statement itself is refused."""
    spark = here.spark
    options = f"OPTIONS (serviceUrl '{here.url}', topic 't')"
    for more in (options, ""):
        text = told(lambda found=more: spark.sql(f"CREATE TABLE no_columns USING txnsegment {found}"))
        assert is_plain(text, "A topic cannot be a table of Spark's catalogue")
        assert "CREATE TEMPORARY VIEW" in text
    spark.sql(f"CREATE TABLE of_sql (id bigint) USING txnsegment {options}")
    try:
        for call in (lambda: spark.table("of_sql").collect(), lambda: spark.sql("INSERT INTO of_sql VALUES (1)")):
            text = told(call)
            assert is_plain(text, "No option reached txnsegment")
            assert "CREATE TEMPORARY VIEW" in text
    finally:
        spark.sql("DROP TABLE of_sql")


def test_partition_by_is_refused_in_a_batch_and_changes_nothing_in_a_stream(here: Deployment) -> None:
    """Spark refuses it in a batch before it calls the source, and tells a source nothing of it in a stream (docs/limits.md)."""
    rows = here.spark.range(3)
    writer = rows.write.format("txnsegment").option("serviceUrl", here.url).mode("append").partitionBy("id")
    assert "partitioning or clustering columns do not match" in told(lambda: writer.save("t"))
    here.write(rows)
    stream = here.stream(startingOffsets="earliest").writeStream.format("txnsegment").option("serviceUrl", here.url)
    stream = stream.option("checkpointLocation", str(here.folder / "checkpoint")).partitionBy("id")
    stream.trigger(availableNow=True).start("copy").awaitTermination()
    assert sorted(row.id for row in here.read("copy").collect()) == [0, 1, 2]


# --- files with the names of txnsegment's packages ----------------------------------------------------------------

PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    print(spark.read.format("txnsegment").option("serviceUrl", sys.argv[1]).load("t").count())
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["metadata.py", "ledgers"])
def test_a_file_with_the_name_of_a_package_is_named(tmp_path: Path, name: str) -> None:
    """A user's folder has a file, or a package, with the name of one of txnsegment's packages. Spark's processes find it first."""
    url = f"file://{tmp_path}/cluster"
    with connect(url) as cluster:
        cluster.topics.create("t", schema="id bigint")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    taken = folder / name
    if taken.suffix:
        taken.write_text("raise SystemExit('this file is not to be run')")
    else:
        taken.mkdir()
        (taken / "__init__.py").write_text("")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)

    told_by_spark = run(sys.executable, "program.py", url).stdout
    assert "ImportError: txnsegment cannot use its package" in told_by_spark
    assert f"Python finds {taken}. Rename it" in told_by_spark
    assert "Traceback" not in told_by_spark
    doctor = run(str(Path(sys.executable).parent / "txnsegment"), "doctor", "--service-url", url)
    assert doctor.returncode == 1
    assert f"Python finds {taken}. Rename it" in doctor.stdout
    shutil.rmtree(taken) if taken.is_dir() else taken.unlink()
    assert run(sys.executable, "program.py", url).stdout.strip() == "0"
    assert run(str(Path(sys.executable).parent / "txnsegment"), "doctor", "--service-url", url).returncode == 0
