"""The type of a case, and the helpers by which cases state their expectations. Cases run without a test framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.results import Span
from ledgers.errors import TxnSegmentError

if TYPE_CHECKING:
    from conformance.store.area import Area


class ContractBroken(TxnSegmentError):
    """The store broke the contract. `history`: the operations around the failure, where a timeline helps."""

    def __init__(self, message: str, *, advice: str = "", history: Sequence[Span] = ()) -> None:
        super().__init__(message, advice=advice)
        self.history = tuple(history)


class NotApplicable(TxnSegmentError):
    """This backend cannot run the case. The message is the reason, for the report."""


@dataclass(frozen=True, slots=True)
class Case:
    """`name`: `group/promise`. `section`: the section of protocol.md with the rule. `says`: the promise, one sentence."""

    name: str
    section: str
    says: str
    body: Callable[[Area], None]


class Cases:
    """The cases of one group: `@cases.add` registers the function below it as a case."""

    def __init__(self, group: str, capability: str) -> None:
        """`capability`: the row of the table in protocol.md section 3."""
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


def equal(found: object, expected: object, what: str) -> None:
    """Raises ContractBroken."""
    if found != expected:
        raise ContractBroken(f"{what}: expected {short(expected)}, found {short(found)}.")


def holds(condition: bool, what: str) -> None:
    """Raises ContractBroken with `what` as the text if the condition is false."""
    if not condition:
        raise ContractBroken(f"This does not hold: {what}.")


@contextmanager
def refused(*kinds: type[Exception], naming: str, what: str) -> Iterator[None]:
    """The block must raise one of these errors, and its message must contain `naming`. Raises ContractBroken."""
    try:
        yield
    except kinds as error:
        if naming not in str(error):
            raise ContractBroken(f"{what}: the error does not name {naming!r}: {error}") from error
        return
    raise ContractBroken(f"{what}: expected {' or '.join(kind.__name__ for kind in kinds)}, but the call succeeded.")


def short(value: object, length: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length // 2]} ... {text[-length // 2 :]} ({len(text)} characters)"
