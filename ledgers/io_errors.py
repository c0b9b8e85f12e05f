"""Turns errors of the operating system and of object stores into errors of the ledger storage, with advice. Tries those reads of an
object store again that pyarrow gives up too early.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from ledgers.errors import MissingFile, StorageError

if TYPE_CHECKING:
    from ledgers.s3_errors import S3Failure

T = TypeVar("T")

ATTEMPTS: Final = 6
"""How often a request is sent that gets no answer, or an answer that asks for another attempt (500, 503 SlowDown). The waits
between the attempts are random, of at most 1, 2, 4, 8 and 16 s: a request that never succeeds fails after about 15 s, and at most
31 s; if the server is silent, after 3 s more for each attempt.
"""
_UNREADABLE: Final = "Failed to flush response stream"
"""The text of pyarrow's error if the answer to a read is an error (503 SlowDown) that is longer than the range of the read. pyarrow
tries no such read again, in contrast to longer ones.
"""
_ERRNO = re.compile(r"\[errno (\d+)]", re.IGNORECASE)
_NO_SPACE = "Free some space (`txnsegment sweep` deletes files that nothing refers to) or enlarge the volume, then run it again."
_DENIED = "Give the user that runs this process (driver and executors) read and write access there."
_READ_ONLY = "Mount it writable, or put the ledgers elsewhere."
_ADVICE = {
    errno.EACCES: ("permission denied", _DENIED),
    errno.EPERM: ("permission denied", _DENIED),
    errno.ENOSPC: ("no space left on the device", _NO_SPACE),
    errno.EDQUOT: ("the disk quota is used up", _NO_SPACE),
    errno.EFBIG: ("the file is larger than this process may write", "Raise the file size limit (ulimit -f) or lower `entryBytes`."),
    errno.EROFS: ("the file system is read-only", _READ_ONLY),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Check the ledger root and its content."),
    errno.EISDIR: ("it is a folder, not a file", "Check the ledger root and its content."),
    errno.ENAMETOOLONG: ("the path is too long for this file system", "Use a shorter ledger root."),
    errno.EMFILE: ("too many open files", "Raise the limit of open files (ulimit -n)."),
    errno.EIO: ("the device reports an input/output error", "Check the disk; `txnsegment verify` lists damaged parts."),
    errno.ESTALE: ("the network file system lost the file", "Remount it and run again."),
}


def number_of(error: OSError) -> int | None:
    """Return the errno of an error. Some errors of pyarrow have the errno only in their text."""
    if error.errno is not None:
        return error.errno
    found = _ERRNO.search(str(error))
    return int(found.group(1)) if found else None


def is_of_storage(error: OSError) -> bool:
    """Return whether an error comes from the disk or from an object store. Other errors of pyarrow tell of invalid bytes."""
    return number_of(error) is not None or any(word in str(error) for word in ("AWS Error", "google::cloud::"))


def reason(error: OSError) -> str:
    """Return the operating system's text for an error, e.g. "No such file or directory"."""
    number = number_of(error)
    return str(error) if number is None else os.strerror(number)


def explain(error: OSError, doing: str, place: str) -> StorageError:
    """Return the error to raise for `error`, which occurred while `doing` something ("read", "write", ..) to `place` (a full URI or
    path).
    """
    number, remote = number_of(error), _of_s3(str(error))
    if isinstance(error, FileNotFoundError) or number == errno.ENOENT or (remote is not None and remote.missing):
        return MissingFile(
            f"Cannot {doing} {place}: it does not exist.", advice="Check whether it was deleted, or its volume is not mounted."
        )
    if isinstance(error, FileExistsError) or number == errno.EEXIST:
        return StorageError(
            f"Cannot {doing} {place}: it exists already.", advice="Published files never change, and every name is used once."
        )
    if remote is not None:
        return StorageError(f"Cannot {doing} {place}: {remote.what}.", advice=remote.advice)
    if number in _ADVICE:
        what, advice = _ADVICE[number]
        return StorageError(f"Cannot {doing} {place}: {what}.", advice=advice)
    return StorageError(f"Cannot {doing} {place}: {error}.", advice="Check that the storage can be reached from this machine.")


def _of_s3(text: str) -> S3Failure | None:
    if "AWS Error" not in text:
        return None
    from ledgers.s3_errors import s3_failure  # imported late, because only errors of S3 need it

    return s3_failure(text)


@contextmanager
def explained(doing: str, place: str) -> Iterator[None]:
    """Turn every OSError of the block into a StorageError that names `place`."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing, place) from error


def retried(read: Callable[[], T], *, wait: Callable[[float], None] = time.sleep) -> T:
    """Return what `read` returns. Call it again, after a wait, if its error is one that pyarrow does not try again and should.
    Reads have no effect, so that is safe. Raises OSError.
    """
    for attempt in range(ATTEMPTS - 1):
        try:
            return read()
        except OSError as error:
            if _UNREADABLE not in str(error):
                raise
            wait(_chance() * 2**attempt)  # random, so that many tasks do not come back at once
    return read()


def _chance() -> float:
    import random  # imported late, because hardly any process needs it

    return random.random()
