"""The record in which a driver reports its figures, so that one program can show all drivers of a cluster (protocol.md section 4).

No rule of the protocol depends on these records. A process that loses its record, or never writes one, works in the same way.
"""

from __future__ import annotations

from metadata.records.json_records import JsonRecord, Whole


class ReadFigures(JsonRecord):
    """A stream or consumer of a driver. `what`: the topics that it reads. `subscription`: its subscription, if it has one. `lag`:
    the committed rows that it had not read when it last planned. `more`: true if the lag is larger, because not all rows were
    counted.
    """

    what: str
    lag: Whole
    subscription: str | None = None
    more: bool | None = None


class Recent(JsonRecord):
    """What a driver counted in the last `ms` milliseconds before its report."""

    ms: Whole
    commits: Whole = 0
    rows: Whole = 0
    rows_read: Whole = 0


class DriverReport(JsonRecord):
    """The figures of a driver since it began: a process that writes or reads with txnsegment.

    `owner`: the host and pid, as headers name the owner of a transaction. `program`: the name of its program, or `spark` for a
    Python worker of Spark's driver. `since_ms`: when it first reported. `at_ms`: when it reported these figures. Both are by the
    clock of the store. `every_ms`: how often it reports while its figures change. `ended`: true if it has ended in good order.

    `applications`: the application ids of its last commits, without random ones. `open`: its transactions that are between
    opening and decision. `conflicts`: commits that another attempt, reader or acknowledgement prevented. `failures`: commits that
    raised another error. `retries`: steps of commits that were done again, after a lost reply or a split. `rows`, `bytes`: those
    of its commits. `rows_read`: rows that its streams planned and its consumers delivered. `commit_us`: the time of all commits, in
    microseconds. `buckets`: how many commits took at most each of `metadata.cluster.figures.BUCKETS`, and the rest. `unsent`: how
    many reports failed.
    """

    owner: str
    program: str
    since_ms: Whole
    at_ms: Whole
    every_ms: Whole
    ended: bool | None = None
    applications: tuple[str, ...] = ()
    open: Whole = 0
    commits: Whole = 0
    conflicts: Whole = 0
    failures: Whole = 0
    retries: Whole = 0
    rows: Whole = 0
    bytes: Whole = 0
    rows_read: Whole = 0
    commit_us: Whole = 0
    buckets: tuple[Whole, ...] = ()
    last_commit_ms: Whole | None = None
    recent: Recent = Recent(ms=0)
    reads: tuple[ReadFigures, ...] = ()
    unsent: Whole = 0
