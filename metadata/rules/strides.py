"""Strides: the ranges of log numbers that belong to one cluster until it is lost. After a restore each log continues in the next
stride (docs/operations.md, Backup). PURE: no I/O, no clock.

A restore knows the numbers in the backup. The lost cluster may have allocated more numbers since. None of them may be allocated
again, since an old offset of a stream would then name other rows, and the stream would skip them silently. So a stride has more
numbers than a cluster allocates.

The cluster's log has by far the longer strides. One commit allocates one number. The migration of a marker-based topic allocates as
many numbers as the topic's own log has used: up to a stride of that log for each restore of the cluster. Thousands of such
migrations fit into a stride of the cluster's log. A migration is refused if it could leave the stride (`room`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from metadata.records.cluster_records import Lost

ERA: Final = 10**10
"""The stride of all logs in backups of format 2 and in clusters that older versions of txnsegment restored. A migration could leave
it.
"""
STRIDE: Final = 10**15
"""The stride of the cluster's log."""
MARKED_STRIDE: Final = 10**11
"""The stride of each log of the marker-based model. Only appends allocate its numbers. On ZooKeeper the numbers jump to the next
multiple of 10^10 after each 10^9 appends. So a log leaves its stride only after 10^10 appends.
"""
MAX_NUMBER: Final = 9 * 10**17
"""Upper limit of all numbers of logs and sequences in a backup. It allows 900 strides."""
RESERVE: Final = STRIDE // 10
"""The end of each stride that no migration begins to use. It is left to migrations that began at the same time."""


def following(highest: int, stride: int) -> int:
    """Return the first number of the stride after that of `highest`."""
    return (highest // stride + 1) * stride


def lost_to(restored: Iterable[Lost]) -> int:
    """Return the first number of the cluster's log in the current stride; 0 if the cluster was never restored."""
    return max((lost.before for lost in restored), default=0)


def marked_from(lost: Lost) -> int:
    """Return the first number of all marker-based logs after a restore. Older versions used that of the cluster's log."""
    return lost.before if lost.in_stream is None else lost.in_stream


def room(end: int, restored: Sequence[Lost]) -> int:
    """Return how many numbers a migration may allocate in the cluster's log, which ends at `end`. The result is at most 0 if the
    reserve has begun.
    """
    first = lost_to(restored)
    return following(first, STRIDE) - RESERVE - max(first, end)
