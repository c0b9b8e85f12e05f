"""Tests of tokens and encryption, on a real broker that accepts only clients with a token, and has an encrypted port."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pyarrow as pa
import pytest

from conformance.harness.spark_start import spark_environment
from pulsar_protocol.auth import TLS_CA, TLS_CERT, TLS_KEY, TOKEN, TOKEN_FILE
from pulsar_protocol.errors import AuthenticationFailed, NotAuthorized, Unreachable
from pulsar_protocol.rest import Rest
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from tests.support.pulsar_secured import SUPERUSER, Secured, secured_broker, token
from txnsegment import connect

pytestmark = pytest.mark.pulsar


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TLS_CA, TLS_CERT, TLS_KEY, TOKEN, TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "given",
    [None, token(SUPERUSER, b"another secret key of 32 bytes.."), token(SUPERUSER, exp=1), "no-token-at-all"],
    ids=["none", "forged", "expired", "garbage"],
)
def test_a_wrong_token_is_refused_at_once(secured: Secured, given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if given is not None:
        monkeypatch.setenv(TOKEN, given)
    with pytest.raises(AuthenticationFailed, match="AuthenticationError") as found:
        connect(secured.broker.url)
    assert TOKEN in found.value.advice
    assert given is None or given not in str(found.value)
    with pytest.raises(AuthenticationFailed):
        Rest(secured.broker.admin_url).ask("GET", "/admin/v2/scalable/public/default")


def test_a_role_without_rights(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, token("somebody"))
    with connect(secured.broker.url) as cluster, pytest.raises(NotAuthorized, match="not authorized") as found:
        cluster.topics.list()
    assert "Grant produce and consume" in found.value.advice


def test_rows_pass_with_a_token_over_an_encrypted_connection(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    secured.broker.create("orders", 2)
    monkeypatch.setenv(TOKEN, token(SUPERUSER))
    monkeypatch.setenv(TLS_CA, str(secured.certificate.file))
    monkeypatch.setenv(ADMIN_VARIABLE, secured.broker.admin_url)
    with connect(secured.tls_url) as cluster:
        with cluster.begin() as txn:
            txn.append("orders", pa.table({"value": [b"1", b"2"]}))
            assert txn.commit().rows == 2
        assert [topic.name for topic in cluster.topics.list()] == ["topic://public/default/orders"]


def test_spark_writes_and_reads_with_a_token_over_an_encrypted_connection(secured: Secured) -> None:
    program = f"""
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        rows = spark.createDataFrame([("ann", 1), ("bob", 2), ("cid", 3)], "who string, id int")
        given = {{"serviceUrl": "{secured.tls_url}", "adminUrl": "{secured.broker.admin_url}"}}
        rows.write.format("txnsegment").mode("append").options(**given, keyColumn="who", segments=2).save("people")
        found = spark.read.format("txnsegment").option("serviceUrl", "{secured.tls_url}").load("people")
        print(sorted((row.who, row.id) for row in found.collect()))
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ
        | spark_environment()
        | {"PYSPARK_PYTHON": sys.executable, TOKEN: token(SUPERUSER), TLS_CA: str(secured.certificate.file)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == "[('ann', 1), ('bob', 2), ('cid', 3)]"


def test_a_certificate_that_is_not_trusted(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, token(SUPERUSER))
    with pytest.raises(AuthenticationFailed, match="is not trusted") as found:
        connect(secured.tls_url)
    assert TLS_CA in found.value.advice


def test_a_url_with_the_other_scheme(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, token(SUPERUSER))
    with pytest.raises(Unreachable, match="cannot be reached") as found:
        connect(secured.tls_url.replace("pulsar+ssl", "pulsar"))
    assert "pulsar+ssl:// for the encrypted one" in found.value.advice
    with pytest.raises(Unreachable, match="SSL") as found:
        connect(secured.broker.url.replace("pulsar", "pulsar+ssl"))
    assert "pulsar:// is for the plain port" in found.value.advice
