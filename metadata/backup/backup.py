"""Reading a consistent backup of a cluster's metadata while everybody writes: no locks, nothing is written (operations.md, Backup).

A backup is the log up to a number N at or below which everything is decided, as a reader sees it (protocol.md section 6), and what
every other record said at that moment. The order of reading makes that so:

1. the end of the log; then applications, cursors, watermarks: what they say comes from registrations that are in the log by now;
2. the log with its headers, until all that was in it when it was first listed is decided: its cut is N;
3. the headers of what step 1 has seen under way; then applications and cursors again: what came in between is told apart by
   `consistent_cut`, or the reading begins anew;
4. layouts, watermarks, schemas, as a reader does: what is folded, created or evolved by then is in them. A layout that shows a seal
   above N begins the reading anew; a watermark above N is put back to that of step 1, and the log has what lies in between. A
   registration that came and left the log again since step 1 begins the reading anew, too.

The older model is read in between, in an order of its own (`metadata.backup.in_stream`): its pending-ack logs at the end of step 1,
all else after the layouts, which show what was migrated, and before the schemas.

What is not decided by N is not in the backup; it never happened there. Headers, ops, claims and events are not either: everything
in the backup is settled, so they are as if forgotten. Random applications go with their headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ledgers import snapshots
from metadata.backup import in_stream
from metadata.backup.backup_file import FORMAT, FORMAT_IN_STREAM, Backup, Heading, Kept, made
from metadata.backup.in_stream import InStreamReader
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BackupUnsettled
from metadata.instream.model import transaction_buffer
from metadata.log.live_log import Entry
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord
from metadata.records.paths import Key, KeyRange
from metadata.records.records import (
    AbortedTxn,
    Application,
    Cursor,
    Header,
    Layout,
    Registration,
    Settled,
    State,
    TcSequence,
    Watermark,
)
from metadata.rules import consistent_cut, transitions
from metadata.rules.consistent_cut import Moving, Told, Written
from metadata.rules.transitions import Verdict
from metadata.store.contract import Record, View

WAIT_SECONDS = 1.0
"""How long one reading waits for what is undecided, before it begins anew."""
PAUSE_SECONDS = 0.01


@dataclass
class _Log:
    """The log up to N with its verdicts. `entries`: all of it, what lies above N too."""

    number: int
    entries: list[Entry]
    verdicts: Mapping[int, Verdict]


@dataclass
class BackupReader:
    """Takes one backup. What an earlier reading has learnt serves the next one."""

    cluster: Cluster
    _buffer: TransactionBuffer = field(init=False)
    _in_stream: InStreamReader = field(init=False)
    _early: set[str] = field(default_factory=set)
    """Transactions without a number that had committed before this reading began."""
    _forgotten: set[int] = field(default_factory=set)
    """Registrations whose header was gone before this reading began: all that they changed was there by then."""

    def __post_init__(self) -> None:
        self._buffer = transaction_buffer(self.cluster)
        self._in_stream = InStreamReader(self.cluster)

    def take(self, patience_seconds: float | None = None) -> Backup:
        """The backup. Everything that was acknowledged before the call is in it.

        `patience_seconds`: by default the longest that a transaction of a dead owner can stay undecided, and a minute. Raises
        BackupUnsettled after it.
        """
        settings, clock = self.cluster.settings, self.cluster.clock
        if patience_seconds is None:
            patience_seconds = (settings.max_txn_timeout_ms + settings.deadline_allowance_ms) / 1000 + 60
        end = clock.monotonic() + patience_seconds
        while True:
            try:
                return self._buffer.deciding(self._read)
            except Moving as moved:
                if clock.monotonic() >= end:
                    raise BackupUnsettled(
                        f"No consistent backup of {self.cluster.url} could be read in {patience_seconds:.0f} s: {moved.message}.",
                        advice="Try again at a quieter time. Nothing was written, and nothing has to be cleaned up.",
                    ) from moved
                clock.sleep(PAUSE_SECONDS)

    def _read(self, view: View) -> Backup:
        earlier = view.keys(paths.LOG.range())
        begun = paths.sequence_number(earlier[-1]) if earlier else 0
        apps = _records(view, paths.APPLICATIONS)
        cursors = _records(view, paths.CURSORS)
        marks = _records(view, paths.WATERMARKS)
        begun_in_stream = self._in_stream.begin(view)
        log = self._log(view)
        number = log.number

        headers = self._headers(view, _under_way(apps, cursors) | {e.registration.txn or "" for e in log.entries})
        written = self._written(log, headers)
        apps_after = _records(view, paths.APPLICATIONS)
        cursors_after = _records(view, paths.CURSORS)
        headers |= self._headers(view, _under_way({}, cursors_after) - headers.keys())

        def told(txn: str) -> Told:
            return Told(headers[txn], txn in self._early)

        try:
            records = [*_applications(number, apps, apps_after, written, told), *_cursors(number, cursors, cursors_after, told)]
        finally:
            self._early |= {t for t, h in headers.items() if h is not None and h.state is State.COMMITTED and h.commit is None}
        layouts = _records(view, paths.TOPICS)
        consistent_cut.check_layouts(number, map(Layout.of, layouts.values()))
        watermarks = self._watermarks(view, log, begun, marks)
        older = self._in_stream.read(view, begun_in_stream)
        schemas, namespaces = _records(view, paths.SCHEMAS), _records(view, paths.NAMESPACES)
        sequences = _records(view, paths.TC_SEQUENCES)
        known = view.get(paths.CLUSTER)
        records += [Kept(r.key, r.value) for r in (*layouts.values(), *schemas.values(), *namespaces.values())]
        records += [Kept(key, mark.to_bytes()) for key, mark in watermarks.items()]
        records += self._registrations(view, log, watermarks)
        cluster = None if known is None else ClusterRecord.of(known)
        heading = Heading(
            txnsegment_backup=FORMAT_IN_STREAM if older.any else FORMAT,
            cluster=self.cluster.id or "",
            ledgers=self.cluster.storage.uri,
            number=number,
            taken_ms=view.now_ms(),
            created_at_ms=view.now_ms() if cluster is None else cluster.created_at_ms,
            next_txn=max((TcSequence.of(r).next for r in sequences.values()), default=0),
            topics=sum(not Layout.of(r).deleted for r in layouts.values()) + older.shown,
            records=0,
            settings=self.cluster.settings,
            restored=self.cluster.restored or None,
            in_stream=older.highest or None,
        )
        records += older.kept(heading.following)
        records = sorted({kept.key: kept for kept in records}.values(), key=lambda kept: kept.key)
        return made(heading.model_copy(update={"records": len(records)}), tuple(records))

    # --- the log, and what its transactions wrote ------------------------------------------------------------------

    def _log(self, view: View) -> _Log:
        """The log, once everything is decided that was in it at the first look. Raises Moving if that takes its time."""
        clock, until, first = self.cluster.clock, None, None
        while True:
            listing = self._buffer.log.list(view, again=self._buffer.still_open)
            verdicts = self._buffer.verdicts(view, listing)
            first = listing.end if first is None else first
            number = transitions.cut((n for n, verdict in verdicts.items() if verdict is Verdict.UNDECIDED), listing.end)
            if number >= first:
                return _Log(number, listing.entries, verdicts)
            now = clock.monotonic()
            until = now + WAIT_SECONDS if until is None else until
            if now >= until:
                raise Moving(f"registration {number + 1} is not decided")
            clock.sleep(PAUSE_SECONDS)

    def _headers(self, view: View, txns: Iterable[str]) -> dict[str, Header | None]:
        wanted = sorted(t for t in txns if t)
        found = view.get_many([paths.header(t) for t in wanted]) if wanted else []
        return {t: None if r is None else Header.of(r) for t, r in zip(wanted, found, strict=True)}

    def _written(self, log: _Log, headers: Mapping[str, Header | None]) -> dict[str, list[Written]]:
        """By application what the listed registrations wrote. Raises Moving for one whose header was forgotten just now."""
        found: dict[str, list[Written]] = {}
        gone = set()
        for entry in log.entries:
            txn = entry.registration.txn
            header = None if txn is None else headers[txn]
            verdict = log.verdicts[entry.number]
            if header is not None and header.app is not None and header.version is not None:
                if verdict is not Verdict.FILTERED:
                    one = Written(entry.number, txn or "", header.version, verdict is Verdict.VISIBLE)
                    found.setdefault(header.app, []).append(one)
            elif txn is not None and header is None:
                gone.add(entry.number)
        new, self._forgotten = gone - self._forgotten, self._forgotten | gone
        if new:
            raise Moving("a header was forgotten meanwhile")
        return found

    def _registrations(self, view: View, log: _Log, watermarks: Mapping[Key, Watermark]) -> Iterable[Kept]:
        """The log up to N, all of it settled, and the aborted records of what is void and not folded."""
        newest = 0
        for entry in log.entries:
            if entry.number > log.number:
                continue
            newest, registration = entry.number, entry.registration
            if registration.txn is not None:
                state = transitions.settled(log.verdicts[entry.number])
                registration = registration.model_copy(update={"state": state})
                yield from _aborted(entry.number, registration, watermarks)
            yield Kept(paths.LOG.key(entry.number), registration.to_bytes())
        if newest < log.number:  # the cut lies before something undecided: the log must reach it all the same
            yield Kept(paths.LOG.key(log.number), Registration(publish_ms=view.now_ms(), state=Settled.VOID).to_bytes())

    # --- watermarks ------------------------------------------------------------------------------------------------

    def _watermarks(self, view: View, log: _Log, begun: int, before: Mapping[Key, Record]) -> dict[Key, Watermark]:
        """Watermarks at or below N: those of now, or where they have passed N those of before, as long as the log has all that was
        folded in between. Raises Moving if it has not; and if a registration above `begun`, the end of the log before anything was
        read, has left it: its application was perhaps read before it, and nothing tells of it.
        """
        found: dict[Key, Watermark] = {}
        for key, record in _records(view, paths.WATERMARKS).items():
            now = Watermark.of(record)
            old = before.get(key)
            earlier = None if old is None else Watermark.of(old)
            put_back = now.ledger_id > log.number
            since = min(begun, 0 if earlier is None else earlier.ledger_id) if put_back else begun
            if now.ledger_id > since:
                self._check_listed(log, paths.decode(key.partition), now, since)
            if not put_back:
                found[key] = now
            elif earlier is not None:
                found[key] = earlier
        return found

    def _check_listed(self, log: _Log, segment: str, mark: Watermark, since: int) -> None:
        """Raises Moving unless the listed log has all that the segment's snapshot has above `since` and up to N."""
        if mark.snapshot is None:
            return
        listed = {e.number for e in log.entries if segment in e.registration.segments}
        head = snapshots.read_head(self.cluster.storage, mark.snapshot)
        for ledger in snapshots.read_ledgers(self.cluster.storage, head, since, log.number):
            if ledger.id not in listed:
                raise Moving(f"registration {ledger.id} was folded and left the log meanwhile")


def _under_way(apps: Mapping[Key, Record], cursors: Mapping[Key, Record]) -> set[str]:
    """Transactions that applications and cursors name."""
    current = [Application.of(r).current for r in apps.values()]
    claims = [txn for r in cursors.values() for txn in Cursor.of(r).claims]
    return {*claims, *(c.txn_id for c in current if c is not None)}


def _applications(
    number: int,
    before: Mapping[Key, Record],
    after: Mapping[Key, Record],
    written: Mapping[str, list[Written]],
    told: consistent_cut.Teller,
) -> Iterable[Kept]:
    for key in sorted(before.keys() | after.keys()):
        was, now = (Application() if r is None else Application.of(r) for r in (before.get(key), after.get(key)))
        if was.random or now.random:
            continue
        app = consistent_cut.application_at(number, was, now, written.get(key.partition, ()), told)
        if app.last_committed >= 0:
            yield Kept(key, app.to_bytes())


def _cursors(number: int, before: Mapping[Key, Record], after: Mapping[Key, Record], told: consistent_cut.Teller) -> Iterable[Kept]:
    if before.keys() != after.keys():
        raise Moving("a subscription was made or deleted meanwhile")
    for key in sorted(before):
        yield Kept(key, consistent_cut.cursor_at(number, Cursor.of(before[key]), Cursor.of(after[key]), told).to_bytes())


def _aborted(number: int, registration: Registration, watermarks: Mapping[Key, Watermark]) -> Iterable[Kept]:
    """As a sweeper leaves them behind when it settles: until the segment's watermark has passed. (Of a transaction that was
    registered twice the last one counts.)"""
    if registration.state is not Settled.VOID:
        return
    for segment, write in registration.segments.items():
        mark = watermarks.get(paths.watermark(segment))
        if mark is None or mark.ledger_id < number:
            record = AbortedTxn(max_ledger_id=number, max_entry_id=max(0, write.entries - 1))
            yield Kept(paths.aborted(segment, registration.txn or ""), record.to_bytes())


_PARTITIONS: Mapping[KeyRange, Callable[[str], str]] = {
    paths.APPLICATIONS: lambda path: path.removeprefix("/txn/app/"),
    paths.CURSORS: lambda path: path.removeprefix("/cursors/"),
    paths.WATERMARKS: lambda path: path.rpartition("/")[2],
    paths.SCHEMAS: lambda path: path.split("/")[2],
    paths.TOPICS: lambda path: "",
    paths.NAMESPACES: lambda path: "",
    paths.TC_SEQUENCES: lambda path: "",
}
"""What a backup is made of besides the log: the ranges, and the partition key of a path in each."""

LEFT_OUT = (
    "/cluster",
    "/founding",
    "/sweep/",
    "/txn/id/",
    "/txn/op/",
    "/txn/segment-events/",
    "/txn/subscription-events/",
    "/txn/segment-state/aborted/",
)
"""What no backup holds: it is settled and forgotten there, or made anew. (Aborted records follow from the log.)"""


def is_known(path: str) -> bool:
    """Whether a backup takes this record into account, or leaves it out knowingly."""
    kept = any(within.first <= path <= within.last for within in (*_PARTITIONS, paths.LOG.range()))
    return kept or path.startswith(LEFT_OUT) or (path.startswith("/persistent/") and in_stream.is_known(path))


def _records(view: View, within: KeyRange) -> dict[Key, Record]:
    """All records of a range. One that goes between list and get is left out."""
    keys = [Key(path, _PARTITIONS[within](path)) for path in view.keys(within)]
    return {r.key: r for r in (view.get_many(keys) if keys else []) if r is not None}
