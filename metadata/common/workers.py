"""What txnsegment does in Spark's Python workers beside its work: it keeps garbage collections short, and error texts readable.

A worker of Spark runs a full garbage collection after each task, each plan and each commit. A collection visits all objects of the
process. Most of them belong to imported modules, and live as long as the process. With the modules of txnsegment, pyarrow and
pyspark a collection takes some 40 ms of processor time, three times for each micro-batch of a stream.

A worker sends the text of an error to the driver: first the traceback, last the message. The frames of the traceback are those of
Spark and of txnsegment. Without them the message is the first and the last that a user reads. A worker ends after it has sent an
error, and it sends no traceback if the variable `SPARK_HIDE_TRACEBACK` is set. So an error of txnsegment sets this variable. Any
other error is a fault of the program, and keeps its traceback.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from metadata.common.errors import TxnSegmentError

Class = TypeVar("Class", bound=type[Any])

RUNTIME: Final = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
"""The variable that Spark sets in its Python workers, and its value."""


_spared = 0
"""How many modules this process had imported at the last call that did something."""


def spare_imports(environment: Mapping[str, str] = os.environ) -> bool:
    """Let later garbage collections of a Spark worker skip all objects that exist now. Return whether this was done: it is done at
    the first call in a worker, and at each call after further modules were imported. Spark and pyarrow import some modules, such as
    pandas, only during the first task. In any other program, such as a driver of the user, nothing is done.

    An object that is skipped is still freed when its last reference goes. Only cycles of such objects stay.
    """
    global _spared
    name, worker = RUNTIME
    if environment.get(name) != worker or len(sys.modules) <= _spared:
        return False
    _spared = len(sys.modules)
    gc.freeze()
    return True


# --- errors ---

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""The variable by which Spark's processes leave the traceback out (`pyspark.util.handle_worker_exception`)."""
_WITH_LOCALS: Final = "SPARK_TRACEBACK_WITH_LOCALS"
"""The variable that Spark sets if the user asks for tracebacks with local variables. The traceback is then kept."""

_CALLED_BY_SPARK: Final = (
    *("partitions", "initialOffset", "getDefaultReadLimit", "prepareForTriggerAvailableNow", "latestOffset", "reportLatestOffset"),
    *("write", "commit", "abort", "__getstate__"),
)
"""The methods of readers and writers that Spark calls, except `read`, which returns an iterator. Pickling calls `__getstate__`, in
which the writer of Pulsar plans.
"""


@contextmanager
def telling(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Let an error of txnsegment that is raised in the block reach the user of Spark without its traceback. The traceback is logged
    at the level DEBUG. A cause that the message does not quote is added to the error as a note. Outside of Spark's processes the
    error is raised unchanged.
    """
    try:
        yield
    except TxnSegmentError as error:
        name, worker = RUNTIME
        if environment.get(name) == worker and _WITH_LOCALS not in environment:
            logging.getLogger("txnsegment").debug("refused", exc_info=True)
            _quote_cause(error)
            environment[HIDE] = "1"
        raise


def _quote_cause(error: BaseException) -> None:
    cause = error.__cause__
    if cause is not None and str(cause) not in str(error):
        error.add_note(f"Its cause: {type(cause).__name__}: {cause}")


def tells_errors(reader_or_writer: Class) -> Class:
    """Decorate a class of readers or writers: the errors of all methods that Spark calls reach the user as in `telling`."""
    for name in _CALLED_BY_SPARK:
        if name in vars(reader_or_writer):
            setattr(reader_or_writer, name, _told(vars(reader_or_writer)[name]))
    if "read" in vars(reader_or_writer):
        reader_or_writer.read = _told_while_read(vars(reader_or_writer)["read"])
    return reader_or_writer


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with telling():
            return method(*arguments, **named)

    return call


def _told_while_read(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Iterator[Any]:
        with telling():
            yield from method(*arguments, **named)

    return call
