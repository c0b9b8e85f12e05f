"""One connection to a broker over a socket. One thread reads from the socket. Any thread may call `ask` and `tell`.

with Channel("127.0.0.1", 6650) as channel:
    body = channel.ask("lookup_topic", topic="persistent://public/default/t")
    number = channel.add("consumer", events.put)      # events of this consumer go to a queue
    channel.tell("flow", consumer_id=number, message_permits=10)
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, Final, Literal, Self

from pulsar_protocol.connection import Answer, Authenticate, Connection, Delivery, Ready, Refusal, Reply, Target
from pulsar_protocol.errors import AuthenticationFailed, ConnectionLost, ProtocolError, PulsarError, TimedOut, broker_error
from pulsar_protocol.frames import encode
from pulsar_protocol.messages import command

log = logging.getLogger("txnsegment.pulsar")

ANSWER_SECONDS: Final = 30.0
"""The time in which a broker must answer a request, or take bytes that are sent to it."""
SILENCE_SECONDS: Final = 30.0
"""After this time without a byte from the broker the client sends a ping. If the same time passes again without a byte, the client
gives the connection up.
"""
_READ: Final = 1 << 18
MAY_BE_DONE: Final = " What was asked may have been done: read before you repeat it."
_ADVICE: Final = "Check that the broker runs and can be reached." + MAY_BE_DONE

Handler = Callable[[Delivery | PulsarError], None]
"""A function that takes the deliveries for one producer, consumer, session or watch. When the connection ends, it takes the error
that ended it. The reading thread calls the function, so it must not wait.
"""


class Channel:
    """One connection to a broker or proxy. `tls`: the context for a `pulsar+ssl` URL; None: no encryption. `authenticate`,
    `through_proxy_to`: see `Connection`. `seconds`: the time limit of each request. `silence_seconds`: see `SILENCE_SECONDS`.
    `connect_seconds`: the time limit for opening the socket (None: `seconds`).

    Raises ConnectionLost or TimedOut if the broker cannot be reached, ProtocolError, or the error that the broker reports. Raises
    AuthenticationFailed if the broker refuses the credentials, and if the broker's certificate is not trusted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        authenticate: Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        through_proxy_to: str | None = None,
        seconds: float = ANSWER_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        connect_seconds: float | None = None,
    ) -> None:
        self.address = f"{host}:{port}"
        self._seconds, self._silence = seconds, silence_seconds
        self._connection = Connection(authenticate, through_proxy_to)
        self._io = threading.Lock()
        """Guards the socket: an encrypted one must not be read and written at the same time."""
        self._order = threading.Lock()
        """Held while a frame is sent, so that the frames of several threads are not mixed."""
        self._guard = threading.Lock()
        self._asked: dict[int, tuple[Future[Any], str]] = {}
        self._handlers: dict[tuple[Target, int], Handler] = {}
        self._lost: PulsarError | None = None
        self._ready: Future[Ready] = Future()
        self._socket = self._connected(host, port, tls, seconds if connect_seconds is None else connect_seconds)
        self._socket.setblocking(False)
        self._reader = threading.Thread(target=self._read_on, name=f"txnsegment-pulsar-{self.address}", daemon=True)
        self._reader.start()
        try:
            self._send(self._connection.hello())
            self.ready: Ready = self._result(self._ready, "Connecting")
        except BaseException:
            self.close()
            raise

    # --- requests ---

    def ask(self, name: str, *, seconds: float | None = None, **fields: object) -> Any:
        """Send a request and return the message of its answer. Raises ConnectionLost, TimedOut, or the error that the broker
        reports.
        """
        number, what = self._connection.next_id(), _what(name, fields)
        future: Future[Any] = Future()
        with self._guard:
            if self._lost is not None:
                raise self._gone()
            self._asked[number] = future, what
        try:
            self._send(encode(command(name, request_id=number, **fields)))
            answer = self._result(future, what, seconds)
        finally:
            with self._guard:
                self._asked.pop(number, None)
        for field in ("error", "error_code"):
            if field in answer.DESCRIPTOR.fields_by_name and answer.HasField(field):
                text = getattr(answer, "message" if field == "error" else "error_message")
                raise broker_error(getattr(answer, field), text, what)
        return answer

    def tell(self, name: str, **fields: object) -> None:
        """Send a command that has no answer of its own. Raises ConnectionLost, TimedOut."""
        self._send(encode(command(name, **fields)))

    def send(self, entry: bytes, **fields: object) -> None:
        """Send an entry. `fields`: those of `CommandSend`. Raises ConnectionLost, TimedOut."""
        self._send(encode(command("send", **fields), entry))

    def add(self, target: Target, handler: Handler) -> int:
        """Return a number for a new producer, consumer, session or watch. Its deliveries go to `handler`. Raises ConnectionLost."""
        number = self._connection.next_id()
        with self._guard:
            if self._lost is not None:
                raise self._gone()
            self._handlers[target, number] = handler
        return number

    def remove(self, target: Target, number: int) -> None:
        with self._guard:
            self._handlers.pop((target, number), None)

    def close_one(self, target: Literal["producer", "consumer"], number: int, topic: str) -> None:
        """Let the broker close a producer or consumer of a topic. It gets no more deliveries. An error is only logged, because the
        caller cannot do more: the broker closes it at the latest when this connection ends.
        """
        self.remove(target, number)
        try:
            self.ask(f"close_{target}", **{f"{target}_id": number})
        except ConnectionLost:
            return  # the broker has closed it with the connection
        except PulsarError as error:
            log.warning("the %s of %s was not closed: %s", target, topic, error)

    @property
    def alive(self) -> bool:
        return self._lost is None

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._end(ConnectionLost(f"The connection to {self.address} was closed.", advice="Connect again."))
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- the socket ---

    def _connected(self, host: str, port: int, tls: ssl.SSLContext | None, seconds: float) -> socket.socket:
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection((host, port), seconds)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            if plain is not None:
                plain.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise AuthenticationFailed(
                    f"The certificate of {self.address} is not trusted: {error.verify_message}.",
                    advice="Name its authority in TXNSEGMENT_PULSAR_TLS_CA, and the host as the certificate names it.",
                ) from error
            advice = "Check that the broker runs."
            if isinstance(error, ssl.SSLError):
                advice = "Check that the port is the encrypted one of the broker (6651), or use pulsar:// for the plain one (6650)."
            raise ConnectionLost(f"{self.address} cannot be reached: {error}.", advice=advice) from error

    def _result(self, future: Future[Any], what: str, seconds: float | None = None) -> Any:
        limit = self._seconds if seconds is None else seconds
        try:
            return future.result(limit)
        except FutureTimeout:
            raise TimedOut(f"{what}: {self.address} did not answer within {limit:g} s.", advice=_ADVICE) from None

    def _send(self, data: bytes) -> None:
        deadline = time.monotonic() + self._seconds
        with self._order:
            view = memoryview(data)
            while view:
                if self._lost is not None:
                    raise self._gone()
                view = view[self._write(view) :]
                if view and time.monotonic() > deadline:
                    error = TimedOut(f"{self.address} took no bytes within {self._seconds:g} s.", advice=_ADVICE)
                    self._end(error)  # a part of a frame was sent, so the connection cannot be used any more
                    raise error

    def _write(self, view: memoryview) -> int:
        """Send some of the bytes, and return how many. If the broker takes none now, wait a moment and return 0. Raises
        ConnectionLost.
        """
        try:
            with self._io:
                return self._socket.send(view)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._wait(select.POLLOUT, 0.1)  # the wait also ends if the socket is closed; `_send` then raises the reason
            return 0
        except OSError as error:
            self._end(self._broken(error))
            raise self._gone() from error

    def _read_on(self) -> None:
        try:
            pinged = False
            while self._lost is None:
                if not self._readable():
                    if pinged:
                        raise ConnectionLost(f"{self.address} was silent for {2 * self._silence:g} s.", advice=_ADVICE)
                    pinged = True
                    self._send(encode(command("ping")))
                    continue
                try:
                    with self._io:
                        data = self._socket.recv(_READ)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                if not data:
                    raise ConnectionLost(f"{self.address} closed the connection.", advice=_ADVICE)
                pinged = False
                for event in self._connection.feed(data):
                    self._take(event)
        except OSError as error:
            self._end(self._broken(error))
        except PulsarError as error:
            self._end(error)
        except Exception as error:  # without this the thread would end, and every request would wait for its deadline
            self._end(ProtocolError(f"{self.address} sent what cannot be processed: {error!r}.", advice="Report this as a bug."))
            raise

    def _readable(self) -> bool:
        """Wait for bytes. Return False if none came for `silence_seconds`."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return self._wait(select.POLLIN, self._silence)

    def _wait(self, event: int, seconds: float) -> bool:
        """Wait until the socket can be read or written, or is closed. Return False after `seconds`."""
        poll = select.poll()  # select() takes no file descriptor above 1023
        try:
            poll.register(self._socket, event)
        except ValueError:  # the socket is closed
            return True
        return bool(poll.poll(seconds * 1000))

    def _take(self, event: Ready | Reply | Answer | Refusal | Delivery) -> None:
        match event:
            case Reply():
                self._send(event.data)
            case Ready():
                with self._guard:
                    if self._lost is None:  # otherwise `_end` has given the caller its error, or is about to
                        self._ready.set_result(event)
            case Answer():
                with self._guard:
                    asked = self._asked.pop(event.request_id, None)
                if asked is not None:
                    asked[0].set_result(event.body)
            case Refusal(request_id=None):
                raise broker_error(event.code, event.message, f"Connecting to {self.address}")
            case Refusal():
                with self._guard:
                    asked = self._asked.pop(event.request_id or 0, None)
                if asked is not None:
                    asked[0].set_exception(broker_error(event.code, event.message, asked[1]))
            case Delivery():
                with self._guard:
                    handler = self._handlers.get((event.target, event.id))
                if handler is not None:
                    handler(event)

    def _end(self, error: PulsarError) -> None:
        with self._guard:
            if self._lost is not None:
                return
            self._lost = error
            futures, self._asked = [future for future, _ in self._asked.values()], {}
            handlers, self._handlers = [*self._handlers.values()], {}
        for future in [self._ready, *futures]:
            if not future.done():
                future.set_exception(error.again())
        with self._io:  # without the lock, a thread could write plain bytes to an encrypted connection that is being closed
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        wrong: list[Exception] = []
        for handler in handlers:
            try:
                handler(error.again())
            except Exception as raised:  # the other handlers must hear of the end, too
                wrong.append(raised)
        if wrong:
            raise wrong[0]

    def _broken(self, error: OSError) -> ConnectionLost:
        advice = _ADVICE
        if isinstance(error, ssl.SSLError):  # with TLS 1.3 the broker judges the client's certificate after the handshake
            advice = "Check that the broker accepts the certificate in TXNSEGMENT_PULSAR_TLS_CERT. " + _ADVICE
        return ConnectionLost(f"The connection to {self.address} broke: {error}.", advice=advice)

    def _gone(self) -> PulsarError:
        assert self._lost is not None
        return self._lost.again()


def _what(name: str, fields: dict[str, object]) -> str:
    """Return the words by which an error names the request."""
    about = fields.get("topic") or fields.get("subscription")
    if "txnid_most_bits" in fields:
        about = f"transaction {fields['txnid_most_bits']}_{fields['txnid_least_bits']}"
    return f"{name.replace('_', ' ')} of {about}" if about else name.replace("_", " ")
