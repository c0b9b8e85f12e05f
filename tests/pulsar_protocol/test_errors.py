"""Each error code of Pulsar has a class that says what a program may do, and an advice for its user."""

from __future__ import annotations

import pickle

import pytest

from pulsar_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    Fenced,
    NotAuthorized,
    NotSupported,
    ProtocolError,
    PulsarError,
    Retriable,
    SchemaRefused,
    TopicMissing,
    TopicTerminated,
    TransactionEnded,
    broker_error,
    late_send,
)

CODES = {
    0: (PulsarError, "UnknownError"),
    1: (Retriable, "MetadataError"),
    2: (Retriable, "PersistenceError"),
    3: (AuthenticationFailed, "AuthenticationError"),
    4: (NotAuthorized, "AuthorizationError"),
    5: (Retriable, "ConsumerBusy"),
    6: (Retriable, "ServiceNotReady"),
    7: (Retriable, "ProducerBlockedQuotaExceededError"),
    8: (Retriable, "ProducerBlockedQuotaExceededException"),
    9: (ProtocolError, "ChecksumError"),
    10: (NotSupported, "UnsupportedVersionError"),
    11: (TopicMissing, "TopicNotFound"),
    12: (PulsarError, "SubscriptionNotFound"),
    13: (PulsarError, "ConsumerNotFound"),
    14: (Retriable, "TooManyRequests"),
    15: (TopicTerminated, "TopicTerminatedError"),
    16: (Retriable, "ProducerBusy"),
    17: (PulsarError, "InvalidTopicName"),
    18: (SchemaRefused, "IncompatibleSchema"),
    19: (PulsarError, "ConsumerAssignError"),
    20: (Retriable, "TransactionCoordinatorNotFound"),
    21: (TransactionEnded, "InvalidTxnStatus"),
    22: (NotSupported, "NotAllowedError"),
    23: (PulsarError, "TransactionConflict"),
    24: (TransactionEnded, "TransactionNotFound"),
    25: (Fenced, "ProducerFenced"),
}


@pytest.mark.parametrize("code", CODES)
def test_each_code_has_its_class_its_name_and_an_advice(code: int) -> None:
    error = broker_error(code, "because", "lookup of topic://a/b/c")
    kind, name = CODES[code]
    assert type(error) is kind
    assert error.code == code
    assert error.message == f"lookup of topic://a/b/c: the broker answered {name}: because."
    assert error.advice.endswith(".")


def test_an_unknown_code_is_named_by_its_number() -> None:
    error = broker_error(99, "", "lookup")
    assert (type(error), error.code) == (PulsarError, 99)
    assert error.message.endswith("the broker answered error 99.")


def test_a_missing_namespace_is_created_by_pulsar_admin() -> None:
    error = broker_error(11, "Namespace not found", "lookup of topic://public/none/t")
    assert "pulsar-admin namespaces create" in error.advice
    assert error.advice


@pytest.mark.parametrize("error", [broker_error(20, "moved", "begin"), ConnectionLost("gone", advice="again")])
def test_an_error_keeps_its_class_code_and_advice_in_a_pickle(error: PulsarError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.message, again.advice) == (type(error), error.code, error.message, error.advice)
    assert again is not error


def test_the_copy_for_another_thread_has_class_code_and_advice() -> None:
    error = broker_error(25, "fenced", "send")
    again = error.again()
    assert again is not error
    assert (type(again), again.code, str(again)) == (Fenced, 25, str(error))


def test_an_entry_of_a_transaction_that_has_ended_is_refused_by_a_text() -> None:
    """Brokers answer NotAllowedError to it, as to much else (seen on 5.0.0-M1)."""
    said = "Transaction (1,4) is already ABORTED — TxnConflict"
    found = late_send(22, said, "Sending to s")
    assert isinstance(found, TransactionEnded)
    assert found.message == f"Sending to s: {said}"
    assert late_send(22, "Schemas are not allowed", "Sending to s") is None
    assert late_send(0, said, "Sending to s") is None
