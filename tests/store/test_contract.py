"""What protocol.md section 3 promises, on every backend."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from metadata import paths
from metadata.errors import BadVersion, SessionLost, Unavailable, ValueTooLarge
from metadata.paths import LOG, Key, KeyRange, Prefix, pad20
from metadata.store.contract import ABSENT, MAX_VALUE, Append, Delete, IndexEntry, MetadataStore, Put, Record, decide

A = Key("/things/a", "p")
EVERYTHING = KeyRange("/", "/\U0010ffff", "")


def test_a_put_is_read_back_with_its_version_and_index_entries(store: MetadataStore) -> None:
    entries = (IndexEntry("idx:one", "k"), IndexEntry("idx:two", "1:2/3"))
    made = store.put(A, b'{"state":"OPEN"}', expect=ABSENT, indexes=entries)
    assert made == Record(A, b'{"state":"OPEN"}', 0, entries)
    assert store.view().get(A) == made


def test_versions_count_puts_and_restart_with_the_key(store: MetadataStore) -> None:
    assert [store.put(A, b"x").version for _ in range(3)] == [0, 1, 2]
    store.delete(A)
    assert store.put(A, b"x").version == 0


def test_absent_is_none_and_delete_of_any_tolerates_it(store: MetadataStore) -> None:
    assert store.view().get(A) is None
    store.delete(A)
    with pytest.raises(BadVersion, match="/things/a"):
        store.delete(A, expect=0)


@pytest.mark.parametrize("value", [b"\x00\xff", b"\n#", b'{"a":1}\n#{"p":"other"}', b"\n#\n#", b"#", b"x\n#" * 9])
@pytest.mark.parametrize("partition", ["", "p"])
def test_any_bytes_survive(store: MetadataStore, value: bytes, partition: str) -> None:
    made = store.put(Key("/b", partition), value, indexes=())
    assert made.value == value
    assert store.view().get(made.key) == made
    assert store.view().scan(EVERYTHING) == [made]


class TestExpect:
    def test_absent_meets_a_record(self, store: MetadataStore) -> None:
        first = store.put(A, b"1", expect=ABSENT)
        with pytest.raises(BadVersion, match="/things/a"):
            store.put(A, b"2", expect=ABSENT)
        assert store.view().get(A) == first

    def test_a_delete_that_expects_nothing_meets_a_record(self, store: MetadataStore) -> None:
        store.delete(A, expect=ABSENT)
        kept = store.put(A, b"1")
        with pytest.raises(BadVersion, match="/things/a"):
            store.delete(A, expect=ABSENT)
        assert store.view().get(A) == kept

    @pytest.mark.parametrize("as_number", [True, False])
    def test_a_record_that_moved_on(self, store: MetadataStore, as_number: bool) -> None:
        first = store.put(A, b"1")
        second = store.put(A, b"2", expect=first)
        expect = first.version if as_number else first
        with pytest.raises(BadVersion, match="/things/a"):
            store.put(A, b"3", expect=expect)
        with pytest.raises(BadVersion, match="/things/a"):
            store.delete(A, expect=expect)
        assert store.view().get(A) == second
        store.delete(A, expect=second.version if as_number else second)
        assert store.view().get(A) is None

    @pytest.mark.parametrize("as_number", [True, False])
    def test_a_record_that_is_gone(self, store: MetadataStore, as_number: bool) -> None:
        first = store.put(A, b"1")
        store.delete(A, expect=first)
        expect = first.version if as_number else first
        with pytest.raises(BadVersion):
            store.put(A, b"2", expect=expect)
        with pytest.raises(BadVersion):
            store.delete(A, expect=expect)
        assert store.view().get(A) is None

    def test_any_replaces_what_another_session_wrote(self, backend: Any, store: MetadataStore) -> None:
        store.put(A, b"1", indexes=(IndexEntry("i", "old"),))
        other = backend.open()
        other.put(A, b"2", indexes=(IndexEntry("i", "new"),))
        assert [r.value for r in store.view().scan_index("i", "", "z")] == [b"2"]
        assert store.view().scan_index("i", "old", "old") == []


class TestGroups:
    def test_all_of_it(self, store: MetadataStore) -> None:
        old = store.put(A, b"1", indexes=(IndexEntry("i", "1"),))
        b = Key("/things/b", "q")
        changed, appended, made, gone = store.write(
            Put(A, b"2", old, (IndexEntry("i", "2"),)), Append(LOG, b"n"), Put(b, b"b", ABSENT), Delete(Key("/none", ""))
        )
        assert changed is not None
        assert (changed.version, changed.value, gone) == (1, b"2", None)
        assert appended is not None
        assert store.view().get_many([A, b, appended.key]) == [changed, made, appended]

    @pytest.mark.parametrize("where", [0, 1, 2])
    def test_or_nothing(self, store: MetadataStore, where: int) -> None:
        store.put(Key("/taken", ""), b"t")
        kept = store.put(A, b"1", indexes=(IndexEntry("i", "1"),))
        writes: list[Any] = [Put(A, b"2", kept, (IndexEntry("i", "2"),)), Append(LOG, b"n")]
        writes.insert(where, Put(Key("/taken", ""), b"u", ABSENT))
        with pytest.raises(BadVersion, match="/taken"):
            store.write(*writes)
        view = store.view()
        assert view.keys(LOG.range()) == []
        assert view.scan_index("i", "", "9") == [kept]
        assert view.get(Key("/taken", "")) == Record(Key("/taken", ""), b"t", 0)

    def test_writes_to_one_key_follow_each_other(self, store: MetadataStore) -> None:
        store.write(Put(A, b"1", ABSENT), Put(A, b"2", 0, (IndexEntry("i", "2"),)))
        assert store.view().scan_index("i", "2", "2")[0].version == 1
        store.write(Delete(A, 1), Put(A, b"3", ABSENT))
        assert store.view().get(A) == Record(A, b"3", 0)
        assert store.view().scan_index("i", "", "9") == []

    def test_an_empty_group_does_nothing(self, store: MetadataStore) -> None:
        assert store.write() == []


class TestIndexes:
    def test_a_put_replaces_the_entries_and_a_delete_removes_them(self, store: MetadataStore) -> None:
        view = store.view
        first = store.put(A, b"1", indexes=(IndexEntry("i", "a"), IndexEntry("i", "b"), IndexEntry("j", "a")))
        assert view().scan_index("i", "a", "b") == [first, first]
        second = store.put(A, b"2", expect=first, indexes=(IndexEntry("i", "b"), IndexEntry("i", "c")))
        assert [view().scan_index("i", k, k) for k in "abc"] == [[], [second], [second]]
        assert view().scan_index("j", "", "z") == []
        store.delete(A, expect=second)
        assert view().scan_index("i", "", "z") == []

    @pytest.mark.parametrize(
        ("keys", "first", "last", "found"),
        [
            (["0_1", "0_10", "0_2"], "0_1", "0_1", ["0_1"]),
            (["s1", "s10", "s1:x"], "s1", "s1", ["s1"]),
            (["-1", "-10", "-2"], "-1", "-10", ["-1", "-10"]),
            (["a", "b", "c"], "b", "c", ["b", "c"]),
            (["a%2Fb", "a/b", "a,b", "a b", "a+b"], "a/b", "a/b", ["a/b"]),
            (["é", "z", "\U0001f600", "\uffff", "."], "z", "\U0001f600", ["z", "é", "\uffff", "\U0001f600"]),
            (["", "a"], "", "", [""]),
            (["a"], "b", "a", []),
        ],
    )
    def test_ranges_are_exact(self, store: MetadataStore, keys: list[str], first: str, last: str, found: list[str]) -> None:
        for n, key in enumerate(keys):
            store.put(Key(f"/r/{n}", str(n)), b"r", indexes=(IndexEntry("i", key),))
        store.put(Key("/other", ""), b"r", indexes=tuple(IndexEntry("i2", key) for key in keys))
        assert [r.indexes[0].key for r in store.view().scan_index("i", first, last)] == found

    def test_records_of_one_index_key_come_by_path_and_with_their_partition(self, store: MetadataStore) -> None:
        made = [store.put(paths.ops("0_1").key(n), b"o", indexes=(IndexEntry(paths.OPS_BY_TXN, "0_1"),)) for n in (10, 2, 1)]
        assert store.view().scan_index(paths.OPS_BY_TXN, "0_1", "0_1") == sorted(made, key=lambda r: r.key.path)

    def test_an_append_may_have_entries(self, store: MetadataStore) -> None:
        made = []
        for n in range(4):
            made.append(store.append(LOG, b"p"))
            made.append(store.append(LOG, b"i", indexes=(IndexEntry("i", str(n)),)))
        numbers = [r.number for r in made]
        assert numbers == sorted(set(numbers))
        assert store.view().scan(LOG.range()) == made
        assert store.view().scan_index("i", "1", "2") == [made[3], made[5]]


class TestRanges:
    def test_keys_are_exact_and_in_order(self, store: MetadataStore) -> None:
        for path in [
            "/r/0_1",
            "/r/0_10",
            "/r/0_2",
            "/r/0",
            "/r",
            "/r/0_1/x",
            "/r0",
            "/r/é",
            "/r/~",
            "/r/.",
            "/r/..",
            "/r/!",
            "/q/0_1",
        ]:
            store.put(Key(path, ""), b"x")
        assert store.view().keys(KeyRange("/r/0_1", "/r/0_1", "")) == ["/r/0_1"]
        assert store.view().keys(KeyRange("/r/0_1", "/r/0_10", "")) == ["/r/0_1", "/r/0_1/x", "/r/0_10"]
        assert store.view().keys(KeyRange("/r", "/r/0", "")) == ["/r", "/r/!", "/r/.", "/r/..", "/r/0"]
        assert store.view().keys(KeyRange("/r/~", "/s", "")) == ["/r/~", "/r/é", "/r0"]
        assert store.view().keys(KeyRange("/s", "/r", "")) == []
        assert len(store.view().keys(EVERYTHING)) == 13

    def test_nested_folders(self, store: MetadataStore) -> None:
        names = [
            "public/default/t",
            "public/default/t-00000000000000000007",
            "public/other/0123456789",
            "acme/x/%7E",
            "public/idx/idx",
        ]
        made = sorted((store.put(Key(f"/topics/{n}", ""), n.encode()) for n in names), key=lambda r: r.key.path)
        store.put(Key("/topicsx", ""), b"no")
        store.put(Key("/idx/a", ""), b"no")
        assert store.view().scan(paths.TOPICS) == made
        assert store.view().keys(paths.TOPICS) == [r.key.path for r in made]
        assert store.view().scan(KeyRange("/topics/public/default/", "/topics/public/default/~", "")) == made[1:3]

    def test_sequences_do_not_mix(self, store: MetadataStore) -> None:
        prefixes = [Prefix(f"/ev/{name}", name) for name in ("s1", "s10", "s", "s-1", "s1-00000000000000000001")]
        made = {p: [store.append(p, b"%d" % n) for n in range(3)] for p in prefixes}
        for prefix, records in made.items():
            assert store.view().scan(prefix.range()) == records
            assert store.view().scan(prefix.range(records[1].number)) == records[1:]
            assert store.view().scan(prefix.range(0, records[1].number)) == records[:2]

    def test_a_record_may_have_records_below_it(self, store: MetadataStore) -> None:
        below = store.put(Key("/n/a/b", ""), b"b")
        above = store.put(Key("/n/a", ""), b"a", expect=ABSENT)
        assert store.view().scan(KeyRange("/n/", "/n/~", "")) == [above, below]
        store.delete(above.key, expect=above)
        assert store.view().get(above.key) is None
        assert store.view().scan(KeyRange("/n/", "/n/~", "")) == [below]
        again = store.put(above.key, b"A", expect=ABSENT)
        store.delete(above.key)
        with pytest.raises(BadVersion):
            store.put(above.key, b"B", expect=again)

    def test_a_range_over_all_partitions_keeps_each_records_own(self, store: MetadataStore) -> None:
        made = [store.put(Key(f"/k/{n}", f"p{n}"), b"x") for n in range(9)]
        assert store.view().scan(KeyRange("/k/", "/k/~", "")) == made
        assert store.view().scan(KeyRange("/k/3", "/k/3", "p3")) == [made[3]]

    def test_another_partition_key_finds_nothing(self, store: MetadataStore) -> None:
        store.put(paths.header("0_1"), b"h")
        assert store.view().get(Key("/txn/id/0_1", "0_2")) is None


class TestSequences:
    def test_numbers_begin_at_one_rise_and_are_never_used_again(self, backend: Any) -> None:
        with backend.open() as store:
            made = [store.append(LOG, b"x") for _ in range(3)]
            assert made[0].number == 1
            assert made[0].key == Key(f"/log/log-{pad20(1)}", "log")
            for record in made:
                store.delete(record.key)
        with backend.open() as store:
            again = store.append(LOG, b"x")
            assert again.number > made[-1].number
            assert store.view().keys(LOG.range()) == [again.key.path]

    def test_two_appends_of_one_group(self, store: MetadataStore) -> None:
        first, second = store.write(Append(LOG, b"1"), Append(LOG, b"2"))
        assert first is not None
        assert second is not None
        assert first.number < second.number
        assert store.view().scan(LOG.range()) == [first, second]

    def test_a_number_that_someone_chose_is_passed_over(self, store: MetadataStore) -> None:
        mine = store.put(LOG.key(1), b"mine", expect=ABSENT)
        made = [store.append(LOG, b"x") for _ in range(3)]
        assert len({mine.number, *(r.number for r in made)}) == 4
        assert store.view().get(mine.key) == mine


class TestLimits:
    def test_the_longest_value(self, store: MetadataStore) -> None:
        made = store.put(A, b"x" * MAX_VALUE, indexes=(IndexEntry("i", "k" * 1000),))
        assert store.view().scan_index("i", "", "z") == [made]
        with pytest.raises(ValueTooLarge, match="/things/a"):
            store.put(A, b"x" * (MAX_VALUE + 1))
        with pytest.raises(ValueTooLarge, match="/log/log"):
            store.append(LOG, b"x" * (MAX_VALUE + 1))
        assert store.view().get(A) == made

    def test_what_no_caller_may_write(self, store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="never empty"):
            store.put(A, b"")
        with pytest.raises(ValueError, match="slash"):
            store.put(Key("a", ""), b"x")


class TestSessions:
    def test_ephemeral_records_go_with_their_session(self, backend: Any, store: MetadataStore) -> None:
        leader = backend.open()
        made = leader.put(Key("/leader", ""), b"me", expect=ABSENT, indexes=(IndexEntry("i", "k"),), ephemeral=True)
        leader.put(A, b"stays")
        with pytest.raises(BadVersion):
            store.put(Key("/leader", ""), b"you", expect=ABSENT, ephemeral=True)
        assert store.view().scan_index("i", "", "z") == [made]
        leader.close()
        assert store.view().get(made.key) is None
        assert store.view().scan_index("i", "", "z") == []
        assert store.view().get(A) is not None
        store.put(Key("/leader", ""), b"you", expect=ABSENT, ephemeral=True)

    def test_an_unconditional_put_changes_whose_the_record_is(self, backend: Any, store: MetadataStore) -> None:
        leader = backend.open()
        leader.put(A, b"1", indexes=(IndexEntry("i", "k"),), ephemeral=True)
        store.put(A, b"2", indexes=(IndexEntry("i", "k"),))
        leader.close()
        assert [r.value for r in store.view().scan_index("i", "", "z")] == [b"2"]
        other = backend.open()
        other.put(A, b"3", indexes=(IndexEntry("i", "k"),), ephemeral=True)
        other.put(A, b"4", indexes=(IndexEntry("i", "k"),), ephemeral=True)
        other.close()
        assert store.view().get(A) is None
        assert store.view().scan_index("i", "", "z") == []

    def test_a_closed_store_says_so(self, backend: Any) -> None:
        store = backend.open()
        store.close()
        store.close()
        with pytest.raises((Unavailable, SessionLost), match="closed"):
            store.view().get(A)
        with pytest.raises(Unavailable, match="closed"):
            store.put(A, b"x")

    def test_decide_runs_its_body_on_a_view(self, store: MetadataStore) -> None:
        made = store.put(A, b"x")
        assert decide(store, lambda view: view.get(A)) == made

    def test_the_store_has_a_clock(self, store: MetadataStore) -> None:
        first, second = store.view().now_ms(), store.view().now_ms()
        assert 1_700_000_000_000 < first <= second < first + 60_000


class TestWatches:
    def test_a_change_of_the_key_wakes(self, backend: Any, store: MetadataStore) -> None:
        _wakes(store.watch(A, (woken := threading.Event()).set), woken, lambda: backend.open().put(A, b"x"))
        _wakes(store.watch(A, woken.set), woken, lambda: backend.open().put(A, b"y"), lambda: backend.open().delete(A))

    def test_a_change_below_the_prefix_wakes(self, backend: Any, store: MetadataStore) -> None:
        other = backend.open()
        woken = threading.Event()
        _wakes(store.watch(LOG, woken.set), woken, *[lambda: other.append(LOG, b"x")] * 4)

    def test_a_closed_watch_is_silent(self, backend: Any, store: MetadataStore) -> None:
        silent, woken = threading.Event(), threading.Event()
        watch = store.watch(A, silent.set)
        watch.close()
        watch.close()
        silent.clear()
        _wakes(store.watch(A, woken.set), woken, lambda: backend.open().put(A, b"x"))
        assert not silent.is_set()


def _wakes(watch: Any, woken: threading.Event, *changes: Any) -> None:
    for change in changes:
        woken.clear()
        change()
        assert woken.wait(10)
    watch.close()
