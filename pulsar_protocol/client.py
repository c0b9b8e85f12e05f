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
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from pulsar_protocol.channel import ANSWER_SECONDS, Channel
from pulsar_protocol.connection import Authenticate, Delivery, Target
from pulsar_protocol.errors import ConnectionLost, NotSupported, PulsarError, TimedOut, broker_error
from pulsar_protocol.layout import Layout, layout_of
from pulsar_protocol.messages import Schema
from pulsar_protocol.service import Service

REDIRECTS: Final = 20
"""The greatest number of redirects of one lookup, as in Pulsar's own clients."""


class TxnId(NamedTuple):
    """The id of a transaction. `most`: the number of its coordinator. `least`: its number there."""

    most: int
    least: int

    @property
    def text(self) -> str:
        return f"{self.most}_{self.least}"

    @staticmethod
    def parse(text: str) -> TxnId:
        """Raises ValueError."""
        most, least = text.split("_")
        return TxnId(int(most), int(least))


class PulsarClient:
    """A client of one cluster. It may be shared by threads. Nothing is connected before the first call that needs a connection."""

    def __init__(
        self,
        url: str,
        *,
        authenticate: Authenticate | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`url`: see `Service`. `tls`: makes the context of encrypted connections. `seconds`: the limit of a request. Raises
        BadUrl.
        """
        self.url = url
        self.service = Service.parse(url)
        self._authenticate, self._tls, self._seconds = authenticate, tls, seconds
        self._guard = threading.Lock()
        self._channels: dict[tuple[str, str | None], Channel] = {}
        self._coordinators: dict[tuple[Channel, int], None] = {}

    # --- connections ---

    def channel(self, url: str | None = None, *, through_proxy_to: str | None = None) -> Channel:
        """Return a connection to the broker at `url` (None: to one of the service URL), opened if there is none. Raises
        ConnectionLost if no host can be reached.
        """
        service = self.service if url is None else Service.parse(url)
        known = url or self.url
        with self._guard:
            found = self._channels.get((known, through_proxy_to))
            if found is not None and found.alive:
                return found
            hosts = list(service.hosts)
            random.shuffle(hosts)
            lost: PulsarError | None = None
            for host, port in hosts:
                try:
                    made = Channel(
                        host,
                        port,
                        authenticate=self._authenticate,
                        tls=self._tls() if service.tls else None,
                        through_proxy_to=through_proxy_to,
                        seconds=self._seconds,
                    )
                except ConnectionLost as error:
                    lost = error
                    continue
                self._channels[known, through_proxy_to] = made
                return made
        assert lost is not None
        raise lost

    def broker_of(self, topic: str) -> Channel:
        """Return a connection to the broker that has this topic or segment. Raises the broker's error, NotSupported after too many
        redirects.
        """
        channel, authoritative = self.channel(), False
        for _ in range(REDIRECTS):
            answer = channel.ask("lookup_topic", topic=topic, authoritative=authoritative)
            if answer.response == 2:
                raise broker_error(answer.error, answer.message, f"lookup of {topic}")
            url = answer.broker_service_url_tls if self.service.tls else answer.broker_service_url
            authoritative = answer.authoritative
            if answer.response == 1:
                return self._proxied(url) if answer.proxy_through_service_url else self.channel(url)
            channel = self.channel(url)
        raise NotSupported(
            f"The lookup of {topic} was redirected {REDIRECTS} times.", advice="Check the load balancer of the brokers."
        )

    def _proxied(self, url: str) -> Channel:
        """Return a connection to a broker through the hosts of the service URL. A broker that names itself is reached directly."""
        ((host, port),) = Service.parse(url).hosts
        if (host, port) in self.service.hosts:
            return self.channel(url)
        return self.channel(through_proxy_to=f"{host}:{port}")

    # --- topics ---

    def layout(self, topic: str) -> Layout:
        """Return the current layout of a scalable topic (`topic://..`). Raises TopicMissing, NotSupported."""
        body = self._once(self.channel(), "session", "scalable_topic_lookup", "scalable_topic_close", "session_id", topic=topic)
        return layout_of(body.resolved_topic_name or topic, body.dag)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a `persistent://` topic (0: not partitioned). Raises TopicMissing."""
        answer = self.channel().ask("partition_metadata", topic=topic, metadata_auto_creation_enabled=False)
        return int(answer.partitions)

    def schema(self, topic: str, version: bytes | None = None) -> Any | None:
        """Return a schema of the topic (None as `version`: the latest), or None if it has none. Raises the broker's error."""
        try:
            return self.channel().ask("get_schema", topic=topic, schema_version=version).schema
        except PulsarError as error:
            if error.code == 11:
                return None
            raise

    def register(self, topic: str, schema: Schema) -> bytes:
        """Register a schema, if the topic does not have it, and return its version. Raises SchemaRefused."""
        return bytes(self.broker_of(topic).ask("get_or_create_schema", topic=topic, schema=schema).schema_version)

    # --- transactions ---

    def coordinators(self) -> dict[int, str]:
        """Return the URL of the broker of each transaction coordinator. Raises NotSupported if transactions are switched off."""
        body = self._once(self.channel(), "watch", "watch_tc_assignments", "watch_tc_assignments_close", "watch_id")
        tls = self.service.tls
        return {one.tc_id: one.broker_service_url_tls if tls else one.broker_service_url for one in body.snapshot.assignments}

    def begin(self, timeout_ms: int, coordinator: int | None = None) -> TxnId:
        """Begin a transaction, which the broker aborts after `timeout_ms`. `coordinator`: its number; None: any. Raises Retriable,
        NotSupported. If the outcome is unknown, the transaction ends by its timeout.
        """
        known = self.coordinators()
        if not known:
            raise NotSupported("The cluster has no transaction coordinator.", advice="Set transactionCoordinatorEnabled=true.")
        number = random.choice(sorted(known)) if coordinator is None else coordinator
        answer = self._coordinator(number, known).ask("new_txn", txn_ttl_millis=timeout_ms, tc_id=number, scalable=True)
        return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction. The same end again succeeds. Raises TransactionEnded if it has ended in the other way, or
        if the broker does not know it any more. After ConnectionLost or TimedOut the outcome is unknown: call it again.
        """
        channel = self._coordinator(txn.most, self.coordinators())
        ids = {"txnid_most_bits": txn.most, "txnid_least_bits": txn.least}
        channel.ask("end_txn", **ids, txn_action=0 if commit else 1, scalable=True)

    def _coordinator(self, number: int, known: dict[int, str]) -> Channel:
        """Return a connection to the broker of a coordinator, with the coordinator opened on it."""
        if number not in known:
            raise NotSupported(f"There is no transaction coordinator {number}; there are {sorted(known)}.", advice="Try again.")
        channel = self._proxied(known[number])
        if (channel, number) not in self._coordinators:
            channel.ask("tc_client_connect_request", tc_id=number, scalable=True)
            self._coordinators[channel, number] = None
        return channel

    # --- all ---

    def _once(self, channel: Channel, target: Target, ask: str, end: str, field: str, **fields: object) -> Any:
        """Open a session or watch, return its first message, and close it."""
        seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
        number = channel.add(target, seen.put)
        what = f"{ask.replace('_', ' ')} {fields.get('topic', '')}".rstrip()
        try:
            channel.tell(ask, **{field: number}, **fields)
            found = seen.get(timeout=self._seconds)
        except queue.Empty:
            raise TimedOut(f"{what}: {channel.address} did not answer within {self._seconds:g} s.", advice="Try again.") from None
        finally:
            channel.remove(target, number)
        if isinstance(found, PulsarError):
            raise found
        if found.body.HasField("error"):
            raise broker_error(found.body.error, found.body.message, what)
        channel.tell(end, **{field: number})
        return found.body

    def close(self) -> None:
        """Close all connections. Idempotent."""
        with self._guard:
            channels, self._channels = [*self._channels.values()], {}
            self._coordinators.clear()
        for channel in channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
