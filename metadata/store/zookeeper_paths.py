r"""The mapping of records to znodes. Pure: no I/O, no clock. Every mapping has an inverse.

- The path of a znode is the key of the record, with one exception. If the key ends in `-<20 digits>`, the znode is in the folder of
  its era. The first ten digits are the era, the last ten stay in the name: the key `/log/log-00000000010000000005` has the znode
  `/log/0000000001/log-0000000005`. (ZooKeeper gives a sequential znode ten digits; protocol.md section 3.)
- A part of a key that ZooKeeper would refuse, or that looks like one of the store's own folders, becomes `!` and the
  percent-encoded part.
- The data of a znode is the value of the record. Index entries and a partition key follow in a trailer `\n#{json}`, which
  readers of JSON ignore. An empty znode is a folder and not a record.
- An index entry is an empty znode `/idx/<index>/<index key>,<record key>`, with both keys percent-encoded.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from ledgers.json_text import read_json
from metadata.common.errors import CorruptRecord
from metadata.records.paths import Key
from metadata.store.contract import IndexEntry

INDEXES = "/idx"
ERAS = "/era"
CLOCK = "/clock"
RESERVED = frozenset({"idx", "era", "clock", "zookeeper"})
ERA_SIZE = 10**10

_NUMBERED = re.compile(r"(.*)-([0-9]{10})([0-9]{10})", re.DOTALL)
_ERA = re.compile(r"[0-9]{10}")
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_TRAILER = b"\n#"


class Place(NamedTuple):
    """The parts of a key that ends in `-<20 digits>`. `parent`: the key of the folder. `base`: the name before the last dash."""

    parent: str
    base: str
    number: int


def escape(part: str, *, top: bool = False) -> str:
    """Return one part of a key as a znode name. `top`: whether it is the first part of the key. A first part must not become the
    name of one of the store's own folders.
    """
    odd = part in ("", ".", "..") or part.startswith("!") or _ERA.fullmatch(part) or _REFUSED.search(part)
    return "!" + quote(part, safe="") if odd or (top and part in RESERVED) else part


def unescape(name: str) -> str:
    return unquote(name[1:]) if name.startswith("!") else name


def is_era(name: str) -> bool:
    return _ERA.fullmatch(name) is not None


def era_name(era: int) -> str:
    return f"{era:010d}"


def numbered(path: str) -> Place | None:
    """Return the parts of a key that ends in `-<20 digits>`; None for any other key."""
    parent, _, last = path.rpartition("/")
    found = _NUMBERED.fullmatch(last)
    return Place(parent, found[1], int(found[2] + found[3])) if found else None


def folder(path: str) -> str:
    """Return the path of a folder's znode: the folder's key, escaped. The root is the empty text."""
    return "".join("/" + escape(part, top=depth == 0) for depth, part in enumerate(path.split("/")[1:]))


def era_folder(parent: str, era: int) -> str:
    return f"{folder(parent)}/{era_name(era)}"


def sequence_znode(parent: str, era: int, base: str) -> str:
    """Return the path for the creation of a sequential znode, to which the server appends ten digits."""
    return f"{era_folder(parent, era)}/{escape(base)}-"


def znode(path: str) -> str:
    """Return the path of a record's znode."""
    place = numbered(path)
    if place is None:
        return folder(path)
    era, number = divmod(place.number, ERA_SIZE)
    return f"{sequence_znode(place.parent, era, place.base)}{number:010d}"


def numbered_key(parent: str, era: int, name: str) -> str:
    """Return the key of the record whose znode has the name `name` in the folder of an era. This is the inverse of `znode`."""
    return f"{parent}/{unescape(name[:-11])}-{era:010d}{name[-10:]}"


def era_record(parent: str) -> str:
    """Return the path of the era record, the znode that names the open era of a parent."""
    return ERAS + folder(parent)


# --- index entries ---


def index_folder(index: str) -> str:
    return f"{INDEXES}/!{quote(index, safe='')}"


def index_znode(entry: IndexEntry, path: str) -> str:
    return f"{index_folder(entry.name)}/{quote(entry.key, safe='')},{quote(path, safe='')}"


def index_name(name: str) -> tuple[str, str]:
    """Return the index key and the record key that the znode name of an index entry contains."""
    key, _, path = name.partition(",")
    return unquote(key), unquote(path)


# --- data ---


def to_data(value: bytes, indexes: tuple[IndexEntry, ...], partition: str) -> bytes:
    if not indexes and not partition and _TRAILER not in value:
        return value
    trailer = {**({"i": indexes} if indexes else {}), **({"p": partition} if partition else {})}
    return value + _TRAILER + json.dumps(trailer, separators=(",", ":")).encode()


def from_data(path: str, data: bytes) -> tuple[Key, bytes, tuple[IndexEntry, ...]]:
    """Parse znode data into the key with its partition, the value, and the index entries. Raises CorruptRecord."""
    value, mark, text = data.rpartition(_TRAILER)
    if not mark:
        return Key(path, ""), data, ()
    try:
        trailer = read_json(text)
        indexes = tuple(IndexEntry(str(name), str(key)) for name, key in trailer.get("i", ()))
        return Key(path, str(trailer.get("p", ""))), value, indexes
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptRecord(f"{path}: the trailer of its znode is not readable: {text[:100]!r} ({error}).") from error
