"""Spark repeats batches, or another checkpoint uses the same application. No row is lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from conformance.input_files import Singly
from conformance.scenarios.driver import Place, unfinished
from conformance.scenarios.files import add_batches, streamed
from conformance.scenarios.forks import Forks
from conformance.scenarios.history import complete
from conformance.scenarios.reading import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stream:
    """A topic, and the streaming queries that write to it."""

    def __init__(self, spark: SparkSession, folder: Path, forks: Forks) -> None:
        self.spark, self.folder, self.forks = spark, folder, forks
        self.place = Place(f"file://{folder}/cluster", "t")

    def run(self, checkpoint: str, **options: str) -> None:
        """Run a query with this checkpoint over all existing input. Raises the error of the query."""
        query = (
            streamed(self.spark, self.folder / "input")
            .writeStream.format("txnsegment")
            .options(serviceUrl=self.place.url, segments="4", keyColumn="key", **options)
            .option("checkpointLocation", str(self.folder / checkpoint))
            .trigger(availableNow=True)
            .start(self.place.topic)
        )
        query.awaitTermination()

    def wrong(self, batches: int) -> list[str]:
        found: list[str] = self.forks.call(unfinished, self.place)
        return found + complete(self.forks.call(read_all, self.place.url, self.place.topic), batches)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, forks: Forks) -> Stream:
    add_batches(tmp_path / "input", 0, 3)
    return Stream(spark, tmp_path, forks)


def test_a_lost_last_entry_of_the_commit_log_replays_its_batch_without_a_write(stream: Stream) -> None:
    stream.run("checkpoint")
    assert stream.wrong(3) == []
    for name in ("2", ".2.crc"):
        (stream.folder / "checkpoint" / "commits" / name).unlink()
    stream.run("checkpoint")
    assert (stream.folder / "checkpoint" / "commits" / "2").exists()
    assert stream.wrong(3) == []
    add_batches(stream.folder / "input", 3, 2)
    stream.run("checkpoint")
    assert stream.wrong(5) == []


def test_a_driver_killed_between_two_checkpoint_notes_keeps_batches_of_one_file(stream: Stream) -> None:
    """A driver is killed before it records a batch in the offset log. The next driver plans the batch again, with all files that
    exist then. `Singly` adds a file only after the previous batch is committed, so each batch still has one file.
    """
    singly = Singly(stream.folder / "checkpoint", lambda batch: add_batches(stream.folder / "input", batch, 1))
    singly.laid = 3
    stream.run("checkpoint")
    for of in ("offsets", "commits"):
        for name in ("2", ".2.crc"):
            (stream.folder / "checkpoint" / of / name).unlink()
    while singly.feed(5) or not singly.committed():
        stream.run("checkpoint")
    assert stream.wrong(5) == []


def test_a_new_checkpoint_under_an_old_app_id_is_an_error_and_loses_nothing(stream: Stream) -> None:
    """A query with a new checkpoint uses an application that has committed the same versions before. The commit of this query
    raises VersionConflict, and Spark calls `abort`. The committed rows stay, and no transaction is left open.
    """
    stream.run("checkpoint", txnAppId="app")
    with pytest.raises(PySparkException, match="VersionConflict"):
        stream.run("another", txnAppId="app")
    assert stream.wrong(3) == []
    add_batches(stream.folder / "input", 3, 2)
    with pytest.raises(PySparkException, match="VersionConflict"):
        stream.run("another", txnAppId="app")
    assert stream.wrong(3) == []
    stream.run("checkpoint", txnAppId="app")
    assert stream.wrong(5) == []
