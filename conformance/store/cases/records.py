"""Single records: put, get and delete, versions, any bytes, and limits."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds, refused
from metadata.common.errors import BadVersion, ValueTooLarge
from metadata.records.paths import LOG, Key, KeyRange
from metadata.store.contract import ABSENT, MAX_VALUE, IndexEntry, Put, Record

cases = Cases("records", "get / put / delete")

A = Key("/things/a", "p")
EVERYTHING = KeyRange("/", "/\U0010ffff", "")


@cases.add
def a_put_is_read_back_with_its_version_and_index_entries(area: Area) -> None:
    """A put returns the record as a later get returns it: with its value, version 0 and its index entries."""
    entries = (IndexEntry("idx:one", "k"), IndexEntry("idx:two", "1:2/3"))
    made = area.store.put(A, b'{"state":"OPEN"}', expect=ABSENT, indexes=entries)
    equal(made, Record(A, b'{"state":"OPEN"}', 0, entries), "what the put returned")
    equal(area.store.view().get(A), made, "what a get returns")


@cases.add
def versions_count_puts_and_restart_with_the_key(area: Area) -> None:
    """The puts of a key give it the versions 0, 1, 2, and so on. After a delete the next put begins again with version 0."""
    equal([area.store.put(A, b"x").version for _ in range(3)], [0, 1, 2], "versions of three puts")
    area.store.delete(A)
    equal(area.store.put(A, b"x").version, 0, "the version after a delete")


@cases.add
def absent_is_none_and_a_delete_of_any_tolerates_it(area: Area) -> None:
    """A get of a missing key returns None; a delete of a missing key does nothing, unless it expects a version."""
    equal(area.store.view().get(A), None, "a record that never was")
    area.store.delete(A)
    with refused(BadVersion, naming="/things/a", what="a delete that expects version 0 of nothing"):
        area.store.delete(A, expect=0)


@cases.add
def any_bytes_survive(area: Area) -> None:
    """A value may have any bytes. A get and a scan return it unchanged, with and without a partition key."""
    for value in (
        b"\x00\xff",
        b"\n#",
        b'{"a":1}\n#{"p":"other"}',
        b"\n#\n#",
        b"#",
        b"x\n#" * 9,
        bytes(range(256)),
        b"\xed\xa0\x80",
    ):
        for partition in ("", "p"):
            made = area.store.put(Key("/b", partition), value)
            equal(made.value, value, "the value that the put returned")
            equal(area.store.view().get(made.key), made, "the record by get")
            equal(area.store.view().scan(EVERYTHING), [made], "the record by scan")
            area.store.delete(made.key)


@cases.add
def another_partition_key_finds_nothing(area: Area) -> None:
    """A key consists of a path and a partition key. A get with another partition key does not find the record (A15)."""
    area.store.put(Key("/txn/id/0_1", "0_1"), b"h")
    equal(area.store.view().get(Key("/txn/id/0_1", "0_2")), None, "a get with another partition key")


@cases.add
def a_put_that_expects_nothing_meets_a_record(area: Area) -> None:
    """A put that expects absence of an existing record raises BadVersion, which names the key. The record stays."""
    first = area.store.put(A, b"1", expect=ABSENT)
    with refused(BadVersion, naming="/things/a", what="a put that expects absence"):
        area.store.put(A, b"2", expect=ABSENT)
    equal(area.store.view().get(A), first, "the record afterwards")


@cases.add
def a_delete_that_expects_nothing_meets_a_record(area: Area) -> None:
    """A delete that expects absence does nothing if the key is missing, and raises BadVersion if there is a record."""
    area.store.delete(A, expect=ABSENT)
    kept = area.store.put(A, b"1", indexes=(IndexEntry("i", "k"),))
    with refused(BadVersion, naming="/things/a", what="a delete that expects absence"):
        area.store.delete(A, expect=ABSENT)
    equal(area.store.view().scan_index("i", "", "z"), [kept], "the record afterwards")


@cases.add
def a_record_that_moved_on(area: Area) -> None:
    """A put or delete that expects an older version, given as a number or as a record, raises BadVersion and changes nothing."""
    for as_number in (True, False):
        first = area.store.put(A, b"1", expect=ABSENT)
        second = area.store.put(A, b"2", expect=first)
        stale = first.version if as_number else first
        with refused(BadVersion, naming="/things/a", what="a put that expects an older version"):
            area.store.put(A, b"3", expect=stale)
        with refused(BadVersion, naming="/things/a", what="a delete that expects an older version"):
            area.store.delete(A, expect=stale)
        equal(area.store.view().get(A), second, "the record afterwards")
        area.store.delete(A, expect=second.version if as_number else second)
        equal(area.store.view().get(A), None, "the record after a delete of its version")


@cases.add
def a_record_that_has_its_old_value_again(area: Area) -> None:
    """Versions are compared, not values. A put or delete that expects an older version raises BadVersion, also if the record has
    the value of that version again.
    """
    for as_number in (True, False):
        first = area.store.put(A, b"1", expect=ABSENT)
        second = area.store.put(A, b"2", expect=first)
        third = area.store.put(A, b"1", expect=second)
        stale = first.version if as_number else first
        with refused(BadVersion, naming="/things/a", what="a put that expects a version with the same value"):
            area.store.put(A, b"3", expect=stale)
        with refused(BadVersion, naming="/things/a", what="a delete that expects a version with the same value"):
            area.store.delete(A, expect=stale)
        equal(area.store.view().get(A), third, "the record afterwards")
        area.store.delete(A, expect=third)


@cases.add
def a_version_that_is_too_high(area: Area) -> None:
    """A put or delete that expects a version above the current version of the record raises BadVersion."""
    first = area.store.put(A, b"1", expect=ABSENT)
    with refused(BadVersion, naming="/things/a", what="a put that expects a version to come"):
        area.store.put(A, b"2", expect=1)
    with refused(BadVersion, naming="/things/a", what="a delete that expects a version to come"):
        area.store.delete(A, expect=7)
    equal(area.store.view().get(A), first, "the record afterwards")


@cases.add
def a_record_that_is_gone(area: Area) -> None:
    """A put or delete that expects a version of a deleted record raises BadVersion and creates nothing."""
    for as_number in (True, False):
        first = area.store.put(A, b"1")
        area.store.delete(A, expect=first)
        stale = first.version if as_number else first
        with refused(BadVersion, naming="/things/a", what="a put that expects a deleted record"):
            area.store.put(A, b"2", expect=stale)
        with refused(BadVersion, naming="/things/a", what="a delete that expects a deleted record"):
            area.store.delete(A, expect=stale)
        equal(area.store.view().get(A), None, "the record afterwards")


@cases.add
def a_put_of_any_version_replaces_what_another_session_wrote(area: Area) -> None:
    """An unconditional put replaces any record and its index entries, also if another session wrote the record."""
    area.store.put(A, b"1", indexes=(IndexEntry("i", "old"),))
    area.open().put(A, b"2", indexes=(IndexEntry("i", "new"),))
    equal([r.value for r in area.store.view().scan_index("i", "", "z")], [b"2"], "the index afterwards")
    equal(area.store.view().scan_index("i", "old", "old"), [], "the old index entry")


@cases.add
def a_session_sees_at_once_what_another_one_was_told_is_done(area: Area) -> None:
    """A view shows every write that was acknowledged to any session before the view began (A30)."""
    sessions = [area.open() for _ in range(3)]
    record = sessions[0].put(A, b"0")
    for n in range(1, 100):
        record = sessions[n % 3].put(A, b"%d" % n, expect=record)
        equal(sessions[(n + 1 + n // 3 % 2) % 3].view().get(A), record, "a get in another session, right after the put")


@cases.add
def many_records_in_one_call_come_in_the_order_asked(area: Area) -> None:
    """A get of many keys returns one answer for each key, in their order: the record, or None. A key may be given twice."""
    made = [area.store.put(Key(f"/many/{n}", f"p{n % 3}"), b"%d" % n) for n in range(40)]
    order = [area.random.randrange(60) for _ in range(150)]
    found = area.store.view().get_many([Key(f"/many/{n}", f"p{n % 3}") for n in order])
    equal(found, [made[n] if n < 40 else None for n in order], "150 keys at once")
    equal(area.store.view().get_many([]), [], "no keys at all")


@cases.add
def the_longest_value_fits_and_a_longer_one_is_refused(area: Area) -> None:
    """A value of up to MAX_VALUE (768 KiB) is stored with its index entries. A write of a longer value raises ValueTooLarge."""
    store = area.store
    longest = area.random.randbytes(MAX_VALUE)
    made = store.put(A, longest, indexes=(IndexEntry("i", "k" * 1000),))
    holds(made.value == longest, "the longest value is kept whole by a put")
    equal(store.view().scan_index("i", "", "z"), [made], "the longest value by its index")
    appended = store.append(LOG, longest)
    holds(appended.value == longest, "the longest value is kept whole by an append")
    equal(store.view().get(appended.key), appended, "the longest value in a sequence")
    with refused(ValueTooLarge, naming="/things/a", what="a put of one byte too many"):
        store.put(A, b"x" * (MAX_VALUE + 1))
    with refused(ValueTooLarge, naming="/log/log", what="an append of one byte too many"):
        store.append(LOG, b"x" * (MAX_VALUE + 1))
    with refused(ValueTooLarge, naming="/things/a", what="a group with a value that is too long"):
        store.write(Put(Key("/other", ""), b"o"), Put(A, b"x" * (MAX_VALUE + 1)))
    equal(store.view().get_many([A, Key("/other", "")]), [made, None], "the records after the refusals")
    equal(store.view().keys(LOG.range()), [appended.key.path], "the sequence after the refusals")


@cases.add
def what_no_caller_may_write_is_refused(area: Area) -> None:
    """An empty value and a key without a leading slash raise ValueError, and nothing is written."""
    with refused(ValueError, naming="never empty", what="an empty value"):
        area.store.put(A, b"")
    with refused(ValueError, naming="slash", what="a key without a slash"):
        area.store.put(Key("a", ""), b"x")
    equal(area.store.view().keys(EVERYTHING), [], "all keys afterwards")
