"""Creates topics through Pulsar's REST interface. The binary protocol cannot create a scalable topic."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Final

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import PulsarError, TopicMissing
from pulsar_protocol.layout import Layout

SECONDS: Final = 30.0
_EXISTS: Final = 409


def found_or_created(client: PulsarClient, topic: str, admin_url: str | None, segments: int) -> Layout:
    """Return the layout of a scalable topic, created if there is none. Raises TopicMissing if there is no `admin_url`."""
    try:
        return client.layout(topic)
    except TopicMissing as error:
        if admin_url is None:
            path = topic.removeprefix("topic://")
            raise TopicMissing(
                f"There is no topic {topic}, and the binary protocol cannot create a scalable topic.",
                advice="Give the option adminUrl (http://host:8080), or create it: "
                f"curl -X PUT 'http://host:8080/admin/v2/scalable/{path}?numInitialSegments={segments}'.",
            ) from error
    create(admin_url, topic, segments)
    return client.layout(topic)


def create(admin_url: str, topic: str, segments: int) -> None:
    """Create a scalable topic, if there is none. Raises PulsarError."""
    url = f"{admin_url.rstrip('/')}/admin/v2/scalable/{topic.removeprefix('topic://')}?numInitialSegments={segments}"
    request = urllib.request.Request(url, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):
            return
    except urllib.error.HTTPError as error:
        if error.code == _EXISTS:
            return
        raise PulsarError(
            f"The topic {topic} could not be created: {admin_url} answered {error.code} ({error.reason}).",
            advice="Check the namespace, the permissions, and that the broker has scalableTopicsEnabled=true.",
        ) from error
    except OSError as error:
        raise PulsarError(
            f"The topic {topic} could not be created: {admin_url} cannot be reached ({error}).", advice="Check the option adminUrl."
        ) from error
