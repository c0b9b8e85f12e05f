"""Tests of `txnsegment backup|restore`, and of the option for streams whose checkpoint is beyond the backup."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner, Result

from spark_txn_sink.writer import StreamWriter
from txnsegment import Cluster
from txnsegment.cli.app import build


def run(url: str, *arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(build(), ["--service-url", url, *arguments])
    assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
    return done


def test_backup_and_restore(cluster: Cluster, url: str, tmp_path: Path) -> None:
    cluster.topics.create("t", schema="n bigint")
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": [1, 2]}))
        txn.commit()
    file, other = str(tmp_path / "b.gz"), f"file://{tmp_path}/other"
    said = run(url, "backup", file).stdout
    assert said.startswith(f"{file}: 1 topics up to number 1 of the log at ")
    assert f"The backup can be restored for at least 7 days: the files in {cluster.ledgers} are kept that long." in said
    assert "exists already" in run(url, "backup", file, code=1).stderr
    assert "not a duration" in run(url, "backup", f"{file}2", "--patience", "5", code=1).stderr
    made = json.loads(run(url, "backup", f"{file}2", "--json").stdout)
    assert (made["number"], made["topics"], made["ledgers"]) == (1, 1, cluster.ledgers)
    cluster.close()
    assert "is not empty" in run(url, "restore", file, code=1).stderr
    restored = run(other, "restore", file).stdout
    assert restored.endswith(
        f"into {other}, over the ledgers in {cluster.ledgers}: everything up to log number 1. The next number is 1000000000000000. "
        "The cluster of the backup cannot be opened any more.\n"
    )
    assert json.loads(run(other, "topics", "read", "t", "--json").stdout.splitlines()[1]) == {"n": 2}
    assert "belongs to another cluster" in run(url, "topics", "list", code=1).stderr


def test_a_file_that_is_no_backup_is_refused(url: str, tmp_path: Path) -> None:
    file = tmp_path / "b.gz"
    assert "cannot be read" in run(url, "restore", str(file), code=1).stderr
    file.write_text("hello")
    assert "is damaged: it is not a complete gzip file" in run(url, "restore", str(file), code=1).stderr


@pytest.mark.parametrize(
    ("options", "accepts"), [({}, False), ({"afterRestore": "fail"}, False), ({"afterRestore": "continue"}, True)]
)
def test_only_a_stream_that_accepts_the_loss_continues_after_a_restore(
    cluster: Cluster, url: str, options: dict[str, str], accepts: bool
) -> None:
    cluster.topics.create("t", schema="n bigint")
    given = {"serviceUrl": url, "topic": "t", "checkpointLocation": "/c", **options}
    writer = StreamWriter(given, StructType([StructField("n", LongType())]), False)
    assert writer._identity(7).accepts_loss is accepts
