"""The sweeper. A sweep aborts timed-out transactions, settles, folds and expires (protocol.md section 7). Any number of processes
may sweep at once. Every step is a CAS or an idempotent delete by version. A process that loses a race continues, because another
process has done the step.

`metadata.maintenance.folding` folds. `metadata.maintenance.orphans` is the orphan sweep, the only code that deletes parts,
snapshots and registration manifests.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from metadata.cluster.clock_looks import seen_time
from metadata.cluster.cluster import Cluster
from metadata.common import failures, metrics
from metadata.common.errors import BadVersion, SweepIncomplete, UnknownOutcome
from metadata.common.failures import STORE, contained, described
from metadata.cursors.pending_ack import PendingAcks
from metadata.log.live_log import Entry, unsettled
from metadata.maintenance.expired import end_expired
from metadata.maintenance.folding import Folding
from metadata.maintenance.remains import collect_remains
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.cluster_records import Turn
from metadata.records.paths import Key
from metadata.records.records import AbortedTxn, Application, Header, Op, OpKind, Registration, Settled, State
from metadata.rules import transitions
from metadata.rules.transitions import Verdict
from metadata.store.contract import ABSENT, Delete, Put, Record, View, Write, decide, in_groups, look, written
from metadata.topics.topics import Topics

log = logging.getLogger("txnsegment.sweeper")
T = TypeVar("T")

FORGET_EVERY_MS = 10_000
"""A committer's share expires headers at most once in this time (ms), because the search takes longer the more headers there are.
"""
FORGET_LIMIT = 10_000


@dataclass
class SweepReport:
    """The result of one sweep, as counts of records, files and bytes."""

    timed_out: int = 0
    settled: int = 0
    voided: int = 0
    folded: int = 0
    dropped: int = 0
    forgotten: int = 0
    seals_finished: int = 0
    splits: int = 0
    merges: int = 0
    orphans_deleted: int = 0
    orphan_bytes: int = 0


@dataclass
class Sweeper:
    """Sweeps one cluster. Committers call `share`; `txnsegment sweep` calls `sweep` and the orphan sweep."""

    cluster: Cluster
    buffer: TransactionBuffer
    last_fold: float = float("-inf")
    """The monotonic time, in seconds, at which a share last tried to fold."""

    def sweep(self, *, forget_limit: int = FORGET_LIMIT) -> SweepReport:
        """Run all steps except the orphan sweep, once. If a step fails or a segment cannot be folded, the remaining steps run, and
        then SweepIncomplete is raised. Raises StoreError if the store fails.
        """
        report = SweepReport()
        failed: dict[str, Exception] = {}
        unfolded = self._steps(report, failed)
        self._step("collect what folds left", Folding(self.cluster, self.buffer).collect_aborted, failed)
        self._step("collect what topics left", self._collect_remains, failed)
        self._step("forget headers", lambda: self.forget(report, limit=forget_limit), failed)
        complain(unfolded, failed)
        return report

    def _steps(self, report: SweepReport, failed: dict[str, Exception]) -> dict[str, Exception]:
        """Run the steps that both a whole sweep and a committer's share have. Return the segments that could not be folded, each
        with its error. The steps are independent: after a failed step the remaining steps run.
        """
        # This step records the time by all clocks, and the newest log number. A row with a higher number was written later. So the
        # row counts as new, even if a slow clock gave it an old publish time.
        self._step("look at the clocks", self._look, failed)
        report.timed_out = self._step("time out", self.timeouts, failed) or 0
        report.seals_finished = self._step("finish seals", Topics(self.cluster, self.buffer.log).finish_seals, failed) or 0
        self._step("settle", lambda: self.settle(report), failed)
        unfolded = self._step("fold", lambda: self.fold(report), failed) or {}
        self._step("collect ops", self.collect_ops, failed)
        return unfolded

    def _step(self, what: str, action: Callable[[], T], failed: dict[str, Exception]) -> T | None:
        """Run a step and return its result. If the step fails, record its error in `failed` and return None. Errors of the whole
        store (`STORE`) are raised, and end the sweep.
        """
        with contained("sweep", what, failed, passing=STORE):
            return action()
        return None

    def _look(self) -> None:
        seen_time(self.cluster.store, self.cluster.clock)

    def _collect_remains(self) -> int:
        return collect_remains(self.cluster.store, self.cluster.settings.grace_period_ms)

    def share(self) -> SweepReport:
        """Run a committer's bounded share of the sweep. The share does nothing until the log has many registrations, or the last
        attempt to fold was long ago. Then one committer takes the turn to sweep, and runs the steps.
        """
        report = SweepReport()
        settings = self.cluster.settings
        now = self.cluster.clock.monotonic()
        many = len(self.buffer.log) >= settings.fold_after_registrations
        if not many and now - self.last_fold < settings.fold_after_ms / 1000:
            return report
        self.last_fold = now
        record = self._take_turn()
        if record is not None:
            turn = Turn.of(record)
            failed: dict[str, Exception] = {}
            unfolded = self._steps(report, failed)
            if turn.forgot_ms == turn.began_ms:
                self._step("forget headers", lambda: self.forget(report, limit=FORGET_LIMIT), failed)
            if turn.orphans_ms == turn.began_ms:
                self._step("collect what folds left", Folding(self.cluster, self.buffer).collect_aborted, failed)
                self._step("collect what topics left", self._collect_remains, failed)
            written(self.cluster.store, Put(paths.SWEEP_TURN, turn.model_copy(update={"until_ms": 0}).to_bytes(), expect=record))
            if turn.orphans_ms == turn.began_ms:
                self._sweep_orphans(report)
            complain(unfolded, failed)
        return report

    def _take_turn(self) -> Record | None:
        """Take the turn to sweep. Return None if another process has the turn. Turns only save work: concurrent sweeps are safe. A
        turn that is not given back expires.

        Two steps are not done in every turn: the expiry of headers, and the orphan sweep. They are recorded as done when the turn
        is taken. So a step in which the process crashes is not repeated in the next turn. The first orphan sweep of a cluster is
        due `orphan_sweep_ms` after the first turn, because a new cluster has no orphans.
        """

        def body(view: View) -> Record | None:
            record, now = view.get(paths.SWEEP_TURN), view.now_ms()
            last = Turn(until_ms=0, orphans_ms=now - 1) if record is None else Turn.of(record)
            settings = self.cluster.settings
            # A turn ends at most `fold_after_ms` from now. A later end was written before the store's clock was set back.
            if now < last.until_ms <= now + settings.fold_after_ms:
                return None
            mine = last.model_copy(update={"until_ms": now + settings.fold_after_ms, "began_ms": now, "by": self.cluster.owner})
            if _due(last.forgot_ms, now, max(FORGET_EVERY_MS, settings.fold_after_ms)):
                mine = mine.model_copy(update={"forgot_ms": now})
            if _due(last.orphans_ms, now, settings.orphan_sweep_ms):
                mine = mine.model_copy(update={"orphans_ms": now})
            try:
                return self.cluster.store.put(paths.SWEEP_TURN, mine.to_bytes(), expect=ABSENT if record is None else record)
            except (BadVersion, UnknownOutcome):
                return None

        return decide(self.cluster.store, body)

    def _sweep_orphans(self, report: SweepReport) -> None:
        """Trim all topics, then sweep orphans. The orphan sweep lists all files and takes long, so it runs without the turn."""
        from metadata.maintenance.orphans import sweep_orphans  # imported late, because a committer's share seldom needs it
        from metadata.maintenance.trimming import Trimmed, trim_all  # imported late for the same reason

        trim_all(self.cluster, self.buffer, Trimmed())
        orphans = sweep_orphans(self.cluster, self.buffer.markers)
        report.orphans_deleted, report.orphan_bytes = orphans.files, orphans.bytes
        log.info("orphans files=%s bytes=%s", orphans.files, orphans.bytes)

    # --- timeouts -------------------------------------------------------------------------------------------------

    def timeouts(self) -> int:
        """Abort transactions that are OPEN past their deadline plus the allowance, by the store's clock. Return how many
        transactions this call has aborted.
        """
        return end_expired(self.cluster)

    # --- settle ---------------------------------------------------------------------------------------------------

    def settle(self, report: SweepReport) -> int:
        """Settle the registrations of all decided transactions, then delete the op records of these transactions. Return how many
        entries the live log has.
        """

        def body(view: View) -> int:
            listing = self.buffer.log.list(view, again=unsettled)
            verdicts = self.buffer.verdicts(view, listing)
            by_txn: dict[str, list[Entry]] = defaultdict(list)
            for entry in listing.entries:
                if entry.registration.txn is not None:
                    by_txn[entry.registration.txn].append(entry)
            for txn, entries in by_txn.items():
                pending = [e for e in entries if unsettled(e)]
                if not pending or any(verdicts[e.number] is Verdict.UNDECIDED for e in entries):
                    continue
                # Delete the op records last, so that a committed transaction keeps them until its registrations are settled.
                settled = [self._settle_entry(entry, verdicts[entry.number], report) for entry in pending]
                if all(settled):
                    self._delete_ops(view, txn)
            return len(listing.entries)

        return self.buffer.deciding(body)

    def _settle_entry(self, entry: Entry, verdict: Verdict, report: SweepReport) -> bool:
        """Settle one registration. Return whether it is settled afterwards, by this call or by another process."""
        registration = entry.registration
        state = transitions.settled(verdict)
        writes: list[Write] = []
        if state is Settled.VOID:
            for segment, write in registration.segments.items():
                gone = AbortedTxn(max_ledger_id=entry.number, max_entry_id=max(0, write.entries - 1))
                key = paths.aborted(segment, registration.txn or "")
                writes.append(Put(key, gone.to_bytes(), indexes=gone.indexes(segment)))
        after = registration.model_copy(update={"state": state})
        writes.append(Put(entry.record.key, after.to_bytes(), expect=entry.record))
        try:
            *_, made = self.cluster.store.write(*writes)
        except (BadVersion, UnknownOutcome):
            now = look(self.cluster.store, entry.record.key)
            return now is None or Registration.of(now).state is not None  # a missing record was folded, so it was settled
        assert made is not None
        self.buffer.log.update(Entry(entry.number, made, after))  # folding need not read the entry again
        report.settled += state is Settled.COMMITTED
        report.voided += state is Settled.VOID
        return True

    def _delete_ops(self, view: View, txn: str) -> None:
        """Delete the op records of a decided transaction whose registrations are all settled. The transaction's acks are
        settled first, because the op record of a committed ack must stay until the ack is settled (failure A23). If the
        transaction has no header, its acks are dropped. Such a transaction never committed, because the header of a committed
        transaction stays until its op records are deleted.
        """
        records = view.scan(paths.ops(txn).range())
        ops = [Op.of(record) for record in records]
        claimed = sorted({(op.segment, op.subscription or "") for op in ops if op.kind is OpKind.ACK})
        if claimed:
            header = view.get(paths.header(txn))
            state = None if header is None else Header.of(header).state
            if state is State.OPEN:
                return
            PendingAcks(self.cluster).settle(txn, claimed, committed=state is State.COMMITTED)
        for some in in_groups(records):
            written(self.cluster.store, *(Delete(record.key) for record in some))

    def collect_ops(self) -> int:
        """Delete op records that a fenced process wrote after its transaction was settled or its header expired. Return how many op
        records remain, because their transaction is OPEN or not settled. Also delete all events of subscriptions.
        """

        def body(view: View) -> int:
            with metrics.INDEX_QUERY_SECONDS.time():
                ops = view.scan_index(paths.OPS_BY_TXN, "", "~")
            outstanding = Counter(op.key.partition for op in ops)  # an op's partition is its transaction id
            txns = sorted(outstanding)
            headers = dict(zip(txns, view.get_many([paths.header(t) for t in txns]), strict=True)) if txns else {}
            listed = self.buffer.log.list(view, again=unsettled).entries if txns else ()
            waiting = {e.registration.txn for e in listed if unsettled(e)}
            left = 0
            for txn in txns:
                header = headers[txn]
                is_open = header is not None and Header.of(header).state is State.OPEN
                if is_open or txn in waiting:
                    left += outstanding[txn]
                else:
                    self._delete_ops(view, txn)
            metrics.OUTSTANDING_OPS.set(left)
            events = [
                Key(path, path.removeprefix("/txn/subscription-events/")[:-21]) for path in view.keys(paths.SUBSCRIPTION_EVENTS)
            ]
            for some in in_groups(events):  # events only wake readers; the state is in the cursors
                written(self.cluster.store, *(Delete(key) for key in some))
            return left

        return decide(self.cluster.store, body)

    # --- fold -----------------------------------------------------------------------------------------------------

    def fold(self, report: SweepReport) -> dict[str, Exception]:
        """Fold all segments (`metadata.maintenance.folding`). Return the segments that could not be folded, each with its error."""
        done = Folding(self.cluster, self.buffer).fold()
        report.folded += done.folded
        report.dropped += done.dropped
        return done.unfolded

    # --- expire headers -------------------------------------------------------------------------------------------

    def forget(self, report: SweepReport, *, limit: int) -> None:
        """Delete headers that are older than the header retention, if their registrations are settled and their op records are
        deleted. `limit`: the maximum number of COMMITTED headers, and of ABORTED headers, that one call considers.
        """

        def body(view: View) -> None:
            top = paths.pad20(max(0, view.now_ms() - self.cluster.settings.header_retention_ms))
            old: list[Record] = []
            for state in (State.COMMITTED, State.ABORTED):
                with metrics.INDEX_QUERY_SECONDS.time():
                    found = view.scan_index(paths.TXN_BY_FINAL_STATE, f"{state}:{paths.pad20(0)}", f"{state}:{top}")
                old += found[:limit]
            if not old:
                return
            listing = self.buffer.log.list(view, again=unsettled)
            waiting = {e.registration.txn for e in listing.entries if unsettled(e)}
            for record in old:
                txn = _txn_of(record.key)
                if txn in waiting or view.keys(paths.ops(txn).range()):
                    continue
                header = Header.of(record)
                if self._release_application(view, txn, header) and written(self.cluster.store, Delete(record.key, expect=record)):
                    report.forgotten += 1

        decide(self.cluster.store, body)

    def _release_application(self, view: View, txn: str, header: Header) -> bool:
        """Prepare the deletion of a header whose transaction is `current` in the application record. If the transaction has
        committed, raise `last_committed` in this record to the version of the transaction. If the application id is random, delete
        the record instead. Return False after a lost race: the header then stays.
        """
        if header.app is None:
            return True
        key = paths.application_named(header.app)
        record = view.get(key)
        app = None if record is None else Application.of(record)
        if record is None or app is None or app.current is None or app.current.txn_id != txn:
            return True
        if app.random:
            return written(self.cluster.store, Delete(key, expect=record))
        if header.state is State.COMMITTED and app.last_committed < app.current.version:
            return written(self.cluster.store, Put(key, transitions.raised(app).to_bytes(), expect=record))
        return True


def complain(unfolded: Mapping[str, Exception], failed: Mapping[str, Exception] | None = None) -> None:
    """Raise SweepIncomplete for segments that could not be folded and for steps that failed, if any."""
    failed = failed or {}
    for segment, error in unfolded.items():
        more = f" (and {len(unfolded) - 1} more)" if len(unfolded) > 1 else ""
        steps = "".join(f" It could not {step} either: {described(other)}." for step, other in failed.items())
        raise SweepIncomplete(
            f"Everything was swept but the segment {segment}{more}, which cannot be folded: {described(error)}{steps}",
            advice="Restore its files from a copy. Until then its registrations stay in the log, and no files are deleted.",
        ) from ExceptionGroup("what cannot be swept", [*unfolded.values(), *failed.values()])
    failures.complain({f"could not {step}": error for step, error in failed.items()}, done="The sweep did its other steps.")


def _due(last_ms: int | None, now_ms: int, every_ms: int) -> bool:
    """Return whether a step is due again. A time in the future comes from a clock that was set back later, and counts as due."""
    return last_ms is None or not 0 <= now_ms - last_ms < every_ms


def _txn_of(key: Key) -> str:
    return key.partition
