"""The shared clients of a process, and the segments of a topic of any kind."""

from __future__ import annotations

from pulsar_protocol.auth import shared
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Layout, Segment


def shared_client(url: str) -> PulsarClient:
    """Return the client of this process for a service URL, with the credentials of the environment."""
    return shared(url)


def layout(client: PulsarClient, topic: str) -> Layout:
    """Return the segments of a topic. A partitioned `persistent://` topic has one segment for each partition. A `persistent://`
    topic without partitions is one segment. These segments are never sealed. Raises TopicMissing.
    """
    if topic.startswith("persistent://"):
        count = client.partitions(topic)
        return _plain(topic, [f"{topic}-partition-{number}" for number in range(count)] or [topic])
    if topic.startswith("segment://"):
        return _plain(topic, [topic])
    return client.layout(topic)


def _plain(topic: str, names: list[str]) -> Layout:
    return Layout(topic, 0, {number: Segment(number, name, 0, 0xFFFF, True, (), ()) for number, name in enumerate(names)})
