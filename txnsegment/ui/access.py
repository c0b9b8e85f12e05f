"""Who may look at the page of `txnsegment ui`. Pure, but for the secret of a session."""

from __future__ import annotations

import hmac
import ipaddress
import secrets

from metadata.common.errors import OptionError

MIN_TOKEN = 16
"""Minimum length of a token, in characters."""

COOKIE = "txnsegment_ui"

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The names by which a browser of this machine reaches a page on loopback."""


def is_loopback(host: str) -> bool:
    """Return whether an address to bind to is reached from this machine only. Other names than `localhost` are not looked up."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, token: str | None) -> None:
    """Raise OptionError for an address beyond this machine without a token, and for a token that can be guessed."""
    if token is not None and len(token) < MIN_TOKEN:
        raise OptionError(
            f"The token has {len(token)} characters.",
            advice=f"Give at least {MIN_TOKEN}, such as those of: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    if token is None and not is_loopback(host):
        raise OptionError(
            f"Without a token the page is not served on {host}: everybody who reaches this address could look at the cluster.",
            advice="Set the variable TXNSEGMENT_UI_TOKEN (or --token), or leave --host out and use `ssh -L 8080:127.0.0.1:8080`.",
        )


class Gate:
    """Decides which requests are answered.

    On loopback the `Host` header must name this machine. Otherwise a web site could give its name the address 127.0.0.1, and its
    scripts could read the page (DNS rebinding). With a token, a request must carry the token as `Authorization: Bearer ..`, or the
    cookie that a browser gets for the token. The cookie is made anew at each start, and does not contain the token.
    """

    def __init__(self, host: str, token: str | None) -> None:
        check_address(host, token)
        self._token = token
        self._session = secrets.token_urlsafe(32)
        named = f"[{host}]" if ":" in host else host
        self._names = LOCAL_NAMES | {named.lower()} if is_loopback(host) else None

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    def knows_host(self, header: str | None) -> bool:
        """Return whether the `Host` header of a request names this server."""
        if self._names is None:
            return True
        name = (header or "").lower()
        if name.rpartition(":")[2].isdecimal():
            name = name.rpartition(":")[0]
        return name in self._names

    def admits(self, authorization: str | None, cookie: str | None) -> bool:
        """Return whether a request may be answered. Takes the same time for each wrong token of one length."""
        if self._token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        by_header = scheme.lower() == "bearer" and _same(given.strip(), self._token)
        return by_header or _same(cookie or "", self._session)

    def session(self, token: str) -> str | None:
        """Return the value of the cookie for the right token, and None for a wrong one."""
        return self._session if self._token is not None and _same(token, self._token) else None


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
