"""Clusters whose ledgers are on an object store: every operation of the public API that reads, writes or deletes files."""

from __future__ import annotations

import logging
import pickle
import random
import threading

import pyarrow as pa
import pytest

from conformance.object_proxy import DENIED, SLOW_DOWN
from conformance.object_stores import SECRET_KEY
from ledgers.errors import CorruptPart, MissingFile, StorageError
from ledgers.storage import LedgerStorage
from metadata.common.errors import RestoreRefused
from tests.support.object_places import QUICK, Place, append, sweep_until, values
from txnsegment import connect, restore


def test_rows_are_read_compacted_trimmed_swept_and_verified(place: Place) -> None:
    with place.cluster(QUICK) as cluster:
        for first in range(0, 60, 10):
            append(cluster, first)
        assert values(cluster) == list(range(60))
        with cluster.consumer("t", "s", start="earliest") as consumer:
            taken = [batch for batch in consumer.batches(timeout=0.2) if consumer.ack(batch) is None]
        assert sum(len(one.rows) for one in taken) == 60
        cluster.sweep()  # folds the registrations into index snapshots
        assert place.objects(".avro")
        assert cluster.compact("t", min_files=2).files_after == 1
        assert values(cluster) == list(range(60))
        found = cluster.verify("t")
        assert (found.rows, found.damaged) == (60, [])
        append(cluster, 60)
        cluster.sweep()
        cluster.retention.set("t", keep_bytes=1)
        assert cluster.retention.trim("t").rows == 60
        # Compaction replaced six parts, and the trim took the rows of the compacted file. One part is left.
        sweep_until(cluster, lambda: len(place.objects(".parquet")) == 1)
        assert values(cluster) == list(range(60, 70))
        assert cluster.verify("t").damaged == []


def test_requests_are_as_few_as_the_page_says(place: Place) -> None:
    """docs/storage.md has these numbers. A request costs money and some 20 ms on a real store."""
    with place.cluster() as cluster:
        append(cluster, 0)
        with place.proxy.counting() as commit:
            append(cluster, 10)
        assert commit["PutObject"] == 1 or commit["PutObject"] == 2, "one part, and perhaps an index snapshot of a fold"
        assert 3 <= commit["HeadObject"] <= 4, "the footer; before the commit the mark and the part; perhaps a fold"
        assert commit["GetObject"] <= 2
        assert not {"CreateMultipartUpload", "ListObjectsV2", "HeadBucket"} & commit.keys()
        with place.proxy.counting() as read:
            values(cluster)
        assert read["ListObjectsV2"] == 0
        assert (read["HeadObject"], read["GetObject"]) in ((2, 2), (3, 3)), "two parts, and perhaps an index snapshot"


def test_a_discarded_write_leaves_no_object(place: Place) -> None:
    storage = place.storage()
    output = storage.open_output("a/b.parquet")
    output.stream.write(b"rows")
    output.discard()
    assert place.objects() == []


def test_verify_finds_missing_truncated_and_changed_objects(place: Place) -> None:
    with place.cluster() as cluster:
        for first in range(0, 40, 10):
            append(cluster, first)
        missing, short, changed, whole = place.objects(".parquet")
        place.s3.delete_object(Bucket=place.bucket, Key=missing)
        for key, damage in ((short, lambda data: data[:-100]), (changed, lambda data: data[:20] + b"\xff\xff" + data[22:])):
            data = place.s3.get_object(Bucket=place.bucket, Key=key)["Body"].read()
            place.s3.put_object(Bucket=place.bucket, Key=key, Body=damage(data))
        found = {one.path: one.problem for one in cluster.verify("t").damaged}
        assert {path.rpartition("/")[2] for path in found} == {key.rpartition("/")[2] for key in (missing, short, changed)}
        with pytest.raises(CorruptPart):
            values(cluster)
        assert whole.rpartition("/")[2] not in str(found)


def test_a_read_of_a_part_in_many_requests_is_tried_again(place: Place) -> None:
    """pyarrow gives a read up at once if its range is shorter than the answer SlowDown. Here each range is shorter."""
    status, code, _ = SLOW_DOWN
    long_answer = (status, code, "x" * 1_000_000)
    chance = random.Random(3)
    with place.cluster() as cluster:
        with cluster.begin() as txn:
            noise = [chance.randbytes(2000) for _ in range(100)]
            txn.append("t", pa.table({"v": range(100), "noise": noise}))
            txn.commit()
        with place.proxy.counting() as requests:
            assert values(cluster) == list(range(100))
        gets = requests["GetObject"]
        assert gets > 1
        for number in range(gets):
            asked = 0

            def chosen(name: str, target: str, number: int = number) -> bool:
                nonlocal asked
                asked += name == "GetObject"
                return name == "GetObject" and asked == number + 1

            with place.proxy.failing(long_answer, when=chosen):
                assert values(cluster) == list(range(100))


@pytest.mark.parametrize("operation", ["HeadObject", "GetObject"])
def test_a_store_that_refuses_reads_is_no_damage(operation: str, place: Place) -> None:
    """Otherwise a wrong key would make `verify` list every part as damaged, and a user would look for a backup."""
    with place.cluster() as cluster:
        append(cluster, 0)
        cluster.sweep()
        values(cluster)
        with place.proxy.failing(DENIED, operations={operation}):
            for act in (lambda: values(cluster), lambda: cluster.verify("t")):
                with pytest.raises(StorageError, match=r"s3://.*parquet: the object store denies access"):
                    act()
        assert cluster.verify("t").damaged == []


def test_backup_and_restore_with_ledgers_on_an_object_store(place: Place) -> None:
    with place.cluster() as cluster:
        append(cluster, 0)
        cluster.backup(place.folder / "backup.gz")
    restore(place.folder / "backup.gz", f"file://{place.folder}/restored")
    with connect(f"file://{place.folder}/restored") as restored:
        assert values(restored) == list(range(10))
        append(restored, 10)
        assert values(restored) == list(range(20))


def test_restore_finds_a_missing_object(place: Place) -> None:
    with place.cluster() as cluster:
        append(cluster, 0)
        cluster.backup(place.folder / "backup.gz")
    (part,) = place.objects(".parquet")
    place.s3.delete_object(Bucket=place.bucket, Key=part)
    with pytest.raises(RestoreRefused, match=part.rpartition("/")[2]):
        restore(place.folder / "backup.gz", f"file://{place.folder}/restored")


def test_a_missing_bucket_is_no_missing_file(place: Place) -> None:
    """A bucket that was deleted, or a wrong name: the files are not gone, so no error may say that they are."""
    storage = LedgerStorage(place.server.uri("no-such-bucket"))
    for act in (
        storage.create,
        lambda: storage.info("a/b"),
        lambda: storage.read("a/b"),
        lambda: storage.publish("a/b", b"rows"),
        lambda: list(storage.list()),
    ):
        with pytest.raises(StorageError, match=r"no-such-bucket.* does not exist.*Create the bucket") as refused:
            act()
        assert not isinstance(refused.value, MissingFile)


def test_a_missing_bucket_is_created_on_request_only(place: Place) -> None:
    name = f"{place.bucket}new"
    uri = place.server.uri(name)
    with pytest.raises(StorageError, match="does not exist"):
        connect(f"file://{place.folder}/c", ledgers=uri)
    with connect(f"file://{place.folder}/c2", ledgers=f"{uri}&allow_bucket_creation=true") as cluster:
        append(cluster, 0)
        assert values(cluster) == list(range(10))


def test_a_lost_object_between_two_requests_is_a_missing_file(place: Place) -> None:
    """A read asks for the length first. A sweep of another process may delete the file before the second request."""
    storage = place.storage()
    storage.publish("a/b", b"rows")
    with place.proxy.holding("GetObject") as held:

        def delete() -> None:
            held.wait()
            place.s3.delete_object(Bucket=place.bucket, Key="ledgers/a/b")
            held.release()

        other = threading.Thread(target=delete)
        other.start()
        with pytest.raises(MissingFile, match=rf"s3://{place.bucket}/ledgers/a/b: it does not exist"):
            storage.read("a/b")
        other.join()


def test_credentials_are_in_no_record_error_log_or_pickle(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), place.cluster() as cluster:
        append(cluster, 0)
        storage = cluster.client.cluster.storage
        shown = [repr(cluster), str(cluster.settings), repr(storage), str(pickle.dumps(storage)), cluster.ledgers]
    database = b"".join(one.read_bytes() for one in place.folder.rglob("*") if one.is_file())
    objects = [place.s3.get_object(Bucket=place.bucket, Key=key)["Body"].read() for key in place.objects()]
    assert place.bucket.encode() in database, "the record names the ledger root"
    for text in (database, *objects, *(one.encode() for one in (*shown, caplog.text))):
        assert SECRET_KEY.encode() not in text


@pytest.mark.parametrize("given", ["access_key=AKIA1&secret_key=geheim", "session_token=geheim"])
def test_credentials_in_a_uri_are_refused_and_not_shown(place: Place, given: str) -> None:
    for uri in (f"{place.uri}&{given}", f"s3://AKIA1:geheim@{place.bucket}/x"):
        with pytest.raises(StorageError, match="holds a credential") as refused:
            connect(f"file://{place.folder}/c", ledgers=uri)
        assert "geheim" not in str(refused.value)
        assert "AKIA1" not in str(refused.value)
