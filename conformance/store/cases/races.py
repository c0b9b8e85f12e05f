"""Many sessions write to one key. Of the writes that expect the same version exactly one wins. No acknowledged write is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, holds
from metadata.common.errors import BadVersion
from metadata.records.paths import Key
from metadata.store.contract import ABSENT, IndexEntry, MetadataStore, Put

cases = Cases("races", "get / put / delete; errors")

A = Key("/race/a", "a")


def _won(write: Callable[[], object]) -> bool:
    try:
        write()
    except BadVersion:
        return False
    return True


@cases.add
def exactly_one_creates(area: Area) -> None:
    """Many puts expect absence of the same key. One put wins; all others raise BadVersion."""
    keys = [Key(f"/race/{n}", str(n)) for n in range(10)]
    winners = area.at_once(lambda store, n: [_won(partial(store.put, key, b"%d" % n, expect=ABSENT)) for key in keys])
    equal([sum(each) for each in zip(*winners, strict=True)], [1] * len(keys), "winners of each key")
    for place, record in enumerate(area.store.view().get_many(keys)):
        (winner,) = [n for n, won in enumerate(winners) if won[place]]
        equal(record and record.value, b"%d" % winner, f"the value at {keys[place].path}, whose put by {winner} was acknowledged")


@cases.add
def exactly_one_deletes(area: Area) -> None:
    """Many deletes expect the same version of a record. One delete wins; all others raise BadVersion."""
    made = [area.store.put(Key(f"/race/{n}", str(n)), b"x") for n in range(10)]
    winners = area.at_once(lambda store, _: [_won(partial(store.delete, record.key, expect=record)) for record in made])
    equal([sum(each) for each in zip(*winners, strict=True)], [1] * len(made), "winners of each key")


@cases.add
def a_put_and_a_delete_of_one_version(area: Area) -> None:
    """Puts and deletes expect the same version of a record. Exactly one of them wins, and the record is as the winner left it."""
    for n in range(10):
        key = Key(f"/race/{n}", "")
        old = area.store.put(key, b"old")

        def act(store: MetadataStore, actor: int, key: Key = key, expect: int = old.version) -> bool:
            if actor % 2:
                return _won(lambda: store.delete(key, expect=expect))
            return _won(lambda: store.put(key, b"%d" % actor, expect=expect))

        won = area.at_once(act, actors=4)
        equal(sum(won), 1, f"winners of {key.path}")
        winner = won.index(True)
        found = area.store.view().get(key)
        equal(found and found.value, None if winner % 2 else b"%d" % winner, f"what is left of {key.path}")


@cases.add
def no_increment_is_lost(area: Area) -> None:
    """Many sessions increment a counter by compare-and-set. No increment is lost, and only the last index entry remains."""
    area.store.put(A, b"0")

    def add(store: MetadataStore, _: int) -> None:
        for _ in range(10):
            while True:
                old = store.view().get(A)
                holds(old is not None, "the counter is there")
                assert old is not None
                more = Put(A, b"%d" % (int(old.value) + 1), old, (IndexEntry("i", str(old.version)),))
                if _won(partial(store.write, more)):
                    break

    area.at_once(add)
    found = area.store.view().scan_index("i", "", "9")
    equal([(r.value, r.version) for r in found], [(b"%d" % (area.sizes.actors * 10), area.sizes.actors * 10)], "the counter")


@cases.add
def unconditional_puts_all_win(area: Area) -> None:
    """Many sessions put one record unconditionally. Every put succeeds and raises the version by one. Only the index entry of
    the last put remains.
    """
    area.at_once(lambda store, n: [store.put(A, b"x", indexes=(IndexEntry("i", f"{n}"),)) for _ in range(10)])
    found = area.store.view().scan_index("i", "", "9")
    equal([record.version for record in found], [area.sizes.actors * 10 - 1], "versions by the index")
