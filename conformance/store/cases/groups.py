"""Several writes in one call. Each backend chooses whether it promises that such a group is atomic, and must keep its promise."""

from __future__ import annotations

from typing import Any

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import NotApplicable, equal, holds, refused
from metadata.common.errors import BadVersion
from metadata.records.paths import LOG, Key
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, MetadataStore, Put, Record

cases = Cases("groups", "groups of writes")

A, B, TAKEN = Key("/things/a", "p"), Key("/things/b", "q"), Key("/taken", "")


def _needs_groups(area: Area) -> None:
    if not area.site.traits.groups:
        raise NotApplicable("This store does not promise that a group is done whole or not at all.")


@cases.add
def a_group_does_all_of_it(area: Area) -> None:
    """A call with four writes (change, append, create, delete) has the same effects as four calls with one write each."""
    old = area.store.put(A, b"1", indexes=(IndexEntry("i", "1"),))
    changed, appended, made, gone = area.store.write(
        Put(A, b"2", old, (IndexEntry("i", "2"),)), Append(LOG, b"n"), Put(B, b"b", ABSENT), Delete(Key("/none", ""))
    )
    equal(changed, Record(A, b"2", 1, (IndexEntry("i", "2"),)), "the changed record")
    equal(made, Record(B, b"b", 0), "the new record")
    equal(gone, None, "the answer of the delete")
    holds(appended is not None, "the append gives its record")
    assert appended is not None
    equal(area.store.view().get_many([A, B, appended.key]), [changed, made, appended], "the records afterwards")


@cases.add
def or_nothing_of_it(area: Area) -> None:
    """If one write of a group expects a wrong version, at any place in the group, no write of the group takes effect."""
    _needs_groups(area)
    area.store.put(TAKEN, b"t")
    kept = area.store.put(A, b"1", indexes=(IndexEntry("i", "1"),))
    for where in range(4):
        writes: list[Any] = [Put(A, b"2", kept, (IndexEntry("i", "2"),)), Append(LOG, b"n"), Delete(A, 1)]
        writes.insert(where, Put(TAKEN, b"u", ABSENT))
        with refused(BadVersion, naming="/taken", what=f"a group whose write {where} loses"):
            area.store.write(*writes)
        view = area.store.view()
        equal(view.keys(LOG.range()), [], "the sequence")
        equal(view.scan_index("i", "", "9"), [kept], "the index")
        equal(view.get(TAKEN), Record(TAKEN, b"t", 0), "the record that won against the group")


@cases.add
def writes_to_one_key_follow_each_other(area: Area) -> None:
    """Within a group, a later write to a key sees the effect of an earlier write to the same key."""
    area.store.write(Put(A, b"1", ABSENT), Put(A, b"2", 0, (IndexEntry("i", "2"),)))
    equal([r.version for r in area.store.view().scan_index("i", "2", "2")], [1], "the version after two puts")
    area.store.write(Delete(A, 1), Put(A, b"3", ABSENT))
    equal(area.store.view().get(A), Record(A, b"3", 0), "the record after delete and put")
    equal(area.store.view().scan_index("i", "", "9"), [], "the index after delete and put")


@cases.add
def an_empty_group_does_nothing(area: Area) -> None:
    """A call without writes succeeds."""
    equal(area.store.write(), [], "the answer")


@cases.add
def a_group_is_never_seen_half(area: Area) -> None:
    """Each group writes one value to two records. A get of both never returns an older value for the second than for the first."""
    _needs_groups(area)
    a, b = area.store.write(Put(A, b"0"), Put(B, b"0"))

    def look(reader: MetadataStore) -> None:
        first, second = reader.view().get_many([A, B])
        holds(first is not None and second is not None, "both records are there")
        assert first is not None
        assert second is not None
        holds(int(first.value) <= int(second.value), f"{first.value!r}, read first, is not newer than {second.value!r}")

    with area.meanwhile(look, readers=2):
        for n in range(1, 60):
            a, b = area.store.write(Put(A, b"%d" % n, a), Put(B, b"%d" % n, b))
