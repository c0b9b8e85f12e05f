"""Commits of write sets over persistent topics: each version of an application commits at most once (docs/in_stream.md, What
counts).

`TransactionSteps` has the single steps of a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.common.errors import (
    AckConflict,
    OptionError,
    OutcomeUnknown,
    TopicSealed,
    TransactionNotFound,
    TransactionUnfinished,
    TxnConflict,
    VersionConflict,
)
from metadata.instream.steps import TransactionSteps
from metadata.instream.txn_records import Txn, TxnState
from metadata.records import paths
from metadata.records.names import PersistentName, is_persistent, persistent_name, segment_name
from metadata.records.records import Application, Attempt, Header, Nanos, State
from metadata.rules import transitions
from metadata.rules.acks import merged
from metadata.rules.transitions import Claim, Gone, Opening
from metadata.write.background import inline
from metadata.write.observed import committing, count
from metadata.write.write_set import Committed, WriteSet, refuse_missing, refuse_old, weight

if TYPE_CHECKING:
    from metadata.instream.redirect import Redirect

log = logging.getLogger("txnsegment.instream")


SNAPSHOT_ENTRIES, SNAPSHOT_MS = 1_000, 5_000
"""A committer takes a snapshot of a topic if SNAPSHOT_ENTRIES entries are new since the last snapshot, or if one entry is new and
SNAPSHOT_MS milliseconds have passed (Pulsar's defaults).
"""
COMPACT_ENTRIES = 1_000
"""A committer compacts the transaction log after this many entries since the last compaction."""


@dataclass(frozen=True)
class InStreamCommitted(Committed):
    """The result of a commit. `positions`: the ids of the ledgers that the commit wrote to each topic, ascending, by the topic's
    full name.
    """

    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class InStreamCoordinator(TransactionSteps):
    """Commits write sets over persistent topics. Each process has one coordinator for each cluster. Safe for several threads.

    `background` receives the work that no caller waits for, such as the method `share`.
    """

    background: Callable[[Callable[[], None]], None] = inline

    def __post_init__(self) -> None:
        super().__post_init__()
        self.acks.carry = lambda where: self.redirect.migrator.carry(where)

    def commit(self, work: WriteSet) -> InStreamCommitted:
        """Make the write set visible as a whole or not at all, at most once for its (application, version), like
        `Coordinator.commit` for topic://. `work.parts` and `work.acks` name persistent topics in place of segments.

        Raises Fenced or TxnConflict (another attempt or the timeout ended the transaction), TopicSealed, TopicNotFound,
        VersionConflict or AckConflict. After each of these errors nothing was committed. Raises OutcomeUnknown, after which the
        caller must run the same version again. Raises TransactionUnfinished if this transaction, or an earlier one of the
        application, has committed, but a topic took no marker. Raises OptionError for a topic that is not persistent://. Raises
        StoreError, StorageError.
        """
        with committing(self.cluster, work) as seen:
            seen(done := self._commit_or_redirect(work))
            return done

    def _commit_or_redirect(self, work: WriteSet) -> InStreamCommitted:
        try:
            return self._commit(work)
        except (TopicSealed, AckConflict):  # the marker-based transaction has committed nothing
            further = self.redirect.redirected(work)
            if further is None:
                raise
            done = self.redirect.commit(further)
            topics = {str(segment_name(s).topic) for s in further.parts}
            positions = {} if done.number is None else dict.fromkeys(sorted(topics), (done.number,))
            return InStreamCommitted(done.txn_id, done.number, done.rows, done.bytes, done.skipped, positions=positions)

    @cached_property
    def redirect(self) -> Redirect:
        """The redirect of write sets to successor topics."""
        from metadata.instream.redirect import Redirect  # imported late: most processes never meet a migrated topic

        return Redirect(self, self.background)

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
            self._refuse_migrated(work)  # only the successor topic shows whether the application has committed later versions
        if opening is Opening.SKIP:
            log.info("skip app=%s version=%s: committed already", work.app, work.claim.version)
            return InStreamCommitted(None, None, 0, 0, skipped=True)
        refuse_old(work, self._now(), self.cluster.settings)
        refuse_missing(self.cluster, work.app, work.parts)
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
            if not parts:
                # A transaction without data appends nothing to a topic's log, so `_check_seals` has no topic to check. So check
                # again whether a topic was migrated, now that the transaction has begun. A migration that starts after this check
                # finds the transaction and ends it.
                self._refuse_migrated(work)
        except BaseException as error:
            self._abort_after(error, least)
            raise
        try:
            decided = self._decide(least, TxnState.COMMITTING)
        except TransactionNotFound as error:
            self._forgotten(work, app, least, error)
            decided = None  # the transaction has committed, and another process has finished it
        rows, size = weight(work)
        try:
            self.ending.finish(least, decided)
        finally:  # it has committed, also if a topic takes no marker
            count(self.cluster, work, rows, size, started)
        log.info("commit txn=%s app=%s version=%s topics=%s rows=%s", txn, work.app, work.claim.version, len(parts), rows)
        self.background(lambda: self.share(list(parts)))
        return InStreamCommitted(txn, None, rows, size, positions={name: (number,) for name, number in numbers.items()})

    def _forgotten(self, work: WriteSet, app: str, least: int, error: TransactionNotFound) -> None:
        """Find out the outcome of a decided transaction that the transaction log no longer has. The last committed version of its
        application may show the outcome. Return if the transaction has committed. Raises TxnConflict if it was aborted. Raises
        OutcomeUnknown if the log no longer shows the outcome.
        """
        written = self.log.written(app)
        if written is not None and written.txn == least:
            return
        if work.random or (written is not None and written.version > work.claim.version):
            raise OutcomeUnknown(
                f"Transaction {self.log.most}_{least} was decided, but how can no longer be told: it is forgotten.",
                advice=f"Nothing was deleted. Run version {work.claim.version} of {work.app} again: it is skipped if it committed.",
            ) from error
        raise TxnConflict(
            f"Transaction {self.log.most}_{least} was aborted, and its record has expired.", advice="Run the write again."
        ) from error

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None:
        """Abort an attempt on behalf of Spark, perhaps in another process and much later. Only an OPEN transaction of this version
        and attempt is aborted (A36).
        """
        if is_persistent(app_topic) and self.redirect.migrator.successor(persistent_name(app_topic)) is not None:
            self.redirect.abort_attempt(app, app_topic, claim)
        name = paths.application(app, app_topic).partition
        for txn in self.log.live():
            if (txn.app, txn.version, txn.attempt, txn.state) == (name, claim.version, claim.attempt, TxnState.OPEN):
                try:
                    self.end(f"{self.log.most}_{txn.least}", commit=False)
                # the transaction has ended meanwhile, with either outcome, and may have expired
                except (TxnConflict, TransactionNotFound) as error:
                    log.info("abort app=%s version=%s: %s", app, claim.version, error)

    def share(self, names: Sequence[PersistentName]) -> None:
        """Do a committer's bounded share of the sweep: take snapshots of the topics `names`, to which it has written
        (SNAPSHOT_ENTRIES, SNAPSHOT_MS), and compact a long transaction log (COMPACT_ENTRIES).
        """
        for name in names:
            self.buffer.snapshot(name, entries=SNAPSHOT_ENTRIES, after_ms=SNAPSHOT_MS)
        if self.log.gathered >= COMPACT_ENTRIES:
            self.log.compact()

    def _opening(self, work: WriteSet, app: str) -> Opening:
        """Return the next step of the attempt: OPEN, or SKIP if its version is already committed. First finish the decided
        transactions of the application, and abort those OPEN ones that this attempt fences.

        Raises VersionConflict, Fenced, OutcomeUnknown.
        """
        while True:
            mine = [t for t in self.log.live() if t.app == app]
            for txn in mine:
                if txn.state is TxnState.COMMITTING:
                    self.ending.finish(txn.least, again=True)
            # An ABORTING transaction that stalls must not delay a writer, so no error is raised for it. Its rows stay invisible in
            # topics that lack its marker.
            self.ending.resolve(f"{self.log.most}_{txn.least}" for txn in mine if txn.state is TxnState.ABORTING)
            written = self.log.written(app)  # read after these transactions were finished, so it has their versions
            if written is None and work.random and work.retried and not self.log.knows(app):
                raise OutcomeUnknown(
                    f"An earlier commit of {work.app} was left without an answer, and what became of it is forgotten by now.",
                    advice="Nothing was done now. Check whether its rows exist before you write them again.",
                )
            opened = max((t for t in mine if t.state is TxnState.OPEN), key=lambda t: t.version or 0, default=None)
            application = Application(
                last_committed=-1 if written is None else written.version,
                by=None if written is None else written.by,
                current=None if opened is None else Attempt(version=opened.version or 0, txn_id=f"{self.log.most}_{opened.least}"),
                restored=(True if self.cluster.restored else None) if written is None else written.restored,
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
        """Raise TopicSealed if a topic of the write set or the application's topic was migrated. After a migration only the
        successor topic shows which versions the application has committed.
        """
        for name in dict.fromkeys([*work.parts, work.app_topic]):
            if is_persistent(name) and self.redirect.migrator.successor(persistent_name(name)) is not None:
                raise TopicSealed(f"The topic {name} was migrated.")


def _header(txn: Txn) -> Header:
    """Describe an OPEN transaction by a header, as transactions of topic:// have. `transitions.opening`, the rule of both models,
    needs a header.
    """
    return Header(
        state=State.OPEN,
        timeout=Nanos(txn.timeout_ms * 1_000_000),
        created_at=Nanos(txn.created_ms * 1_000_000),
        version=txn.version,
        attempt=txn.attempt,
    )


def _persistent(name: str) -> PersistentName:
    """Return the persistent topic's name. Raises OptionError for a topic://: one transaction never spans both kinds of topics."""
    if name.startswith("persistent://"):
        return persistent_name(name)
    raise OptionError(
        f"{name} is not a persistent:// topic, and one transaction never spans both kinds.",
        advice="Nothing was written. Use two transactions, or migrate the persistent topic (txnsegment topics migrate).",
    )
