"""The steps of a transaction of the marker-based model, for its owner: begin, register, append, acknowledge, end
(docs/in_stream.md, The transaction log).

Each change of a transaction's state is an entry of the transaction log, and the first allowed change takes effect. The entry
COMMITTING is the only commit point. After this entry `end` appends the markers and the entry COMMITTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgers.model import Part
from metadata.cluster.cluster import Cluster
from metadata.common.errors import (
    Fenced,
    OptionError,
    OutcomeUnknown,
    TopicSealed,
    TransactionNotFound,
    TxnConflict,
    TxnSegmentError,
    UnknownOutcome,
)
from metadata.common.tracing import traced
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.end import Ending
from metadata.instream.managed_log import append_to_all
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.rules import txn_id
from metadata.instream.topics import PersistentTopics
from metadata.instream.transaction_log import TransactionLog
from metadata.instream.txn_records import Txn, TxnEntry, TxnEntryKind, TxnState
from metadata.instream.txn_rules import COMMITS, Effect
from metadata.log.live_log import in_manifest
from metadata.records import paths
from metadata.records.names import PersistentName, persistent_name
from metadata.records.persistent_records import EntryKind, LogEntry
from metadata.rules.acks import Ack, merged
from metadata.rules.transitions import Claim
from metadata.store.contract import time_ms
from metadata.write.coordinator import MAX_INLINE
from metadata.write.write_set import segment_write


@dataclass
class TransactionSteps:
    """The steps of transactions. Each process has one object for each cluster. Safe for several threads."""

    cluster: Cluster
    buffer: InStreamBuffer
    log: TransactionLog = field(init=False)
    topics: PersistentTopics = field(init=False)
    acks: InStreamAcks = field(init=False)
    ending: Ending = field(init=False)

    def __post_init__(self) -> None:
        self.log = TransactionLog(self.cluster)
        self.topics = PersistentTopics(self.cluster)
        self.acks = InStreamAcks(self.cluster)
        self.ending = Ending(self.cluster, self.buffer, self.log, self.acks)
        self.acks.blocked = self.ending.resolve
        self.buffer.resolve = self.ending.resolve_topic

    @traced("open")
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
        """Begin a transaction and return its id. `topics` and `subscriptions` are registered with it. `app` (the name of an
        application record) and `claim` (version and attempt) make the transaction exactly-once.

        Raises OptionError for a timeout that is not allowed.
        """
        timeout_ms = self.cluster.settings.txn_timeout_ms if timeout_ms is None else timeout_ms
        if not 0 < timeout_ms <= self.cluster.settings.max_txn_timeout_ms:
            raise OptionError(
                f"txnTimeoutMs = {timeout_ms} is not between 1 and this cluster's {self.cluster.settings.max_txn_timeout_ms}.",
                advice="The timeout covers beginning to committing.",
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
        """Register topics and (topic, subscription) pairs as participants, before any write or acknowledgement there. Idempotent.

        Raises TransactionNotFound. Raises TxnConflict if the transaction is not OPEN.
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

    @traced("register")
    def append(self, txn: str | None, parts: Mapping[PersistentName, Sequence[Part]]) -> dict[str, int]:
        """Append one entry of data to each topic. Return the number of each entry, by the topic's full name.

        `txn`: a transaction that has registered the topics. None: the entries are plain messages. A plain entry is visible at once,
        even if the append to another topic fails. Raises TopicNotFound, TopicSealed. After such an error this call has appended no
        entry of a transaction, but its plain entries may be visible in other topics. Raises OutcomeUnknown for a plain append whose
        reply was lost and whose entry is not found. The entry may still appear.
        """
        if txn is not None:
            self._check_given(txn)
        topics = self.topics.expect_transactions(parts) if txn is not None else [self.topics.get(n) for n in parts]
        for topic in topics:
            if topic.layout.sealing:
                self._refuse_sealed(topic.name)
        # The publish time must not be earlier than the time at which the transaction began. A read of the rows up to a publish time
        # relies on this, because it waits only for OPEN transactions that began up to that time (protocol.md section 6).
        now = max(self._now(), 0 if txn is None else self.log.began_ms(self._least(txn)))
        entries = {name: self._data(name, txn, found, now) for name, found in parts.items()}
        if txn is not None:
            numbers = append_to_all(self.cluster.store, [(self.buffer.log(name), entry) for name, entry in entries.items()])
            return {str(name): number for name, number in zip(entries, numbers, strict=True)}
        return {str(name): self._append_plain(name, entry) for name, entry in entries.items()}

    def _check_given(self, txn: str) -> None:
        """Raise TransactionNotFound for an id that was not allocated yet. Without this check the entries of the caller would belong
        to the transaction that gets the id later. This method reads the transaction log only if this process has not yet read it up
        to this id.
        """
        least = self._least(txn)
        if least > self.log.replay.at:
            self.log.replay.now()
        if least > self.log.replay.at:
            raise self._refused(txn, None, "write")

    def acknowledge(self, txn: str, wanted: Sequence[Ack]) -> None:
        """Acknowledge within a transaction that has registered the subscriptions. Raises AckConflict, SubscriptionNotFound. After
        one of these errors the transaction must abort.
        """
        self._check_given(txn)
        self.acks.claim(txn, merged(wanted))

    def _append_plain(self, name: PersistentName, entry: LogEntry) -> int:
        # A plain append has no transaction for which readers could wait. Reads by publish time assume that the entry is in the log
        # soon after its publish time (protocol.md section 6). So the publish time is taken right before the append.
        entry = entry.model_copy(update={"publish_ms": self._now()})
        try:
            number = self.buffer.log(name).append(entry)
        except UnknownOutcome as error:
            raise OutcomeUnknown(
                f"A plain message may have reached {name}: the reply was lost, and it is not there (yet).",
                advice="Send it again if a duplicate is better than a loss; in a transaction it would be exactly once.",
            ) from error
        if self.topics.get(name).layout.sealing:
            self._refuse_sealed(name, number)
        return number

    def _data(self, name: PersistentName, txn: str | None, parts: Sequence[Part], now_ms: int) -> LogEntry:
        unique = self.cluster.unique()
        entry = LogEntry(kind=EntryKind.DATA, id=unique, publish_ms=now_ms, txn=txn, write=segment_write(parts))
        if len(entry.to_bytes()) <= MAX_INLINE:
            return entry
        bare = entry.model_copy(update={"write": segment_write([part.bare() for part in parts])})  # see `live_log.in_record`
        if len(bare.to_bytes()) <= MAX_INLINE:
            return bare
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
                advice="If it was migrated, write to its successor topic:// (txnsegment topics describe names it).",
            )

    def end(self, txn: str, *, commit: bool) -> None:
        """End a transaction: log COMMITTING or ABORTING, append a marker for every participant, and log the final state. A repeated
        call with the same decision completes an interrupted call.

        Raises TransactionNotFound, TransactionUnfinished, OutcomeUnknown. Raises TxnConflict if the transaction has ended with the
        other outcome. Raises Fenced if another transaction has committed the same version of the application, or a higher one.
        Raises TopicSealed if a topic was deleted, or if a SEAL lies below data of the transaction. After Fenced and TopicSealed the
        transaction is aborted.
        """
        least = self._least(txn)
        if commit:
            found = self.log.txn(least)
            if found is not None and found.state is TxnState.OPEN:
                self._check_seals(least, [persistent_name(t) for t in found.topics])
        self.ending.finish(least, self._decide(least, TxnState.COMMITTING if commit else TxnState.ABORTING))

    def _check_seals(self, least: int, names: Sequence[PersistentName]) -> None:
        """Check the topics `names` for SEALs before a transaction commits. If a topic was deleted, or has a SEAL below data of the
        transaction, abort the transaction and raise TopicSealed. A commit would lose these rows silently (8.12).
        """
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
                    advice="Nothing was committed; the transaction is aborted. Write to the successor topic.",
                )
            self._abort_after(refused, least)  # `refused` is raised even if the abort stalls in another topic
            raise refused

    def _wrote_above(self, name: PersistentName, seal: int, txn: str) -> bool:
        reading = self.buffer.read(name, uncommitted=True)
        return any(ledger.txn == txn for ledger in reading.ledgers(seal))

    @traced("decide")
    def _decide(self, least: int, state: TxnState) -> Txn | None:
        """Log the decision. Return the transaction as it is after the decision; None if a compaction has dropped the transaction
        since.
        """
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=least, state=state, at_ms=self._now())
        try:
            done = self.log.append(entry)
        except TxnSegmentError as error:
            raise OutcomeUnknown(
                f"Transaction {self.log.most}_{least} may have become {state}: the reply was lost, and then its log could not be "
                f"read: {error}",
                advice="Nothing was deleted. End it again with the same decision: that is safe.",
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
                advice="None of its rows are visible. Two drivers run one application: stop one of them.",
            )
            self._abort_after(fenced, least)
            raise fenced
        raise self._refused(f"{self.log.most}_{least}", done.txn, f"become {state}")

    def _abort_quietly(self, least: int) -> None:
        """Abort a transaction, unless it has already ended. Do not raise an error if it has: the caller reads the outcome from the
        log.
        """
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=least, state=TxnState.ABORTING, at_ms=self._now())
        done = self.log.append(entry)
        if done.effect is not Effect.VOID:
            self.ending.finish(least)

    def _abort_after(self, error: BaseException, least: int) -> None:
        """Abort a transaction whose owner failed before the decision, so that readers need not wait for its deadline."""
        try:
            self._abort_quietly(least)
        except TxnSegmentError as second:
            name = f"{self.log.most}_{least}"
            error.add_note(
                f"The abort of transaction {name} was not finished ({second}). A sweep ends it after its timeout at the latest."
            )

    def _refused(self, txn: str, found: Txn | None, what: str) -> TxnSegmentError:
        if found is None:
            return TransactionNotFound(f"There is no transaction {txn}.", advice="The id was never used, or its record expired.")
        return TxnConflict(
            f"Transaction {txn} is {found.state} and cannot {what}.",
            advice="All of its rows are visible. A commit cannot be undone."
            if found.state in (TxnState.COMMITTING, TxnState.COMMITTED)
            else "A newer attempt, an operator or its timeout ended it; this call had no effect.",
        )

    def _least(self, txn: str) -> int:
        ident = txn_id(txn)
        if ident.most != self.log.most:
            raise TransactionNotFound(
                f"{txn} is not a transaction of this coordinator ({self.log.most}).",
                advice="A transaction of topic:// cannot include persistent:// topics.",
            )
        return ident.least

    def _now(self) -> int:
        return time_ms(self.cluster.store)
