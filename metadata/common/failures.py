"""Isolation of failures: one step of a sweep, one topic or one background job may fail while the remaining ones run.

No failure is swallowed. Each failure is logged (with its traceback unless it is a TxnSegmentError) and counted. A caller that
passes the dictionary `failed` also gets each failure in it, and reports them after the remaining work. KeyboardInterrupt,
SystemExit and other errors that are no Exception are raised to the caller at once.
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
    Unavailable,
    UnknownOutcome,
    ValueTooLarge,
)

STORE = (BadVersion, NotFound, SessionLost, Unavailable, UnknownOutcome, ValueTooLarge)
"""Errors that concern the whole store and no single segment or topic. The following steps would raise the same error."""

RACES = (TopicNotFound,)
"""Errors of a topic that another process deleted after it was listed. A TxnConflict is no lost race: the work was not done, by no
process.
"""


def note(step: str, what: str, error: Exception, *, level: int = logging.ERROR) -> None:
    """Log and count that `step` failed for `what`. `level`: log level of a TxnSegmentError. Any other error is logged as ERROR."""
    metrics.SWEEP_FAILURES.labels(step=step).inc()
    log = logging.getLogger(f"txnsegment.{step}")
    if isinstance(error, TxnSegmentError):
        log.log(level, "%s failed: %s: %s", step, what, error)
    else:
        log.error("%s failed: %s: %s (not a TxnSegmentError)", step, what, described(error), exc_info=error)


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
    """Run the block. If the block raises an error, log and count it, store it in `failed` under `what`, and do not raise it.

    `passing`: errors that are raised to the caller nevertheless, except those of `races`. `races`: errors of a lost race. They are
    only logged and do not count as failures, because another process has deleted the topic. `level`: log level of a
    TxnSegmentError.
    """
    try:
        yield
    except races as error:
        logging.getLogger(f"txnsegment.{step}").info("%s of %s lost a race: %s", step, what, error)
    except passing:
        raise
    except Exception as error:
        note(step, what, error, level=level)
        if failed is not None:
            failed[what] = error


def described(error: Exception) -> str:
    """Return the message of a TxnSegmentError. For any other error the class name is put in front."""
    return str(error) if isinstance(error, TxnSegmentError) else f"{type(error).__name__}: {error}"


def complain(failed: Mapping[str, Exception], *, done: str) -> None:
    """Raise SweepIncomplete that names every failure in `failed`, if any. `done`: a sentence about the work that was done."""
    if not failed:
        return
    said = "; ".join(f"{what}: {described(error)}" for what, error in failed.items())
    advice = "The next sweep tries again. An error with a Python class name is a bug of txnsegment: the log has its traceback."
    raise SweepIncomplete(f"{done} Not done: {said}", advice=advice) from ExceptionGroup("what failed", list(failed.values()))
