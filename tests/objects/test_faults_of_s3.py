"""A real object store that fails, is slow, refuses or is killed, and writers that are killed in the middle of their uploads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.object_proxy import DENIED, EXPIRED, LOST, RESET, SLOW_DOWN
from conformance.object_stores import VersityGateway
from ledgers.errors import StorageError
from ledgers.io_errors import ATTEMPTS
from ledgers.storage import LedgerStorage
from metadata.cluster.ledger_root import HANDOVER_SECONDS
from metadata.maintenance.deleting import BATCH_SECONDS
from tests.support.object_places import QUICK, Place, append, sweep_until, values, while_the_server_restarts
from txnsegment import connect

pytestmark = pytest.mark.objects

ROOT = Path(__file__).parents[2]
LONG = 25_000_000
"""Bytes of an upload in several parts."""

APPEND = """if True:
    import sys
    import pyarrow as pa
    from txnsegment import connect
    with connect(sys.argv[1]) as cluster, cluster.begin() as txn:
        txn.append("t", pa.table({"k": ["a"] * 10, "v": range(100, 110)}))
        print("staged", flush=True)
        sys.stdin.read()
        txn.commit()
"""

UPLOAD = """if True:
    import sys
    from ledgers.storage import LedgerStorage
    LedgerStorage(sys.argv[1]).publish(sys.argv[2], bytes(int(sys.argv[3])))
"""


def program(code: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))


def kill(one: subprocess.Popen[bytes]) -> None:
    one.send_signal(signal.SIGKILL)
    one.communicate()


# --- killed writers ---


def test_a_writer_killed_between_upload_and_commit_leaves_an_orphan_that_a_sweep_deletes(real: Place) -> None:
    with real.cluster(QUICK) as cluster:
        append(cluster, 0)
        before = real.objects(".parquet")
        writer = program(APPEND, real.url)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"staged\n"
        kill(writer)
        assert len(real.objects(".parquet")) == len(before) + 1, "the upload is there, and no registration names it"
        assert values(cluster) == list(range(10))
        sweep_until(cluster, lambda: real.objects(".parquet") == before)
        append(cluster, 10)
        assert values(cluster) == list(range(20))


@pytest.mark.parametrize("held_at", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"])
def test_a_writer_killed_in_the_middle_of_an_upload_leaves_no_object(held_at: str, real: Place) -> None:
    """The parts that are there stay as an unfinished upload. No listing of objects shows it, so no sweep deletes it: that is the
    task of a lifecycle rule (docs/deployment.md).
    """
    with real.cluster(QUICK) as cluster:
        append(cluster, 0)
        with real.proxy.holding(held_at) as held:
            writer = program(UPLOAD, real.uri, "public/default/t/0000-ffff-0/ab.parquet", str(LONG))
            held.wait()
            kill(writer)
            assert len(real.objects(".parquet")) == 1
            unfinished = [] if held_at == "CreateMultipartUpload" else ["ledgers/public/default/t/0000-ffff-0/ab.parquet"]
            assert real.uploads() == unfinished
            time.sleep(QUICK.orphan_age_ms / 1000)
            cluster.sweep()
            assert real.uploads() == unfinished, "a sweep sees objects only"
        assert values(cluster) == list(range(10))
        assert cluster.verify("t").damaged == []


def test_small_files_leave_no_unfinished_uploads(real: Place) -> None:
    """A file of less than 10 MB is one request, so a kill at any point leaves an object or nothing."""
    with real.proxy.holding("PutObject") as held:
        writer = program(UPLOAD, real.uri, "a/b", "9000000")
        held.wait()
        kill(writer)
        assert real.objects() == []
        assert real.uploads() == []


# --- failing and slow answers ---


@pytest.mark.parametrize("answer", [SLOW_DOWN, RESET, LOST], ids=["SlowDown", "reset", "lost answer"])
def test_every_request_is_tried_again(answer: tuple[int, str, str], real: Place) -> None:
    """Each kind of request fails once, and the call succeeds: S3 asks clients to try again."""
    storage = real.storage()
    small = ("PutObject", "HeadObject", "GetObject", "ListObjectsV2", "DeleteObject")
    for kind in (*small, "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"):
        data = bytes(100 if kind in small else LONG)
        with real.proxy.failing(answer, operations={kind}, times=1):
            failed = real.proxy.failed
            storage.publish("a/b", data)
            assert storage.read("a/b") == data
            assert [one.path for one in storage.list()] == ["a/b"]
            storage.delete("a/b")
            assert real.proxy.failed == failed + 1, f"{kind} was sent"
        assert storage.info("a/b") is None


def test_a_short_read_is_tried_again_as_long_ones_are(real: Place) -> None:
    """pyarrow does not try a read again whose range is shorter than the error that answers it."""
    storage = real.storage()
    storage.publish("a/b", b"1")
    with real.proxy.failing(SLOW_DOWN, operations={"GetObject"}, times=2):
        assert storage.read("a/b") == b"1"


def test_a_store_that_stays_overloaded_is_an_error_that_says_so(real: Place) -> None:
    """Nothing is committed, and the same write succeeds later."""
    with real.cluster() as cluster:
        append(cluster, 0)
        with real.proxy.failing(SLOW_DOWN, operations={"PutObject"}), real.proxy.counting() as requests:
            began = time.monotonic()
            with pytest.raises(StorageError, match=rf"s3://{real.bucket}/ledgers/.*is overloaded.*SLOW_DOWN.*Run it again later"):
                append(cluster, 10)
            assert time.monotonic() - began < 60
        assert requests["PutObject"] >= ATTEMPTS, "those of the part, and perhaps of an index snapshot"
        assert values(cluster) == list(range(10))
        append(cluster, 10)
        assert values(cluster) == list(range(20))


@pytest.mark.parametrize("operation", ["HeadObject", "DeleteObject"])
def test_a_deletion_is_given_up_before_another_cluster_may_own_the_root(operation: str, real: Place) -> None:
    """A sweep deletes for BATCH_SECONDS after each look at the mark of the root. A cluster that takes the root over waits for
    HANDOVER_SECONDS. So no request of the sweep may be sent later.
    """
    storage = real.storage()
    storage.publish("a/b", b"rows")
    began = time.monotonic()
    with real.proxy.failing(SLOW_DOWN, operations={operation}), pytest.raises(StorageError, match=r"a/b: .*overloaded"):
        storage.delete("a/b")
    assert 2 * (time.monotonic() - began) + BATCH_SECONDS < HANDOVER_SECONDS, "a deletion has two requests"


def test_a_deletion_on_a_silent_server_is_given_up_as_early(real: Place) -> None:
    """The server has the connection, and sends nothing."""
    storage = LedgerStorage(real.server.uri(real.bucket))
    storage.publish("a/b", b"rows")
    real.server.suspend()
    began = time.monotonic()
    try:
        with pytest.raises(StorageError, match=r"a/b: there is no connection"):
            storage.delete("a/b")
        assert 2 * (time.monotonic() - began) + BATCH_SECONDS < HANDOVER_SECONDS
    finally:
        real.server.resume()
    assert storage.read("a/b") == b"rows"


@pytest.mark.parametrize(("answer", "words"), [(DENIED, "denies access"), (EXPIRED, "credentials have expired")])
def test_refused_requests_are_not_tried_again(answer: tuple[int, str, str], words: str, real: Place) -> None:
    storage = real.storage()
    said = rf"s3://{real.bucket}/ledgers/a/b: .*{words}.*AWS_ACCESS_KEY_ID"
    failing, counting = real.proxy.failing(answer, operations={"PutObject"}), real.proxy.counting()
    with failing, counting as requests, pytest.raises(StorageError, match=said):
        storage.publish("a/b", b"rows")
    assert requests["PutObject"] == 1


# --- a killed server ---


def test_a_server_killed_during_a_write_loses_nothing(real: Place) -> None:
    with real.cluster() as cluster:
        append(cluster, 0)
        with real.proxy.holding("PutObject") as held:
            while_the_server_restarts(real, held, lambda: append(cluster, 10))
        assert values(cluster) == list(range(20))
        assert cluster.verify("t").damaged == []


def test_a_server_killed_during_an_upload_in_parts_loses_nothing(real: Place) -> None:
    storage, data = real.storage(), os.urandom(LONG)
    with real.proxy.holding("CompleteMultipartUpload") as held:
        while_the_server_restarts(real, held, lambda: storage.publish("a/b", data))
    assert storage.read("a/b") == data


def test_a_server_killed_during_a_read_gives_the_same_rows(real: Place) -> None:
    with real.cluster() as cluster:
        append(cluster, 0)
        found: list[int] = []
        with real.proxy.holding("GetObject", when=lambda name, path: name == "GetObject" and ".parquet" in path) as held:
            while_the_server_restarts(real, held, lambda: found.extend(values(cluster)))
        assert found == list(range(10))


# --- wrong settings ---


def refused(uri: str, *words: str) -> None:
    """Every call fails, names the URI of the bucket, and says what to set."""
    for act in (
        lambda storage: storage.create(),
        lambda storage: storage.publish("a/b", b"rows"),
        lambda storage: storage.read("a/b"),
        lambda storage: storage.info("a/b"),
        lambda storage: list(storage.list()),
    ):
        with pytest.raises(StorageError) as found:
            act(LedgerStorage(uri))
        text = str(found.value)
        assert uri.partition("?")[0] in text
        for word in words:
            assert word in text


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_credentials(name: str, real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "wrong-and-secret")
    refused(real.uri, "AWS_SECRET_ACCESS_KEY", "~/.aws/credentials")
    with pytest.raises(StorageError) as found:
        real.storage().create()
    assert "wrong-and-secret" not in str(found.value)


def test_no_credentials(real: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    refused(real.uri, "AWS_SECRET_ACCESS_KEY")


def test_the_wrong_region(real: Place) -> None:
    refused(real.server.uri(real.bucket, region="eu-central-1"), "?region=")


def test_credentials_from_a_file(real: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual files of AWS. They keep credentials out of the environment, which other programs of the user can read."""
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id={VersityGateway.access_key}\naws_secret_access_key={VersityGateway.secret_key}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with real.cluster() as cluster:
        append(cluster, 0)
        assert values(cluster) == list(range(10))


def test_the_endpoint_from_the_environment(real: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{real.proxy.hosts}")
    with connect(f"file://{tmp_path}/c", ledgers=f"s3://{real.bucket}/a%20b") as cluster:
        append(cluster, 0)
        assert values(cluster) == list(range(10))
    assert [key for key in real.objects(".parquet") if key.startswith("a b/public/default/t/")]


def test_an_unreachable_endpoint(real: Place) -> None:
    real.proxy.close()
    began = time.monotonic()
    with pytest.raises(StorageError, match=rf"s3://{real.bucket}/ledgers.* no connection .*endpoint_override.*AWS_ENDPOINT_URL"):
        real.storage().create()
    assert time.monotonic() - began < 60


# --- permissions ---

ACTIONS = {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"}


def allow(real: Place, actions: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be a user who may do these actions with the bucket, and no others."""
    user, secret = f"user-{uuid.uuid4().hex}", "the-secret-of-a-user"
    assert isinstance(real.server, VersityGateway)
    real.server.create_user(user, secret)
    granted = [
        {"Effect": "Allow", "Principal": user, "Action": sorted(some), "Resource": f"arn:aws:s3:::{resource}"}
        for resource, some in (
            (real.bucket, actions & {"s3:ListBucket"}),
            (f"{real.bucket}/ledgers/*", actions - {"s3:ListBucket"}),
        )
        if some
    ]
    real.s3.put_bucket_policy(Bucket=real.bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": granted}))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", user)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)


def test_the_page_lists_the_least_permissions() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(s3:\w+)`", page, re.MULTILINE)) == ACTIONS


def test_the_least_permissions_suffice(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(real, ACTIONS, monkeypatch)
    with real.cluster(QUICK) as cluster:
        for first in range(0, 40, 10):
            append(cluster, first)
        cluster.sweep()
        cluster.compact("t", min_files=2)
        sweep_until(cluster, lambda: len(real.objects(".parquet")) == 2)
        assert values(cluster) == list(range(40))
        assert cluster.verify("t").damaged == []
    real.storage().publish("a/long", bytes(LONG))
    real.storage().delete("a/long")


def test_each_permission_is_needed(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real.storage().publish("a/b", b"rows")
    acts: dict[str, Callable[[LedgerStorage], object]] = {
        "s3:ListBucket": lambda storage: list(storage.list()),
        "s3:GetObject": lambda storage: storage.read("a/b"),
        "s3:PutObject": lambda storage: storage.publish("a/c", b"rows"),
        "s3:DeleteObject": lambda storage: storage.delete("a/b"),
    }
    for action, act in acts.items():
        with monkeypatch.context() as patch:
            allow(real, ACTIONS - {action}, patch)
            with pytest.raises(StorageError, match=rf"s3://{real.bucket}/ledgers/.*denies access.*S3 actions"):
                act(real.storage())


def test_a_program_that_reads_needs_no_permission_to_write(real: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with real.cluster() as cluster:
        append(cluster, 0)
    allow(real, {"s3:ListBucket", "s3:GetObject"}, monkeypatch)
    with real.cluster() as cluster:
        assert values(cluster) == list(range(10))
        assert cluster.verify("t").damaged == []
        with pytest.raises(StorageError, match="denies access"):
            append(cluster, 10)
        assert values(cluster) == list(range(10))
