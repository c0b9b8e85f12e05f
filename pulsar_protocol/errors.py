"""The errors of this package. An error that a broker reports has the class and the advice that `_CODES` gives for its code."""

from __future__ import annotations

from typing import Final, Self, TypeVar

from ledgers.errors import TxnSegmentError


class PulsarError(TxnSegmentError):
    """An error that a broker reported, or a failure of the connection. `code`: Pulsar's number of the error (None: no code)."""

    code: int | None = None

    def again(self) -> Self:
        """Return an equal error, for another thread to raise."""
        return _again(type(self), self.message, self.advice, self.code)

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (type(self), self.message, self.advice, self.code)


Kind = TypeVar("Kind", bound=PulsarError)


def _again(kind: type[Kind], message: str, advice: str, code: int | None) -> Kind:
    error = kind(message, advice=advice)
    error.code = code
    return error


class ConnectionLost(PulsarError):
    """The connection ended. The outcome of a request without an answer is unknown."""


class Unreachable(ConnectionLost):
    """The first connection of a client was not possible: the address is wrong, or no broker runs there. Requests are
    not repeated.
    """


class TimedOut(PulsarError):
    """A broker did not answer in time. The outcome of the request is unknown."""


class ProtocolError(PulsarError):
    """A peer sent bytes that are not Pulsar's protocol, or an entry is damaged."""


class RecordsGone(PulsarError):
    """Records of a writers' log are gone, so it is unknown whether a read would have only a part of a transaction."""


class LogDamaged(PulsarError):
    """A topic of txnsegment's own records (`__txnsegment_..`) has records that its protocol never writes."""


class NotSupported(PulsarError):
    """The broker, or this client, does not have a feature that is needed."""


class TransactionsOff(NotSupported):
    """The broker has no transactions, or they are switched off."""


class ScalableTopicsOff(NotSupported):
    """The broker has no scalable topics (`topic://`), or they are switched off."""


class UnknownVersion(NotSupported):
    """It is not known how clients of the broker's version route keys to segments."""


class MessageTooLarge(PulsarError):
    """The broker takes no entry of this size. Nothing was sent."""


class AuthenticationFailed(PulsarError):
    """The broker did not accept the credentials."""


class NotAuthorized(PulsarError):
    """The principal may not do this."""


class TopicMissing(PulsarError):
    """The topic does not exist."""


class TopicDamaged(PulsarError):
    """The metadata store has only a part of a topic. The topic can neither be used, nor deleted, nor created."""

    @staticmethod
    def of(topic: str, error: PulsarError) -> TopicDamaged | None:
        """Return the error for a lookup that failed because of this; None: it failed for another reason."""
        if "Failed to deserialize payload" not in error.message:
            return None
        return TopicDamaged(
            f"The metadata store has only a part of the topic {topic}. A broker of version 5.0.0-M1 leaves it behind when it "
            "deletes a topic of which it is the controller.",
            advice="Take another name. The part goes away some minutes after the broker was restarted.",
        )


class OlderModel(TopicMissing):
    """There is no scalable topic of this name, but a topic of the older model (`persistent://`)."""


class TopicTerminated(PulsarError):
    """The segment was sealed by a split or merge. The layout of the topic names its children."""


class SchemaRefused(PulsarError):
    """The topic has another schema, and the given one is not compatible."""


class TransactionEnded(PulsarError):
    """The transaction is already committed or aborted, or the broker has forgotten it."""


class Fenced(PulsarError):
    """Another producer took over the exclusive access."""


class Retriable(PulsarError):
    """The broker cannot do this now: it starts, moves a topic, or has too many requests. The same request may succeed later."""


TRANSACTION_NOT_FOUND: Final = 24
"""The code of a TransactionEnded for a transaction that its coordinator does not know, or has forgotten some time after its end."""
UNKNOWN_ERROR: Final = 0
NOT_ALLOWED: Final = 22
_CODES: Final[dict[int, tuple[type[PulsarError], str, str]]] = {
    UNKNOWN_ERROR: (PulsarError, "UnknownError", "The log of the broker has the cause."),
    1: (Retriable, "MetadataError", "Check the metadata store of the Pulsar cluster; the log of the broker has the cause."),
    2: (Retriable, "PersistenceError", "Check the bookies of the Pulsar cluster; the log of the broker has the cause."),
    3: (
        AuthenticationFailed,
        "AuthenticationError",
        "Set a valid token in TXNSEGMENT_PULSAR_TOKEN or TXNSEGMENT_PULSAR_TOKEN_FILE, or a certificate (docs/pulsar.md).",
    ),
    4: (NotAuthorized, "AuthorizationError", "Grant produce and consume on the namespace to this role."),
    5: (Retriable, "ConsumerBusy", "Another consumer has the subscription; end it, or use another subscription."),
    6: (Retriable, "ServiceNotReady", "The broker starts or moves the topic; try again."),
    7: (Retriable, "ProducerBlockedQuotaExceededError", "The topic's backlog quota is reached; consume, or raise the quota."),
    8: (Retriable, "ProducerBlockedQuotaExceededException", "The topic's backlog quota is reached; consume, or raise the quota."),
    9: (ProtocolError, "ChecksumError", "The entry was damaged on its way to the broker; send it again."),
    10: (NotSupported, "UnsupportedVersionError", "The broker is older than what this needs; docs/pulsar.md names versions."),
    11: (TopicMissing, "TopicNotFound", "Check the name of the topic, or create it."),
    12: (PulsarError, "SubscriptionNotFound", "Check the name of the subscription."),
    13: (PulsarError, "ConsumerNotFound", "Connect again."),
    14: (Retriable, "TooManyRequests", "Try again later, or raise the broker's limit of lookups."),
    15: (TopicTerminated, "TopicTerminatedError", "Read the layout of the topic again and write to the successors."),
    16: (Retriable, "ProducerBusy", "Another producer has the name or the exclusive access; end it."),
    17: (PulsarError, "InvalidTopicName", "Give topic://tenant/namespace/name or persistent://tenant/namespace/name."),
    18: (SchemaRefused, "IncompatibleSchema", "Compare the columns with the schema of the topic."),
    19: (PulsarError, "ConsumerAssignError", "Connect again."),
    20: (Retriable, "TransactionCoordinatorNotFound", "Switch transactions on (transactionCoordinatorEnabled=true), or try again."),
    21: (TransactionEnded, "InvalidTxnStatus", "The transaction has ended in the other way."),
    NOT_ALLOWED: (NotSupported, "NotAllowedError", "The message of the broker says what is not allowed."),
    23: (PulsarError, "TransactionConflict", "Another transaction has acknowledged the same messages."),
    TRANSACTION_NOT_FOUND: (
        TransactionEnded,
        "TransactionNotFound",
        "The transaction has ended long ago, or its coordinator does not know it.",
    ),
    25: (Fenced, "ProducerFenced", "Another writer took over; end this one."),
}


NO_NAMESPACE: Final = "Namespace not found"
"""What brokers say, by both interfaces, about a topic whose namespace does not exist."""
NAMESPACE_ADVICE: Final = "Create the namespace: pulsar-admin namespaces create TENANT/NAMESPACE. Or correct the name of the topic."


def late_send(code: int, message: str, what: str) -> PulsarError | None:
    """Return the error if a broker refused an entry because its transaction has ended; otherwise None. Brokers have no code for
    this: they answer NotAllowedError, and their text names the exception of the coordinator.
    """
    if code != NOT_ALLOWED or "TxnConflict" not in message:
        return None
    error = TransactionEnded(
        f"{what}: {message}",
        advice="The transaction has ended by its timeout, or another program of the application has aborted it. Run it again. "
        "Raise the timeout if it was too short.",
    )
    error.code = code
    return error


def broker_error(code: int, message: str, what: str) -> PulsarError:
    """Return the error for an error code of a broker. `what`: the request in words, with the topic or transaction it was about."""
    kind, name, advice = _CODES.get(code, (PulsarError, f"error {code}", "This error code is unknown to this client."))
    if NO_NAMESPACE in message:
        advice = NAMESPACE_ADVICE
    said = f": {message}" if message else ""
    error = kind(f"{what}: the broker answered {name}{said}.", advice=advice)
    error.code = code
    return error
