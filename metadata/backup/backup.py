"""Read a consistent backup of a cluster's metadata while writers run (operations.md, Backup). The reader takes no lock and writes
nothing.

A backup has a log number N. Every transaction that is registered at or below N is decided, as for the cut of a reader (protocol.md
section 6). The backup has the log up to N, and all other records with their content as of N. The order of reading makes the
backup consistent:

1. Read the end of the log, then applications, cursors and watermarks. If one of these records shows a change by a registration, the
   registration was appended before the record was read, so it lies at or below N.
2. Read the log and the headers of its transactions, until every entry of the first listing is decided. N is the cut of the last
   listing.
3. Read the headers of the transactions that the applications and cursors of step 1 name, then applications and cursors again.
   `consistent_cut` derives the content of applications and cursors at N. If that is impossible, the attempt starts over.
4. Read layouts, watermarks and schemas, in this order. They show what was folded, created or evolved before this step. The
   attempt starts over if a layout shows a seal above N, or if a registration was appended since step 1 and has left the log again.
   A watermark above N is replaced by the watermark that step 1 read. The log has the registrations between that watermark and N.

The marker-based model has its own order (`metadata.backup.in_stream`). Its pending-ack logs are read at the end of step 1. The rest
is read in step 4: after the layouts, which show migrations, and before the schemas.

Transactions that are undecided at N are not in the backup. All transactions in the backup are settled. So the backup needs no
headers, op records, pending acks or events. After a restore these records count as expired. Applications with a random id are left
out as well, because the record of such an application expires with the header of its transaction.
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
"""Time in seconds that one attempt waits for undecided transactions. After that time the backup starts over."""
PAUSE_SECONDS = 0.01


@dataclass
class _Log:
    """The log with its verdicts. `number`: N, at or below which everything is decided. `entries`: the whole log, also above N."""

    number: int
    entries: list[Entry]
    verdicts: Mapping[int, Verdict]


@dataclass
class BackupReader:
    """Takes one backup, in one or more attempts. An attempt fails with `Moving` if records changed while it read them. The next
    attempt uses what the failed attempt has cached.
    """

    cluster: Cluster
    _buffer: TransactionBuffer = field(init=False)
    _in_stream: InStreamReader = field(init=False)
    _early: set[str] = field(default_factory=set)
    """Transactions without rows that an earlier attempt found COMMITTED. Their headers name no log number. So only this set shows
    that they committed before this attempt began.
    """
    _forgotten: set[int] = field(default_factory=set)
    """Registrations whose header an earlier attempt found expired. Such a registration was settled before this attempt began, so
    all reads of this attempt show its changes.
    """

    def __post_init__(self) -> None:
        self._buffer = transaction_buffer(self.cluster)
        self._in_stream = InStreamReader(self.cluster)

    def take(self, patience_seconds: float | None = None) -> Backup:
        """Take the backup. It contains the effects of every call of any client that returned before this call began.

        `patience_seconds`: how long attempts are repeated. The default is the longest timeout of a transaction, plus the allowance,
        plus a minute. Raises BackupUnsettled after that time.
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
        records += older.kept(heading.in_stream_following)
        records = sorted({kept.key: kept for kept in records}.values(), key=lambda kept: kept.key)
        return made(heading.model_copy(update={"records": len(records)}), tuple(records))

    # --- the log and its transactions ------------------------------------------------------------------------------

    def _log(self, view: View) -> _Log:
        """Return the log as soon as every entry of its first listing is decided. Raises Moving after WAIT_SECONDS."""
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
        """Return, by application, the listed registrations whose transactions write a version. Raises Moving if a header expired
        during this attempt.
        """
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
            raise Moving("a header expired meanwhile")
        return found

    def _registrations(self, view: View, log: _Log, watermarks: Mapping[Key, Watermark]) -> Iterable[Kept]:
        """Yield the log up to N, with all registrations settled. Yield also the aborted records of those void registrations that
        are not folded yet.
        """
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
        if newest < log.number:  # the log has no entry N: a void registration takes its place, so that the restored log reaches N
            yield Kept(paths.LOG.key(log.number), Registration(publish_ms=view.now_ms(), state=Settled.VOID).to_bytes())

    # --- watermarks ------------------------------------------------------------------------------------------------

    def _watermarks(self, view: View, log: _Log, begun: int, before: Mapping[Key, Record]) -> dict[Key, Watermark]:
        """Return the watermarks of the backup, all at or below N. A watermark above N is replaced by the watermark that step 1
        read. The log must then have all registrations that were folded between the two reads.

        Raises Moving if the log lacks one of these registrations. Raises Moving also if a registration above `begun` (the end of
        the log before this attempt) has left the log. The record of its application may have been read before the registration
        committed. Then no record of the backup would show the committed version.
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
        """Raise Moving if the segment's snapshot has a registration above `since`, up to N, that the listing of the log lacks."""
        if mark.snapshot is None:
            return
        listed = {e.number for e in log.entries if segment in e.registration.segments}
        head = snapshots.read_head(self.cluster.storage, mark.snapshot)
        for ledger in snapshots.read_ledgers(self.cluster.storage, head, since, log.number):
            if ledger.id not in listed:
                raise Moving(f"registration {ledger.id} was folded and left the log meanwhile")


def _under_way(apps: Mapping[Key, Record], cursors: Mapping[Key, Record]) -> set[str]:
    """Return the transactions that are the current attempt of an application, or hold a pending ack in a cursor."""
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
        raise Moving("a subscription was created or deleted meanwhile")
    for key in sorted(before):
        yield Kept(key, consistent_cut.cursor_at(number, Cursor.of(before[key]), Cursor.of(after[key]), told).to_bytes())


def _aborted(number: int, registration: Registration, watermarks: Mapping[Key, Watermark]) -> Iterable[Kept]:
    """Yield the aborted records (`AbortedTxn`) of a void registration: one for each segment whose watermark lies below the
    registration. A sweeper writes the same records. Two registrations of one transaction give two records with the same key. The
    caller keeps the second one.
    """
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
"""The key ranges that a backup reads besides the log. Each range has a function that returns the partition key of a path."""

LEFT_OUT = (
    "/cluster",
    "/founding",
    "/sweep/",
    "/drivers/",
    "/txn/id/",
    "/txn/op/",
    "/txn/segment-events/",
    "/txn/subscription-events/",
    "/txn/segment-state/aborted/",
)
"""Prefixes of the records that a backup does not copy. After a restore these records count as expired or are created again. The
backup derives the aborted records (`AbortedTxn`) that it needs from the log.
"""


def is_known(path: str) -> bool:
    """Return whether backups handle records of this path: they either hold such records or leave them out on purpose."""
    kept = any(within.first <= path <= within.last for within in (*_PARTITIONS, paths.LOG.range()))
    return kept or path.startswith(LEFT_OUT) or (path.startswith("/persistent/") and in_stream.is_known(path))


def _records(view: View, within: KeyRange) -> dict[Key, Record]:
    """Return all records of a range. A record that was deleted between the list and the get is left out."""
    keys = [Key(path, _PARTITIONS[within](path)) for path in view.keys(within)]
    return {r.key: r for r in (view.get_many(keys) if keys else []) if r is not None}
