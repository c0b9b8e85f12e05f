"""Creates topics through Pulsar's REST interface. The binary protocol cannot create a scalable topic."""

from __future__ import annotations

from typing import Final

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import OlderModel, TopicMissing
from pulsar_protocol.layout import Layout
from pulsar_protocol.rest import Refused, Rest

_EXISTS: Final = 409


def found_or_created(client: PulsarClient, topic: str, admin_url: str | None, segments: int) -> Layout:
    """Return the layout of a scalable topic. Create the topic if it does not exist. Raises TopicMissing if the topic does not exist
    and `admin_url` is None. Raises OlderModel if a `persistent://` topic has the name.
    """
    try:
        return client.layout(topic)
    except OlderModel:
        raise
    except TopicMissing as error:
        if admin_url is None:
            path = topic.removeprefix("topic://")
            raise TopicMissing(
                f"There is no topic {topic}, and the binary protocol cannot create a scalable topic.",
                advice="Give the option adminUrl (http://host:8080) or the variable TXNSEGMENT_PULSAR_ADMIN_URL, or create it: "
                f"curl -X PUT 'http://host:8080/admin/v2/scalable/{path}?numInitialSegments={segments}'.",
            ) from error
    create(admin_url, topic, segments)
    return client.layout(topic)


def create(admin_url: str, topic: str, segments: int) -> None:
    """Create a scalable topic, if there is none. Raises PulsarError."""
    try:
        Rest(admin_url).ask("PUT", f"/admin/v2/scalable/{topic.removeprefix('topic://')}?numInitialSegments={segments}")
    except Refused as error:
        if error.status != _EXISTS:
            raise
