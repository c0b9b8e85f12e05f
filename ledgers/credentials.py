"""Credentials in URLs: found in any of their forms, so that none is used and none is shown. For service URLs and ledger URIs."""

from __future__ import annotations

import re
from urllib.parse import unquote

_NAME = re.compile(r"pass|pwd|secret|token|auth|credential|key|signature|(?:^|[^a-z])(?:sig|sas)(?![a-z])", re.IGNORECASE)
_PARAMETER = re.compile(r"[?&#;]([^=&#;?/]*)=")
_PORT = re.compile(r"[^@:/]+:[0-9]{1,5}(?=/|$)")


def names_a_credential(uri: str) -> bool:
    """Whether a parameter behind the path has the name of a credential (`?token=`, `&secret_key=`, `#X-Amz-Signature=`)."""
    return any(_NAME.search(name) for text in _readings(uri) for name in _PARAMETER.findall(text))


def has_password(uri: str) -> bool:
    """Whether an `@` follows a user with a password, or on S3 an access key. A password may have a `/` in it, so an `@` that
    follows a `:` anywhere is taken for its end (on HDFS `host:port/` is no password; in `file:` the path may have both).
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
    """Whether a URI holds a credential, or something behind its path that has no name and so may be one. A path without a scheme
    that begins with `/` holds none.
    """
    return not uri.startswith("/") and (names_a_credential(uri) or has_password(uri) or _has_unnamed(uri))


def shown(uri: str) -> str:
    """What an error shows of a URI that cannot be used: nothing behind its path, and nothing at all if it holds a credential. The
    first 300 characters.
    """
    if not uri.startswith("/") and (names_a_credential(uri) or has_password(uri)):
        return "(not shown)"
    return f"{uri if uri.startswith('/') else re.split('[?#]', uri, maxsplit=1)[0]!r:.300}"


def _has_unnamed(uri: str) -> bool:
    before, _, fragment = uri.partition("#")
    items = before.partition("?")[2].split("&")
    return bool(fragment) or any(item and "=" not in item for item in items)


def _readings(uri: str) -> list[str]:
    """The URI as it stands, and percent-decoded once, twice and three times. (In `file:` what is encoded is part of a name.)"""
    found = [uri]
    while len(found) < 4 and not uri.lower().startswith("file:"):
        found.append(unquote(found[-1]))
    return found
