"""Connections to ZooKeeper's servers: TLS, and the diagnosis of failed connections.

kazoo makes its connections through a handler. kazoo retries without end and does not report why a connection failed. Most causes
are temporary: a server restarts, or the servers elect a leader. Some are permanent, such as a certificate that is not trusted.
Waiting callers get the error of a permanent cause at once.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL, Auth

from metadata.common.errors import ConfigurationError
from metadata.store.zookeeper_credentials import TLS_CA, TLS_CERT, TLS_KEY
from metadata.store.zookeeper_wakeups import WakeUps

PROBE_SECONDS: Final = 1.0
PROBES: Final = 5
Address = tuple[str, int]


class Connections(SequentialThreadingHandler):
    """kazoo's handler. When a failure is permanent, the handler sets `refusal` and calls `refused`, from kazoo's thread.

    A failure counts as permanent if two connections to the same server have failed, and the handler has found a permanent cause,
    such as a certificate that is not trusted. After one failure another server of the ensemble may still accept a connection.

    A stopped machine does not answer, and a starting server may accept a connection and not answer. kazoo would wait for the
    session timeout. So the handler gives up the first connection after `answer_seconds` without an answer. After each such failure
    it gives the next connection twice the time, up to kazoo's own limit, so that slow servers are reached, too.
    """

    def __init__(self, tls: ssl.SSLContext | None, refused: Callable[[], None], answer_seconds: float) -> None:
        super().__init__()
        self._answer_seconds = self._patience = answer_seconds
        self._answered = False
        self._tls = tls
        self._refused = refused
        self._once: set[Address] = set()
        self._probed: Counter[Address] = Counter()
        self.refusal: ConfigurationError | None = None
        self._server = ""
        self.last = ""
        """The cause of the last failed connection; empty if unknown."""
        if tls is not None:
            tls.sslsocket_class = _TlsSocket

    def connected(self) -> None:
        """Reset the failure counts, because the session is connected."""
        self._answered, self._patience = True, self._answer_seconds
        self._once.clear()
        self._probed.clear()
        self.refusal, self.last = None, ""

    def create_connection(self, address: Address, hostname: str, timeout: float, **_: Any) -> socket.socket:
        """Connect to a server. kazoo calls this method. The method ignores kazoo's own TLS arguments. With them no host name would
        be checked, and the authorities of the system would be trusted.
        """
        server = f"{hostname}:{address[1]}"
        self._answered, self._server = False, server
        timeout = min(timeout, self._patience)
        try:
            plain = socket.create_connection(address, timeout)
        except TimeoutError:
            self._unanswered(timeout)
            raise
        except OSError as error:
            self.last = f"{server}: {error.strerror or error}"
            raise
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            self._probe(address, server)
            return plain
        try:
            secured = self._tls.wrap_socket(plain, server_hostname=hostname)
        except TimeoutError:
            plain.close()
            self._unanswered(timeout)
            raise
        except OSError as error:
            plain.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                self._refuse(address, server, error)
            else:
                self.last = f"{server}: it ended the connection in the TLS handshake"
                self._probe(address, server)
            raise
        assert isinstance(secured, _TlsSocket)
        secured.failed = lambda error: self._refuse(address, server, error)
        return secured

    def create_socket_pair(self) -> tuple[WakeUps, WakeUps]:
        """Return the two ends of the channel that wakes kazoo's thread. kazoo calls this method."""
        wake_ups = WakeUps()
        return wake_ups, wake_ups

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """Wait until a socket is ready. kazoo calls this method. A plain select does not see data that the TLS layer has read
        already. So kazoo would notice some replies only at its next ping.
        """
        if not self._answered and timeout is not None:
            timeout = min(timeout, self._patience)
        ready = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.pending()]
        found = super().select(rlist, wlist, xlist, 0 if ready else timeout)
        if not (self._answered or ready or any(found)) and timeout is not None:
            self._unanswered(timeout)
        return ready + [one for one in found[0] if one not in ready], found[1], found[2]

    def _unanswered(self, seconds: float) -> None:
        self.last = f"{self._server}: it did not answer within {seconds:g} s"
        self._patience *= 2

    def _refuse(self, address: Address, server: str, error: ssl.SSLError) -> None:
        problem, advice = _meaning(error)
        self._count(address, ConfigurationError(f"ZooKeeper at {server}: {problem}.", advice=advice))

    def _count(self, address: Address, refusal: ConfigurationError) -> None:
        self.last = refusal.message.removeprefix("ZooKeeper at ").removesuffix(".")
        if address in self._once:
            self.refusal = refusal
            self._refused()
        self._once.add(address)

    def _probe(self, address: Address, server: str) -> None:
        """Find out whether a server drops connections because only one side uses TLS. Such a server gives no reason when it drops a
        connection. A starting server gives no reason either, so only a probe shows the difference.

        The first connection to an address causes no probe. Each later connection causes one, until the server has answered a probe,
        or until `PROBES` probes were made.
        """
        if address not in self._once:
            self._once.add(address)
            return
        if self._probed[address] >= PROBES:
            return
        self._probed[address] += 1
        try:
            speaks_other = _speaks_tls(address) if self._tls is None else _speaks_plain(address)
        except TimeoutError:
            return
        self._probed[address] = PROBES
        if self._tls is None and speaks_other:
            problem = "it speaks TLS on this port, and TLS is not configured"
            self._count(address, ConfigurationError(f"ZooKeeper at {server}: {problem}.", advice=f"Set {TLS_CA}."))
        elif speaks_other:
            problem = "it does not speak TLS on this port"
            advice = "Give the servers' secureClientPort in the URL, or unset TXNSEGMENT_ZK_TLS_*."
            self._count(address, ConfigurationError(f"ZooKeeper at {server}: {problem}.", advice=advice))


class _TlsSocket(ssl.SSLSocket):
    """A TLS socket that calls `failed` if the server refuses the client certificate. Since TLS 1.3 the refusal comes after the
    handshake, in place of the server's first answer.
    """

    failed: Callable[[ssl.SSLError], None] | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.failed is not None and "ALERT" in (error.reason or ""):
                self.failed(error)
            raise


def _meaning(error: ssl.SSLError) -> tuple[str, str]:
    """Return the problem and the advice for the error of a failed handshake."""
    reason = error.reason or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
            return (
                f"its certificate is for another name ({error.verify_message})",
                "Write the servers in the URL as their certificates name them (subjectAltName), or have certificates made that do.",
            )
        return (
            f"its certificate is not trusted ({error.verify_message})",
            f"Name the PEM file of the authority that signed it in {TLS_CA}.",
        )
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return (
            f"it does not accept the client certificate, or got none ({reason})",
            f"Name a certificate that the servers trust, and its key, in {TLS_CERT} and {TLS_KEY} (PEM files).",
        )
    return (
        f"TLS cannot be agreed on ({reason})",
        "Check that it is the servers' secureClientPort, and their versions and ciphers of TLS.",
    )


def _speaks_tls(address: Address) -> bool:
    """Return whether the server speaks TLS. Raises TimeoutError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no verification: the probe sends no data
    try:
        with socket.create_connection(address, PROBE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except TimeoutError:
        raise
    except OSError:
        return False


def _speaks_plain(address: Address) -> bool:
    """Return whether the server answers a four-letter command in plain text. A refusal is an answer, too. Raises TimeoutError."""
    try:
        with socket.create_connection(address, PROBE_SECONDS) as plain:
            plain.sendall(b"ruok")
            return plain.recv(4) in (b"imok", b"ruok")
    except TimeoutError:
        raise
    except OSError:
        return False


# --- the log ---


class _Silent(logging.Filter):
    """A filter that drops log messages with credentials. kazoo logs requests with passwords at DEBUG, and it logs session passwords
    below DEBUG.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        return "session_passwd" not in str(record.msg) and not any(isinstance(one, (Auth, SASL)) for one in arguments)


log = logging.getLogger("kazoo.client.txnsegment")
"""The logger that kazoo uses for txnsegment. It logs no credentials and propagates to `kazoo.client`. If a program has no logging,
Python would print each failed attempt to connect; the handler prevents it. The error of the store says the same once.
"""
log.addFilter(_Silent())
log.addHandler(logging.NullHandler())
