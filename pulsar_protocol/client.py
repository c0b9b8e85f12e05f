"""A client of a Pulsar cluster: connections, lookups, layouts of scalable topics, schemas, and transactions.

with PulsarClient("pulsar://localhost:6650") as client:
    layout = client.layout("topic://public/default/orders")
    txn = client.begin(60_000)
    ...                                   # producers send with `txn`, in any process
    client.end(txn, commit=True)
"""

from __future__ import annotations

import queue
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from pulsar_protocol.channel import ANSWER_SECONDS, SILENCE_SECONDS, Channel
from pulsar_protocol.connection import Authenticate, Delivery, Target
from pulsar_protocol.connections import Connections
from pulsar_protocol.errors import (
    UNKNOWN_ERROR,
    NotSupported,
    OlderModel,
    PulsarError,
    Retriable,
    ScalableTopicsOff,
    TimedOut,
    TopicDamaged,
    TopicMissing,
    TransactionsOff,
    broker_error,
)
from pulsar_protocol.layout import Layout, layout_of
from pulsar_protocol.messages import Schema
from pulsar_protocol.retries import Pauses, Result, growing, passes, repeat
from pulsar_protocol.service import Service

REDIRECTS: Final = 20
"""The greatest number of redirects of one lookup, as in Pulsar's own clients."""
Kept = TypeVar("Kept")
_NO_COORDINATOR: Final = 20
"""Pulsar's error code of a broker that does not run the transaction coordinator. The broker has done nothing."""


class TxnId(NamedTuple):
    """The id of a transaction. `most`: the number of its coordinator. `least`: the number that the coordinator gave it."""

    most: int
    least: int

    @property
    def text(self) -> str:
        return f"{self.most}_{self.least}"

    @staticmethod
    def parse(text: str) -> TxnId:
        """Return the id of a text such as `3_17`. Raises ValueError for any other text."""
        most, least = text.split("_")
        return TxnId(int(most), int(least))


def _no_scalable_topics(channel: Channel, what: str) -> ScalableTopicsOff:
    return ScalableTopicsOff(
        f"{what}: the broker {channel.address} ({channel.ready.server}) has no scalable topics.",
        advice="They need Pulsar 5 with scalableTopicsEnabled=true; persistent:// topics need neither.",
    )


class _Assigned(NamedTuple):
    """The transaction coordinators. `total`: how many the cluster has. `brokers`: for each coordinator that a broker runs now, the
    URL of this broker.
    """

    total: int
    brokers: Mapping[int, str]


class PulsarClient:
    """A client of one cluster. It may be shared by threads, not by processes. Nothing is connected before the first call that needs
    a connection.

    Lookups, layouts, schemas, the search for coordinators and the end of a transaction are repeated, with growing pauses, if the
    connection is lost or the broker asks to try again. The request and its repetitions take at most `seconds`. The begin of a
    transaction and the sending of an entry are not repeated, because it is unknown whether the broker has carried out the first
    request.
    """

    def __init__(
        self,
        url: str,
        *,
        authenticate: Authenticate | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        seconds: float = ANSWER_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        pauses: Pauses = growing,
    ) -> None:
        """`url`: see `Service`. `tls`: makes the context of encrypted connections. `seconds`: the limit of a request with its
        repetitions. `silence_seconds`: see `Channel`. Raises BadUrl.
        """
        self.url = url.strip()
        self.service = Service.parse(url)
        self._seconds, self._pauses = seconds, pauses
        common: dict[str, Any] = {"authenticate": authenticate, "tls": tls, "seconds": seconds}
        self._settings = {**common, "silence_seconds": silence_seconds, "pauses": pauses}
        self._connections = Connections(**self._settings)
        self._guard = threading.Lock()
        self._assigned: _Assigned | None = None
        self._opened: set[tuple[Channel, int]] = set()
        self._kept: dict[type[Any], Any] = {}
        self._behind_proxy: bool | None = None
        """Whether brokers are reached through a proxy; None: no lookup was answered yet."""

    # --- connections ---

    def patient(self) -> Self:
        """Let this client wait for the cluster, because another process has reached it before. Without this call the first
        connection must be made within `connections.FIRST_SECONDS`, because the address may be wrong. Return this client.
        """
        self._connections.reached = True
        return self

    def another(self) -> PulsarClient:
        """Return a new client of the same cluster, with the same settings and with connections of its own."""
        return PulsarClient(self.url, **self._settings).patient()

    def channel(self, url: str | None = None, *, through_proxy_to: str | None = None) -> Channel:
        """Return a connection to the broker at `url` (None: to a host of the service URL). Open it if it is not open. Raises
        ConnectionLost or TimedOut if no host can be reached, Unreachable if that was the first connection.
        """
        return self._connections.get(self.service if url is None else Service.parse(url), through_proxy_to)

    def any_broker(self) -> Channel:
        """Return a connection for requests that any broker answers, but a proxy does not: layouts and coordinators."""
        return self.channel(through_proxy_to="")

    def broker_of(self, topic: str, seconds: float | None = None) -> Channel:
        """Return a connection to the broker that has this topic or segment. `seconds`: the limit of the lookups with their
        repetitions; None: that of the client. Raises NotSupported after too many redirects, or the error that the broker reports.
        """
        return self._repeat(lambda left: self._broker_of(topic, left), seconds)

    def _broker_of(self, topic: str, left: float) -> Channel:
        channel, authoritative = self.channel(), False
        for _ in range(REDIRECTS):
            answer = channel.ask("lookup_topic", seconds=left, topic=topic, authoritative=authoritative)
            if answer.response == 2:
                raise broker_error(answer.error, answer.message, f"lookup of {topic}")
            url = answer.broker_service_url_tls if self.service.tls else answer.broker_service_url
            if not url:
                raise NotSupported(
                    f"The broker of {topic} has no {'encrypted' if self.service.tls else 'plain'} port.",
                    advice="Use the other scheme in the service URL: pulsar:// or pulsar+ssl://.",
                )
            authoritative = answer.authoritative
            if answer.response == 1:
                self._behind_proxy = answer.proxy_through_service_url
                return self._reached(url)
            channel = self.channel(url)
        raise NotSupported(
            f"The lookup of {topic} was redirected {REDIRECTS} times.", advice="Check the load balancer of the brokers."
        )

    def _reached(self, url: str) -> Channel:
        """Return a connection to the broker at `url`: through the proxy if there is one. A broker that is itself named in the
        service URL is reached directly.
        """
        hosts = Service.parse(url).hosts
        if any(host in self.service.hosts for host in hosts) or not self._behind_proxy:
            return self.channel(url)
        host, port = hosts[0]
        return self.channel(through_proxy_to=f"{host}:{port}")

    # --- topics ---

    def layout(self, topic: str, seconds: float | None = None) -> Layout:
        """Return the current layout of a scalable topic (`topic://..`). `seconds`: as of `broker_of`. Raises TopicMissing,
        TopicDamaged, NotSupported.
        """

        def once(left: float) -> Layout:
            channel = self.any_broker()
            if not channel.ready.scalable:
                raise _no_scalable_topics(channel, topic)
            body = self._first(channel, left, "session", "scalable_topic_lookup", "scalable_topic_close", "session_id", topic=topic)
            return layout_of(body.resolved_topic_name or topic, body.dag)

        try:
            return self._repeat(once, seconds)
        except TopicMissing as error:
            if (damaged := TopicDamaged.of(topic, error)) is not None:
                raise damaged from error
            self._check_older(topic, error)
            raise

    def _check_older(self, topic: str, error: TopicMissing) -> None:
        """Raise OlderModel if a missing topic exists as a topic of the older model."""
        older = topic.replace("topic://", "persistent://", 1)
        try:
            self.partitions(older)
        except PulsarError:
            return  # the caller raises the first error
        raise OlderModel(
            f"There is no scalable topic {topic}, but a topic {older} of the older model.",
            advice=f"Read it by its name {older}. To write it in transactions, make it a scalable topic first: POST "
            f"/admin/v2/scalable/{topic.removeprefix('topic://')}/migrate of the broker's REST interface.",
        ) from error

    def topics(self, namespace: str) -> list[str]:
        """Return the names of the scalable topics of a namespace (`tenant/namespace`), in no order. Raises NotSupported."""
        ask, end = "watch_scalable_topics", "watch_scalable_topics_close"

        def once(left: float) -> list[str]:
            channel = self.any_broker()
            if not channel.ready.scalable:
                raise _no_scalable_topics(channel, namespace)
            found = self._first(channel, left, "watch", ask, end, "watch_id", namespace=namespace)
            return list(found.snapshot.topics)

        return self._repeat(once)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a `persistent://` topic (0: not partitioned). Raises TopicMissing."""
        fields = {"topic": topic, "metadata_auto_creation_enabled": False}
        return int(self._repeat(lambda left: self.channel().ask("partition_metadata", seconds=left, **fields)).partitions)

    def schema(self, topic: str, version: bytes | None = None) -> Any | None:
        """Return a version of the topic's schema, or None if the topic does not have it. `version`: None means the latest one.
        Raises the error that the broker reports.
        """
        fields = {"topic": topic, "schema_version": version}
        try:
            return self._repeat(lambda left: self.channel().ask("get_schema", seconds=left, **fields)).schema
        except PulsarError as error:
            if error.code == 11:
                return None
            raise

    def register(self, topic: str, schema: Schema) -> bytes:
        """Register a schema, if the topic does not have it, and return its version. Raises SchemaRefused."""

        def once(left: float) -> bytes:
            channel = self._broker_of(topic, left)
            return bytes(channel.ask("get_or_create_schema", seconds=left, topic=topic, schema=schema).schema_version)

        return self._repeat(once)

    # --- transactions ---

    def coordinators(self) -> dict[int, str]:
        """Return, for each transaction coordinator that has a broker now, its number and the URL of this broker. Raises
        NotSupported if transactions are switched off.
        """
        return dict(self._repeat(self._assignments).brokers)

    def _assignments(self, left: float) -> _Assigned:
        channel = self.any_broker()
        if not channel.ready.discovers_coordinators:
            raise TransactionsOff(
                f"The broker {channel.address} ({channel.ready.server}) has no transactions that are kept in metadata.",
                advice="They need Pulsar 5 with transactionCoordinatorEnabled=true and "
                "transactionCoordinatorScalableTopicsEnabled=true. Reads need none.",
            )
        body = self._first(channel, left, "watch", "watch_tc_assignments", "watch_tc_assignments_close", "watch_id")
        tls, found = self.service.tls, body.snapshot.assignments
        brokers = {one.tc_id: one.broker_service_url_tls if tls else one.broker_service_url for one in found}
        with self._guard:
            self._assigned = _Assigned(body.snapshot.parallelism, brokers)
            return self._assigned

    def begin(self, timeout_ms: int, coordinator: int | None = None) -> TxnId:
        """Begin a transaction, which the broker aborts after `timeout_ms`. `coordinator`: the number of a coordinator; None: any.
        Raises Retriable, NotSupported. After ConnectionLost or TimedOut it is unknown whether a transaction was begun; if so, it
        ends by its timeout.

        The request is sent again only if the broker has answered that it does not have the coordinator.
        """

        def once(left: float) -> TxnId:
            channel, number = self._repeat(lambda rest: self._coordinator(coordinator, rest), left)
            answer = self._asked(channel, number, "new_txn", seconds=left, txn_ttl_millis=timeout_ms, tc_id=number, scalable=True)
            return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

        return self._repeat(once, when=lambda error: error.code == _NO_COORDINATOR)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction. The same call may be repeated, and succeeds again. Raises TransactionEnded if the
        transaction has ended in the other way, or if the broker does not know it any more. After ConnectionLost or TimedOut the
        outcome is unknown: repeat the call.

        This method also repeats the request after an UnknownError. The broker 5.0.0-M1 answers so to one of two equal requests that
        it carries out at the same time. This happens after a late reply.
        """
        fields = {"txnid_most_bits": txn.most, "txnid_least_bits": txn.least, "txn_action": 0 if commit else 1, "scalable": True}

        def once(left: float) -> None:
            channel, number = self._coordinator(txn.most, left)
            self._asked(channel, number, "end_txn", seconds=left, **fields)

        self._repeat(once, when=lambda error: passes(error) or error.code == UNKNOWN_ERROR)

    def _asked(self, channel: Channel, number: int, name: str, **fields: Any) -> Any:
        """Ask a coordinator. After an error that may pass, the next request looks up the coordinator's broker again."""
        try:
            return channel.ask(name, **fields)
        except PulsarError as error:
            if passes(error):
                self._forget(channel, number)
            raise

    def _forget(self, channel: Channel, number: int) -> None:
        with self._guard:
            self._assigned = None
            self._opened.discard((channel, number))

    def _coordinator(self, number: int | None, left: float) -> tuple[Channel, int]:
        """Return a connection to the broker of a coordinator, and the coordinator's number. `number` None: any coordinator. The
        broker has accepted the connection for requests to this coordinator.
        """
        known = self._assigned or self._assignments(left)
        if number is None:
            number = random.choice(sorted(known.brokers)) if known.brokers else 0
        if number not in known.brokers:
            with self._guard:
                self._assigned = None
            count = known.total
            if number >= count:
                raise NotSupported(
                    f"The cluster has no transaction coordinator {number}; it has {count}.",
                    advice="Set transactionCoordinatorEnabled=true, and take the transaction to the cluster where it began.",
                )
            raise Retriable(f"The transaction coordinator {number} of {count} has no broker now.", advice="Try again.")
        try:
            channel = self._reached(known.brokers[number])
        except PulsarError:
            with self._guard:
                self._assigned = None
            raise
        if (channel, number) not in self._opened:
            self._asked(channel, number, "tc_client_connect_request", seconds=left, tc_id=number, scalable=True)
            with self._guard:
                self._opened = {one for one in self._opened if one[0].alive} | {(channel, number)}
        return channel, number

    # --- all ---

    def _repeat(
        self, call: Callable[[float], Result], seconds: float | None = None, *, when: Callable[[PulsarError], bool] = passes
    ) -> Result:
        limit = self._seconds if seconds is None else seconds
        return repeat(call, limit, pauses=self._pauses, stop=self._connections.closed, when=when)

    def _first(self, channel: Channel, left: float, target: Target, ask: str, end: str, field: str, **fields: object) -> Any:
        """Open a session or watch, return its first message, and close the session or watch."""
        seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
        number = channel.add(target, seen.put)
        what = f"{ask.replace('_', ' ')} {fields.get('topic', '')}".rstrip()
        try:
            channel.tell(ask, **{field: number}, **fields)
            found = seen.get(timeout=left)
        except queue.Empty:
            raise TimedOut(f"{what}: {channel.address} did not answer within {left:.3g} s.", advice="Try again.") from None
        finally:
            channel.remove(target, number)
        if isinstance(found, PulsarError):
            raise found
        if found.body.HasField("error"):
            raise broker_error(found.body.error, found.body.message, what)
        channel.tell(end, **{field: number})
        return found.body

    def kept(self, kind: type[Kept], make: Callable[[PulsarClient], Kept]) -> Kept:
        """Return this client's one object of a class. The first call makes the object by `make`. It lives as long as the client."""
        with self._guard:
            if kind not in self._kept:
                self._kept[kind] = make(self)
            found: Kept = self._kept[kind]
            return found

    @property
    def closed(self) -> bool:
        return self._connections.closed.is_set()

    def close(self) -> None:
        """Close all connections. Requests that wait fail with ConnectionLost. Idempotent, and final."""
        self._connections.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("A PulsarClient is not pickled; make one in each process (pulsar_protocol.auth.shared).")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
