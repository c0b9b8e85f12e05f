"""Batches that Spark repeats, and checkpoints of other queries: skipped or refused, never lost or doubled."""

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
    """One topic that streams write to."""

    def __init__(self, spark: SparkSession, folder: Path, forks: Forks) -> None:
        self.spark, self.folder, self.forks = spark, folder, forks
        self.place = Place(f"file://{folder}/cluster", "t")

    def run(self, checkpoint: str, **options: str) -> None:
        """All input that there is; raises what the query raises."""
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
    """Its successor would take the next file, too, if that were there already."""
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
    """The commit raises, Spark calls `abort` after it, and what was committed before stays; nothing is left open."""
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
