"""What is seen of a commit from outside: its metrics, the figures of this process, and its OpenTelemetry span."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from metadata.cluster.cluster import Cluster
from metadata.common import metrics
from metadata.common.tracing import is_traced, span
from metadata.records.names import topic_of
from metadata.write.write_set import Committed, WriteSet

P = ParamSpec("P")
R = TypeVar("R")


class Owner(Protocol):
    """An object with a cluster."""

    cluster: Cluster


C = TypeVar("C", bound=Owner)


@contextmanager
def committing(cluster: Cluster, work: WriteSet) -> Iterator[Callable[[Committed], None]]:
    """Observe a commit in the block. The block calls the function that it gets with the result of the commit."""
    app = None if work.random else work.app
    with span("commit", application=work.app, version=work.claim.version) as made, cluster.figures.committing(app):
        if is_traced():
            touched = {*work.parts, *(ack.segment for ack in work.acks)}
            made.set(topics=tuple(sorted({str(topic_of(name)) for name in touched})))
        try:
            yield lambda done: made.set(
                transaction=done.txn_id, rows=done.rows, bytes=done.bytes, log_number=done.number, skipped=done.skipped
            )
        finally:
            made.set(retries=cluster.figures.retries_of_commit)


def count(cluster: Cluster, work: WriteSet, rows: int, size: int, started_s: float) -> float:
    """Count a commit that was just decided. Return how long it took, in seconds. `started_s`: the monotonic time of its start."""
    now_s = cluster.clock.monotonic()
    metrics.COMMIT_SECONDS.observe(now_s - started_s)
    metrics.ROWS_WRITTEN.inc(rows)
    metrics.BYTES_WRITTEN.inc(size)
    cluster.figures.committed(rows, size, now_s - started_s, now_s)
    return now_s - started_s


def resolves(step: str) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
    """Decorate a method that is called after a lost reply or a lost race of a commit: the call counts as a retry, and is a span
    `txnsegment.resolve` with the step that was lost.
    """

    def decorate(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
        @functools.wraps(method)
        def call(self: C, /, *arguments: P.args, **named: P.kwargs) -> R:
            self.cluster.figures.retried()
            with span("resolve", step=step):
                return method(self, *arguments, **named)

        return call

    return decorate
