"""The names of the topics in which txnsegment keeps records for one owner: an application or a subscription."""

from __future__ import annotations

import hashlib

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import TopicMissing


def owned_name(kind: str, owner: str, topic: str) -> str:
    """Return the name of a log. `kind`: `control` or `acks`. `owner`: an application or a subscription. `topic`: a data topic, in
    whose namespace the log is.
    """
    tenant, namespace, _ = topic.partition("://")[2].split("/", 2)
    digest = hashlib.sha256(f"{owner}\n{topic}".encode()).hexdigest()[:32]
    return f"topic://{tenant}/{namespace}/__txnsegment_{kind}_{digest}"


def ack_log_name(topic: str, subscription: str) -> str:
    """Return the name of the log of acknowledgements of a subscription. `topic`: its full name."""
    return owned_name("acks", subscription, topic)


def has_ack_log(client: PulsarClient, topic: str, subscription: str) -> bool:
    """Return whether a subscription has a log of acknowledgements: a consumer or a transaction has acknowledged its rows."""
    try:
        client.layout(ack_log_name(topic, subscription))
    except TopicMissing:
        return False
    return True
