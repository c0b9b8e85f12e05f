"""Detection of credentials in service URLs and ledger URIs, so that txnsegment neither uses nor shows a credential."""

from __future__ import annotations

import re
from urllib.parse import unquote

_NAME = re.compile(r"pass|pwd|secret|token|auth|credential|key|signature|(?:^|[^a-z])(?:sig|sas)(?![a-z])", re.IGNORECASE)
_PARAMETER = re.compile(r"[?&#;]([^=&#;?/]*)=")
_PORT = re.compile(r"[^@:/]+:[0-9]{1,5}(?=/|$)")


def names_a_credential(uri: str) -> bool:
    """Return whether a parameter after the path has the name of a credential (`?token=`, `&secret_key=`, `#X-Amz-Signature=`)."""
    return any(_NAME.search(name) for text in _readings(uri) for name in _PARAMETER.findall(text))


def has_password(uri: str) -> bool:
    """Return whether a URI has a password before an `@`. A password may contain `/`, so any `@` after a `:` counts as the end of a
    password. Two forms are exempt: `host:port/` on HDFS, and the path of a `file:` URI. Before the path of an S3 or `file:` URI any
    text before an `@` counts as a password, because on S3 it may be an access key.
    """
    for text in _readings(uri):
        scheme, found, rest = text.strip().partition("://")
        scheme, rest = (scheme.lower(), rest) if found else ("", text)
        authority = rest.partition("/")[0]
        if scheme == "file":
            rest = authority
        elif scheme == "hdfs":
            rest = _PORT.sub("", rest, count=1) if _PORT.match(rest) else rest
        user, found, _ = rest.rpartition("@")
        if found and (":" in user or (scheme in ("s3", "s3a", "file") and "@" in authority)):
            return True
    return False


def holds_credentials(uri: str) -> bool:
    """Return whether a URI holds a credential, or a text after its path that may be a credential. A path without a scheme that
    begins with `/` holds none.
    """
    return not uri.startswith("/") and (names_a_credential(uri) or has_password(uri) or _has_unnamed(uri))


def shown(uri: str) -> str:
    """Return the text that an error shows for an unusable URI: the URI up to the end of its path, at most 300 characters. If the
    URI has a password or names a credential, the text is "(not shown)".
    """
    if not uri.startswith("/") and (names_a_credential(uri) or has_password(uri)):
        return "(not shown)"
    return f"{uri if uri.startswith('/') else re.split('[?#]', uri, maxsplit=1)[0]!r:.300}"


def _has_unnamed(uri: str) -> bool:
    before, _, fragment = uri.partition("#")
    items = before.partition("?")[2].split("&")
    return bool(fragment) or any(item and "=" not in item for item in items)


def _readings(uri: str) -> list[str]:
    """Return the URI unchanged, and percent-decoded once, twice and three times. A `file:` URI is returned unchanged only, because
    a `%` is part of a name there.
    """
    found = [uri]
    while len(found) < 4 and not uri.lower().startswith("file:"):
        found.append(unquote(found[-1]))
    return found
