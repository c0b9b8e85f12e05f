"""Keys of the marker-based model's records (docs/in_stream.md, Records). Each log has its own folder, so that no range of one log
includes records of a topic or subscription with a longer name (A14).
"""

from __future__ import annotations

from functools import lru_cache

from metadata.records.names import PersistentName
from metadata.records.paths import Key, KeyRange, Prefix, ack_key, decode, encode
from metadata.records.paths import topic as topic

TOPICS = KeyRange("/persistent/topics/", "/persistent/topics/~", "")
SUBSCRIPTIONS = KeyRange("/persistent/subscriptions/", "/persistent/subscriptions/~", "")


@lru_cache(maxsize=4096)
def topic_at(path: str) -> PersistentName:
    _, _, _, tenant, namespace, name = path.split("/")
    return PersistentName(decode(tenant), decode(namespace), decode(name))


@lru_cache(maxsize=4096)
def log(name: PersistentName) -> Prefix:
    """Return the prefix of the topic's own log. Data, markers and the SEAL are entries of this one log."""
    partition = encode(str(name))
    return Prefix(f"/persistent/logs/{partition}/log", partition)


@lru_cache(maxsize=4096)
def subscription(topic: str, name: str) -> Key:
    """Return the key of a subscription's record. It has the same partition key as the subscription's pending-ack log."""
    key = ack_key(topic, name)
    return Key(f"/persistent/subscriptions/{key}", key)


def subscriptions(topic: str) -> KeyRange:
    """Return the range of one topic's subscription records. In a key `:` follows the topic's name, so the range excludes topics
    whose longer names begin with this name.
    """
    return KeyRange(f"/persistent/subscriptions/{encode(topic)}:", f"/persistent/subscriptions/{encode(topic)}:~", "")


def subscription_of(path: str) -> tuple[str, str]:
    """Return the topic and the name of a subscription record's path."""
    topic, _, name = path.removeprefix("/persistent/subscriptions/").partition(":")
    return decode(topic), decode(name)


@lru_cache(maxsize=4096)
def ack_log(topic: str, subscription: str, life: int) -> Prefix:
    """Return the prefix of the pending-ack log of a (topic, subscription). Each `life` of the subscription has its own log."""
    key = ack_key(topic, subscription)
    return Prefix(f"/persistent/acks/{key}/{life}/log", key)
