"""Credentials of connections, and the client of a process.

The environment has the credentials, because options and URLs are kept in logs and plans. These are the variables:

TXNSEGMENT_PULSAR_TOKEN       a token (JWT)
TXNSEGMENT_PULSAR_TOKEN_FILE  a file with a token, which is read for each connection and each time the broker asks again
TXNSEGMENT_PULSAR_TLS_CA      a file with the certificates that are trusted (otherwise those of the system)
TXNSEGMENT_PULSAR_TLS_CERT    a file with the client's certificate
TXNSEGMENT_PULSAR_TLS_KEY     a file with the key of this certificate (otherwise the file of the certificate has the key)

    shared("pulsar+ssl://host:6651").layout("topic://public/default/orders")
"""

from __future__ import annotations

import atexit
import os
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.connection import Authenticate
from pulsar_protocol.errors import PulsarError
from pulsar_protocol.service import Service

TOKEN: Final = "TXNSEGMENT_PULSAR_TOKEN"
TOKEN_FILE: Final = "TXNSEGMENT_PULSAR_TOKEN_FILE"
TLS_CA: Final = "TXNSEGMENT_PULSAR_TLS_CA"
TLS_CERT: Final = "TXNSEGMENT_PULSAR_TLS_CERT"
TLS_KEY: Final = "TXNSEGMENT_PULSAR_TLS_KEY"


class BadCredentials(PulsarError):
    """A variable with credentials has a value that cannot be used. The error names the variable, never a token."""


@dataclass(frozen=True)
class Credentials:
    """The credentials in the environment. They cannot be pickled, so that no token reaches a plan, a log or another machine: each
    process reads its own environment.
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @staticmethod
    def read(environment: Mapping[str, str] | None = None) -> Credentials:
        """Read the environment (None: that of the process). An empty variable counts as not set. Raises BadCredentials for
        variables that exclude each other, and for a file that cannot be read.
        """
        given = os.environ if environment is None else environment
        found = Credentials(*(given.get(name) or None for name in (TOKEN, TOKEN_FILE, TLS_CA, TLS_CERT, TLS_KEY)))
        if found.token is not None and found.token_file is not None:
            raise BadCredentials(f"{TOKEN} and {TOKEN_FILE} are both set.", advice="Remove one of them.")
        if found.key is not None and found.certificate is None:
            raise BadCredentials(f"{TLS_KEY} is set without {TLS_CERT}.", advice="Set both, or none.")
        if found.token is not None or found.token_file is not None:
            found.current_token()
        if found.ca is not None or found.certificate is not None:
            found.tls()
        return found

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("Credentials are not pickled; each process reads its own environment.")

    @property
    def authenticate(self) -> Authenticate | None:
        """The authentication of a connection: by the token, otherwise by the client's certificate, otherwise none."""
        if self.token is not None or self.token_file is not None:
            return lambda challenge: ("token", self.current_token())
        return None if self.certificate is None else lambda challenge: ("tls", b"")

    def current_token(self) -> bytes:
        """Return the token. If a token file is given, read it again at each call. Raises BadCredentials."""
        name, text = TOKEN, self.token or ""
        if self.token_file is not None:
            name = f"The file of {TOKEN_FILE}, {self.token_file},"
            try:
                text = Path(self.token_file).read_text(encoding="ascii")
            except OSError as error:
                raise BadCredentials(f"{name} cannot be read: {error.strerror}.", advice="Check its path and mode.") from None
            except UnicodeDecodeError:
                text = ""
        text = text.strip()
        if not text or not text.isascii() or any(one.isspace() for one in text):
            raise BadCredentials(f"{name} has no token.", advice="It must be one word, as `pulsar tokens create` prints it.")
        return text.encode()

    def tls(self) -> ssl.SSLContext:
        """Return the context of an encrypted connection, from the files as they are now. Raises BadCredentials."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise _unusable(TLS_CA, self.ca, error, "Name a file with certificates in PEM form.") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except OSError as error:
                where = self.certificate if self.key is None else f"{self.certificate} with {TLS_KEY}={self.key}"
                raise _unusable(TLS_CERT, where, error, "Name a certificate and its key in PEM form.") from None
        return context


def _unusable(name: str, path: str | None, error: OSError, advice: str) -> BadCredentials:
    return BadCredentials(f"{name}={path} cannot be used: {error.strerror or 'no certificate'}.", advice=advice)


def _no_password() -> str:
    raise BadCredentials(f"The key of {TLS_CERT} has a password.", advice="Name a key without a password, in a file with mode 600.")


def connect(url: str, **options: Any) -> PulsarClient:
    """Return a new client with the credentials of the environment. `options`: those of `PulsarClient`. Raises BadUrl,
    BadCredentials.
    """
    return _client(url, Credentials.read(), **options)


def _client(url: str, credentials: Credentials, **options: Any) -> PulsarClient:
    return PulsarClient(url, authenticate=credentials.authenticate, tls=credentials.tls, **options)


@dataclass
class _Shared:
    """The clients of this process."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    clients: dict[tuple[Service, Credentials], PulsarClient] = field(default_factory=dict)

    def close(self) -> None:
        with self.guard:
            clients, self.clients = [*self.clients.values()], {}
        for one in clients:
            one.close()

    def forget(self) -> None:
        """Forget the clients of the parent in a forked child, without closing them. The lock is replaced, because another thread of
        the parent may have held it.
        """
        self.guard, self.clients = threading.Lock(), {}


_SHARED: Final = _Shared()
atexit.register(_SHARED.close)
os.register_at_fork(after_in_child=_SHARED.forget)


def shared(url: str) -> PulsarClient:
    """Return this process's client of a service URL, which all threads of the process use. The client is closed at the end of the
    process. If it was closed earlier, a new client replaces it. A forked child makes its own client. Raises BadUrl,
    BadCredentials.
    """
    key = Service.parse(url), Credentials.read()
    with _SHARED.guard:
        found = _SHARED.clients.get(key)
        if found is None or found.closed:
            found = _SHARED.clients[key] = _client(url, key[1])
        return found
