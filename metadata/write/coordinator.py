"""Commit and abort of a transaction by the process that owns it (protocol.md section 5).

`commit` takes a transaction from its opening to its decision. In a process that has committed before, it waits for seven round
trips to the store. Acknowledgements take further round trips for the claims of their rows. Above 500 op records step 6 takes one
round trip for each 500. Apart from that, rows, tasks, segments and the length of the history do not change the number of round
trips. The steps:

1. Read the application and the layout.
2. Write the header and the application.
3. Append the registration to the log.
4. Read the log.
5. Read the seals and the layout.
6. Write the op records.
7. CAS the header from OPEN to COMMITTED. This CAS decides the transaction.

Events and settling follow in the background (`post_commit`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ledgers.model import Part
from metadata.cluster.cluster import Cluster
from metadata.common import metrics
from metadata.common.errors import (
    BadVersion,
    Fenced,
    OptionError,
    OutcomeUnknown,
    SegmentSealed,
    TransactionNotFound,
    TxnConflict,
    TxnSegmentError,
    UnknownOutcome,
)
from metadata.common.tracing import traced
from metadata.cursors.pending_ack import PendingAcks
from metadata.log import ending
from metadata.log.live_log import Entry, LiveLog, in_record
from metadata.records import paths
from metadata.records.names import TopicName, segment_name
from metadata.records.records import (
    Application,
    Header,
    Layout,
    Op,
    OpKind,
    Registration,
    State,
)
from metadata.rules import acks, transitions
from metadata.rules.transitions import Claim
from metadata.store.contract import ABSENT, Put, Record, View, decide, in_groups, time_ms, until
from metadata.topics.routing import targets
from metadata.topics.topics import Topics
from metadata.write import post_commit
from metadata.write.observed import committing, count, resolves
from metadata.write.opening import Opened, Opener
from metadata.write.outcome import gone
from metadata.write.rerouting import Rewriting, Written, rerouted
from metadata.write.txn_ids import TxnIds
from metadata.write.write_set import (
    Committed,
    Sealed,
    WriteSet,
    refuse_missing,
    refuse_old,
    refuse_rerouted,
    segment_write,
    topic_deleted,
    weight,
)

log = logging.getLogger("txnsegment.coordinator")

MAX_INLINE = 512 * 1024
"""A registration larger than this (bytes) keeps its parts in a manifest file."""


@dataclass
class Coordinator:
    """Commits and aborts transactions. There is one coordinator for each process and cluster. Several threads may use it.

    `background`: runs a job for which no caller waits.

        coordinator = Coordinator(cluster, background)
        coordinator.commit(WriteSet("app", "", Claim(version, None, attempt, replays=False), parts, staged_ms, timeout_ms))
    """

    cluster: Cluster
    background: Callable[[Callable[[], None]], None]
    log: LiveLog = field(default_factory=LiveLog)
    acks: PendingAcks = field(init=False)
    ids: TxnIds = field(init=False)
    opener: Opener = field(init=False)
    rewrite: Written = field(init=False)
    """The function that divides the rows of a part among the children of its segment."""

    def __post_init__(self) -> None:
        self.acks = PendingAcks(self.cluster)
        self.ids = TxnIds(self.cluster)
        self.opener = Opener(self.cluster, self.ids)
        self.rewrite = Rewriting(self.cluster.storage, self.cluster.unique, self.cluster.has_statistics)

    # --- the whole path -----------------------------------------------------------------------------------------

    def commit(self, work: WriteSet) -> Committed:
        """Commit the write set. It becomes visible as a whole or not at all, and at most once for its application and version.

        If a segment was split or merged after its parts were staged, the parts are routed to its children. To do so, the
        transaction is ABORTED, the parts are routed, and another transaction is opened. So no transaction is OPEN while the parts
        are routed.

        Raises OptionError (the cluster does not allow the timeout), VersionConflict, SubscriptionNotFound, StoreError,
        StorageError. Raises Fenced if another attempt, an operator or the timeout ended the transaction. Raises TxnConflict if the
        parts are too old, if their files are gone (PartsGone), or if the topic got a key. Raises SegmentSealed if a topic was
        deleted. Raises AckConflict, after which no row is committed or claimed. Raises OutcomeUnknown, after which the same version
        may be run again. This call deletes no published file.
        """
        self._check(work)
        if work.acks:
            work = dataclasses.replace(work, acks=acks.merged(work.acks))
        with committing(self.cluster, work) as seen:
            while True:
                try:
                    seen(done := self._commit(work))
                    return done
                except Sealed as sealed:  # a topic was split or merged during the commit
                    log.info("route on app=%s version=%s: %s", work.app, work.claim.version, sealed)
                    work = self._routed_on(work)

    def _commit(self, work: WriteSet) -> Committed:
        started = self.cluster.clock.monotonic()
        opened = self.opener.open(work)
        if isinstance(opened, Committed):
            if opened.skipped:
                log.info("skip app=%s version=%s: committed already", work.app, work.claim.version)
            return opened
        rows, size = weight(work)
        try:
            # Missing files are refused before the registration, so that a refused write does not delay readers.
            refuse_missing(self.cluster, work.app, work.parts)
            entry = self._register(opened, work) if work.parts else None
            sealed = [] if entry is None else self._sealed_below(entry, work)
            if sealed:
                raise Sealed(f"{', '.join(sealed)} were sealed while transaction {opened.txn_id} wrote to them")
            if work.acks:  # The rows are claimed first, because the op record of an acknowledgement says that its rows are claimed.
                self.acks.claim(opened.txn_id, work.acks)
            self._record(opened, entry, work)
        except BaseException as error:
            self._abort_after(error, opened.txn_id)
            raise
        number = None if entry is None else entry.number
        self._decide(opened, work, number)
        seconds = count(self.cluster, work, rows, size, started)
        log.info(
            "commit txn=%s app=%s version=%s log=%s segments=%s acks=%s rows=%s bytes=%s ms=%.1f",
            opened.txn_id,
            work.app,
            work.claim.version,
            number,
            len(work.parts),
            len(work.acks),
            rows,
            size,
            seconds * 1000,
        )
        self.background(lambda: post_commit.finish(self.cluster.store, self.log, self.acks, opened.txn_id, entry, work))
        if self.ids.low:
            self.background(self.ids.refill)
        return Committed(opened.txn_id, number, rows, size)

    @resolves("route")
    def _routed_on(self, work: WriteSet) -> WriteSet:
        """Return the write set with its parts routed to the segments that are active now.

        Raises SegmentSealed (a topic was deleted, or a newer version of txnsegment sealed segments), TxnConflict (the topic got a
        key, or the parts are too old), PartsGone, StorageError.
        """
        topics = Topics(self.cluster)
        topics.finish_seals()  # the layout may not show the seal yet
        by_topic: dict[TopicName, dict[str, Sequence[Part]]] = {}
        for segment, parts in work.parts.items():
            by_topic.setdefault(segment_name(segment).topic, {})[segment] = parts
        found: dict[str, Sequence[Part]] = {}
        for name, parts_of in by_topic.items():
            topic = topics.find(name)
            if topic is None:
                raise topic_deleted(sorted(parts_of))
            refuse_old(work, time_ms(self.cluster.store), self.cluster.settings)
            if not all(str(segment_name(s).segment_id) in topic.layout.segments for s in parts_of):
                raise topic_deleted(sorted(parts_of))
            refuse_missing(self.cluster, work.app, parts_of)  # rerouting reads some of the files
            refuse_rerouted(work, {name: topic.layout})
            found |= rerouted(parts_of, targets(topic), topic.layout.key, self.rewrite)
        if found.keys() == work.parts.keys():
            raise SegmentSealed(
                f"Segments of {', '.join(str(name) for name in by_topic)} were sealed in a way that this version does not know.",
                advice="Nothing was committed. Run the newer version of txnsegment until the layout is complete.",
            )
        return dataclasses.replace(work, parts=found, txn_id=None)

    def _check(self, work: WriteSet) -> None:
        settings = self.cluster.settings
        if not 0 < work.timeout_ms <= settings.max_txn_timeout_ms:
            raise OptionError(
                f"txnTimeoutMs = {work.timeout_ms} is not between 1 and this cluster's {settings.max_txn_timeout_ms}.",
                advice="The timeout covers opening to deciding, not the batch's duration. Leave it at the default if in doubt.",
            )

    # --- register, check, record ---------------------------------------------------------------------------------

    @traced("register")
    def _register(self, opened: Opened, work: WriteSet) -> Entry:
        segments = {name: segment_write(parts) for name, parts in sorted(work.parts.items())}
        # The publish time is taken after the header is OPEN, and is never earlier than the creation time in the header. Reads by
        # publish time rely on both, because they wait for OPEN headers (section 6).
        publish_ms = max(self._now(), opened.header.created_ms)
        registration = Registration(txn=opened.txn_id, publish_ms=publish_ms, segments=segments)

        def path() -> str:
            return f"manifests/{opened.txn_id}-{self.cluster.unique()}.json"

        registration, body = in_record(self.cluster.storage, registration, path, most=MAX_INLINE)
        try:
            record = self.cluster.store.append(paths.LOG, body)
            entry = Entry(record.number, record, registration)
        except UnknownOutcome:
            found = self._find_registration(opened.txn_id)
            if found is None:
                # A synced read found no registration, so another one is appended. If the first append takes effect later, its
                # registration is void, because the header names the other one (failure A26).
                record = self.cluster.store.append(paths.LOG, body)
                found = Entry(record.number, record, registration)
            entry = found
        self.log.update(entry)
        return entry

    @resolves("register")
    def _find_registration(self, txn_id: str) -> Entry | None:
        listing = decide(self.cluster.store, self.log.list)
        return next((e for e in listing.entries if e.registration.txn == txn_id), None)

    def _sealed_below(self, entry: Entry, work: WriteSet) -> list[str]:
        """Return the segments of this write set that have a seal below its registration. The log is read before the layouts,
        because a seal leaves the log only after the layout shows it.
        """
        topics = sorted({segment_name(s).topic for s in work.parts})

        def body(view: View) -> list[str]:
            listing = self.log.list(view, then=[paths.topic(t) for t in topics])
            layouts = {t: None if r is None else Layout.of(r) for t, r in zip(topics, listing.also, strict=True)}
            refuse_rerouted(work, layouts)
            seals = listing.seals()
            found = []
            for segment in work.parts:
                name = segment_name(segment)
                layout = layouts[name.topic]
                if layout is None or str(name.segment_id) not in layout.segments:
                    if layout is not None and not layout.deleted:  # the segment was sealed so long ago that it has left the layout
                        refuse_old(work, view.now_ms(), self.cluster.settings)
                    raise topic_deleted([segment])  # the topic may exist again under the same name
                sealed = transitions.sealed_at(name.segment_id, segment, layout, seals)
                if transitions.void_by_seal(entry.number, sealed):
                    found.append(segment)
            return found

        return decide(self.cluster.store, body)

    @traced("record")
    def _record(self, opened: Opened, entry: Entry | None, work: WriteSet) -> None:
        """Write the op records: one for each segment, with the position of the segment's first entry, then one for each ack. Only
        this process writes op records of the transaction. So it chooses their numbers itself, and need not read the store first.
        """
        prefix = paths.ops(opened.txn_id)
        ops = (
            []
            if entry is None
            else [Op(kind=OpKind.WRITE, segment=segment, ledger_id=entry.number, entry_id=0) for segment in sorted(work.parts)]
        )
        puts = []
        for i, op in enumerate([*ops, *map(acks.op, work.acks)]):
            puts.append(Put(prefix.key(i), op.to_bytes(), expect=ABSENT, indexes=op.indexes(opened.txn_id), durable=False))
        for group in in_groups(puts):
            try:
                self.cluster.store.write(*group)
            except UnknownOutcome:
                self._record_rest(group)
        metrics.OP_WRITES.inc(len(puts))

    @resolves("record")
    def _record_rest(self, puts: Sequence[Put]) -> None:
        """Write the missing op records of a group whose reply was lost. No other process writes op records of this transaction."""

        def step() -> bool | None:
            found = decide(self.cluster.store, lambda view: view.get_many([put.key for put in puts]))
            missing = [put for put, record in zip(puts, found, strict=True) if record is None]
            if not missing:
                return True
            try:
                self.cluster.store.write(*missing)
            except (BadVersion, UnknownOutcome):
                return None  # the first write arrived late, or this reply was lost too
            return True

        until(step)

    # --- decide ---------------------------------------------------------------------------------------------------

    @traced("decide")
    def _decide(self, opened: Opened, work: WriteSet, number: int | None) -> None:
        """CAS the header from OPEN to COMMITTED. Only this CAS commits the transaction. If its reply is lost, a read of the header
        tells the outcome. Raises OutcomeUnknown if this read fails, too. Raises Fenced if another process has aborted the
        transaction.
        """
        key, record, sent = paths.header(opened.txn_id), opened.record, False
        try:
            now_ms = self._now()  # this is a separate request, which may also fail
            while True:
                ended = ending.end(self.cluster.store, record, State.COMMITTED, now_ms=now_ms, commit=number)
                if ended is not None:
                    break
                sent = True
                found = self._outcome(key)
                if found is None:
                    ended = gone(self.cluster, opened, work)
                    break
                record = found
        except TxnConflict as error:
            raise Fenced(
                f"Transaction {opened.txn_id} (version {work.claim.version} of {work.app}) was aborted before its commit.",
                advice="A newer attempt, an operator or its timeout (txnTimeoutMs) ended it; none of its rows are visible.",
            ) from error
        except TxnSegmentError as error:
            if isinstance(error, OutcomeUnknown):
                raise
            if not sent:  # The CAS was not done. Abort now, because readers would otherwise wait for the deadline (A4).
                self._abort_after(error, opened.txn_id)
                raise
            raise OutcomeUnknown(
                f"Transaction {opened.txn_id} (version {work.claim.version} of {work.app}) may have committed: the reply to its "
                f"deciding write was lost, and then the metadata store could not be asked: {error}",
                advice="Nothing was deleted. Run the same version again: it is skipped if it committed.",
            ) from error
        self.opener.remember(opened.txn_id, ended)

    @resolves("decide")
    def _outcome(self, header: paths.Key) -> Record | None:
        return decide(self.cluster.store, lambda view: view.get(header))

    # --- abort ----------------------------------------------------------------------------------------------------

    def abort(self, txn_id: str) -> None:
        """Abort a transaction. Idempotent. Raises TxnConflict if it has committed, TransactionNotFound if the id is unknown."""
        self._end_aborted(txn_id, None)

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None:
        """Abort the transaction of one attempt at a write. Spark may ask for this in another process and much later. So only an
        OPEN header of this version and attempt is aborted (failure A36).
        """
        record = decide(self.cluster.store, lambda view: view.get(paths.application(app, app_topic)))
        current = None if record is None else Application.of(record).current
        if current is not None and current.version == claim.version:
            self._end_aborted(current.txn_id, claim)

    def _end_aborted(self, txn_id: str, claim: Claim | None) -> None:
        def step() -> bool | None:
            record = decide(self.cluster.store, lambda view: view.get(paths.header(txn_id)))
            if record is None:
                if claim is not None:
                    return False
                raise TransactionNotFound(
                    f"There is no transaction {txn_id}.", advice="The id was never used, or its header expired after the retention."
                )
            if claim is not None and not transitions.may_abort(Header.of(record), claim):
                return False
            return ending.end(self.cluster.store, record, State.ABORTED, now_ms=self._now()) is not None or None

        if until(step):  # False: the transaction is gone, is not OPEN, or belongs to another attempt
            self.background(lambda: post_commit.notify_aborted(self.cluster.store, self.log, txn_id))

    def _abort_after(self, error: BaseException, txn_id: str) -> None:
        """Abort a transaction whose owner failed before the decision, so that readers need not wait for its deadline."""
        try:
            self._end_aborted(txn_id, None)
        except TxnSegmentError as second:
            error.add_note(f"Transaction {txn_id} could not be aborted either ({second}); its timeout will end it.")

    def _now(self) -> int:
        return time_ms(self.cluster.store)
