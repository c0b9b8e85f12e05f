"""DIGEST-MD5 as ZooKeeper does it, over pure-sasl (the extra `sasl`). Imported only where SASL is asked for.

kazoo answers an empty challenge with an empty response, for ever. A server that does no SASL sends nothing else: so the second
empty challenge ends the exchange here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import puresasl.mechanisms
from puresasl import SASLProtocolException

NAME = "TXNSEGMENT-DIGEST-MD5"
HOST = "zk-sasl-md5"
"""Every ZooKeeper server calls itself so in DIGEST-MD5."""


class DigestMd5(puresasl.mechanisms.DigestMD5Mechanism):
    """`silent`: called when the server does no SASL."""

    name = NAME

    def __init__(self, sasl: Any, *, silent: Callable[[], None], **properties: Any) -> None:
        super().__init__(sasl, **properties)
        sasl.host = HOST
        self._silent = silent
        self._begun = False

    def process(self, challenge: bytes | None = None) -> bytes | None:
        if self._begun and not challenge:
            self._silent()
            raise SASLProtocolException("The server does no SASL.")
        self._begun = True
        response: bytes | None = super().process(challenge)
        return response


def options(username: str, password: str, silent: Callable[[], None]) -> dict[str, Any]:
    """Kazoo's `sasl_options`."""
    # By a name of our own: other users of pure-sasl in this process keep theirs.
    puresasl.mechanisms.mechanisms[NAME] = DigestMd5
    return {"mechanism": NAME, "username": username, "password": password, "silent": silent}
