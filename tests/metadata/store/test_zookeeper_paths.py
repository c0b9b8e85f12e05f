"""The codecs of zookeeper_paths: every mapping has an inverse, and no two records share a znode."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metadata.common.errors import CorruptRecord
from metadata.records.paths import LOG, Key, pad20
from metadata.store.contract import IndexEntry
from metadata.store.zookeeper_paths import (
    ERA_SIZE,
    era_folder,
    escape,
    folder,
    from_data,
    index_name,
    index_znode,
    numbered,
    numbered_key,
    to_data,
    unescape,
    znode,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TRICKY = st.sampled_from(
    ["", ".", "..", "!", "!.", "idx", "era", "clock", "zookeeper", "0123456789", "-", "a-" + "0" * 20, "-" + "9" * 20]
)
PART = (TEXT | TRICKY).filter(lambda part: "/" not in part)
KEY = st.lists(PART, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
NUMBER = st.integers(0, 10**20 - 1)


@given(PART, st.booleans())
def test_parts(part: str, top: bool) -> None:
    name = escape(part, top=top)
    assert unescape(name) == part
    assert name not in ("", ".", "..")
    assert not re.fullmatch(r"[0-9]{10}", name)
    assert not re.search("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]", name)


@given(KEY, KEY)
@example("/a-" + "0" * 19 + "5", "/0000000000/a-0000000005")
@example("/idx", "/!idx")
@example("/a", "/a/")
def test_two_keys_have_two_znodes(one: str, other: str) -> None:
    assert (znode(one) == znode(other)) == (one == other)


@given(KEY)
def test_no_key_maps_into_a_reserved_folder(key: str) -> None:
    assert znode(key).split("/")[1] not in ("idx", "era", "clock", "zookeeper")


@given(KEY, PART, NUMBER)
def test_numbered_keys(parent: str, base: str, number: int) -> None:
    key = f"{parent}/{base}-{pad20(number)}"
    assert numbered(key) == (parent, base, number)
    place, _, name = znode(key).rpartition("/")
    era = number // ERA_SIZE
    assert place == era_folder(parent, era)
    assert numbered_key(parent, era, name) == key


def test_the_log() -> None:
    assert znode(LOG.key(977).path) == "/log/0000000000/log-0000000977"
    assert znode(LOG.key(3 * ERA_SIZE + 5).path) == "/log/0000000003/log-0000000005"
    assert znode("/topics/public/default/t") == "/topics/public/default/t"
    assert folder("") == ""


@given(TEXT, TEXT, KEY)
def test_index_entries(index: str, key: str, path: str) -> None:
    place, _, name = index_znode(IndexEntry(index, key), path).rpartition("/")
    assert index_name(name) == (key, path)
    assert place.startswith("/idx/!")
    assert place.isascii()
    assert name.isascii()


@given(st.binary(min_size=1), st.lists(st.tuples(TEXT, TEXT)), TEXT)
@example(b"\n#", [], "")
@example(b"x\n#{}", [], "p")
def test_data(value: bytes, indexes: list[tuple[str, str]], partition: str) -> None:
    entries = tuple(IndexEntry(*entry) for entry in indexes)
    assert from_data("/k", to_data(value, entries, partition)) == (Key("/k", partition), value, entries)


def test_a_plain_record_is_its_bytes() -> None:
    assert to_data(b'{"a":1}', (), "") == b'{"a":1}'
    assert to_data(b'{"a":1}', (IndexEntry("i", "k"),), "p") == b'{"a":1}\n#{"i":[["i","k"]],"p":"p"}'


@pytest.mark.parametrize("trailer", [b"nonsense", b"[]", b'{"i":[1]}', b'{"i":7}'])
def test_a_damaged_trailer(trailer: bytes) -> None:
    with pytest.raises(CorruptRecord, match="/k"):
        from_data("/k", b"value\n#" + trailer)
