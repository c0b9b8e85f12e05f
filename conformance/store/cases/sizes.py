"""Many records: every operation ends within a time limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds
from metadata.records.paths import LOG, Key, KeyRange, pad20
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, Put, in_groups

cases = Cases("sizes", "range scan, ordered list: at any size")

T = TypeVar("T")
GROUP = 250


@cases.add
def many_records(area: Area) -> None:
    """100,000 records (by default), half of them in a sequence and half with index entries, are written, listed, found and deleted.
    Each step ends within a time limit.
    """
    count, store = area.sizes.records // 2, area.store

    def key(n: int) -> Key:
        return Key(f"/many/{n % 7}/{n:06d}", f"p{n % 7}")

    def step(what: str, act: Callable[[], T]) -> T:
        began = area.clock.monotonic()
        done = act()
        seconds = area.clock.monotonic() - began
        area.figures[f"{what}, seconds"] = seconds
        limit = area.sizes.large_seconds
        holds(seconds <= limit, f"to {what} takes at most {limit:g} s, not {seconds:.1f} s")
        return done

    def append() -> list[str]:
        groups = in_groups([Append(LOG, b"registration %d" % n, durable=False) for n in range(count)], GROUP)
        return [record.key.path for group in groups for record in store.write(*group) if record]

    def put() -> None:
        for group in in_groups(
            [Put(key(n), b"record %d" % n, ABSENT, (IndexEntry("i", pad20(n)),), durable=False) for n in range(count)], GROUP
        ):
            store.write(*group)

    made = step("append", append)
    step("put", put)
    equal(step("list the sequence", lambda: store.view().keys(LOG.range())), made, "the sequence")
    last = KeyRange(made[-10], made[-1], "log")
    equal([r.key.path for r in step("read its last ten", lambda: store.view().scan(last))], made[-10:], "its last ten")
    where = KeyRange("/many/", "/many/~", "")
    listed = step("list the others", lambda: store.view().keys(where))
    equal(listed, sorted(key(n).path for n in range(count)), "the other keys")
    indexed = step("find one by its index", lambda: store.view().scan_index("i", pad20(count // 2), pad20(count // 2)))
    equal([r.key for r in indexed], [key(count // 2)], "one by its index")
    some = step("find a tenth by their index", lambda: store.view().scan_index("i", pad20(0), pad20(count // 10 - 1)))
    equal([r.value for r in some], [b"record %d" % n for n in range(count // 10)], "a tenth by their index")
    one = step("get one", lambda: store.view().get(key(count - 1)))
    equal(one and one.value, b"record %d" % (count - 1), "one by its key")

    def delete() -> None:
        keys = [*(key(n) for n in range(count)), *(Key(path, "log") for path in made)]
        for group in in_groups([Delete(each, durable=False) for each in keys], GROUP):
            store.write(*group)

    step("delete", delete)
    view = store.view()
    equal((view.keys(LOG.range()), view.keys(where), view.scan_index("i", "", "~")), ([], [], []), "what is left")
    area.figures["records"] = 2 * count
