"""The owner's side of a transaction of the older model: begin, register, append, commit or abort (docs/in_stream.md, Writing).

Each step asks the transaction log, in whose order the first transition that is allowed takes effect. COMMITTING in the log is the
only commit point; what comes after it (markers, then COMMITTED) is `end`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ledgers.model import Part
from metadata import metrics, paths, transitions
from metadata.acks import Ack, merged
from metadata.aftermath import inline
from metadata.cluster import Cluster
from metadata.coordinator import MAX_INLINE
from metadata.errors import (
    AckConflict,
    Fenced,
    OptionError,
    OutcomeUnknown,
    TopicSealed,
    TransactionNotFound,
    TransactionUnfinished,
    TxnConflict,
    TxnSegmentError,
    UnknownOutcome,
    VersionConflict,
)
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.end import Ending
from metadata.instream.managed_log import append_to_all
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.records import EntryKind, LogEntry
from metadata.instream.rules import txn_id
from metadata.instream.topics import PersistentTopics
from metadata.instream.transaction_log import TransactionLog
from metadata.instream.txn_records import Txn, TxnEntry, TxnEntryKind, TxnState
from metadata.instream.txn_rules import COMMITS, Effect
from metadata.log import in_manifest
from metadata.names import PersistentName, is_persistent, persistent_name, segment_name
from metadata.records import Application, Attempt, Header, Nanos, State
from metadata.store.contract import time_ms
from metadata.transitions import Claim, Gone, Opening
from metadata.write_set import Committed, WriteSet, segment_write, weight

if TYPE_CHECKING:
    from metadata.instream.onward import Onward

log = logging.getLogger("txnsegment.instream")


SNAPSHOT_ENTRIES, SNAPSHOT_MS = 1_000, 5_000
"""A committer takes a snapshot of a topic after so many entries, or after so long if there is anything new (Pulsar's defaults)."""
COMPACT_ENTRIES = 1_000
"""A committer compacts the transaction log once so many entries have gathered since it was compacted last."""


@dataclass(frozen=True)
class InStreamCommitted(Committed):
    """As `Committed`; `positions`: for each topic by full name the ledger ids that it wrote there, ascending."""

    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class InStreamCoordinator:
    """One for each process, cluster and coordinator number; safe for several threads.

    `aftermath` is handed what nobody waits for: the end of transactions that others left behind.
    """

    cluster: Cluster
    buffer: InStreamBuffer
    aftermath: Callable[[Callable[[], None]], None] = inline
    number: int = 0
    log: TransactionLog = field(init=False)
    topics: PersistentTopics = field(init=False)
    acks: InStreamAcks = field(init=False)
    ending: Ending = field(init=False)

    def __post_init__(self) -> None:
        self.log = TransactionLog(self.cluster, self.number)
        self.topics = PersistentTopics(self.cluster)
        self.acks = InStreamAcks(self.cluster)
        self.ending = Ending(self.cluster, self.buffer, self.log, self.acks)
        self.acks.blocked = self.ending.resolve
        self.buffer.resolve = self.ending.resolve_topic

    # --- the whole path of one write set ------------------------------------------------------------------------------

    def commit(self, work: WriteSet) -> InStreamCommitted:
        """Make the write set visible, all of it or nothing, at most once for its (application, version), as `Coordinator.commit`
        does for topic://. `work.parts` and `work.acks` name persistent topics where those name segments.

        Raises Fenced or TxnConflict (another attempt took over, or its timeout), TopicSealed, TopicNotFound, VersionConflict,
        AckConflict (then nothing was committed), OutcomeUnknown (run the same version again), TransactionUnfinished (committed,
        but a topic took no marker), OptionError for what is not persistent://, and what the store and the storage raise.
        """
        try:
            return self._commit(work)
        except (TopicSealed, AckConflict):  # nothing of it was committed here, nor ever will be
            further = self.onward.of(work)
            if further is None:
                raise
            done = self.onward.commit(further)
            topics = {str(segment_name(s).topic) for s in further.parts}
            positions = {} if done.number is None else dict.fromkeys(sorted(topics), (done.number,))
            return InStreamCommitted(done.txn_id, done.number, done.rows, done.bytes, done.skipped, positions=positions)

    @cached_property
    def onward(self) -> Onward:
        """Where writers of topics that were migrated go on."""
        from metadata.instream.onward import Onward  # it needs us

        return Onward(self)

    def _commit(self, work: WriteSet) -> InStreamCommitted:
        parts = {_persistent(name): found for name, found in work.parts.items()}
        acks = merged(work.acks)
        for ack in acks:
            _persistent(ack.segment)
        app = paths.application(work.app, work.app_topic).partition
        if not work.parts and not acks:
            self._refuse_migrated(work)
        try:
            opening = self._opening(work, app)
        except VersionConflict:
            self._refuse_migrated(work)
            raise
        if opening is Opening.SKIP and not work.random:
            self._refuse_migrated(work)  # its application may have gone on there
        if opening is Opening.SKIP:
            log.info("skip app=%s version=%s: committed already", work.app, work.claim.version)
            return InStreamCommitted(None, None, 0, 0, skipped=True)
        self._refuse_old(work)
        started = self.cluster.clock.monotonic()
        txn = self.begin(
            timeout_ms=work.timeout_ms,
            topics=list(parts),
            subscriptions=sorted({(ack.segment, ack.subscription) for ack in acks}),
            app=app,
            claim=work.claim,
            random=work.random,
        )
        least = self._least(txn)
        try:
            numbers = self.append(txn, parts)
            self.acks.claim(txn, acks)
            self._check_seals(least, list(parts))
        except BaseException as error:
            self._abort_after(error, least)
            raise
        try:
            decided = self._decide(least, TxnState.COMMITTING)
        except TransactionNotFound as error:
            self._forgotten(work, app, least, error)
            decided = None  # committed, and finished by others
        rows, size = weight(work)
        metrics.ROWS_WRITTEN.inc(rows)
        metrics.BYTES_WRITTEN.inc(size)
        self.ending.finish(least, decided)
        metrics.COMMIT_SECONDS.observe(self.cluster.clock.monotonic() - started)
        log.info("commit txn=%s app=%s version=%s topics=%s rows=%s", txn, work.app, work.claim.version, len(parts), rows)
        self.aftermath(lambda: self.share(list(parts)))
        return InStreamCommitted(txn, None, rows, size, positions={name: (number,) for name, number in numbers.items()})

    def _forgotten(self, work: WriteSet, app: str, least: int, error: TransactionNotFound) -> None:
        """Our transaction was decided, finished and forgotten while we slept. What its application has committed last can still say
        how. Raises TxnConflict (it was aborted) or OutcomeUnknown (it can no longer be told); returns if it has committed.
        """
        written = self.log.written(app)
        if written is not None and written.txn == least:
            return
        if work.random or (written is not None and written.version > work.claim.version):
            raise OutcomeUnknown(
                f"Transaction {self.log.most}_{least} was decided, but how can no longer be told: it is forgotten.",
                advice=f"Nothing was touched. Run version {work.claim.version} of {work.app} again: it is skipped if it committed.",
            ) from error
        raise TxnConflict(
            f"Transaction {self.log.most}_{least} was aborted and forgotten.", advice="Run the write again."
        ) from error

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None:
        """Spark's abort, perhaps in another process and long after: end only an OPEN transaction of this version and attempt
        (A36).
        """
        if is_persistent(app_topic) and self.onward.migrator.onward(persistent_name(app_topic)) is not None:
            self.onward.abort_attempt(app, app_topic, claim)
        name = paths.application(app, app_topic).partition
        for txn in self.log.live():
            if (txn.app, txn.version, txn.attempt, txn.state) == (name, claim.version, claim.attempt, TxnState.OPEN):
                try:
                    self.end(f"{self.log.most}_{txn.least}", commit=False)
                except TxnConflict as error:  # it has just committed: not ours to end
                    log.info("abort app=%s version=%s: %s", app, claim.version, error)

    def share(self, names: Sequence[PersistentName]) -> None:
        """A committer's bounded share of the sweep: snapshots of the topics that it has written to, by count and by time, and a
        compaction once enough has gathered in the transaction log.
        """
        for name in names:
            self.buffer.snapshot(name, entries=SNAPSHOT_ENTRIES, after_ms=SNAPSHOT_MS)
        if self.log.gathered >= COMPACT_ENTRIES:
            self.log.compact()

    def _opening(self, work: WriteSet, app: str) -> Opening:
        """Who am I allowed to be? Ends OPEN attempts of this application that we take over from, and finishes what it has decided.

        Raises VersionConflict, Fenced, OutcomeUnknown.
        """
        while True:
            mine = [t for t in self.log.live() if t.app == app]
            for txn in mine:
                if txn.state is TxnState.COMMITTING:
                    self.ending.finish(txn.least)
            # One that was aborted and stalls somewhere holds nobody up: nothing of it counts, wherever its marker is missing.
            self.ending.resolve(f"{self.log.most}_{txn.least}" for txn in mine if txn.state is TxnState.ABORTING)
            written = self.log.written(app)  # after them: it knows at least what they have committed
            if written is None and work.random and work.retried and not self.log.knows(app):
                raise OutcomeUnknown(
                    f"An earlier commit of {work.app} was left without an answer, and what became of it is forgotten by now.",
                    advice="Nothing was done now. Look whether its rows are there before you write them again.",
                )
            opened = max((t for t in mine if t.state is TxnState.OPEN), key=lambda t: t.version or 0, default=None)
            application = Application(
                last_committed=-1 if written is None else written.version,
                by=None if written is None else written.by,
                current=None if opened is None else Attempt(version=opened.version or 0, txn_id=f"{self.log.most}_{opened.least}"),
                restored=True if written is None and self.cluster.restored else None,
            )
            what, _ = transitions.opening(application, work.claim, Gone.GONE if opened is None else _header(opened))
            if what is not Opening.ABORT_PREDECESSOR:
                return what
            assert opened is not None
            try:
                self._abort_quietly(opened.least)
            except TransactionUnfinished as error:
                log.info("%s", error)

    def _refuse_migrated(self, work: WriteSet) -> None:
        """Raises TopicSealed if what it writes to goes on elsewhere: what the application has committed is told there."""
        for name in dict.fromkeys([*work.parts, work.app_topic]):
            if is_persistent(name) and self.onward.migrator.onward(persistent_name(name)) is not None:
                raise TopicSealed(f"The topic {name} was migrated.")

    def _refuse_old(self, work: WriteSet) -> None:
        if work.staged_ms + self.cluster.settings.orphan_age_ms // 2 < self._now():
            raise TxnConflict(
                f"The parts of version {work.claim.version} of {work.app} were staged more than half the orphan age ago.",
                advice="The orphan sweep may take them: run the write again.",
            )

    def _abort_quietly(self, least: int) -> None:
        """Abort unless it has ended meanwhile, whichever way: who asks looks at the log again."""
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=least, state=TxnState.ABORTING, at_ms=self._now())
        done = self.log.append(entry)
        if done.effect is not Effect.VOID:
            self.ending.finish(least)

    def _abort_after(self, error: BaseException, least: int) -> None:
        """The owner gives up before deciding: end it now rather than at its deadline."""
        try:
            self._abort_quietly(least)
        except TxnSegmentError as second:
            error.add_note(f"Transaction {self.log.most}_{least} could not be aborted either ({second}); its timeout will end it.")

    # --- step by step, as a client of the older model does -----------------------------------------------------------

    def begin(
        self,
        *,
        timeout_ms: int | None = None,
        topics: Sequence[PersistentName] = (),
        subscriptions: Sequence[tuple[str, str]] = (),
        app: str | None = None,
        claim: Claim | None = None,
        random: bool = False,
    ) -> str:
        """Begin a transaction; its id. `topics` and `subscriptions` are registered with it. `app` (the name of an application
        record) and `claim` make it exactly-once: see `commit`.

        Raises OptionError for a timeout that is not allowed.
        """
        timeout_ms = self.cluster.settings.txn_timeout_ms if timeout_ms is None else timeout_ms
        if not 0 < timeout_ms <= self.cluster.settings.max_txn_timeout_ms:
            raise OptionError(
                f"txnTimeoutMs = {timeout_ms} is not between 1 and this cluster's {self.cluster.settings.max_txn_timeout_ms}.",
                advice="It counts from beginning to committing.",
            )
        begun = self.log.append(
            TxnEntry(
                kind=TxnEntryKind.NEW,
                id=self.cluster.unique(),
                created_ms=self._now(),
                timeout_ms=timeout_ms,
                owner=self.cluster.owner,
                topics=tuple(map(str, topics)),
                subscriptions=tuple(subscriptions),
                app=app,
                version=None if claim is None else claim.version,
                by=None if claim is None else claim.by,
                attempt=None if claim is None else claim.attempt,
                random=random or None,
            )
        )
        return f"{self.log.most}_{begun.number}"

    def register(self, txn: str, topics: Sequence[PersistentName] = (), subscriptions: Sequence[tuple[str, str]] = ()) -> None:
        """Make topics and (topic, subscription) pairs participants: before anything is written or acknowledged there. Idempotent.

        Raises TxnConflict if the transaction is not OPEN, TransactionNotFound.
        """
        entry = TxnEntry(
            kind=TxnEntryKind.ADD,
            id=self.cluster.unique(),
            txn=self._least(txn),
            topics=tuple(map(str, topics)),
            subscriptions=tuple(subscriptions),
        )
        done = self.log.append(entry)
        if done.effect is Effect.VOID:
            raise self._refused(txn, done.txn, "take more participants")

    def append(self, txn: str | None, parts: Mapping[PersistentName, Sequence[Part]]) -> dict[str, int]:
        """Append data to topics, one entry each, of a transaction that has registered them, or plain (`txn` None); the numbers.

        Plain entries are readable at once, each topic's by itself. Raises TopicNotFound, TopicSealed (known before anything was
        appended), OutcomeUnknown for a plain append whose reply was lost and which is not there: it may still turn up.
        """
        if txn is not None:
            self._check_given(txn)
        topics = self.topics.expect_transactions(parts) if txn is not None else [self.topics.get(n) for n in parts]
        for topic in topics:
            if topic.layout.sealing:
                self._refuse_sealed(topic.name)
        now = self._now()
        entries = {name: self._data(name, txn, found, now) for name, found in parts.items()}
        if txn is not None:
            numbers = append_to_all(self.cluster.store, [(self.buffer.log(name), entry) for name, entry in entries.items()])
            return {str(name): number for name, number in zip(entries, numbers, strict=True)}
        return {str(name): self._append_plain(name, entry) for name, entry in entries.items()}

    def _check_given(self, txn: str) -> None:
        """An id that was never given out may yet be given to somebody: data under it could never be told from his. Asks the log
        only about an id that this process has not heard of. Raises TransactionNotFound.
        """
        least = self._least(txn)
        if least > self.log.replay.at:
            self.log.replay.now()
        if least > self.log.replay.at:
            raise self._refused(txn, None, "write")

    def acknowledge(self, txn: str, wanted: Sequence[Ack]) -> None:
        """Acknowledge within a transaction that has registered the subscriptions. Raises AckConflict, SubscriptionNotFound: the
        transaction must abort then.
        """
        self._check_given(txn)
        self.acks.claim(txn, merged(wanted))

    def _append_plain(self, name: PersistentName, entry: LogEntry) -> int:
        try:
            number = self.buffer.log(name).append(entry)
        except UnknownOutcome as error:
            raise OutcomeUnknown(
                f"A plain message may have reached {name}: the reply was lost, and it is not there (yet).",
                advice="Send it again if twice is better than never; in a transaction it would be exactly once.",
            ) from error
        if self.topics.get(name).layout.sealing:
            self._refuse_sealed(name, number)
        return number

    def _data(self, name: PersistentName, txn: str | None, parts: Sequence[Part], now_ms: int) -> LogEntry:
        unique = self.cluster.unique()
        entry = LogEntry(kind=EntryKind.DATA, id=unique, publish_ms=now_ms, txn=txn, write=segment_write(parts))
        if len(entry.to_bytes()) <= MAX_INLINE:
            return entry
        listed = in_manifest(self.cluster.storage, entry.registration(str(name)), f"manifests/{txn or 'plain'}-{unique}.json")
        return entry.model_copy(
            update={
                "write": listed.segments[str(name)],
                "manifest": listed.manifest,
                "manifest_bytes": listed.manifest_bytes,
                "manifest_crc": listed.manifest_crc,
            }
        )

    def _refuse_sealed(self, name: PersistentName, number: int | None = None) -> None:
        sealed_at = self.buffer.state(name).sealed_at
        if sealed_at is not None and (number is None or sealed_at < number):
            raise TopicSealed(
                f"The topic {name} was sealed at {sealed_at}: it takes no more entries.",
                advice="If it was migrated, write to the topic:// that goes on (txnsegment topics describe names it).",
            )

    def end(self, txn: str, *, commit: bool) -> None:
        """End a transaction: COMMITTING or ABORTING is logged, then every participant gets its marker, then the final state is
        logged. Again the same way: it succeeds, and finishes what was left.

        Raises TxnConflict if it ended the other way, Fenced if its application's version is committed by another one, TopicSealed
        if a topic was sealed below data of it (then it is aborted), TransactionNotFound, TransactionUnfinished, OutcomeUnknown.
        """
        least = self._least(txn)
        if commit:
            found = self.log.txn(least)
            if found is not None and found.state is TxnState.OPEN:
                self._check_seals(least, [persistent_name(t) for t in found.topics])
        self.ending.finish(least, self._decide(least, TxnState.COMMITTING if commit else TxnState.ABORTING))

    def _check_seals(self, least: int, names: Sequence[PersistentName]) -> None:
        """No seal may stand below data of a transaction that commits: its rows would be lost without a word (8.12)."""
        for name, deleted in self.ending.sealing(names).items():
            if deleted:
                refused = TopicSealed(
                    f"The topic {name} was deleted while transaction {self.log.most}_{least} wrote to it.",
                    advice="Nothing was committed; the transaction is aborted.",
                )
            else:
                sealed_at = self.buffer.state(name).sealed_at
                if sealed_at is None or not self._wrote_above(name, sealed_at, f"{self.log.most}_{least}"):
                    continue
                refused = TopicSealed(
                    f"The topic {name} was sealed at {sealed_at} while transaction {self.log.most}_{least} wrote to it.",
                    advice="Nothing was committed; the transaction is aborted. Write to the topic that goes on.",
                )
            self._abort_after(refused, least)  # it may stall in another topic: that it is aborted is what counts
            raise refused

    def _wrote_above(self, name: PersistentName, seal: int, txn: str) -> bool:
        reading = self.buffer.read(name, uncommitted=True)
        return any(ledger.txn == txn for ledger in reading.ledgers(seal))

    def _decide(self, least: int, state: TxnState) -> Txn | None:
        """Log the decision; the transaction right after it (None: forgotten by now)."""
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=least, state=state, at_ms=self._now())
        try:
            done = self.log.append(entry)
        except TxnSegmentError as error:
            raise OutcomeUnknown(
                f"Transaction {self.log.most}_{least} may have become {state}: the reply was lost, and then its log could not be "
                f"read: {error}",
                advice="Nothing was touched. End it the same way again: that is safe.",
            ) from error
        if done.effect is not Effect.VOID:
            return done.txn
        after = COMMITS if state is TxnState.COMMITTING else {TxnState.ABORTING, TxnState.ABORTED}
        if done.txn is not None and done.txn.state in after:
            return done.txn
        if done.txn is not None and done.txn.state is TxnState.OPEN:
            fenced = Fenced(
                f"Version {done.txn.version} of {paths.decode((done.txn.app or '').partition(':')[0])} is committed by another "
                f"transaction than {self.log.most}_{least}.",
                advice="Nothing of this one counts. Two drivers run one application: stop one.",
            )
            self._abort_after(fenced, least)
            raise fenced
        raise self._refused(f"{self.log.most}_{least}", done.txn, f"become {state}")

    def _refused(self, txn: str, found: Txn | None, what: str) -> TxnSegmentError:
        if found is None:
            return TransactionNotFound(
                f"There is no transaction {txn}.", advice="It never began, or was forgotten after its retention."
            )
        return TxnConflict(
            f"Transaction {txn} is {found.state} and cannot {what}.",
            advice="It was ended by a newer attempt, an operator or its timeout; nothing of this call counts.",
        )

    def _least(self, txn: str) -> int:
        ident = txn_id(txn)
        if ident.most != self.log.most:
            raise TransactionNotFound(
                f"{txn} is no transaction of this coordinator ({self.log.most}).",
                advice="A transaction of topic:// has nothing to do with persistent:// topics, and never spans both.",
            )
        return ident.least

    def _now(self) -> int:
        return time_ms(self.cluster.store)


def _header(txn: Txn) -> Header:
    """An OPEN transaction as the header that topic:// would have of it, for the rule that both share."""
    return Header(
        state=State.OPEN,
        timeout=Nanos(txn.timeout_ms * 1_000_000),
        created_at=Nanos(txn.created_ms * 1_000_000),
        version=txn.version,
        attempt=txn.attempt,
    )


def _persistent(name: str) -> PersistentName:
    """Raises OptionError: one transaction never spans both kinds of topics."""
    if name.startswith("persistent://"):
        return persistent_name(name)
    raise OptionError(
        f"{name} is not a persistent:// topic, and one transaction never spans both kinds.",
        advice="Nothing was written. Use two transactions, or migrate the persistent topic (txnsegment topics migrate).",
    )
