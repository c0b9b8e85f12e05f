"""Keys of records, names of indexes, and the encoding of names in keys (protocol.md section 4).

A store that is distributed over servers chooses the server of a record by its partition key. So a key carries its partition key,
and each put, get, scan and delete of a record names the partition key with which the record was created. With another partition key
a call would silently miss the record. Guards against failure A15 (protocol.md section 9).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from metadata.records.names import PersistentName, TopicName


class Key(NamedTuple):
    """The path of a record, and its partition key. Records with one partition key are stored together. Empty: no partition key."""

    path: str
    partition: str


class KeyRange(NamedTuple):
    """The keys with one partition key (empty: any) from `first` to `last`, both inclusive, ordered by the bytes of the paths."""

    first: str
    last: str
    partition: str


class Prefix(NamedTuple):
    """A sequence of records. An append to it creates a record whose path is `path`, `-`, and the allocated number in 20 digits."""

    path: str
    partition: str

    def key(self, number: int) -> Key:
        return _numbered(self, number)

    def range(self, first: int = 0, last: int | None = None) -> KeyRange:
        """Return the range of all keys of this sequence with numbers from `first` to `last` (inclusive; None: to the end)."""
        return _between(self, first, last)


@lru_cache(maxsize=4096)
def _numbered(prefix: Prefix, number: int) -> Key:
    return Key(f"{prefix.path}-{pad20(number)}", prefix.partition)


@lru_cache(maxsize=4096)
def _between(prefix: Prefix, first: int, last: int | None) -> KeyRange:
    top = "9" * 20 if last is None else pad20(last)
    return KeyRange(f"{prefix.path}-{pad20(first)}", f"{prefix.path}-{top}", prefix.partition)


TXN_BY_DEADLINE = "idx:txn-by-deadline"
TXN_BY_FINAL_STATE = "idx:txn-by-final-state"
WRITES_BY_SEGMENT = "idx:writes-by-segment"
ACKS_BY_SEGMENT_SUBSCRIPTION = "idx:acks-by-segment-subscription"
OPS_BY_TXN = "idx:ops-by-txn"
TXN_ABORTED_BY_POSITION = "idx:txn-aborted-by-position"


def pad20(number: int) -> str:
    if number < 0:
        raise ValueError(f"negative number in a key: {number}")
    return f"{number:020d}"


@lru_cache(maxsize=4096)
def encode(text: str) -> str:
    """Encode as Java's URLEncoder does in UTF-8. `A-Za-z0-9.-*_` are kept, a space becomes `+`, and any other byte becomes `%XX`
    (so `~` is `%7E`).
    """
    return quote_plus(text, safe="*").replace("~", "%7E")


@lru_cache(maxsize=4096)
def decode(text: str) -> str:
    return unquote_plus(text)


def sequence_number(path: str) -> int:
    """Return the number at the end of a key that a sequence append made."""
    return int(path[-20:])


CLUSTER = Key("/cluster", "")
FOUNDING = Key("/founding", "")
RESTORING = Key("/restoring", "")
EVERYTHING = KeyRange("/", "/\U0010ffff", "")
LOG = Prefix("/log/log", "log")
SWEEP_TURN = Key("/sweep/turn", "")
SWEEP_TIME = Key("/sweep/time", "")
TOPICS = KeyRange("/topics/", "/topics/~", "")
TC_SEQUENCES = KeyRange("/txn/tc-seq/", "/txn/tc-seq/~", "")
APPLICATIONS = KeyRange("/txn/app/", "/txn/app/~", "")
NAMESPACES = KeyRange("/namespaces/", "/namespaces/~", "")
WATERMARKS = KeyRange("/txn/segment-state/watermark/", "/txn/segment-state/watermark/~", "")
CURSORS = KeyRange("/cursors/", "/cursors/~", "")
SUBSCRIPTION_EVENTS = KeyRange("/txn/subscription-events/", "/txn/subscription-events/~", "")
SCHEMAS = KeyRange("/schemas/", "/schemas/~", "")
DRIVERS = KeyRange("/drivers/", "/drivers/~", "")


@lru_cache(maxsize=4096)
def header(txn_id: str) -> Key:
    return Key(f"/txn/id/{txn_id}", txn_id)


@lru_cache(maxsize=4096)
def ops(txn_id: str) -> Prefix:
    """Return the prefix of a transaction's op records. The transaction's only writer chooses their numbers."""
    return Prefix(f"/txn/op/{txn_id}", txn_id)


@lru_cache(maxsize=4096)
def segment_events(segment: str) -> Prefix:
    return Prefix(f"/txn/segment-events/{encode(segment)}", encode(segment))


def ack_key(segment: str, subscription: str) -> str:
    return f"{encode(segment)}:{encode(subscription)}"


def subscription_events(segment: str, subscription: str) -> Prefix:
    key = ack_key(segment, subscription)
    return Prefix(f"/txn/subscription-events/{key}", key)


@lru_cache(maxsize=4096)
def watermark(segment: str) -> Key:
    return Key(f"/txn/segment-state/watermark/{encode(segment)}", encode(segment))


def aborted(segment: str, txn_id: str) -> Key:
    return Key(f"/txn/segment-state/aborted/{encode(segment)}:{txn_id}", encode(segment))


def aborted_position(segment: str, ledger_id: int, entry_id: int) -> str:
    """Return the index key of an AbortedTxn record."""
    return f"{encode(segment)}:{pad20(ledger_id)}:{pad20(entry_id)}"


def tc_sequence(coordinator: int = 0) -> Key:
    return Key(f"/txn/tc-seq/{coordinator}", "")


def leader(number: int = 0) -> Key:
    """Return the key of the ephemeral record of a leader. Each kind of work that only one leader should do has its own `number`."""
    return Key(f"/txn/tc/leader/{number}", "")


def driver(owner: str, token: str) -> Key:
    """Return the key of a driver's report. `token`: a text unique to the client that reports."""
    return Key(f"/drivers/{encode(owner)}:{token}", "")


@lru_cache(maxsize=4096)
def topic(name: TopicName) -> Key:
    """Return the key of a topic record. The two kinds of topics have separate folders, so that listings never mix them."""
    folder = "/persistent/topics" if isinstance(name, PersistentName) else "/topics"
    return Key(f"{folder}/{encode(name.tenant)}/{encode(name.namespace)}/{encode(name.name)}", "")


def namespace(tenant: str, namespace: str) -> Key:
    """Return the key of the policies of a namespace."""
    return Key(f"/namespaces/{encode(tenant)}/{encode(namespace)}", "")


@lru_cache(maxsize=4096)
def topic_at(path: str) -> TopicName:
    _, _, tenant, namespace, name = path.split("/")
    return TopicName(decode(tenant), decode(namespace), decode(name))


@lru_cache(maxsize=4096)
def application(app_id: str, topic: str) -> Key:
    """Return the key of the application record of (`appId`, topic). The topic is empty for a transaction over several topics."""
    return application_named(f"{encode(app_id)}:{encode(topic)}")


def application_named(name: str) -> Key:
    """Return the key of an application record. `name`: the record's name as in `Header.app`. It consists of the encoded appId, `:`
    and the encoded topic.
    """
    return Key(f"/txn/app/{name}", name)


def cursor(segment: str, subscription: str) -> Key:
    key = ack_key(segment, subscription)
    return Key(f"/cursors/{key}", key)


def cursors(segment: str) -> KeyRange:
    """Return the range of all cursors of a segment. A `:` ends the segment's name in the keys, so the range has no cursor of
    another segment whose longer name begins with this name. Guards against failure A14 (protocol.md section 9).
    """
    return KeyRange(f"/cursors/{encode(segment)}:", f"/cursors/{encode(segment)}:~", "")


def cursor_of(path: str) -> tuple[str, str]:
    """Return the segment and the subscription that the path of a cursor names."""
    segment, _, subscription = path.removeprefix("/cursors/").partition(":")
    return decode(segment), decode(subscription)


def schema(topic: str, schema_id: int) -> Key:
    name = encode(topic)
    return Key(f"/schemas/{name}/{pad20(schema_id)}", name)


def schemas(topic: str) -> KeyRange:
    name = encode(topic)
    return KeyRange(f"/schemas/{name}/{pad20(0)}", f"/schemas/{name}/{'9' * 20}", name)
