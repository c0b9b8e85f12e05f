"""The child process of a case: `python -m conformance.store.child TASK`. `processes` starts it and may kill it.

The child opens the store, prints "ready", waits for a line of input and does its job. Each result is a line of JSON on stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

from conformance.store.history import random_operations
from conformance.store.site import Place
from metadata.common.clock import SystemClock
from metadata.records.paths import LOG, Key, pad20
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, MetadataStore, Put, Record

INDEX = "idx:crash"
VALUES = "/crash"


def say(what: Any) -> None:
    """Print a line with a single write, so that a kill cannot leave a part of a line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def record_history(store: MetadataStore, actor: str, seed: str, count: int) -> None:
    for step, operation in random_operations(store, actor, Random(seed), SystemClock(), count):
        say([step, operation.to_json()])


def append(store: MetadataStore, actor: str, count: int) -> None:
    """Append to the log `count` times, and print each number. Every seventh append has an index entry."""
    for n in range(count):
        entries = (IndexEntry(INDEX, f"{actor}.{n}"),) if n % 7 == 6 else ()
        say(store.append(LOG, f"{actor}.{n}".encode(), indexes=entries).number)


def change_indexes(store: MetadataStore, actor: str, seed: str, count: int) -> None:
    """Put, replace, delete and append records at random, and print each acknowledged write. Every put and append has index entries
    with the number of the write.
    """
    random = Random(seed)
    mine: dict[int, Record] = {}
    for n in range(count):
        k = random.randrange(8)
        key = Key(f"{VALUES}/{actor}/{k}", actor)
        old = mine.get(k)
        entries = tuple(IndexEntry(INDEX, f"{actor}:{pad20(n)}:{i}") for i in range(random.randrange(1, 4)))
        value = f"{actor}.{n}".encode()
        if random.random() < 0.2:
            (made,) = store.write(Append(LOG, value, entries))
            assert made is not None
            say(["append", made.number, value.decode()])
        elif old and random.random() < 0.3:
            store.write(Delete(key, old))
            del mine[k]
            say(["delete", k, None])
        else:
            (made,) = store.write(Put(key, value, old or ABSENT, entries))
            assert made is not None
            mine[k] = made
            say(["put", k, value.decode()])


def hold(store: MetadataStore, path: str) -> None:
    """Create an ephemeral record, print "held", and keep the session open until a line of input arrives."""
    store.put(Key(path, ""), b"held", expect=ABSENT, indexes=(IndexEntry(INDEX, "held"),), ephemeral=True)
    say("held")
    sys.stdin.readline()


JOBS: dict[str, Callable[..., None]] = {
    "history": record_history,
    "append": append,
    "change indexes": change_indexes,
    "hold": hold,
}


def main(task: dict[str, Any]) -> None:
    module, _, name = task["opener"].partition(":")
    opener = getattr(import_module(module), name)
    with Place(task["url"], task["prefix"]).open(opener) as store:
        store.view().get(Key("/ready", ""))
        say("ready")
        sys.stdin.readline()
        JOBS[task["job"]](store, **task["arguments"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
