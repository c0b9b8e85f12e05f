"""Reads of an object store that pyarrow gives up too early are tried again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

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
            wait(random.random() * 2**attempt)  # random, so that many tasks do not come back at once
    return read()
