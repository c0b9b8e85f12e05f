"""A plain model of the content of a store. Cases with random calls compare a real store with the model.

The model has no sessions, threads or storage. It shares no code with any backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from metadata.records.paths import Key, KeyRange
from metadata.store.contract import IndexEntry, Record

PARTS = [
    *("0_1", "0_10", "0_2", "00_1", "s1", "s10", "s1:x", "s", "-1", "-10", "-2", "-", "a", "A", "aa", "a b", "a+b", "a,b", "a%2Fb"),
    *(
        "a%252Fb",
        "%",
        "%00",
        "~",
        "!",
        "!a",
        ".",
        "..",
        "...",
        "#",
        "?",
        "*",
        "\\",
        '"',
        "'",
        ";",
        "\t",
        "\n",
        "\x01",
        "\x7f",
        "\x80",
    ),
    *("é", "e\u0301", "ß", "漢", "\u00a0", "\u200b", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0001f600", "\U0010fffd"),
    *("idx", "era", "clock", "zookeeper", "0123456789", "a-" + "0" * 19 + "7", "NULL", "0", "9" * 20, "x" * 200),
]
"""Parts of keys, index names and index keys. They look alike, sort unexpectedly, or have a special meaning in some backend."""


def random_key(random: Random) -> Key:
    path = "".join(f"/{random.choice(PARTS)}" for _ in range(random.choice([1, 1, 2, 3])))
    return Key(path, path)  # the partition key follows from the path, so the path alone names a record in the model


def unrelated_keys(random: Random, count: int) -> list[Key]:
    """Return `count` keys, none of which lies below another. In a backend with folders, the first version of a record that takes
    the place of an empty folder may be above 0. The model does not have this rule.
    """
    keys: list[Key] = []
    while len(keys) < count:
        key = random_key(random)
        if not any(f"{key.path}/".startswith(f"{k.path}/") or f"{k.path}/".startswith(f"{key.path}/") for k in keys):
            keys.append(key)
    return keys


def random_text(random: Random) -> str:
    return "".join(random.choice(PARTS) for _ in range(random.choice([0, 1, 1, 1, 2])))


class Model:
    """The records by path. Lists are in the order of code points, which is also the order of UTF-8 bytes."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def put(self, key: Key, value: bytes, indexes: Iterable[IndexEntry]) -> Record:
        old = self.records.get(key.path)
        self.records[key.path] = Record(key, value, old.version + 1 if old else 0, tuple(indexes))
        return self.records[key.path]

    def delete(self, key: Key) -> None:
        self.records.pop(key.path, None)

    def version(self, key: Key) -> int:
        """Return the version of the record; -1 if there is none."""
        found = self.records.get(key.path)
        return found.version if found else -1

    def scan(self, within: KeyRange) -> list[Record]:
        return [self.records[path] for path in sorted(self.records) if within.first <= path <= within.last]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        entries = {(entry.key, path) for path, record in self.records.items() for entry in record.indexes if entry.name == index}
        return [self.records[path] for key, path in sorted(entries) if first <= key <= last]
