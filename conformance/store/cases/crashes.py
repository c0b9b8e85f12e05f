"""A process is killed (SIGKILL) while it writes. Each write took effect as a whole, with its index entries, or not at all."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.child import INDEX, VALUES
from conformance.store.expectations import equal, holds
from metadata.records.paths import LOG, KeyRange
from metadata.store.contract import MetadataStore

cases = Cases("crashes", "secondary indexes, sequence append: atomic")

EVERYTHING = KeyRange("/", "/\U0010ffff", "")


@cases.add
def records_and_indexes_agree_after_a_kill(area: Area) -> None:
    """A process that puts, replaces, deletes and appends is killed. Then the index holds each record under exactly the entries of
    that record, and no acknowledged write is missing.
    """
    writes = 0
    for n in range(area.sizes.rounds):
        actor = f"k{n}"
        child = area.child("change indexes", actor=actor, seed=f"{area.seed}:{actor}", count=100_000)
        child.wait_ready()
        child.go()
        said = [child.line() for _ in range(area.random.randrange(1, 40))]
        said += child.kill()
        writes += len(said)
        _agree(area.store)
        _acknowledged_is_there(area.store, actor, said)
    area.figures["kills"] = area.sizes.rounds
    area.figures["acknowledged writes"] = writes


def _agree(store: MetadataStore) -> None:
    """Check that records and index agree at one moment. If a write that was sent before the kill arrives during the check, read
    everything once more.
    """
    for _ in range(2):
        records = store.view().scan(EVERYTHING)
        expected = sorted((entry.key, record.key.path, record) for record in records for entry in record.indexes)
        found = store.view().scan_index(INDEX, "", "\U0010ffff")
        by_key = {key: store.view().scan_index(INDEX, key, key) for key, *_ in expected}
        after = store.view().scan(EVERYTHING)
        if after == records:
            break
    equal(after, records, "the records, read again while nobody writes")
    equal([r.key.path for r in found], [path for _, path, _ in expected], "the paths that the index gives")
    equal(found, [record for *_, record in expected], "the records that the index gives")
    for key, _, record in expected:
        equal(by_key[key], [record], f"the index key {key}")


def _acknowledged_is_there(store: MetadataStore, actor: str, said: list[list[object]]) -> None:
    """Check that the log has each acknowledged append, and that each key has its last acknowledged write. One key may have another
    write: the one that the process had sent, but not yet reported, when it was killed.
    """
    view = store.view()
    log = {record.number: record.value.decode() for record in view.scan(LOG.range())}
    last: dict[object, object] = {}
    for kind, which, value in said:
        if kind == "append":
            equal(log.get(int(str(which))), value, f"the acknowledged append {which}")
        else:
            last[which] = value
    now = {r.key.path: r.value.decode() for r in view.scan(KeyRange(f"{VALUES}/{actor}/", f"{VALUES}/{actor}/~", actor))}
    differ = [which for which, value in last.items() if now.get(f"{VALUES}/{actor}/{which}") != value]
    holds(len(differ) <= 1, f"at most one key differs from what was acknowledged last: {differ}")
    for which in differ:
        value = now.get(f"{VALUES}/{actor}/{which}")
        later = value is None or int(value.rpartition(".")[2]) > max(_number(v) for *_, v in said)
        holds(later, f"the value at {which}, {value!r}, was written after all acknowledged writes")


def _number(value: object) -> int:
    return -1 if value is None else int(str(value).rpartition(".")[2])


@cases.add
def numbers_of_killed_processes_are_not_used_again(area: Area) -> None:
    """Processes are killed while they append, and all records are deleted after each kill. No number is used twice."""
    highest = 0
    for n in range(area.sizes.rounds):
        actor = f"k{n}"
        child = area.child("append", actor=actor, count=100_000)
        child.wait_ready()
        child.go()
        numbers = [child.line() for _ in range(area.random.randrange(1, 20))]
        numbers += child.kill()
        values = {record.number: record.value.decode() for record in area.store.view().scan(LOG.range())}
        there = sorted(values)
        # An append that was sent before a kill may take effect only after the scan above. Then the scan after the next kill finds
        # its record, among those of the next process. So the value of a record, which names its actor, decides which process wrote
        # it.
        its = {number for number in there if values[number].startswith(f"{actor}.")}
        holds(set(numbers) <= its, f"the acknowledged {numbers} are among {sorted(its)}")
        holds(len(its) <= len(numbers) + 1, f"at most one append was done and not acknowledged: {sorted(its - set(numbers))}")
        holds(min(there) > highest, f"{min(there)} is above {highest}, which was deleted")
        highest = max(there)
        for number in there:
            area.store.delete(LOG.key(number))
