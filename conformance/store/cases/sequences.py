"""Sequence append: one atomic step takes a number and writes the record. All sessions share one order."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds
from metadata.records.paths import LOG, Key, Prefix, pad20
from metadata.store.contract import ABSENT, Append, IndexEntry, MetadataStore

cases = Cases("sequences", "sequence append, ordered list")


@cases.add
def numbers_begin_at_one_rise_and_are_never_used_again(area: Area) -> None:
    """The key of an appended record is the prefix, a dash and 20 digits. Numbers begin at 1 and rise strictly. A number is not used
    again, even if its record was deleted and a new session appends.
    """
    with area.place.open(area.site.opener) as store:
        made = [store.append(LOG, b"x") for _ in range(3)]
        equal(made[0].number, 1, "the first number")
        equal(made[0].key, Key(f"/log/log-{pad20(1)}", "log"), "the first key")
        for record in made:
            store.delete(record.key)
    with area.place.open(area.site.opener) as store:
        again = store.append(LOG, b"x")
        holds(again.number > made[-1].number, f"{again.number}, after deletes and reopening, is above {made[-1].number}")
        equal(store.view().keys(LOG.range()), [again.key.path], "the sequence")


@cases.add
def the_newest_number_is_not_used_again_after_its_delete(area: Area) -> None:
    """The only record of a sequence is deleted before a new session appends. Each append gets a higher number than all appends
    before it.
    """
    numbers = []
    for _ in range(12):
        record = area.open().append(LOG, b"x")
        numbers.append(record.number)
        area.store.delete(record.key, expect=record)
    equal(numbers, sorted(set(numbers)), "the numbers, each deleted before the next append")


@cases.add
def two_appends_of_one_group(area: Area) -> None:
    """The appends of one call get rising numbers, in the order of the call."""
    first, second = area.store.write(Append(LOG, b"1"), Append(LOG, b"2"))
    holds(first is not None and second is not None, "both appends give their records")
    assert first is not None
    assert second is not None
    holds(first.number < second.number, f"{first.number} is below {second.number}")
    equal(area.store.view().scan(LOG.range()), [first, second], "the sequence")


@cases.add
def a_number_that_someone_chose_is_passed_over(area: Area) -> None:
    """A put wrote a record under a number of the sequence. No append overwrites that record."""
    mine = area.store.put(LOG.key(1), b"mine", expect=ABSENT)
    made = [area.store.append(LOG, b"x") for _ in range(3)]
    equal(len({mine.number, *(r.number for r in made)}), 4, "how many numbers there are")
    equal(area.store.view().get(mine.key), mine, "the record that was put")


@cases.add
def a_skip_moves_numbers_on_and_never_back(area: Area) -> None:
    """After a skip, the next appends of every session get the given number or higher ones. A later skip to a lower number does not
    change this. Records that were put under lower numbers stay, and lists of the sequence begin with these records.
    """
    other = area.open()
    first = other.append(LOG, b"before")  # `other` may now remember where the sequence ended before the skip
    kept = area.store.put(LOG.key(first.number + 7), b"kept", expect=ABSENT)
    area.store.skip(LOG, first.number + 20)
    near = other.append(LOG, b"a little further")
    holds(near.number >= first.number + 20, f"the number after a skip from {first.number} by 20, which is {near.number}, is above")
    to = 3 * 10**10
    for _ in range(2):
        area.store.skip(LOG, to)
    made = [store.append(LOG, b"after") for store in (other, area.store, area.open())]
    holds(made[0].number >= to, f"the first number after a skip to {to}, which is {made[0].number}, is not below it")
    area.store.skip(LOG, 5)
    made.append(area.open().append(LOG, b"after"))
    equal([r.number for r in made], sorted({r.number for r in made}), "the numbers after the skip")
    equal(area.store.view().scan(LOG.range()), [first, kept, near, *made], "the sequence")


@cases.add
def whoever_sees_a_number_sees_all_below(area: Area) -> None:
    """The number n+1 is never visible before n. So a list that is read while many sessions append is a prefix of the final list."""
    listed: list[list[str]] = []
    each = max(10, 150 // area.sizes.actors)

    def append(store: MetadataStore, n: int) -> list[str]:
        made = []
        for i in range(each):
            entries = (IndexEntry("i", str(n)),) if n == 0 and i % 7 == 6 else ()
            made.append(store.append(LOG, b"x", indexes=entries).key.path)
        return made

    with area.meanwhile(lambda reader: listed.append(reader.view().keys(LOG.range()))):
        made = [path for paths in area.at_once(append) for path in paths]
    final = area.store.view().keys(LOG.range())
    equal(final, sorted(made), "the final list")
    equal(len(set(final)), area.sizes.actors * each, "how many numbers there are")
    for seen in listed:
        equal(seen, final[: len(seen)], f"the list when it had {len(seen)} records")
    area.figures["lists"] = len(listed)


@cases.add
def an_acknowledged_append_is_in_every_later_list(area: Area) -> None:
    """After each append, the writer lists the sequence in another session. The list has the new record and all records of earlier
    lists.
    """
    readers = [area.open() for _ in range(area.sizes.actors)]

    def append(store: MetadataStore, n: int) -> None:
        before: list[str] = []
        for _ in range(12):
            made = store.append(LOG, b"%d" % n)
            now = readers[n].view().keys(LOG.range())
            holds(made.key.path in now, f"{made.key.path}, acknowledged, is in a list that began later")
            equal(now[: len(before)], before, "what the list held before")
            before = now

    area.at_once(append)


@cases.add
def each_writer_sees_its_numbers_rise(area: Area) -> None:
    """Many writers append to three sequences in turn. In each sequence, a later append of a writer gets a higher number."""
    prefixes = [LOG, Prefix("/log/other", "log"), Prefix("/other/log", "other")]

    def append(store: MetadataStore, n: int) -> list[tuple[Prefix, int]]:
        return [(prefix, store.append(prefix, b"%d" % n).number) for i in range(21) for prefix in [prefixes[(i + n) % 3]]]

    found = area.at_once(append)
    for numbers in found:
        for prefix in prefixes:
            own = [number for where, number in numbers if where == prefix]
            equal(own, sorted(set(own)), f"the numbers of one writer in {prefix.path}")
    everyone = [number for numbers in found for number in numbers]
    equal(len(set(everyone)), len(everyone), "how many different numbers were given")


@cases.add
def processes_share_a_sequence(area: Area) -> None:
    """Several processes append to one new sequence. No number is given twice. A list of the sequence that is read meanwhile is a
    prefix of the final list.
    """
    children = [area.child("append", actor=f"p{n}", count=40) for n in range(3)]
    for child in children:
        child.wait_ready()
    listed: list[list[str]] = []
    with area.meanwhile(lambda reader: listed.append(reader.view().keys(LOG.range()))):
        for child in children:
            child.go()
        numbers = [child.done() for child in children]
    for own in numbers:
        equal(own, sorted(set(own)), "the numbers of one process")
    final = area.store.view().keys(LOG.range())
    equal(final, sorted(LOG.key(number).path for own in numbers for number in own), "the final list")
    for seen in listed:
        equal(seen, final[: len(seen)], f"the list when it had {len(seen)} records")
    area.figures["lists"] = len(listed)
