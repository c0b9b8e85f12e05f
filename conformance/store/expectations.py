"""The functions with which a case checks its expectations, and the errors by which it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from conformance.results import Span
from ledgers.errors import TxnSegmentError


class ContractBroken(TxnSegmentError):
    """The store broke the contract. `history`: the operations around the failure, for a timeline; may be empty."""

    def __init__(self, message: str, *, advice: str = "", history: Sequence[Span] = ()) -> None:
        super().__init__(message, advice=advice)
        self.history = tuple(history)


class NotApplicable(TxnSegmentError):
    """This backend cannot run the case. The message gives the reason, which the report shows."""


def equal(found: object, expected: object, what: str) -> None:
    """Raise ContractBroken if `found` differs from `expected`. `what` names the compared values in the message."""
    if found != expected:
        raise ContractBroken(f"{what}: expected {short(expected)}, found {short(found)}.")


def holds(condition: bool, what: str) -> None:
    """Raise ContractBroken with the text `what` if the condition is false."""
    if not condition:
        raise ContractBroken(f"This does not hold: {what}.")


@contextmanager
def refused(*kinds: type[Exception], naming: str, what: str) -> Iterator[None]:
    """Raise ContractBroken unless the block raises one of the errors `kinds` with a message that contains `naming`."""
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
