"""Finds cuts by the records that Pulsar's brokers keep in ZooKeeper (the option `metadataUrl`).

The broker of a segment keeps the position up to which all transactions of the segment are decided (maxReadPosition), and delivers
nothing after it. The broker writes this position into the segment's watermark record after each plain message, and after it has
applied the end of a transaction. So the position in the record is never above maxReadPosition, and may be below it. While a
transaction is open, the broker leaves some probes without an answer, which costs time. The record saves these probes.

maxReadPosition itself may be wrong because of a fault of the broker (seen on 5.0.0-M1; 5.0.1 has the same code). If a broker
restarts while a transaction is open in a segment without a watermark record, it takes the end of the segment for maxReadPosition,
and delivers the rows of the open transaction. Later it writes the wrong position into the watermark record.

The op records show whether this can have happened. A broker writes an op record before each entry of a transaction. It deletes the
op records of a transaction in a segment after it has applied the end of the transaction in this segment. ZooKeeper numbers the
creations of all records in their order. A watermark record counts as proven (`proven`) if its segment has no op record that is
older. Younger op records do no harm: once the watermark record exists, a restarted broker begins at the position in this record,
and the entries of transactions with younger op records lie after it. A watermark record that was once proven stays proven as long
as it exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from metadata.common.clock import SystemClock
from metadata.common.errors import ConfigurationError
from metadata.common.service import ServiceUrl
from metadata.records.names import TopicName
from metadata.records.paths import topic, watermark
from metadata.store.contract import in_groups
from metadata.store.zookeeper_session import Outcome, Request, Session, children, get
from pulsar_protocol.cut import Cut, Segment
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.layout import Segment as LayoutSegment
from spark_txn_source.pulsar.asking import each

SECONDS: Final = 15.0
"""How long a plan waits for ZooKeeper."""
_OPS: Final = "/txn/op"
_COUNTER: Final = "__seq_counter__"
_SCHEME: Final = "segment://"


@dataclass(frozen=True)
class Watermark:
    """The watermark record of a segment. `created`: the number that ZooKeeper gave to the creation of the record."""

    position: Position
    created: int


def proven(found: Watermark, first_op: int | None) -> bool:
    """Return whether all entries up to a watermark are decided. `first_op`: the number that ZooKeeper gave to the creation of the
    segment's oldest op record. The op records must be read after the watermark. None: the segment had no op record.
    """
    return first_op is None or first_op > found.created


class BrokerRecords:
    """Reads the watermark and op records of a Pulsar cluster whose metadata store is ZooKeeper. Writes nothing."""

    def __init__(self, hosts: Sequence[str], root: str) -> None:
        self.url = f"zk://{','.join(hosts)}{root}"
        self._root = root
        self._session = Session(",".join(hosts), root, clock=SystemClock(), connect_seconds=SECONDS, session_seconds=SECONDS)
        self._ops: dict[str, tuple[str, int]] = {}
        """For each op record, by its name: its segment, and the number of its creation. The segment is empty for an op record that
        is not of a write. Op records do not change, so each is read once.
        """

    def check(self, segments: Iterable[LayoutSegment]) -> None:
        """Raise ConfigurationError if this store does not belong to the cluster that has these segments. One segment is checked."""
        for one in segments:
            if one.name.startswith(_SCHEME) and one.created_ms:
                tenant, namespace, rest = one.name.removeprefix(_SCHEME).split("/", 2)
                path = topic(TopicName(tenant, namespace, rest.rpartition("/")[0])).path
                (found,) = self._get([path])
                info = json.loads(found[0])["segments"].get(str(one.id)) if found is not None else None
                if info is None or info["createdAtMs"] != one.created_ms:
                    raise ConfigurationError(
                        f"metadataUrl is {self.url}, but the topic of {one.name} is not in this store, or is another one.",
                        advice="Give the ZooKeeper servers and the chroot of metadataStoreUrl in the brokers' configuration.",
                    )
                return

    def watermarks(self, segments: Sequence[str]) -> dict[str, Watermark]:
        """Return the watermarks of the segments that have one."""
        found = {}
        for name, record in zip(segments, self._get([watermark(name).path for name in segments]), strict=True):
            if record is not None:
                fields = json.loads(record[0])
                found[name] = Watermark(Position(fields["ledgerId"], fields["entryId"]), record[1].czxid)
        return found

    def first_ops(self) -> dict[str, int]:
        """Return, for each segment that has op records now, the number of the creation of the oldest one."""
        _, listed = self._session.flight([lambda client: client.sync_async(f"{self._root}{_OPS}"), children(f"{self._root}{_OPS}")])
        names = set() if isinstance(listed, NoNodeError) else {name for name in listed if not name.endswith(_COUNTER)}
        self._ops = {name: kept for name, kept in self._ops.items() if name in names}
        unknown = sorted(names - self._ops.keys())
        for name, record in zip(unknown, self._get([f"{_OPS}/{name}" for name in unknown]), strict=True):
            if record is not None:
                fields = json.loads(record[0])
                self._ops[name] = fields["segment"] if fields["kind"] == "WRITE" else "", record[1].czxid
        oldest: dict[str, int] = {}
        for segment, created in self._ops.values():
            oldest[segment] = min(created, oldest.get(segment, created))
        return oldest

    def _get(self, paths: Sequence[str]) -> list[tuple[bytes, Any] | None]:
        """Return the data and the stat of each record, or None for one that does not exist."""
        outcomes: list[Outcome] = []
        for part in in_groups(paths):
            requests: list[Request] = [get(f"{self._root}{path}") for path in part]
            outcomes += self._session.flight(requests)
        return [None if isinstance(one, NoNodeError) else one for one in outcomes]

    def close(self) -> None:
        self._session.close()


@contextmanager
def recorded_cuts(url: ServiceUrl | None) -> Iterator[RecordedCuts | None]:
    """Yield an object that finds cuts for one plan. Yield None if the option `metadataUrl` is not given (`url` is None)."""
    if url is None:
        yield None
        return
    found = RecordedCuts(BrokerRecords(url.hosts, url.path))
    try:
        yield found
    finally:
        found.close()


class RecordedCuts:
    """Finds the cuts of segments by the records of the brokers. It may be used by one thread at a time."""

    def __init__(self, records: BrokerRecords) -> None:
        self._records = records
        self._checked = False
        self._proven: dict[str, int] = {}
        """For each segment with a proven watermark record, the number of the record's creation."""

    def cuts(
        self, segments: Sequence[LayoutSegment], floors: Mapping[str, Position], segment: Callable[[str], Segment]
    ) -> dict[str, Cut]:
        """Return the cut of each segment, by name. `floors`: earlier cuts. `segment`: returns the object that asks the broker about
        a segment.

        The cut of a segment is found in one of four ways:

        * There is a proven watermark, and the segment has op records, or the watermark is at its last entry: the watermark.
        * There is a proven watermark below the last entry, and the segment has no op records. The broker has not written the
          watermark again since this entry, so probes find the cut.
        * There is no watermark record, and before and after the probes the segment has no op records: probes find the cut.
        * In all other cases: the earlier cut in `floors`.
        """
        if not self._checked:
            self._records.check(segments)
            self._checked = True
        by_name = {one.name: one for one in segments}
        scalable = [name for name in by_name if name.startswith(_SCHEME)]
        marks = self._records.watermarks(scalable)
        ops = self._records.first_ops()
        self._proven |= {name: mark.created for name, mark in marks.items() if proven(mark, ops.get(name))}

        def cut(name: str) -> Cut:
            floor, sealed, mark, asked = floors.get(name, EARLIEST), not by_name[name].active, marks.get(name), segment(name)
            if mark is None:
                return _nothing_new(floor, sealed) if name in ops else asked.cut(floor, sealed=sealed)
            if self._proven.get(name) != mark.created:
                return _nothing_new(floor, sealed)
            if name in ops:
                place = asked.last_read(mark.position, floor)
                return Cut(place, max(place, mark.position), False, sealed)
            last = asked.last()
            if mark.position < last:
                return asked.cut(floor, sealed=sealed)
            return Cut(asked.last_read(mark.position, floor), last, True, sealed)

        found = each(by_name, cut)
        if unmarked := [name for name in scalable if name not in marks and name not in ops]:
            ops = self._records.first_ops()
            found |= {name: _nothing_new(floors.get(name, EARLIEST), found[name].sealed) for name in unmarked if name in ops}
        return found

    def close(self) -> None:
        self._records.close()


def _nothing_new(floor: Position, sealed: bool) -> Cut:
    return Cut(floor, floor, False, sealed)
