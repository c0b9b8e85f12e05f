"""The results of the checks of `txnsegment doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from metadata.common.errors import TxnSegmentError


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check. `next_step` is empty if there is nothing to do."""

    check: str
    health: Health
    message: str
    next_step: str = ""


def tried(name: str, check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check. If the check raises an error of txnsegment, return a finding of the health FAIL."""
    try:
        return check()
    except TxnSegmentError as error:
        return Finding(name, Health.FAIL, error.message, error.advice)
