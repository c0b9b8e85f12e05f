"""Faults of the sink and the transactions of a Pulsar cluster: the control topic, the journal of transactions over several topics,
and the log of acknowledgements (docs/pulsar.md). Tests over models of a broker detect them, and no broker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.mutants.planting import fault
from pulsar_protocol.errors import TimedOut

Real = Callable[..., Any]

_COMMITTER = "spark_txn_sink.pulsar.committing:Committer"
_RECOVERY = "spark_txn_sink.pulsar.control:Recovery"
_COMMITTING = "tests/spark_txn_sink/pulsar/test_committing.py"
_JOURNAL = "spark_txn_sink.pulsar.journal"
_SCHEDULES = "tests/spark_txn_sink/pulsar/test_journal_schedules.py::test_a_program_commits_all_rows_of_its_writes_or_nothing"
_ACKS = "txnsegment.pulsar.ack_log:AckLog"
_ACK_RECOVERY = "txnsegment.pulsar.ack_records:Recovery"
_ACK_LOG = "tests/txnsegment/pulsar/test_ack_log.py"
_OUTCOMES = "tests/txnsegment/pulsar/test_unknown_outcomes.py"

# --- the control topic --------------------------------------------------------------------------------------------


@fault(
    "pulsar",
    "The `done` of a version is in the transaction, so that rows and version are committed together.",
    at=f"{_COMMITTER}._append",
    by=f"{_COMMITTING}::test_each_version_is_committed_once",
)
def done_outside_of_its_transaction(real: Real, self: Any, record: Any, txn: Any = None) -> None:
    real(self, record, None)


@fault(
    "pulsar",
    "A driver aborts the transactions of earlier drivers that may still commit, before it commits.",
    at=f"{_RECOVERY}.leftovers",
    by=f"{_COMMITTING}::test_each_version_is_committed_once",
)
def leftovers_of_a_version_may_commit(real: Real, self: Any) -> list[Any]:
    return []


@fault(
    "pulsar",
    "A broker may accept two producers. So a driver goes on only if its record follows its last one.",
    at=f"{_COMMITTER}._follows",
    by=f"{_COMMITTING}::test_each_version_is_committed_once_although_the_broker_does_not_fence",
)
def two_drivers_without_fencing(real: Real, self: Any, before: Any) -> bool:
    return True


@fault(
    "pulsar",
    "A broker may write a `done` after the `take` of a successor. The successor looks for it there.",
    at=f"{_RECOVERY}.missing",
    by=f"{_COMMITTING}::test_a_done_that_the_broker_writes_after_the_take_of_a_successor_is_found",
)
def late_done_is_not_looked_for(real: Real, self: Any) -> list[Any]:
    return []


@fault(
    "pulsar",
    "A driver whose producer was ended reads the log before it takes over again. Otherwise two drivers end each other's producers.",
    at=f"{_COMMITTER}._check_replaced",
    by=f"{_COMMITTING}::test_a_driver_whose_producer_was_ended_does_not_end_that_of_its_successor",
)
def replaced_driver_takes_over_again(real: Real, self: Any, work: Any) -> None:
    return None


@fault(
    "pulsar",
    "Transactions of earlier drivers without a `begin` are aborted after the version is decided, since one of them may take over.",
    at=f"{_COMMITTER}._begin",
    by=f"{_COMMITTING}::test_a_driver_that_waits_for_its_turn_keeps_its_transaction",
)
def strays_are_aborted_before_the_commit(real: Real, self: Any, work: Any) -> Any:
    found = real(self, work)
    self._end_strays(work)
    return found


@fault(
    "pulsar",
    "All transactions that earlier drivers have opened are found, before they are passed over.",
    at="spark_txn_sink.pulsar.control_topic:ControlTopic.strays",
    by="tests/spark_txn_sink/pulsar/test_strays.py::test_a_slow_broker_hides_no_earlier_transaction",
)
def strays_of_a_slow_broker_are_lost(real: Real, self: Any, opened: Any) -> list[Any]:
    try:
        found: list[Any] = real(self, opened)
    except TimedOut:
        return []
    return found


@fault(
    "pulsar",
    "Consumers write their acknowledgements in the transaction of a version before the version is committed.",
    at="txnsegment.pulsar.transaction:PulsarTransaction._end_version",
    by=f"{_OUTCOMES}::test_the_acknowledgements_of_a_version_are_written_after_its_begin_and_before_its_commit",
)
def participants_are_prepared_after_the_version_is_decided(real: Real, self: Any, topics: Any, recorded: Any) -> bool:
    participants = self._participants
    prepare, participants.prepare = participants.prepare, lambda txn: None
    committed: bool = real(self, topics, recorded)
    if committed:
        prepare(self._opened.txn)
    return committed


# --- the journal of cluster.transaction() -------------------------------------------------------------------------


@fault(
    "pulsar",
    "A transaction with a write that has begun and not ended is not committed.",
    at=f"{_JOURNAL}:finished",
    by=_SCHEDULES,
)
def unfinished_write_is_committed(real: Real, notes: Any, txn: Any) -> list[Any]:
    return list({note.write: note for note in notes if note.kind == "ended"}.values())


@fault(
    "pulsar",
    "A write is reported as ended when its tasks have sent all rows, and not before.",
    at=f"{_JOURNAL}:begin_write",
    by=_SCHEDULES,
)
def write_ends_before_its_rows_are_sent(real: Real, client: Any, opened: Any, write: str, topic: str) -> None:
    from spark_txn_sink.pulsar.journal import Note, end_write

    real(client, opened, write, topic)
    end_write(client, opened, Note("ended", opened.txn.text, write, topic))


@fault(
    "pulsar",
    "A write that begins after the transaction was closed is refused, and sends nothing.",
    at=f"{_JOURNAL}:begin_write",
    by=_SCHEDULES,
)
def write_after_the_closing_is_taken(real: Real, client: Any, opened: Any, write: str, topic: str) -> None:
    from spark_txn_sink.pulsar.journal import WriteRefused

    try:
        real(client, opened, write, topic)
    except WriteRefused:
        return


@fault(
    "pulsar",
    "A write is recorded before its tasks send rows. Otherwise a commit does not learn of it.",
    at=f"{_JOURNAL}:begin_write",
    by=_SCHEDULES,
)
def write_begins_without_a_record(real: Real, client: Any, opened: Any, write: str, topic: str) -> None:
    return None


@fault(
    "pulsar",
    "The program writes `closing` before it reads which writes have ended.",
    at=f"{_JOURNAL}:_written",
    within=f"{_JOURNAL}:close",
    by=_SCHEDULES,
)
def writes_are_read_before_the_closing(real: Real, client: Any, opened: Any, note: Any) -> Any:
    from pulsar_protocol.layout import Position

    place = real(client, opened, note)
    return Position(place.ledger, max(opened.place.entry, place.entry - 3))


# --- the log of acknowledgements ----------------------------------------------------------------------------------


@fault(
    "pulsar",
    "The acknowledgements of a transaction are written in it, so that they count if and only if its rows do.",
    at=f"{_ACKS}.prepare",
    by=f"{_ACK_LOG}::test_acknowledgements_are_written_in_their_transaction",
)
def acknowledgements_outside_of_their_transaction(real: Real, self: Any, txn: Any, rows: Any) -> None:
    from txnsegment.pulsar.ack_records import Done

    self.state()
    self._last = self._log.append(Done(txn, rows))


@fault(
    "pulsar",
    "Acknowledgements count when their transaction is committed, and not when it may be.",
    at=f"{_ACKS}.ended",
    by=f"{_ACK_LOG}::test_an_unknown_outcome_is_read",
)
def unknown_end_counts_as_a_commit(real: Real, self: Any, txn: Any, rows: Any, outcome: Any) -> None:
    real(self, txn, rows, outcome or "committed")


@fault(
    "pulsar",
    "Acknowledgements count after the end of their transaction, and not when they are written.",
    at=f"{_ACKS}.prepare",
    by=f"{_ACK_LOG}::test_a_done_does_not_count_before_its_transaction_has_ended",
)
def acknowledgements_before_the_end_of_their_transaction(real: Real, self: Any, txn: Any, rows: Any) -> None:
    from dataclasses import replace

    from txnsegment.pulsar.ack_records import joined

    real(self, txn, rows)
    self._state = replace(self._state, rows=joined(self._state.rows, rows))


@fault(
    "pulsar",
    "A consumer that takes over aborts the transactions of its predecessors that may still commit.",
    at=f"{_ACK_RECOVERY}.leftovers",
    by=f"{_ACK_LOG}::test_the_next_consumer_aborts_a_transaction_that_may_still_commit",
)
def leftovers_of_a_consumer_may_commit(real: Real, self: Any) -> list[Any]:
    return []


@fault(
    "pulsar",
    "The broker may deliver the `done` of an aborted transaction. It does not count, and the log gets a record of this.",
    at=f"{_ACK_RECOVERY}.newly_aborted",
    by=f"{_ACK_LOG}::test_a_transaction_that_the_coordinator_forgets_after_its_end_counts_as_it_ended",
)
def delivered_done_of_an_aborted_transaction_counts(real: Real, self: Any) -> tuple[Any, ...]:
    return ()


@fault(
    "pulsar",
    "A broker may write a `done` after the `take` of the next consumer, which looks for it there.",
    at=f"{_ACK_RECOVERY}.missing",
    by=f"{_ACK_LOG}::test_acknowledgements_that_the_broker_writes_after_the_take_of_the_next_consumer_count",
)
def late_acknowledgements_are_not_looked_for(real: Real, self: Any) -> list[Any]:
    return []


@fault(
    "pulsar",
    "A broker may accept two exclusive producers. So a consumer goes on only if its record follows its last one.",
    at=f"{_ACKS}._append",
    by=f"{_ACK_LOG}::test_two_consumers_that_the_broker_accepts_at_the_same_time_do_not_both_commit",
)
def two_consumers_without_fencing(real: Real, self: Any, record: Any) -> None:
    from txnsegment.pulsar.ack_records import after

    self._last = self._log.append(record)
    self._state = after(self._state, record)


@fault(
    "pulsar",
    "The log says that a transaction may have acknowledgements before it has any.",
    at=f"{_ACKS}.begin",
    by=f"{_ACK_LOG}::test_a_transaction_that_began_before_another_consumer_took_over_is_aborted",
)
def acknowledgements_without_a_begin(real: Real, self: Any, txn: Any) -> None:
    self.state()


@fault(
    "pulsar",
    "A consumer that was replaced gives up for good.",
    at=f"{_ACK_RECOVERY}.owner_before",
    by=f"{_ACK_LOG}::test_a_consumer_that_was_replaced_can_acknowledge_nothing",
)
def replaced_consumer_goes_on(real: Real, self: Any) -> Any:
    return self.finish().owner
