"""A URL with a credential is refused, and no error, repr, log line or finding of the doctor shows the credential."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledgers.credentials import holds_credentials, shown
from ledgers.storage import LedgerStorage
from metadata.cluster.cluster import open_cluster
from metadata.common.errors import StorageError, TxnSegmentError
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord
from metadata.store import open_store
from metadata.store.contract import look
from txnsegment import doctor
from txnsegment.cli.app import build

SECRET = "hunter2sEcReT"
FORMS = [
    f"s3://KEY:{SECRET}@bucket/prefix",
    f"s3://{SECRET}@bucket/prefix",
    f"s3://KEY:a/b{SECRET}@bucket/prefix",
    f"S3://KEY:{SECRET}@bucket",
    f"s3://KEY%3A{SECRET}%40bucket/prefix",
    f"s3://KEY%253A{SECRET}%2540bucket/prefix",
    f"s3://bucket/prefix?access_key=KEY&secret_key={SECRET}",
    f"s3://bucket/prefix?region=eu&aws_secret_access_key={SECRET}",
    f"s3://bucket/prefix?X-Amz-Signature={SECRET}",
    f"s3://bucket/prefix?X-Amz-Credential={SECRET}",
    f"s3://bucket/prefix?%73ession%5Ftoken={SECRET}",
    f"s3://bucket/prefix#secret={SECRET}",
    f"s3://bucket/prefix#{SECRET}",
    f"s3://bucket/prefix?{SECRET}",
    f"s3://bucket/prefix?region=eu&{SECRET}",
    f"s3://bucket/prefix;token={SECRET}",
    f"s3://bucket/prefix?endpoint_override=https://user:{SECRET}@host",
    f"s3://bucket/prefix?endpoint_override=https%3A%2F%2Fuser%3A{SECRET}%40host",
    f"gs://bucket?access_token={SECRET}",
    f"hdfs://user:{SECRET}@host:8020/path",
    f"https://account.blob.core.windows.net/c?sv=1&sig={SECRET}",
    f"https://user:{SECRET}@host/path",
    f"user:{SECRET}@host/path",
    f"s3:KEY:{SECRET}@bucket",
    f"file://user:{SECRET}@host/path",
    f"file:///data?password={SECRET}",
    f"file:///data#{SECRET}",
    f" s3://KEY:{SECRET}@bucket",
    f"zk://digest:user:{SECRET}@h:2181/x",
    f"zk://user%3A{SECRET}%40h:2181/x",
    f"zk://h:2181/x?auth={SECRET}",
    f"zk://h:2181/x?{SECRET}",
    f"memory://x#{SECRET}",
]


def chain(error: BaseException | None) -> str:
    """Return all the text that a traceback shows of an error, with its causes and contexts."""
    found = ""
    while error is not None:
        found += f"{error} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


@pytest.mark.parametrize("uri", FORMS)
def test_a_ledger_uri_with_a_credential_is_refused_and_never_shown(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StorageError) as refused:
        LedgerStorage(uri)
    assert SECRET not in chain(refused.value)
    with pytest.raises(StorageError) as refused:
        open_cluster("memory://credentials", ledgers=uri)
    assert SECRET not in chain(refused.value)
    assert SECRET not in caplog.text
    assert SECRET not in shown(uri)


@pytest.mark.parametrize("url", FORMS)
def test_a_service_url_with_a_credential_is_refused_and_never_shown(url: str) -> None:
    with pytest.raises(TxnSegmentError) as refused:
        open_cluster(url)
    assert SECRET not in chain(refused.value)


def test_a_credential_in_a_cluster_record_is_never_shown(tmp_path: Path) -> None:
    """Another program, or an older version, may have written a credential into the record. No error and no finding shows it."""
    url = f"file://{tmp_path}/cluster"
    open_cluster(url).close()
    for uri in (form for form in FORMS if "://" in form):
        with open_store(url) as store:
            record = look(store, paths.CLUSTER)
            assert record is not None
            store.put(paths.CLUSTER, ClusterRecord.of(record).model_copy(update={"ledgers": uri}).to_bytes(), expect=record)
        with pytest.raises(StorageError) as refused:
            open_cluster(url)
        assert SECRET not in chain(refused.value)
    assert SECRET not in str(list(doctor.examine(url)))


def test_the_command_line_shows_no_credential(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cluster"
    for arguments in (["init", url, "--ledgers", FORMS[0]], ["--service-url", FORMS[1], "topics", "list"], ["init", FORMS[11]]):
        done = CliRunner().invoke(build(), arguments)
        assert done.exit_code == 1
        assert SECRET not in done.output + done.stderr


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/prefix",
        "s3://bucket/a@b",
        "s3://bucket/prefix?region=eu-west-1&endpoint_override=localhost:9000&scheme=http",
        "gs://anonymous@bucket/prefix",
        "gs://bucket/monkey=1",
        "hdfs://user@host:8020/path",
        "hdfs://host:8020/a@b",
        "file:///data/a@b:c@d",
        "file:///data/a%3Ftoken=x",
        "file:///data/a&b",
        "/data/x?token=1#y",
    ],
)
def test_a_ledger_uri_without_a_credential_is_taken(uri: str) -> None:
    assert not holds_credentials(uri)
    LedgerStorage(uri)
