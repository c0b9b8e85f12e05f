"""A read-only store reads what the other store has, and refuses each write before it reaches that store."""

from __future__ import annotations

import pytest

from metadata.common.errors import NotAllowed
from metadata.records import paths
from metadata.store import open_store
from metadata.store.read_only import ReadOnlyStore


def test_a_read_only_store_reads_and_refuses_all_writes() -> None:
    with open_store("memory://read-only") as store:
        record = store.put(paths.CLUSTER, b"as it is")
        looking = ReadOnlyStore(store)
        assert looking.view().get(paths.CLUSTER) == record
        assert (looking.read_only, store.read_only, looking.make_room(), looking.is_served_by(["h:1"])) == (
            True,
            False,
            False,
            False,
        )
        woken: list[str] = []
        looking.watch(paths.CLUSTER, lambda: woken.append("again")).close()
        for write in (
            lambda: looking.put(paths.CLUSTER, b"other"),
            lambda: looking.delete(paths.CLUSTER),
            lambda: looking.append(paths.LOG, b"other"),
            lambda: looking.skip(paths.LOG, 9),
        ):
            with pytest.raises(NotAllowed, match="only looks"):
                write()
        assert store.view().scan(paths.EVERYTHING) == [record]
