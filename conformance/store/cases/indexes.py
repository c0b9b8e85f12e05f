"""Secondary indexes: a put declares the entries of its record, a later put replaces them, and scans are exact."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, refused
from conformance.store.model import PARTS
from metadata.common.errors import BadVersion
from metadata.records import paths
from metadata.records.paths import LOG, Key, KeyRange
from metadata.store.contract import ABSENT, IndexEntry, MetadataStore

cases = Cases("indexes", "secondary indexes")

A = Key("/things/a", "p")


@cases.add
def a_put_replaces_the_entries_and_a_delete_removes_them(area: Area) -> None:
    """An index holds a record under the entries of the last put of the record, and under no other entry."""
    view = area.store.view
    first = area.store.put(A, b"1", indexes=(IndexEntry("i", "a"), IndexEntry("i", "b"), IndexEntry("j", "a")))
    equal(view().scan_index("i", "a", "b"), [first, first], "a record with two entries in the range")
    second = area.store.put(A, b"2", expect=first, indexes=(IndexEntry("i", "b"), IndexEntry("i", "c")))
    equal([view().scan_index("i", k, k) for k in "abc"], [[], [second], [second]], "the index after the put")
    equal(view().scan_index("j", "", "z"), [], "the other index after the put")
    area.store.delete(A, expect=second)
    equal(view().scan_index("i", "", "z"), [], "the index after the delete")
    again = area.store.put(A, b"3", expect=ABSENT, indexes=(IndexEntry("i", "c"),))
    equal(view().scan_index("i", "", "z"), [again], "the index after the record was made again")


@cases.add
def a_put_that_lost_its_race_leaves_the_entries_alone(area: Area) -> None:
    """A write that raises BadVersion changes neither the record nor any index."""
    kept = area.store.put(A, b"1", indexes=(IndexEntry("i", "kept"),))
    with refused(BadVersion, naming="/things/a", what="a put that expects version 7"):
        area.store.put(A, b"2", expect=7, indexes=(IndexEntry("i", "lost"),))
    with refused(BadVersion, naming="/things/a", what="a put that expects absence"):
        area.store.put(A, b"2", expect=ABSENT, indexes=(IndexEntry("i", "lost"),))
    with refused(BadVersion, naming="/things/a", what="a delete that expects version 7"):
        area.store.delete(A, expect=7)
    equal(area.store.view().scan_index("i", "", "z"), [kept], "the index afterwards")


RANGES: list[tuple[list[str], str, str, list[str]]] = [
    (["0_1", "0_10", "0_2"], "0_1", "0_1", ["0_1"]),
    (["s1", "s10", "s1:x"], "s1", "s1", ["s1"]),
    (["-1", "-10", "-2"], "-1", "-10", ["-1", "-10"]),
    (["-1", "-10", "-2"], "-1", "-1", ["-1"]),
    (["a", "b", "c"], "b", "c", ["b", "c"]),
    (["a%2Fb", "a/b", "a,b", "a b", "a+b"], "a/b", "a/b", ["a/b"]),
    (["é", "z", "\U0001f600", "\uffff", "."], "z", "\U0001f600", ["z", "é", "\uffff", "\U0001f600"]),
    (["é", "e\u0301", "e"], "é", "é", ["é"]),
    (["", "a"], "", "", [""]),
    (["a"], "b", "a", []),
]


@cases.add
def index_ranges_are_exact(area: Area) -> None:
    """A range of index keys includes both of its bounds. A bound is a whole index key, not a prefix: a range up to `0_1` does not
    include `0_10` (A14). The order is that of UTF-8 bytes.
    """
    for n, (keys, first, last, found) in enumerate(RANGES):
        for m, key in enumerate(keys):
            area.store.put(Key(f"/r/{n}/{m}", str(m)), b"r", indexes=(IndexEntry(f"i{n}", key),))
        area.store.put(Key(f"/other/{n}", ""), b"r", indexes=tuple(IndexEntry(f"i{n}x", key) for key in keys))
        seen = [record.indexes[0].key for record in area.store.view().scan_index(f"i{n}", first, last)]
        equal(seen, found, f"of the index keys {keys}, those from {first!r} to {last!r}")


@cases.add
def index_names_are_exact(area: Area) -> None:
    """An index holds only the entries declared under its own name, also if the name of another index begins or ends with it."""
    made = {name: area.store.put(Key(f"/n/{n:03d}", ""), b"x", indexes=(IndexEntry(name, "k"),)) for n, name in enumerate(PARTS)}
    for name, record in made.items():
        equal(area.store.view().scan_index(name, "", "\U0010ffff"), [record], f"the index {name!r}")


@cases.add
def records_of_one_index_key_come_by_path_and_with_their_partition(area: Area) -> None:
    """A scan returns records with the same index key in the order of their paths, each with its own partition key."""
    made = [area.store.put(paths.ops("0_1").key(n), b"o", indexes=(IndexEntry(paths.OPS_BY_TXN, "0_1"),)) for n in (10, 2, 1)]
    equal(
        area.store.view().scan_index(paths.OPS_BY_TXN, "0_1", "0_1"), sorted(made, key=lambda r: r.key.path), "three ops of one txn"
    )


@cases.add
def an_index_spans_all_partitions(area: Area) -> None:
    """An index finds the records of all partition keys, on any number of shards (A15)."""
    made = [area.store.put(Key(f"/k/{n:02d}", f"p{n}"), b"x", indexes=(IndexEntry("i", f"{n:02d}"),)) for n in range(40)]
    equal(area.store.view().scan_index("i", "00", "39"), made, "forty partitions")
    equal(area.store.view().scan_index("i", "10", "12"), made[10:13], "three of them")


@cases.add
def an_append_may_have_entries(area: Area) -> None:
    """Appends with index entries and appends without them take rising numbers from the same sequence."""
    made = []
    for n in range(4):
        made.append(area.store.append(LOG, b"p"))
        made.append(area.store.append(LOG, b"i", indexes=(IndexEntry("i", str(n)),)))
    numbers = [record.number for record in made]
    equal(numbers, sorted(set(numbers)), "the numbers, which rise")
    equal(area.store.view().scan(LOG.range()), made, "the sequence")
    equal(area.store.view().scan_index("i", "1", "2"), [made[3], made[5]], "two entries")


@cases.add
def a_scan_never_shows_a_record_under_an_entry_that_it_does_not_have(area: Area) -> None:
    """Each put moves a record to another index entry. Meanwhile, a scan of one index entry never returns a version of the record
    that was put with another entry.
    """
    record = area.store.put(A, b"0", indexes=(IndexEntry("i", "000"),))

    def look(reader: MetadataStore) -> None:
        n = area_random.randrange(150)
        for found in reader.view().scan_index("i", f"{n:03d}", f"{n:03d}"):
            equal(found.indexes, (IndexEntry("i", f"{n:03d}"),), f"a record found under {n:03d}")
            equal(found.value, b"%d" % n, f"the value of a record found under {n:03d}")
        found_at_all = reader.view().scan(KeyRange("/things/", "/things/~", "p"))
        equal(len(found_at_all), 1, "how often the record is there")

    area_random = area.random
    with area.meanwhile(look, readers=2):
        for n in range(1, 150):
            record = area.store.put(A, b"%d" % n, expect=record, indexes=(IndexEntry("i", f"{n:03d}"),))
