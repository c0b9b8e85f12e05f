"""Requests to Pulsar's REST interface, for what the binary protocol does not have. The environment has the credentials (`auth`).

Rest("http://host:8080").ask("GET", "/admin/v2/scalable/public/default/orders/stats")
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final

from pulsar_protocol.auth import Credentials
from pulsar_protocol.errors import NAMESPACE_ADVICE, NO_NAMESPACE, PulsarError, Unreachable, broker_error

ADMIN_VARIABLE: Final = "TXNSEGMENT_PULSAR_ADMIN_URL"
SECONDS: Final = 30.0
_SHOWN: Final = 300
"""How many characters of a refusal an error shows."""
NOT_EMPTY: Final = "NotEmptyException"
"""A word in the refusal of a deletion while the broker still writes records below those that it deletes."""
_AUTHENTICATION: Final = 3
_AUTHORIZATION: Final = 4
_CONFLICT: Final = 409


def admin_url() -> str | None:
    """Return the URL of the REST interface that the environment names, or None."""
    return os.environ.get(ADMIN_VARIABLE, "").strip().rstrip("/") or None


def path_of(topic: str) -> str:
    """Return the beginning of the path of a topic in the REST interface."""
    scheme, _, name = topic.partition("://")
    return f"/admin/v2/{'scalable' if scheme == 'topic' else scheme}/{name}"


class Refused(PulsarError):
    """The REST interface refused a request. `status`: the HTTP status."""

    status = 0


class Rest:
    """The REST interface at a URL. `credentials`: None means those of the environment."""

    def __init__(self, url: str, credentials: Credentials | None = None, seconds: float = SECONDS) -> None:
        self.url, self._seconds = url.rstrip("/"), seconds
        self._credentials = Credentials.read() if credentials is None else credentials

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request. Return its answer as a parsed JSON value, as text if it is not JSON, or None if it is empty. `body`: sent
        as JSON. Raises Unreachable, AuthenticationFailed (status 401), NotAuthorized (403), or Refused for every other status that
        reports an error.
        """
        data = b"" if body is None and method != "GET" else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        held = self._credentials
        if held.token is not None or held.token_file is not None:
            request.add_unredirected_header("Authorization", f"Bearer {held.current_token().decode()}")
        tls: ssl.SSLContext | None = held.tls() if self.url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=self._seconds, context=tls) as answer:
                return _value(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, f"{method} {path}", _reason(error.read())) from None
        except (OSError, HTTPException) as error:
            raise Unreachable(
                f"Pulsar's REST interface at {self.url} cannot be reached: {getattr(error, 'reason', error)}.",
                advice="Check the option adminUrl or the variable TXNSEGMENT_PULSAR_ADMIN_URL (http://host:8080), and that the "
                "broker runs.",
            ) from None

    def _refused(self, status: int, what: str, why: str) -> PulsarError:
        if status in (401, 403):
            return broker_error(_AUTHENTICATION if status == 401 else _AUTHORIZATION, why, f"{self.url}: {what}")
        advice = "Check the name, the permissions, and that the broker has scalableTopicsEnabled=true."
        if NO_NAMESPACE in why:
            advice = NAMESPACE_ADVICE
        elif status == _CONFLICT and "already exists" in why:
            advice = "Choose another name, or use the topic as it is."
        found = Refused(f"{self.url} answered {status} to {what}: {why or 'no reason'}", advice=advice)
        found.status = status
        return found


def _value(data: bytes) -> Any:
    text = data.decode(errors="replace")
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _reason(data: bytes) -> str:
    """Return the reason of a refusal, shortened. Stack traces of brokers and the tags of web pages are left out."""
    found = _value(data)
    text = str(found["reason"]) if isinstance(found, dict) and "reason" in found else str(found or "")
    lines = [line.strip() for line in text.partition("Stacktrace:")[0].splitlines()]
    said = " ".join(line for line in lines if line and not line.startswith(("---", "<")))
    return said if len(said) <= _SHOWN else said[:_SHOWN] + ".."
