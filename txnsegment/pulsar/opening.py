"""Opens the consumer of a subscription of a Pulsar topic, and creates the subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from metadata.common.errors import OptionError, SubscriptionNotFound
from metadata.records.names import topic_name
from metadata.topics.subscriptions import checked
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.owned_names import has_ack_log
from spark_txn_source.pulsar.holding import AUTO
from txnsegment.pulsar.ack_log import AckLog, Clock, ack_log
from txnsegment.pulsar.consumer import PulsarConsumer
from txnsegment.pulsar.feeding import Feeding, Where, place_rows, read_options, rows_before, starting
from txnsegment.pulsar.refused import rest
from txnsegment.pulsar.subscriptions import PulsarSubscriptions

_CLOCK: Final = Clock()


def open_consumer(
    client: PulsarClient,
    subscriptions: PulsarSubscriptions,
    topic: str,
    subscription: str,
    *,
    start: Where | None,
    columns: Sequence[str] | None,
    value_format: str,
    schema_version: int | None,
    clock: Clock = _CLOCK,
) -> PulsarConsumer:
    """Return the consumer (see `PulsarCluster.consumer`)."""
    full, name = full_name(topic), subscription_name(subscription)
    if start is not None:
        starting(start)
    options = read_options(
        client.url,
        full,
        subscription=name,
        columns=None if columns is None else ",".join(columns),
        valueFormat=value_format,
        schemaVersion=None if schema_version is None else str(schema_version),
    )
    feeding = Feeding(options, full)
    try:
        acks = owned_acks(client, subscriptions, full, name, start=start, clock=clock)
        try:
            return PulsarConsumer(feeding, acks, full, name, clock)
        except BaseException:
            acks.close()
            raise
    except BaseException:
        feeding.close()
        raise


def full_name(topic: str) -> str:
    """Return the full name of a topic that has subscriptions. Raises OptionError."""
    return topic if topic.startswith("persistent://") else str(topic_name(topic))


def subscription_name(name: str) -> str:
    """Return the name of a subscription without spaces around it. Raises OptionError."""
    found = checked(name)
    if found.lower() == AUTO:
        raise OptionError(f"A subscription cannot have the name {found!r}.", advice="Spark's reads use it. Take another one.")
    return found


def owned_acks(
    client: PulsarClient,
    subscriptions: PulsarSubscriptions,
    topic: str,
    name: str,
    *,
    start: Where | None = None,
    clock: Clock = _CLOCK,
) -> AckLog:
    """Return the log of acknowledgements of a subscription. The caller owns it until it closes it. `start`: where the subscription
    is created if it does not exist. None: it must exist.

    Raises SubscriptionNotFound, SubscriptionBusy (another consumer or transaction has it, or a stream), TopicMissing, OptionError.
    """
    acks = ack_log(client.url, topic, name, clock)
    try:
        if not has_ack_log(client, topic, name):
            rest(f"The first consumer of the subscription {name!r} of {topic}")
            subscriptions.check_unused(topic, name)  # before the log is created, because a stream refuses a subscription with a log
            if start is None and subscriptions.positions(topic, name) is None:
                raise _missing(topic, name)
        if acks.state().exists:
            subscriptions.keep(topic, name)
        else:
            _create(acks, subscriptions, topic, name, start)
        return acks
    except BaseException:
        acks.close()
        raise


def _create(acks: AckLog, subscriptions: PulsarSubscriptions, topic: str, name: str, start: Where | None) -> None:
    """Write into a new log where the subscription begins: where its cursors are, or at `start` if it has none. The cursors are made
    after this. So a subscription whose creation was interrupted is created at `start` by the next consumer.
    """
    subscriptions.check_unused(topic, name)
    found = subscriptions.positions(topic, name)
    if found is not None:
        acks.move({segment: rows for segment, place in found.items() if (rows := place_rows(place))}, {})
    elif start is None:
        raise _missing(topic, name)
    else:
        acks.move(*rows_before(read_options(subscriptions.url, topic), start))


def _missing(topic: str, name: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(
        f"{topic} has no subscription {name}.",
        advice="Create it (cluster.subscriptions.create, or start= of cluster.consumer), or correct the name.",
    )
