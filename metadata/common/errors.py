"""The errors of the protocol. One root (`TxnSegmentError`); the name says what the caller may assume.

Store errors say what is KNOWN about the call (protocol.md section 3): `BadVersion` and `Unavailable` mean "not done",
`UnknownOutcome` means "perhaps done": read again before you act. Nothing here is ever swallowed or retried blindly.
"""

from __future__ import annotations

from ledgers.errors import CorruptPart, CorruptSnapshot, SchemaError, StorageError, TxnSegmentError, ValueFormatError

__all__ = [
    "AckConflict",
    "BackupDamaged",
    "BackupUnsettled",
    "BadVersion",
    "ClusterFormatError",
    "ConfigurationError",
    "CorruptPart",
    "CorruptRecord",
    "CorruptSnapshot",
    "DataLoss",
    "Fenced",
    "NotAllowed",
    "NotDelivered",
    "NotFound",
    "OffsetOutOfRange",
    "OptionError",
    "OutcomeUnknown",
    "PartsGone",
    "ProducerFull",
    "RestoreRefused",
    "RestoredBehind",
    "SchemaChanged",
    "SchemaError",
    "SegmentSealed",
    "SessionLost",
    "StorageError",
    "StoreError",
    "SubscriptionExists",
    "SubscriptionMigrated",
    "SubscriptionNotFound",
    "TopicExists",
    "TopicNotFound",
    "TopicSealed",
    "TransactionNotFound",
    "TransactionUnfinished",
    "TxnConflict",
    "TxnSegmentError",
    "Unavailable",
    "UnknownOutcome",
    "ValueFormatError",
    "ValueTooLarge",
    "VersionConflict",
]


# --- the metadata store (section 3) -------------------------------------------------------------------------------


class StoreError(TxnSegmentError):
    """Anything that a metadata store reports."""


class NotFound(StoreError):
    """The record does not exist. The call changed nothing."""


class BadVersion(StoreError):
    """A lost race: the record has another version, exists already, or is gone. The call (its whole group) changed nothing."""


class Unavailable(StoreError):
    """The store could not be reached or refused to answer. KNOWN to be not done."""


class UnknownOutcome(StoreError):
    """The reply was lost: the write may or may not have happened. Read again before acting; never repeat blindly."""


class SessionLost(StoreError):
    """The session of a view ended between two of its reads: what was read may not fit together. Start over with a new view."""


class ValueTooLarge(StoreError):
    """The value does not fit into one record. The call changed nothing."""


class CorruptRecord(StoreError):
    """A record's bytes are not what section 4 describes."""


# --- configuration ------------------------------------------------------------------------------------------------


class ConfigurationError(TxnSegmentError):
    """A service URL, folder, environment or cluster that cannot work."""


class ClusterFormatError(ConfigurationError):
    """The cluster was made by a newer version of txnsegment, or is not a cluster of ours."""


class BackupUnsettled(TxnSegmentError):
    """No consistent backup could be read in the time given: something kept changing. Nothing was written."""


class BackupDamaged(TxnSegmentError):
    """A backup file is damaged, cut short, of another format, or no backup at all. Nothing was restored from it."""


class RestoreRefused(ConfigurationError):
    """A restore that would overwrite, mix or lose something, or one that is not complete: the store cannot be used."""


class OptionError(ConfigurationError):
    """An unknown option, a bad value, or a combination that cannot work. Names the option and the nearest valid name."""


# --- transactions -------------------------------------------------------------------------------------------------


class TxnConflict(TxnSegmentError):
    """The transaction is no longer OPEN (or ended the other way): the operation was refused and counts for nothing."""


class Fenced(TxnConflict):
    """A newer attempt of the same application took over: this one was aborted and can never commit."""


class PartsGone(TxnConflict):
    """Files that a transaction was about to commit are not there, or not whole. Nothing was committed; run the write again."""


class TransactionNotFound(TxnSegmentError):
    """No header of that id exists: it never did, or it was forgotten after its retention."""


class VersionConflict(TxnSegmentError):
    """The version token is at or below what the application has committed, and it is not a replay of the same batch (A20)."""


class RestoredBehind(VersionConflict):
    """The cluster was restored from a backup that is older than this query's checkpoint: versions in between are lost."""


class OutcomeUnknown(TxnSegmentError):
    """It could not be found out whether the transaction committed. Nothing was deleted; running the same version again is safe."""


class AckConflict(TxnSegmentError):
    """The position is acknowledged already, or pending in another transaction."""


class NotDelivered(TxnSegmentError):
    """A consumer was to acknowledge everything up to a row that it has not handed out. Nothing was acknowledged."""


class ProducerFull(TxnSegmentError):
    """A producer keeps as many rows as it may. The row was not taken."""


class SubscriptionMigrated(AckConflict):
    """The subscription's persistent topic was migrated, and the subscription with it: nothing of the call counts there, and it goes
    on at the topic:// that the topic goes on in.
    """


class SubscriptionNotFound(TxnSegmentError):
    """The topic has no such subscription (any more)."""


class SubscriptionExists(TxnSegmentError):
    """The topic has a subscription of that name."""


class TransactionUnfinished(TxnSegmentError):
    """The transaction is decided, for ever, but its markers do not stand everywhere yet: rows of it are not seen where they do
    not.
    """


# --- topics and reading -------------------------------------------------------------------------------------------


class TopicNotFound(TxnSegmentError):
    """No such topic (or it was deleted)."""


class TopicExists(TxnSegmentError):
    """A topic of that name exists."""


class SegmentSealed(TxnSegmentError):
    """A segment that the write staged rows for takes no new ledger. Nothing was committed; run the write again."""


class TopicSealed(SegmentSealed):
    """A persistent topic takes no more entries: it was terminated, deleted or migrated to topic://."""


class NotAllowed(TxnSegmentError):
    """What users may not do: set or remove a system property, or back up what a backup cannot hold."""


class SchemaChanged(SchemaError):
    """A running stream met a new or wider column. No row was dropped; restart the query to pick it up."""


class OffsetOutOfRange(TxnSegmentError):
    """An offset, number or timestamp that the log does not have (yet), or a start after the end."""


class DataLoss(TxnSegmentError):
    """Rows that the read needs were trimmed by retention. Names topic, segment and positions; see `failOnDataLoss`."""


class SweepIncomplete(TxnSegmentError):
    """A sweep did all it could, and says what it could not do: segments whose files cannot be read stay as they were. What kept it
    from each is in the ExceptionGroup that it is raised from.
    """

    @property
    def causes(self) -> tuple[Exception, ...]:
        return self.__cause__.exceptions if isinstance(self.__cause__, ExceptionGroup) else ()
