"""Work of which one piece may fail while the others go on: steps of a sweep, topics of an upkeep, jobs in the background.

Nothing is swallowed. What failed is logged (an error that is none of ours with its traceback), counted, and handed to the caller,
who says so when all the others are done. KeyboardInterrupt, SystemExit and the like pass.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ledgers.errors import TxnSegmentError
from metadata.common import metrics
from metadata.common.errors import (
    BadVersion,
    NotFound,
    SessionLost,
    SweepIncomplete,
    TopicNotFound,
    TxnConflict,
    Unavailable,
    UnknownOutcome,
    ValueTooLarge,
)

STORE = (BadVersion, NotFound, SessionLost, Unavailable, UnknownOutcome, ValueTooLarge)
"""What the store as a whole says. It is no matter of one segment or topic: the pieces after it would hear the same."""

RACES = (TopicNotFound, TxnConflict)
"""Of a topic that was listed a moment before: it was deleted meanwhile, or somebody else has changed it."""


def note(step: str, what: str, error: Exception, *, level: int = logging.ERROR) -> None:
    """Log and count that `step` failed for `what`. `level`: for an error of ours."""
    metrics.SWEEP_FAILURES.labels(step=step).inc()
    log = logging.getLogger(f"txnsegment.{step}")
    if isinstance(error, TxnSegmentError):
        log.log(level, "%s failed: %s: %s", step, what, error)
    else:
        log.error("%s failed: %s: %s (an error of none of our kinds)", step, what, described(error), exc_info=error)


@contextmanager
def contained(
    step: str,
    what: str,
    failed: dict[str, Exception] | None = None,
    *,
    passing: tuple[type[Exception], ...] = (),
    races: tuple[type[Exception], ...] = (),
    level: int = logging.ERROR,
) -> Iterator[None]:
    """Keep an error of the block from what comes after it: it is noted, and put into `failed` under `what`. `passing`: errors that
    are raised on. `races`: errors that say that somebody else was faster; there is nothing to do then, and nothing failed. `level`:
    at which one of ours is logged.
    """
    try:
        yield
    except passing:
        raise
    except races as error:
        logging.getLogger(f"txnsegment.{step}").info("%s of %s lost a race: %s", step, what, error)
    except Exception as error:
        note(step, what, error, level=level)
        if failed is not None:
            failed[what] = error


def described(error: Exception) -> str:
    """The error as a sentence for people: of errors that are not ours the class, too."""
    return str(error) if isinstance(error, TxnSegmentError) else f"{type(error).__name__}: {error}"


def complain(failed: Mapping[str, Exception], *, done: str) -> None:
    """Raises SweepIncomplete if anything failed, naming each. `done`: what was done all the same."""
    if not failed:
        return
    said = "; ".join(f"{what}: {described(error)}" for what, error in failed.items())
    advice = (
        "The next sweep tries again. An error that names no kind of ours is a fault of txnsegment: its traceback is in the log."
    )
    raise SweepIncomplete(f"{done} Not done: {said}", advice=advice) from ExceptionGroup("what failed", list(failed.values()))
