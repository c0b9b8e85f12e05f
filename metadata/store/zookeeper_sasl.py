"""ZooKeeper's DIGEST-MD5 over pure-sasl (the extra `sasl`). Imported only if SASL is configured.

A server without SASL sends only empty challenges, and kazoo would answer each with an empty response, without end. So the mechanism
of this module ends the exchange when a challenge after the first one is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import puresasl.mechanisms
from puresasl import SASLProtocolException

NAME = "TXNSEGMENT-DIGEST-MD5"
HOST = "zk-sasl-md5"
"""The host name by which DIGEST-MD5 refers to every ZooKeeper server."""


class DigestMd5(puresasl.mechanisms.DigestMD5Mechanism):
    """The mechanism DIGEST-MD5. It calls `silent` if the server does not support SASL."""

    name = NAME

    def __init__(self, sasl: Any, *, silent: Callable[[], None], **properties: Any) -> None:
        super().__init__(sasl, **properties)
        sasl.host = HOST
        self._silent = silent
        self._begun = False

    def process(self, challenge: bytes | None = None) -> bytes | None:
        if self._begun and not challenge:
            self._silent()
            raise SASLProtocolException("The server does not support SASL.")
        self._begun = True
        response: bytes | None = super().process(challenge)
        return response


def options(username: str, password: str, silent: Callable[[], None]) -> dict[str, Any]:
    """Return the value for kazoo's `sasl_options`."""
    # The mechanism is registered under a name of its own, so that other users of pure-sasl in this process keep theirs.
    puresasl.mechanisms.mechanisms[NAME] = DigestMd5
    return {"mechanism": NAME, "username": username, "password": password, "silent": silent}
