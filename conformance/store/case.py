"""The type of a case. Cases run without a test framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.store.area import Area


@dataclass(frozen=True, slots=True)
class Case:
    """A check of one promise. `name`: `group/promise`. `section`: the section of protocol.md that has the rule. `says`: the promise
    in words, for the report. `body`: the function that checks the promise.
    """

    name: str
    section: str
    says: str
    body: Callable[[Area], None]


class Cases:
    """The cases of one group. The decorator `@cases.add` adds a function as a case."""

    def __init__(self, group: str, capability: str) -> None:
        """`capability`: the row of the table in protocol.md section 3 that the cases of this group test."""
        self._group = group
        self._section = f"protocol.md section 3, {capability}"
        self.all: list[Case] = []

    def add(self, body: Callable[[Area], None]) -> Callable[[Area], None]:
        name = f"{self._group}/{body.__name__.replace('_', '-')}"
        promise = " ".join((body.__doc__ or "").split())
        if not promise:
            raise ValueError(f"the case {name} does not say what it shows")
        self.all.append(Case(name, self._section, promise, body))
        return body
