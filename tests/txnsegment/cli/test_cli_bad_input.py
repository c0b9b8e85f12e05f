"""Bad input at the command line: the command prints a clear error on stderr, exits with code 1, and shows no traceback."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord
from metadata.store import open_store
from txnsegment import Cluster, connect
from txnsegment.cli.app import build

CASES: list[tuple[list[str], str]] = [
    (["topics", "create", "a b"], "is not a topic name"),
    (["topics", "create", "topic://a/b"], "is not a topic name"),
    (["topics", "create", "segment://public/default/t/0000-ffff-0"], "names a segment"),
    (["topics", "create", "there"], "exists already"),
    (["topics", "create", "t", "--segments", "0"], "cannot have 0 segments"),
    (["topics", "create", "t", "--segments", "65537"], "cannot have 65537 segments"),
    (["topics", "create", "t", "--key", ""], "key column's name is empty"),
    (["topics", "create", "t", "--key", "kk", "--schema", "k string"], "Did you mean k?"),
    (["topics", "create", "t", "--key", "k", "--schema", "k double"], "cannot be a key"),
    (["topics", "create", "t", "--schema", "k strng"], "did you mean string?"),
    (["topics", "create", "t", "--schema", "k string,"], "something is missing"),
    (["topics", "create", "t", "--schema", "k void"], "void"),
    (["topics", "create", "t", "--schema", "k interval year"], "day, hour, minute and second"),
    (["topics", "create", "t", "--schema", "__topic string"], "metadata column"),
    (["topics", "create", "t", "--schema", "a int, A int"], "differs only by case"),
    (["topics", "list", "--pattern", "("], "not a regular expression"),
    (["topics", "describe", "nowhere"], "There is no topic topic://public/default/nowhere"),
    (["topics", "delete", "nowhere"], "There is no topic"),
    (["topics", "read", "nowhere"], "There is no topic"),
    (["topics", "read", "segment://public/default/there/0000-ffff-7"], "There is no segment"),
    (["topics", "read", "segment://public/default/there/x"], "is not a segment name"),
    (["segments", "show", "nowhere"], "There is no topic"),
    (["verify", "nowhere"], "There is no topic"),
    (["txns", "list", "--state", "OPN"], "Did you mean OPEN?"),
    (["txns", "list", "--state", "commited"], "Did you mean COMMITTED?"),
    (["txns", "show", "7"], "is not a transaction id"),
    (["txns", "show", "0_7"], "There is no transaction 0_7"),
    (["txns", "abort", "0_7"], "There is no transaction 0_7"),
    (["sweep", "--every", "10"], "its unit: 500ms, 10s, 5m or 1h"),
    (["sweep", "--every", "0s"], "is not a duration"),
    (["sweep", "--every", "10s", "--once"], "exclude each other"),
    (["sweep", "--metrics-port", "0"], "Add --every"),
    (["sweep", "--every", "10s", "--metrics-port", "1", "--metrics-host", "203.0.113.1"], "cannot be served on 203.0.113.1:1"),
]


@pytest.mark.parametrize(("arguments", "says"), CASES, ids=[" ".join(arguments) for arguments, _ in CASES])
def test_bad_input(cluster: Cluster, url: str, arguments: list[str], says: str) -> None:
    cluster.topics.create("there")
    done = CliRunner().invoke(build(), [*arguments, "--service-url", url])
    assert done.exit_code == 1, done.output
    assert says in done.stderr
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.output
    assert [t.name for t in cluster.topics.list()] == ["topic://public/default/there"]


SETTINGS: list[tuple[list[str], str]] = [
    (["txnTimeoutMs"], "is not key=value"),
    (["txnTimeutMs=1"], "Did you mean txnTimeoutMs?"),
    (["txnTimeoutMs=30s"], "not a whole number"),
    (["txnTimeoutMs=0"], "from 1"),
    (["txnTimeoutMs=1", "txn_timeout_ms=2"], "given twice"),
    (["txnTimeoutMs=300001"], "above maxTxnTimeoutMs"),
    (["orphanAgeMs=60000"], "too close to maxTxnTimeoutMs"),
]


@pytest.mark.parametrize(("settings", "says"), SETTINGS, ids=[" ".join(s) for s, _ in SETTINGS])
def test_bad_settings_make_no_cluster(tmp_path: Path, settings: list[str], says: str) -> None:
    more = [word for setting in settings for word in ("--set", setting)]
    done = CliRunner().invoke(build(), ["init", f"file://{tmp_path}/c", *more])
    assert done.exit_code == 1
    assert says in done.stderr
    assert not (tmp_path / "c").exists()


URLS: list[tuple[str, str]] = [
    ("", "is empty"),
    ("file://relative/path", "not absolute"),
    ("/tmp/x", "Write file:///tmp/x"),
    ("zk://", "is not host:port"),
    ("zk://host:99999/c", "is not a port"),
    ("zk://user:secret@host/c", "a user or a password"),
    ("http://host/c", "No metadata store is known for http://"),
    ("http://127.0.0.1:8080", "write pulsar://host:6650"),
    ("host:6650", "pulsar://host:6650 for a Pulsar cluster"),
]


@pytest.mark.parametrize(("bad", "says"), URLS, ids=[bad for bad, _ in URLS])
def test_bad_urls(bad: str, says: str) -> None:
    for arguments in (["topics", "list", "--service-url", bad], ["--service-url", bad, "topics", "list"]):
        done = CliRunner().invoke(build(), arguments)
        assert done.exit_code == 1
        assert says in done.stderr
        assert "secret" not in done.output


def test_no_url_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TXNSEGMENT_SERVICE_URL", raising=False)
    done = CliRunner().invoke(build(), ["topics", "list"])
    assert done.exit_code == 1
    assert "No service URL is configured" in done.stderr
    assert "pulsar://host:6650" in done.stderr


@pytest.mark.parametrize("command", [["topics", "list"], ["txns", "list"], ["sweep"], ["verify", "t"], ["segments", "show", "t"]])
def test_a_slip_in_the_url_makes_no_cluster(tmp_path: Path, command: list[str]) -> None:
    done = CliRunner().invoke(build(), [*command, "--service-url", f"file://{tmp_path}/slip"])
    assert done.exit_code == 1
    assert str(tmp_path / "slip") in done.stderr
    assert not (tmp_path / "slip").exists()


def test_a_foreign_database_is_refused(tmp_path: Path, url: str) -> None:
    with connect(url):
        (database,) = (tmp_path / "cluster").glob("*.db")
    for file in (tmp_path / "cluster").glob(f"{database.stem}*"):
        file.unlink()
    with sqlite3.connect(database) as foreign:
        foreign.execute("create table somebody_elses (x int)")
    done = CliRunner().invoke(build(), ["topics", "list", "--service-url", url])
    assert done.exit_code == 1
    assert str(database) in done.stderr


def test_a_newer_format_is_refused(url: str) -> None:
    connect(url).close()
    with open_store(url) as store:
        record = store.view().get(paths.CLUSTER)
        assert record is not None
        newer = ClusterRecord.of(record).model_copy(update={"format_version": 99})
        store.put(paths.CLUSTER, newer.to_bytes(), expect=record)
    done = CliRunner().invoke(build(), ["topics", "list", "--service-url", url])
    assert done.exit_code == 1
    assert "has format version 99" in done.stderr
    assert "Upgrade txnsegment" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topcs"], "'topics', 'top'?"),
        (["topics", "lst"], "Did you mean 'list'?"),
        (["topics", "read", "t", "--limit", "0"], "--limit"),
        (["topics", "create"], "TOPIC"),
        (["topics", "list", "--jsn"], "--json"),
        (["init"], "URL"),
    ],
)
def test_usage_errors_end_with_2(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(build(), arguments)
    assert done.exit_code == 2
    assert says in done.stderr
