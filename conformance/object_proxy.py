"""An HTTP proxy in front of an S3 server, which counts the requests and fails on command.

with ObjectProxy(server.port) as proxy:
    storage = LedgerStorage(server.uri("bucket", hosts=proxy.hosts))
    with proxy.counting() as requests:                      # Counter({"HeadObject": 1, "GetObject": 1})
        storage.read("a/b")
    with proxy.failing(SLOW_DOWN, operations={"PutObject"}, times=3):
        storage.publish("a/b", b"rows")
    with proxy.holding("CompleteMultipartUpload") as held:  # the request waits, and the server does not see it
        held.wait()
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from conformance.ports import LOCAL

SLOW_DOWN: Final = (503, "SlowDown", "Please reduce your request rate.")
INTERNAL: Final = (500, "InternalError", "We encountered an internal error. Please try again.")
DENIED: Final = (403, "AccessDenied", "Access Denied")
EXPIRED: Final = (400, "ExpiredToken", "The provided token has expired.")
RESET: Final = (0, "", "")
"""Close the connection with a TCP reset and send no answer."""
LOST: Final = (-1, "", "")
"""Pass the request to the server, and close the connection without the answer."""

_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"}


def operation(method: str, target: str) -> str:
    """Return the name that S3's documentation gives to a request. `target`: path and query, with the bucket in the path.

    >>> operation("PUT", "/bucket/a/b?partNumber=1&uploadId=x")
    'UploadPart'
    """
    split = urlsplit(target)
    query = parse_qs(split.query, keep_blank_values=True)
    has_key = "/" in split.path.lstrip("/").rstrip("/") or (split.path.count("/") > 1 and not split.path.endswith("/"))
    if "uploadId" in query:
        return {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}.get(method, "ListParts")
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if method == "POST":
        return "DeleteObjects"
    if method == "GET" and not has_key:
        return "ListObjectsV2" if "list-type" in query else "ListObjects"
    verb = {"GET": "Get", "HEAD": "Head", "DELETE": "Delete"}.get(method, "Put" if has_key else "Create")
    return f"{verb}{'Object' if has_key else 'Bucket'}"


@dataclass
class Held:
    """Requests that a proxy holds back."""

    _met: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float = 60.0) -> None:
        """Wait for the first held request. Raises TimeoutError."""
        if not self._met.wait(seconds):
            raise TimeoutError(f"no request was held within {seconds:g} s")

    def met(self) -> bool:
        """Return whether a request has been held."""
        return self._met.is_set()

    def release(self) -> None:
        """Pass the held requests and all later ones."""
        self._released.set()


When = Callable[[str, str], bool]
"""A condition on a request: its operation, and its path with the query."""


@dataclass
class _Rule:
    operations: Collection[str]
    answer: tuple[int, str, str] | None = None
    times: int | None = None
    held: Held | None = None
    when: When | None = None

    def applies(self, name: str, target: str) -> bool:
        if self.when is not None:
            return self.when(name, target)
        return (not self.operations or name in self.operations) and self.times != 0


class ObjectProxy:
    """Listens on a free port of 127.0.0.1 and passes requests to one S3 server. A context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._guard = threading.Lock()
        self._rules: list[_Rule] = []
        self._counters: list[Counter[str]] = []
        self.failed = 0
        """How many requests this proxy has answered or cut itself."""
        self._server = ThreadingHTTPServer((LOCAL, 0), self._handler())
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="txnsegment-proxy", daemon=True)
        self._thread.start()

    @property
    def hosts(self) -> str:
        """`host:port`, as `endpoint_override` takes it."""
        return f"{LOCAL}:{self.port}"

    @contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the requests of the block by operation, with those that fail."""
        counter: Counter[str] = Counter()
        self._counters.append(counter)
        try:
            yield counter
        finally:
            self._counters = [one for one in self._counters if one is not counter]

    @contextmanager
    def failing(
        self,
        answer: tuple[int, str, str],
        *,
        operations: Collection[str] = (),
        times: int | None = None,
        when: When | None = None,
    ) -> Iterator[None]:
        """Answer requests with an error. `operations`: of these kinds only. `times`: only this number of requests. `when`: those
        that it selects; it sees every request.
        """
        with self._ruled(_Rule(operations, answer, times, when=when)):
            yield

    @contextmanager
    def holding(self, *operations: str, when: When | None = None) -> Iterator[Held]:
        """Hold requests of these kinds back until `release`, or until the end of the block. `when`: hold those that it selects; it
        sees every request.
        """
        rule = _Rule(operations, held=Held(), when=when)
        assert rule.held is not None
        with self._ruled(rule):
            try:
                yield rule.held
            finally:
                rule.held.release()

    @contextmanager
    def _ruled(self, rule: _Rule) -> Iterator[None]:
        with self._guard:
            self._rules.append(rule)
        try:
            yield
        finally:
            with self._guard:
                self._rules = [one for one in self._rules if one is not rule]

    def _rule(self, name: str, target: str) -> _Rule | None:
        """Count a request, and return the rule for it."""
        with self._guard:
            for counter in self._counters:
                counter[name] += 1
            for rule in self._rules:
                if rule.applies(name, target):
                    if rule.times is not None:
                        rule.times -= 1
                    self.failed += rule.answer is not None
                    return rule
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for the head of an answer
            disable_nagle_algorithm = True

            def handle_expect_100(self) -> bool:
                answered = super().handle_expect_100()
                self.wfile.flush()  # the client sends its body at once; without an answer it would wait for a second
                return answered

            def _pass(self) -> None:
                body = _body(self)
                rule = proxy._rule(operation(self.command, self.path), self.path)
                if rule is not None and rule.held is not None:
                    rule.held._met.set()
                    rule.held._released.wait()
                if rule is not None and rule.answer == RESET:
                    _reset(self.connection)
                    self.close_connection = True
                    return
                if rule is not None and rule.answer is not None and rule.answer != LOST:
                    _answer(self, *rule.answer)
                    return
                try:
                    status, headers, content = proxy._forward(self.command, self.path, list(self.headers.items()), body)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # the server is down, so the client sees a closed connection
                    return
                if rule is not None and rule.answer == LOST:
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                if self.command != "HEAD" and not any(name.lower() == "content-length" for name, _ in headers):
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()

            def _quietly(self) -> None:
                with suppress(ConnectionError):  # a client may be killed while it waits
                    self._pass()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _quietly

            def log_message(self, format: str, *arguments: object) -> None:
                """Print nothing: the default prints each request."""

        return Handler

    def _forward(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(LOCAL, self._target, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in _HOP and name.lower() != "content-length":
                    connection.putheader(name, value)
            if body or method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if "chunked" in handler.headers.get("Transfer-Encoding", ""):
        parts = []
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            parts.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(parts)
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def _answer(handler: BaseHTTPRequestHandler, status: int, code: str, message: str) -> None:
    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    handler.send_response_only(status)
    handler.send_header("Content-Type", "application/xml")
    handler.send_header("Content-Length", str(0 if handler.command == "HEAD" else len(content)))
    handler.end_headers()
    handler.wfile.write(b"" if handler.command == "HEAD" else content)
    handler.wfile.flush()


def _reset(connection: socket.socket) -> None:
    """Close a connection with a TCP reset: with this option the kernel sends no orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
