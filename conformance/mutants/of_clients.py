"""Faults of the public API (consumers, producers, transactions and subscriptions of `txnsegment`), and of Spark's writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from conformance.mutants.planting import fault
from metadata.client.providers import Providers
from metadata.read.segment_view import SegmentView
from metadata.records.names import PersistentName
from metadata.records.row_ranges import FIRST, Row, Rows, end_of
from metadata.rules.transitions import Claim
from txnsegment.messages import Ahead, Message

Real = Callable[..., Any]

_CONSUMER = "txnsegment.consumer:Consumer"
_PRODUCER = "txnsegment.producer:Producer"
_TRANSACTION = "txnsegment.transaction:Transaction"
_CONSUMERS = "tests/txnsegment/test_consumer.py"
_PRODUCERS = "tests/txnsegment/test_producer.py"
_TRANSACTIONS = "tests/txnsegment/test_transaction.py"
_TAKING_UP = "tests/txnsegment/test_taking_up.py"

# --- consumers ----------------------------------------------------------------------------------------------------


@fault(
    "8.11",
    "A cumulative acknowledgement ends at a row in each segment. Acknowledgements of later rows cover the empty space before them.",
    at=f"{_CONSUMER}._row_end",
    by="tests/conformance/surface/test_surface.py::test_each_shrunk_failure_of_the_past_passes[cumulative_ack_then_single_ack]",
)
def cumulative_ack_ends_in_empty_space(real: Real, self: Any, view: SegmentView, through: int, floor: Any) -> Row:
    below = view.ledger_id(through)
    return end_of(below) if below else FIRST


@fault(
    "8.11",
    "A cumulative acknowledgement covers the rows that the consumer has returned, not the rows that it has read ahead.",
    at=f"{_CONSUMER}._message",
    by=f"{_TAKING_UP}::test_a_loop_exit_after_one_row_loses_no_row",
)
def read_ahead_counts_as_delivered(real: Real, self: Any, ahead: Ahead) -> Message:
    message = ahead.message()
    ahead.given = ahead.batch.rows.num_rows
    self._given[message.segment] = ahead.batch.span[1]
    return message


@fault(
    "8.11",
    "An acknowledgement in an open or aborted transaction replaces no other acknowledgement of the same rows.",
    at=f"{_TRANSACTION}.counts",
    within=f"{_CONSUMER}._floor_of",
    by=(
        f"{_TAKING_UP}::test_a_cumulative_ack_in_an_open_transaction_replaces_no_other_ack",
        f"{_TAKING_UP}::test_a_retried_transaction_acknowledges_the_rows_of_its_first_try",
    ),
)
def acks_of_an_open_transaction_count(real: Real, self: Any) -> bool:
    return True


@fault(
    "8.5",
    "A consumer continues with the next row after an error, and returns no row twice.",
    at=f"{_CONSUMER}._not_again",
    by=f"{_TAKING_UP}::test_a_temporarily_missing_file_loses_no_row",
)
def rows_again_after_an_error(real: Real, self: Any, reading: Any) -> dict[str, Rows]:
    return dict(self._feeds.done)


@fault(
    "8.14",
    "If a topic is deleted and created again, a consumer that had not yet read all of its rows reports the lost rows.",
    at=f"{_CONSUMER}._check_deletions",
    within=f"{_CONSUMER}._deliver",
    by=f"{_CONSUMERS}::test_undelivered_rows_of_a_recreated_topic_are_a_loss",
)
def consumer_passes_over_a_deletion(real: Real, *rest: Any) -> None:
    return None


@fault(
    "8.5",
    "A subscription cannot be moved beyond the cut, since it would skip rows of open transactions.",
    at="txnsegment.subscriptions:ClusterSubscriptions._number",
    by="tests/txnsegment/test_subscriptions.py::test_a_subscription_is_not_moved_beyond_the_cut",
)
def seek_beyond_the_cut(real: Real, self: Any, topic: Any, where: Any) -> Any:
    return where if isinstance(where, int) else real(self, topic, where)


# --- producers ----------------------------------------------------------------------------------------------------


@fault(
    "8.5",
    "Rows that may be committed are never staged again, since they would then be there twice.",
    at=f"{_PRODUCER}._commit",
    by=f"{_PRODUCERS}::test_an_error_after_an_unknown_outcome_does_not_stage_anew",
)
def unknown_flush_staged_anew(real: Real, self: Any) -> Any:
    try:
        return real(self)
    finally:
        self._unknown = False


@fault(
    "8.14",
    "A producer buffers no more rows than its limit.",
    at=f"{_PRODUCER}.send",
    by=f"{_PRODUCERS}::test_a_producer_keeps_to_its_limit_of_waiting_rows",
)
def producer_without_bound(real: Real, self: Any, row: Any) -> None:
    self._most = len(self._waiting) + 1
    real(self, row)


# --- transactions -------------------------------------------------------------------------------------------------


@fault(
    "8.5",
    "A transaction that may have committed accepts no more rows, since no commit would contain them.",
    at=f"{_TRANSACTION}._check_takes_more",
    by=f"{_TRANSACTIONS}::test_a_transaction_with_an_unknown_outcome_takes_no_more_work",
)
def more_rows_after_an_unknown_commit(real: Real, self: Any, verb: str) -> None:
    self._check_open(verb)


@fault(
    "A4",
    "If a commit raised and left its transaction OPEN, aborting the transaction ends it.",
    at=f"{_TRANSACTION}.abort",
    by=f"{_TRANSACTIONS}::test_giving_up_aborts_a_transaction_left_open_by_a_commit",
)
def abort_leaves_it_open(real: Real, self: Any) -> None:
    self._tried = False
    real(self)


@fault(
    "8.8",
    "The acknowledgements of a skipped transaction have no effect. Their rows are delivered again.",
    at=f"{_TRANSACTION}._give_back",
    within=f"{_TRANSACTION}.commit",
    by=(
        f"{_CONSUMERS}::test_a_skipped_transaction_returns_its_rows[True]",
        f"{_CONSUMERS}::test_a_skipped_transaction_returns_its_rows[False]",
    ),
)
def skipped_transaction_keeps_its_rows(real: Real, self: Any, *, skipped: bool) -> None:
    return None


@fault(
    "8.3",
    "A forked process allocates no transaction ids from the block of its parent process.",
    at="metadata.write.txn_ids:TxnIds.next",
    by=f"{_TRANSACTIONS}::test_a_forked_child_has_ids_and_a_background_of_its_own",
)
def forked_child_gives_its_parents_ids(real: Real, self: Any) -> Any:
    self._pid = os.getpid()
    return real(self)


@fault(
    "8.5",
    "A transaction never writes to topics of both transaction models, since it could not be atomic.",
    at=f"{_TRANSACTION}._check_kind",
    by="tests/txnsegment/test_persistent.py::test_one_transaction_never_spans_both_models",
)
def transaction_spans_both_kinds(real: Real, self: Any, names: Iterable[str]) -> None:
    Providers(self._client).of(list(names))


@fault(
    "8.1",
    "Only a coordinator writes to its transaction log.",
    at="metadata.records.names:persistent_name",
    by="tests/txnsegment/test_persistent_names.py::test_a_transaction_log_takes_no_writes",
)
def transaction_logs_are_topics_of_everybody(real: Real, text: str) -> Any:
    log = text.removeprefix("persistent://pulsar/system/")
    return real(text) if log == text else PersistentName("pulsar", "system", log)


# --- Spark's writes -----------------------------------------------------------------------------------------------


@fault(
    "A20",
    (
        "A write in foreachBatch fails if another query has committed its version. If the write were skipped, its rows would be "
        "lost silently."
    ),
    at="metadata.rules.transitions:_same",
    by="tests/spark_txn_sink/test_batch_tokens.py::test_another_query_repeats_nothing",
)
def batch_tokens_without_their_query(real: Real, claim: Claim, by: str | None) -> bool:
    return claim.by == by or not claim.replays


@fault(
    "8.5",
    "A write with a task that did not report its files is never committed.",
    at="spark_txn_sink.commit:reported",
    by="tests/spark_txn_sink/test_sink_commit.py::test_a_task_that_does_not_report_is_an_error",
)
def silent_task_is_left_out(real: Real, messages: Sequence[Any]) -> list[Any]:
    return [message for message in messages if message is not None]
