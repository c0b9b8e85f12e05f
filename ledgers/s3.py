"""The S3 file system of a ledger root: what its URI sets, how long a request is tried again, and what Spark's own reader needs.

The credentials come from the environment of each process, and are in no URI, record or option (docs/deployment.md, Object stores).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import pyarrow.fs as pafs

from ledgers.io_errors import ATTEMPTS

QUICK_ATTEMPTS: Final = 2
"""The same for deletions and replacements: a request that never succeeds fails after one second, and after eight if the server is
silent.
"""


_FLAGS = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open")
_TEXTS = ("scheme", "endpoint_override", "tls_ca_file_path")


class Opened(NamedTuple):
    """The file systems of a URI, and its path there. `patient` sends a request up to ATTEMPTS times, `quick` QUICK_ATTEMPTS."""

    patient: pafs.FileSystem
    quick: pafs.FileSystem
    path: str


def open_s3(uri: str) -> Opened:
    """Open the file systems of an `s3://` URI. Raises OSError and pyarrow.ArrowException.

    A URI can set neither the retries nor the delayed opening (one request for a small file, not three). So the file systems are
    made by its settings, except for a URI that sets what only a URI can set: then pyarrow's own retries are used.
    """
    given = dict(parse_qsl(urlsplit(uri).query))
    own = endpoint(uri)
    # Without an endpoint or a region, pyarrow asks AWS for the region of the bucket.
    known = {"scheme": own[0], "endpoint_override": own[1]} if own and "endpoint_override" not in given else {}
    found, path = pafs.FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}{urlencode(known)}" if known else uri)
    if given.keys() - {"region", *_FLAGS, *_TEXTS}:
        return Opened(found, found, path)
    settings: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
    if own:
        settings["scheme"], settings["endpoint_override"] = own
    settings |= {name: given[name].lower() in ("true", "1") for name in _FLAGS if name in given}
    settings = {"allow_delayed_open": True, **settings, "region": found.region}
    patient, quick = (
        pafs.S3FileSystem(**settings, retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=attempts))
        for attempts in (ATTEMPTS, QUICK_ATTEMPTS)
    )
    return Opened(patient, quick, path)


def endpoint(uri: str, environment: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """Return scheme and `host:port` of the endpoint: that of the URI, else that of the environment. None: the endpoint of AWS.

    >>> endpoint("s3://b/x", {"AWS_ENDPOINT_URL": "http://minio:9000"})
    ('http', 'minio:9000')
    """
    known = os.environ if environment is None else environment
    given = dict(parse_qsl(urlsplit(uri).query))
    found = given.get("endpoint_override") or known.get("AWS_ENDPOINT_URL_S3") or known.get("AWS_ENDPOINT_URL")
    if not found:
        return None
    scheme, _, host = found.rpartition("://")
    return scheme or given.get("scheme", "https"), host.rstrip("/")


def creates_buckets(uri: str) -> bool:
    """Return whether a URI asks to create its bucket if it is missing."""
    return dict(parse_qsl(urlsplit(uri).query)).get("allow_bucket_creation", "").lower() in ("true", "1")


def s3a_settings(uri: str, region: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings by which Hadoop's file system `s3a` reaches the bucket of an `s3://` URI as pyarrow does. No credentials
    are among them. `environment`: environment variables (default: those of this process).

    >>> s3a_settings("s3://b/x?endpoint_override=minio:9000&scheme=http", "us-east-1", {})["fs.s3a.bucket.b.endpoint"]
    'http://minio:9000'
    """
    bucket = urlsplit(uri).netloc.rpartition("@")[2]
    own = f"fs.s3a.bucket.{bucket}"
    found = {f"{own}.endpoint.region": region} if region else {}
    if place := endpoint(uri, environment):
        scheme, host = place
        found[f"{own}.endpoint"] = f"{scheme}://{host}"
        found[f"{own}.connection.ssl.enabled"] = str(scheme == "https").lower()
        found[f"{own}.path.style.access"] = "true"
    return found
