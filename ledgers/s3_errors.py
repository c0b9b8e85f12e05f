"""Turns the errors of S3 that pyarrow reports into what happened and what to set."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CREDENTIALS: Final = (
    "Check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment, or "
    "~/.aws/credentials) of the driver and of the executors, and the S3 actions that they allow (docs/deployment.md, "
    "Object stores)."
)
ENDPOINT: Final = (
    "Check the endpoint in the ledger URI (?endpoint_override=host:port&scheme=https) or in AWS_ENDPOINT_URL, and the network."
)
REGION: Final = "Check the region in the ledger URI (?region=..) or in AWS_DEFAULT_REGION: it must be that of the bucket."
BUCKET: Final = "Create the bucket, or correct its name in the ledger URI. " + ENDPOINT
LATER: Final = "Run it again later. If the store asks to slow down, fewer tasks at once help."

_AWS = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+) operation: (.*)", re.DOTALL)
_CODES = {
    "NO_SUCH_BUCKET": ("the bucket does not exist", BUCKET),
    "ACCESS_DENIED": ("the object store denies access", CREDENTIALS),
    "SIGNATURE_DOES_NOT_MATCH": ("the secret key is wrong", CREDENTIALS),
    "INVALID_ACCESS_KEY_ID": ("the access key is unknown", CREDENTIALS),
    "INVALID_CLIENT_TOKEN_ID": ("the access key is unknown", CREDENTIALS),
    "MISSING_AUTHENTICATION_TOKEN": ("there are no credentials", CREDENTIALS),
    "REQUEST_EXPIRED": ("the request has expired", "Check the clock of this machine."),
    "REQUEST_TIME_TOO_SKEWED": ("the clocks of this machine and of the object store differ", "Check the clock of this machine."),
    "NETWORK_CONNECTION": ("there is no connection to the object store", ENDPOINT),
    "SLOW_DOWN": ("the object store is overloaded", LATER),
    "THROTTLING": ("the object store is overloaded", LATER),
    "SERVICE_UNAVAILABLE": ("the object store is not available", LATER),
    "INTERNAL_FAILURE": ("the object store reports an internal error", LATER),
    "REQUEST_TIMEOUT": ("the object store has not answered in time", LATER),
}
_TEXTS = {
    "ExpiredToken": ("the credentials have expired", CREDENTIALS),
    "AuthorizationHeaderMalformed": ("the region is wrong", REGION),
    "PermanentRedirect": ("the bucket is in another region", REGION),
    "SlowDown": ("the object store is overloaded", LATER),
    "NoSuchBucket": ("the bucket does not exist", BUCKET),
}
_STATUS = {
    "301": ("the bucket is in another region", REGION),
    "400": ("the object store refuses the request", f"{REGION} {CREDENTIALS}"),
    "403": ("the object store denies access", CREDENTIALS),
    "503": ("the object store is overloaded or not available", LATER),
}


class S3Failure(NamedTuple):
    """An error of S3: what happened, with the words of the server, and what to do. `missing`: the object does not exist."""

    what: str
    advice: str
    missing: bool = False


def s3_failure(text: str) -> S3Failure | None:
    """Return what the text of an error says; None if it is not an error of S3.

    >>> s3_failure("AWS Error NO_SUCH_KEY during GetObject operation: The key does not exist.").missing
    True
    """
    found = _AWS.search(text)
    if found is None:
        return None
    code, status, operation, words = found.groups()
    if code in ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND"):
        return S3Failure("it does not exist", "", missing=True)
    known = _CODES.get(code) or next((known for name, known in _TEXTS.items() if name in words), None) or _STATUS.get(status or "")
    what, advice = known or ("the object store fails", f"{ENDPOINT} {CREDENTIALS}")
    named = code if status is None else f"{code}, status {status}"
    return S3Failure(f"{what} ({operation}: {named}: {' '.join(words.split()).rstrip('.')})", advice)
