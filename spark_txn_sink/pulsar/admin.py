"""Creates topics through Pulsar's REST interface. The binary protocol cannot create a scalable topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import (
    NAMESPACE_ADVICE,
    AuthenticationFailed,
    NotAuthorized,
    OlderModel,
    PulsarError,
    TopicMissing,
)
from pulsar_protocol.layout import Layout
from pulsar_protocol.rest import Refused, Rest
from pulsar_protocol.retries import Pauses, growing, repeat

_EXISTS: Final = 409
_MISSING: Final = 404
CREATING_SECONDS: Final = 10.0
"""How long a segment that a layout names may be missing, because its topic is being created."""
T = TypeVar("T")


def found_or_created(
    client: PulsarClient, topic: str, admin_url: str | None, segments: int, check: Callable[[], None] = lambda: None
) -> Layout:
    """Return the layout of a scalable topic. Create the topic if it does not exist. `check`: called before the creation; if it
    raises, no topic is created. Raises TopicMissing if the topic does not exist and `admin_url` is None. Raises OlderModel if a
    `persistent://` topic has the name.
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
                advice="Set the variable TXNSEGMENT_PULSAR_ADMIN_URL=http://host:8080 (or give a Spark write the option adminUrl), "
                "or create it: "
                f"curl -X PUT 'http://host:8080/admin/v2/scalable/{path}?numInitialSegments={segments}'.",
            ) from error
    check()
    create(admin_url, topic, segments)
    return when_created(lambda: client.layout(topic))


def when_created(call: Callable[[], T], pauses: Pauses = growing) -> T:
    """Return what `call` returns, which uses the layout or a segment of a topic that may be new. While another program creates the
    topic, the broker refuses the topic (409), and the layout names segments that do not exist for a moment. So `call` is repeated
    after a TopicMissing, for at most `CREATING_SECONDS`. It must be safe to repeat.
    """

    def missing(error: PulsarError) -> bool:
        return isinstance(error, TopicMissing) and not isinstance(error, OlderModel)

    return repeat(lambda _: call(), CREATING_SECONDS, pauses=pauses, stop=threading.Event(), when=missing)


def check_namespace(interface: Rest, topic: str) -> None:
    """Raise Refused if the namespace of a topic does not exist. The broker 5.0.0-M1 creates a topic there, and refuses its rows
    afterwards.
    """
    namespace = topic.removeprefix("topic://").rpartition("/")[0]
    try:
        interface.ask("GET", f"/admin/v2/namespaces/{namespace}")
    except (NotAuthorized, AuthenticationFailed):
        return  # a role that may create topics may lack the right to see policies; the creation shows whether it may not
    except Refused as error:
        if error.status != _MISSING:
            raise
        missing = Refused(f"The namespace {namespace} does not exist, so no topic is created in it.", advice=NAMESPACE_ADVICE)
        missing.status = _MISSING
        raise missing from error


def create(admin_url: str, topic: str, segments: int) -> None:
    """Create a scalable topic, if there is none. Raises Refused for a namespace that does not exist, or another PulsarError."""
    interface = Rest(admin_url)
    check_namespace(interface, topic)
    try:
        interface.ask("PUT", f"/admin/v2/scalable/{topic.removeprefix('topic://')}?numInitialSegments={segments}")
    except Refused as error:
        if error.status != _EXISTS:
            raise
