"""A store that refuses all writes. Programs that only look at a cluster use it, so that no code can change the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from metadata.common.errors import NotAllowed
from metadata.records.paths import Key, Prefix
from metadata.store.contract import MetadataStore, Record, View, Watch, Write


class ReadOnlyStore(MetadataStore):
    """Reads from another store, and raises NotAllowed for each write. `close` closes the other store."""

    read_only = True

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def view(self) -> View:
        return self._store.view()

    def write(self, *writes: Write) -> list[Record | None]:
        _refuse("write records")

    def skip(self, prefix: Prefix, to: int) -> None:
        _refuse("advance a sequence")

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self._store.watch(target, wake)

    def is_served_by(self, hosts: Sequence[str]) -> bool:
        return self._store.is_served_by(hosts)

    def close(self) -> None:
        self._store.close()


def _refuse(what: str) -> NoReturn:
    raise NotAllowed(
        f"This program only looks at the cluster, and does not {what}.",
        advice="Use `connect` or another command of txnsegment to change the cluster.",
    )
