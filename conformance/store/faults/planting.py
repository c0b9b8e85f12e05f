"""Declare faults of a metadata store. Each fault is a wrapper around a correct store and overrides one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import MetadataStore, Record, View, Watch, Write


class Sound(MetadataStore):
    """A store that passes every call on to `store`. A fault overrides one method."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def view(self) -> View:
        return SoundView(self.store.view())

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*writes)

    def skip(self, prefix: Prefix, to: int) -> None:
        self.store.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.store.watch(target, wake)

    def close(self) -> None:
        self.store.close()


class SoundView(View):
    def __init__(self, view: View) -> None:
        self.view = view

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.view.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        return [record.key.path for record in self.scan(within)]

    def scan(self, within: KeyRange) -> list[Record]:
        return self.view.scan(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return self.view.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self.view.now_ms()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a store. `says`: what the faulty store does wrong. `wrap`: makes a faulty store of a correct one. `caught_by`: the
    case that must fail.
    """

    name: str
    says: str
    wrap: Callable[[MetadataStore], MetadataStore]
    caught_by: str


FAULTS: list[Fault] = []
"""All faults. The import of this package fills the list."""


def planted(caught_by: str) -> Callable[[type[Sound]], type[Sound]]:
    """Return a decorator that adds a class as a fault, under the name of the class. `caught_by`: the case that must fail."""

    def plant(kind: type[Sound]) -> type[Sound]:
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__).strip("-")
        FAULTS.append(Fault(name, " ".join((kind.__doc__ or "").split()), kind, caught_by))
        return kind

    return plant


def planted_view(caught_by: str) -> Callable[[type[SoundView]], type[SoundView]]:
    """Return a decorator like `planted`, for a class that overrides a read of a view."""

    def plant(kind: type[SoundView]) -> type[SoundView]:
        def view(self: Sound) -> View:
            return kind(self.store.view())

        planted(caught_by)(type(kind.__name__, (Sound,), {"view": view, "__doc__": kind.__doc__}))
        return kind

    return plant
