"""A commit checks the part files of its registration. If a file is missing or truncated, the commit aborts, so that no reader finds
the loss.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from metadata.client.passes import delete_orphans
from metadata.common.errors import PartsGone, StorageError
from metadata.write.write_set import Committed
from tests.support.bench import Bench
from txnsegment import connect
from txnsegment.transaction import Transaction

P = "persistent://public/default/p"


def test_files_that_a_sweep_took_while_the_clock_was_ahead_are_not_committed() -> None:
    """Between staging and commit the clock leaps ahead by more than the orphan age, a sweep deletes the parts, and the clock comes
    back. The commit finds the files missing, and fails.
    """
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    before = bench.read()
    work = bench.work(2)
    leap = bench.settings.orphan_age_ms + 1
    bench.clock.now += leap
    assert delete_orphans(bench.party().cluster).files == 3
    bench.clock.now -= leap
    with pytest.raises(PartsGone, match=r"3 of the 3 files that app staged are missing or incomplete: parts/app/2/.* is not there"):
        bench.party().coordinator.commit(work)
    assert bench.read() == before
    assert not bench.party().coordinator.commit(bench.work(2)).skipped
    bench.finish()


def test_a_file_that_is_cut_short_is_not_committed() -> None:
    bench = Bench()
    work = bench.work(1)
    path = next(iter(work.parts.values()))[0].path
    bench.disk.files[path] = (b"par", bench.clock.now)
    with pytest.raises(PartsGone, match=rf"staged are missing or incomplete: {path} of .* has 3 bytes and not 4"):
        bench.party().coordinator.commit(work)
    assert bench.read() == []
    bench.finish()


def test_a_committed_version_is_skipped_even_without_the_files_of_its_repetition() -> None:
    bench = Bench()
    bench.party().coordinator.commit(bench.work(1))
    again = bench.work(1)
    for part in (part for found in again.parts.values() for part in found):
        del bench.disk.files[part.path]
    assert bench.party().coordinator.commit(again).skipped


def test_many_files_are_counted_and_some_named() -> None:
    bench = Bench()
    work = bench.work(1)
    gone = {s: [dataclasses.replace(p, path=f"{p.path}.{i}") for p in found for i in range(4)] for s, found in work.parts.items()}
    with pytest.raises(PartsGone, match=r"12 of the 12 files that app staged are missing or incomplete: .*; .*; .* and 9 more"):
        bench.party().coordinator.commit(dataclasses.replace(work, parts=gone))


@pytest.mark.parametrize(("topic", "plain"), [("t", False), (P, False), (P, True)])
def test_rows_that_were_staged_without_their_volume_are_not_committed(tmp_path: Path, topic: str, plain: bool) -> None:
    """The volume of the ledgers is not mounted, so its mount point is an empty folder. A producer's flush raises an error. When the
    volume is back, the next flush stages the rows again and commits them.
    """
    with connect(f"file://{tmp_path}/c") as cluster:
        cluster.topics.create(topic, schema="n bigint")
        producer = cluster.producer(topic, plain=plain)
        producer.send({"n": 1})
        root = Path(cluster.ledgers.removeprefix("file://"))
        volume = root.rename(tmp_path / "volume")
        root.mkdir()
        with pytest.raises(StorageError, match=r"has no cluster\.json.*Nothing was committed"):
            producer.flush()
        root.rename(tmp_path / "mount point")
        volume.rename(root)
        assert producer.flush() is not None
        with cluster.consumer(topic, "s", start="earliest") as consumer:
            assert [message.value["n"] for message in consumer.messages(timeout=0)] == [1]


@pytest.mark.parametrize(("topic", "plain"), [("t", False), (P, False), (P, True)])
def test_a_flush_with_a_missing_file_stages_its_rows_again(tmp_path: Path, topic: str, plain: bool) -> None:
    with connect(f"file://{tmp_path}/c") as cluster:
        cluster.topics.create(topic, schema="n bigint")
        producer = cluster.producer(topic, plain=plain)
        begin = producer._begin

        def taken_away() -> Transaction:
            txn = begin()
            commit, producer._begin = txn.commit, begin

            def late() -> Committed:
                (path,) = Path(cluster.ledgers.removeprefix("file://")).rglob("*.parquet")
                path.unlink()
                return commit()

            txn.commit = late  # type: ignore[method-assign]
            return txn

        producer._begin = taken_away
        producer.send({"n": 1})
        with pytest.raises(PartsGone, match=r"1 of the 1 files .* is not there.*keeps the 1 rows"):
            producer.flush()
        assert producer.flush() is not None
        with cluster.consumer(topic, "s", start="earliest") as consumer:
            assert [message.value["n"] for message in consumer.messages(timeout=0)] == [1]
