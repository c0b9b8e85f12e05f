"""Range scans by key: they are exact and in order, over one partition key or over all."""

from __future__ import annotations

from conformance.store.area import Area
from conformance.store.case import Cases
from conformance.store.expectations import equal, refused
from conformance.store.model import Model, random_key, random_text, unrelated_keys
from metadata.common.errors import BadVersion
from metadata.records import paths
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import ABSENT, ANY, IndexEntry

cases = Cases("ranges", "range scan")

EVERYTHING = KeyRange("/", "/\U0010ffff", "")


@cases.add
def keys_are_exact_and_in_order(area: Area) -> None:
    """A range of keys includes both of its bounds. A bound is a whole path, not a prefix (A14). The order is that of the bytes of
    the paths.
    """
    names = ("0_1", "0_10", "0_2", "0", "0_1/x", "é", "~", ".", "..", "!")
    for path in ["/r", "/r0", "/q/0_1", *(f"/r/{name}" for name in names)]:
        area.store.put(Key(path, ""), b"x")
    for first, last, found in [
        ("/r/0_1", "/r/0_1", ["/r/0_1"]),
        ("/r/0_1", "/r/0_10", ["/r/0_1", "/r/0_1/x", "/r/0_10"]),
        ("/r", "/r/0", ["/r", "/r/!", "/r/.", "/r/..", "/r/0"]),
        ("/r/~", "/s", ["/r/~", "/r/é", "/r0"]),
        ("/s", "/r", []),
    ]:
        equal(area.store.view().keys(KeyRange(first, last, "")), found, f"the keys from {first} to {last}")
        scanned = [record.key.path for record in area.store.view().scan(KeyRange(first, last, ""))]
        equal(scanned, found, f"the records from {first} to {last}")
    equal(len(area.store.view().keys(EVERYTHING)), 13, "how many keys there are")


@cases.add
def traps_of_prefixes(area: Area) -> None:
    """Names that begin alike (`0_1` and `0_10`, `s1` and `s10`, `-1` and `-10`) are different keys, partitions and sequences."""
    for short, long in (("0_1", "0_10"), ("s1", "s10"), ("-1", "-10"), ("a", "a-"), ("t", "t/u"), ("a%2F", "a%2Fb")):
        one = area.store.put(Key(f"/trap/{short}", short), b"short")
        other = area.store.put(Key(f"/trap/{long}", long), b"long")
        sequences = [Prefix(f"/trap-seq/{name}", name) for name in (short, long)]
        numbered = [area.store.append(prefix, b"n") for prefix in sequences]
        for record in (one, other, *numbered):
            within = KeyRange(record.key.path, record.key.path, "")
            equal(area.store.view().keys(within), [record.key.path], f"the range of {record.key.path} alone")
            alone = KeyRange("/", "/\U0010ffff", record.key.partition)
            found = [each for each in area.store.view().scan(alone) if each.key.partition != record.key.partition]
            equal(found, [], f"records of other partitions in that of {record.key.partition!r}")
        for prefix, record in zip(sequences, numbered, strict=True):
            equal(area.store.view().scan(prefix.range()), [record], f"the sequence {prefix.path}")
        area.store.delete(one.key)
        equal(area.store.view().get_many([one.key, other.key]), [None, other], f"after the delete of {short!r}")


@cases.add
def nested_folders(area: Area) -> None:
    """A range may span many levels of paths. Its scan returns no record outside the range, not even one under a path that some
    backend uses itself, such as `/idx` or `/clock`.
    """
    names = ("public/default/t", "public/default/t-00000000000000000007", "public/other/0123456789", "acme/x/%7E", "public/idx/idx")
    made = sorted((area.store.put(Key(f"/topics/{n}", ""), n.encode()) for n in names), key=lambda r: r.key.path)
    for other in ("/topicsx", "/idx/a", "/era/log", "/clock", "/zookeeper/quota"):
        area.store.put(Key(other, ""), b"no")
    equal(area.store.view().scan(paths.TOPICS), made, "the records")
    equal(area.store.view().keys(paths.TOPICS), [r.key.path for r in made], "the keys")
    one_level = KeyRange("/topics/public/default/", "/topics/public/default/~", "")
    equal(area.store.view().scan(one_level), made[1:3], "one folder of them")


@cases.add
def sequences_do_not_mix(area: Area) -> None:
    """The range of a sequence holds only its own records, also if the name of another sequence begins with its name."""
    prefixes = [Prefix(f"/ev/{name}", name) for name in ("s1", "s10", "s", "s-1", "s1-00000000000000000001")]
    made = {p: [area.store.append(p, b"%d" % n) for n in range(3)] for p in prefixes}
    for prefix, records in made.items():
        equal(area.store.view().scan(prefix.range()), records, f"the sequence {prefix.path}")
        equal(area.store.view().scan(prefix.range(records[1].number)), records[1:], f"{prefix.path} from its second")
        equal(area.store.view().scan(prefix.range(0, records[1].number)), records[:2], f"{prefix.path} to its second")


@cases.add
def a_record_may_have_records_below_it(area: Area) -> None:
    """`/n/a` and `/n/a/b` are two records; each can be created and deleted without the other."""
    within = KeyRange("/n/", "/n/~", "")
    below = area.store.put(Key("/n/a/b", ""), b"b")
    above = area.store.put(Key("/n/a", ""), b"a", expect=ABSENT)
    equal(area.store.view().scan(within), [above, below], "both")
    area.store.delete(above.key, expect=above)
    equal(area.store.view().get(above.key), None, "the upper one after its delete")
    equal(area.store.view().scan(within), [below], "what is left")
    again = area.store.put(above.key, b"A", expect=ABSENT)
    area.store.delete(above.key)
    with refused(BadVersion, naming="/n/a", what="a put that expects the deleted record"):
        area.store.put(above.key, b"B", expect=again)


@cases.add
def a_range_over_all_partitions_keeps_each_records_own(area: Area) -> None:
    """A range without a partition key finds records of all partition keys, in order (A15). A range with a partition key finds only
    the records of this partition key.
    """
    made = [area.store.put(Key(f"/k/{n}", f"p{n}"), b"x") for n in range(9)]
    equal(area.store.view().scan(KeyRange("/k/", "/k/~", "")), made, "all partitions")
    equal(area.store.view().scan(KeyRange("/k/3", "/k/3", "p3")), [made[3]], "one partition")


@cases.add
def any_calls_leave_what_the_model_says(area: Area) -> None:
    """Random puts and deletes, with right and wrong versions and odd names, leave the same state in the store as in a plain model.
    Scans of random ranges also return the same records.
    """
    random, model, store = area.random, Model(), area.store
    names = ["i", "i1", "i10", random_text(random)]
    keys = unrelated_keys(random, 40)
    for step in range(area.sizes.rounds * 20):
        key = random.choice(keys)
        version = model.version(key)
        expect = random.choice([ANY, version, version, version + 1, ABSENT])
        fits = expect in (ANY, version)
        entries = tuple(dict.fromkeys(IndexEntry(random.choice(names), random_text(random)) for _ in range(random.randrange(4))))
        if random.random() < 0.3:
            if fits:
                if expect != ABSENT:
                    store.delete(key, expect=expect)
                    model.delete(key)
            else:
                with refused(BadVersion, naming="", what=f"a delete of version {expect} of {version}"):
                    store.delete(key, expect=expect)
        elif fits:
            made = store.put(key, b"%d" % step, expect=expect, indexes=entries)
            equal(made, model.put(key, b"%d" % step, entries), f"what put {step} returned")
        else:
            with refused(BadVersion, naming="", what=f"a put on version {expect} of {version}"):
                store.put(key, b"%d" % step, expect=expect, indexes=entries)
        if step % 10 == 9:
            _same(area, model, names)


def _same(area: Area, model: Model, names: list[str]) -> None:
    view, random = area.store.view(), area.random
    equal(view.scan(EVERYTHING), model.scan(EVERYTHING), "all records")
    for _ in range(3):
        first, last = sorted([random_key(random).path, random_key(random).path])
        within = KeyRange(first, last, "")
        equal(view.keys(within), [record.key.path for record in model.scan(within)], f"the keys from {first!r} to {last!r}")
        name = random.choice(names)
        first, last = sorted([random_text(random), random_text(random)])
        equal(view.scan_index(name, first, last), model.scan_index(name, first, last), f"index {name!r} from {first!r} to {last!r}")
