"""Settings and errors of S3: what a URI and the environment set, what Spark is told, and what the user reads."""

from __future__ import annotations

import pytest

from ledgers.errors import MissingFile, StorageError
from ledgers.io_errors import ATTEMPTS, explain, retried
from ledgers.s3 import endpoint, s3a_settings


@pytest.mark.parametrize(
    ("uri", "environment", "expected"),
    [
        ("s3://b/x", {}, None),
        ("s3://b/x?endpoint_override=minio:9000", {}, ("https", "minio:9000")),
        ("s3://b/x?endpoint_override=minio:9000&scheme=http", {}, ("http", "minio:9000")),
        ("s3://b/x?endpoint_override=one", {"AWS_ENDPOINT_URL": "http://two"}, ("https", "one")),
        ("s3://b/x", {"AWS_ENDPOINT_URL": "http://one:1/"}, ("http", "one:1")),
        ("s3://b/x", {"AWS_ENDPOINT_URL": "http://one", "AWS_ENDPOINT_URL_S3": "https://two"}, ("https", "two")),
    ],
)
def test_the_uri_precedes_the_environment(uri: str, environment: dict[str, str], expected: object) -> None:
    assert endpoint(uri, environment) == expected


def test_spark_gets_endpoint_and_region_and_no_credentials() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "geheim"}
    assert s3a_settings("s3://b/x", "eu-west-1", environment) == {"fs.s3a.bucket.b.endpoint.region": "eu-west-1"}
    assert s3a_settings("s3://b/x?endpoint_override=h:1&scheme=http", "r", environment) == {
        "fs.s3a.bucket.b.endpoint.region": "r",
        "fs.s3a.bucket.b.endpoint": "http://h:1",
        "fs.s3a.bucket.b.connection.ssl.enabled": "false",
        "fs.s3a.bucket.b.path.style.access": "true",
    }


@pytest.mark.parametrize(
    ("text", "what", "advice"),
    [
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: no", "the bucket does not exist", "Create the bucket"),
        ("AWS Error ACCESS_DENIED during PutObject operation: no", "denies access", "AWS_ACCESS_KEY_ID"),
        ("AWS Error SLOW_DOWN during PutObject operation: no", "is overloaded", "later"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: no", "no connection", "endpoint_override"),
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No", "in another region", "?region="),
        ("AWS Error UNKNOWN (HTTP status 400) during GetObject operation: ExpiredToken", "have expired", "AWS_SESSION_TOKEN"),
        ("AWS Error QUITE_NEW (HTTP status 418) during GetObject operation: teapot", "QUITE_NEW, status 418: teapot", "endpoint"),
    ],
)
def test_an_error_of_s3_says_what_to_set(text: str, what: str, advice: str) -> None:
    found = explain(OSError(f"When doing it: {text}"), "write", "s3://b/x/y")
    assert type(found) is StorageError
    assert found.message.startswith("Cannot write s3://b/x/y: ")
    assert what in found.message
    assert advice in found.advice


def test_an_object_that_is_gone_is_a_missing_file() -> None:
    """A sweep deletes a file between two requests of a read."""
    gone = OSError("AWS Error NO_SUCH_KEY during GetObject operation: The specified key does not exist.")
    assert type(explain(gone, "read", "s3://b/x/y")) is MissingFile


def test_only_reads_that_pyarrow_gives_up_too_early_are_tried_again() -> None:
    waits: list[float] = []

    def read(text: str, failures: int) -> int:
        calls = 0

        def once() -> int:
            nonlocal calls
            calls += 1
            if calls <= failures:
                raise OSError(text)
            return calls

        waits.clear()
        return retried(once, wait=waits.append)

    early = "AWS Error INTERNAL_FAILURE during GetObject operation: Failed to flush response stream (eof: 0, bad: 1)"
    assert read(early, ATTEMPTS - 1) == ATTEMPTS
    assert len(waits) == ATTEMPTS - 1
    assert all(wait <= 2**number for number, wait in enumerate(waits))
    with pytest.raises(OSError, match="flush"):
        read(early, ATTEMPTS)
    with pytest.raises(OSError, match="DENIED"):
        read("AWS Error ACCESS_DENIED during GetObject operation: no", 1)
    assert waits == []
