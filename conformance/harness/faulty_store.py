"""A metadata store that passes each call to a policy. The policy may delay or count the call, raise an error, or end the process.

    def lose_replies(call: Call, go: Callable[[], Any]) -> Any:
        answer = go()
        if call.kind == "write":
            raise UnknownOutcome("The reply was lost.")
        return answer

    store = FaultyStore(SqliteStore(folder), lose_replies)

What a policy does before it calls `go` happens before the call reaches the store. What it does afterwards happens after the store
has answered. A policy that never calls `go` answers in place of the store.

The simulator has another store (`conformance.simulator`), because some of its faults concern more than one call: for example
lagging replicas, late requests, and lists that are read record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Append, MetadataStore, Record, View, Watch, Write

Kind = Literal["view", "get", "keys", "scan", "index", "time", "write", "skip", "watch"]
READS: frozenset[Kind] = frozenset({"get", "keys", "scan", "index"})
"""The kinds of calls that read records."""


class Call(NamedTuple):
    """One call of a store or of a view of the store.

    `kind`: the kind of the call. `what`: its arguments. These are the keys for `get`, the range for `keys` and `scan`, the writes
    for `write`, the prefix and the number for `skip`, and the target for `watch`. For `index` they are the name of the index, the
    first value and the last value. `view` and `time` have none.
    """

    kind: Kind
    what: tuple[Any, ...] = ()

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes of a call of the kind `write`; empty for all other kinds."""
        return self.what if self.kind == "write" else ()

    def __str__(self) -> str:
        """Return the call as text: `get /topics/t /log/1`, `write Put Append /log`, `write skip /log`."""
        match self.kind:
            case "get":
                return f"get {' '.join(key.path for key in self.what)}"
            case "keys" | "scan":
                return f"{self.kind} {self.what[0].first}"
            case "index":
                return f"index {self.what[0]}"
            case "write":
                return f"write {' '.join(map(_name, self.what))}"
            case "skip":
                return f"write skip {self.what[0].path}"
            case _:
                return self.kind


class Policy(Protocol):
    """Decides what happens to a call. `go()` passes the call to the store, and returns the store's answer or raises its error."""

    def __call__(self, call: Call, go: Callable[[], Any], /) -> Any: ...


class FaultyStore(MetadataStore):
    """Passes views, writes, skips and watches through `policy` to `inner`. The other methods call `inner` directly."""

    def __init__(self, inner: MetadataStore, policy: Policy) -> None:
        self.inner, self.policy = inner, policy

    def view(self) -> View:
        view: View = self.policy(Call("view"), self.inner.view)
        return _FaultyView(view, self)

    def write(self, *writes: Write) -> list[Record | None]:
        answer: list[Record | None] = self.policy(Call("write", writes), lambda: self.inner.write(*writes))
        return answer

    def skip(self, prefix: Prefix, to: int) -> None:
        self.policy(Call("skip", (prefix, to)), lambda: self.inner.skip(prefix, to))

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        watch: Watch = self.policy(Call("watch", (target,)), lambda: self.inner.watch(target, wake))
        return watch

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        return self.inner.is_served_by(hosts)

    def make_room(self) -> bool:
        return self.inner.make_room()

    def close(self) -> None:
        self.inner.close()


class _FaultyView(View):
    def __init__(self, inner: View, store: FaultyStore) -> None:
        self._inner, self._store = inner, store

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        found: list[Record | None] = self._store.policy(Call("get", tuple(keys)), lambda: self._inner.get_many(keys))
        return found

    def keys(self, within: KeyRange) -> list[str]:
        found: list[str] = self._store.policy(Call("keys", (within,)), lambda: self._inner.keys(within))
        return found

    def scan(self, within: KeyRange) -> list[Record]:
        found: list[Record] = self._store.policy(Call("scan", (within,)), lambda: self._inner.scan(within))
        return found

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        call = Call("index", (index, first, last))
        found: list[Record] = self._store.policy(call, lambda: self._inner.scan_index(index, first, last))
        return found

    def now_ms(self) -> int:
        now: int = self._store.policy(Call("time"), self._inner.now_ms)
        return now


def _name(write: Write) -> str:
    return f"Append {write.prefix.path}" if isinstance(write, Append) else type(write).__name__
