"""The errors of the protocol, below one root (`TxnSegmentError`). The class of an error says what the caller may assume.

Store errors say what is KNOWN about the call (protocol.md section 3): `BadVersion` and `Unavailable` mean "not done",
`UnknownOutcome` means "perhaps done", so the caller reads again before it acts. No error is swallowed, and no call is repeated
blindly.
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
    "SweepIncomplete",
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
    """Base class of the errors of a metadata store."""


class NotFound(StoreError):
    """The record does not exist. The call changed nothing.

    Next: treat the record as absent, or create it.
    """


class BadVersion(StoreError):
    """The call lost a race: the record has another version, exists already, or is gone. No write of the call's group was done.

    Next: read the record again, and decide again.
    """


class Unavailable(StoreError):
    """The store could not be reached or refused to answer. The call is KNOWN to be not done.

    Next: bring the store back, and run the operation again.
    """


class UnknownOutcome(StoreError):
    """The reply was lost: the write may or may not be done. Read again before acting; never repeat the write blindly.

    Next: read first, then act on what is there.
    """


class SessionLost(StoreError):
    """The session of a view ended between two of its reads, so the reads may be inconsistent. Start over with a new view.

    Next: open a new view, and read everything again.
    """


class ValueTooLarge(StoreError):
    """The value does not fit into one record. The call changed nothing.

    Next: write smaller values, or smaller groups of writes.
    """


class CorruptRecord(StoreError):
    """The bytes of a record do not have the form that protocol.md (section 4) describes.

    Next: `txnsegment doctor` names every damaged record. Restore the record, or the cluster, from a backup.
    """


# --- configuration ------------------------------------------------------------------------------------------------


class ConfigurationError(TxnSegmentError):
    """A service URL, folder, environment or cluster that cannot be used.

    Next: correct what the message names: the URL, the folder, the variable or the setting.
    """


class ClusterFormatError(ConfigurationError):
    """The cluster was made by a newer version of txnsegment, or the store holds no txnsegment cluster.

    Next: install the newer version of txnsegment on this machine, or give the URL of a cluster.
    """


class BackupUnsettled(TxnSegmentError):
    """No consistent backup could be read within the time limit, because records kept changing. No backup file was written.

    Next: back up again at a quieter time, or with a longer `--patience`.
    """


class BackupDamaged(TxnSegmentError):
    """The backup file is damaged, truncated, of another format, or no backup. Nothing was restored from it.

    Next: use another copy of the backup.
    """


class RestoreRefused(ConfigurationError):
    """The restore would overwrite, mix or lose data, or an earlier restore is incomplete and the store cannot be used.

    Next: do what the advice says: restore into a new folder or chroot, or finish the earlier restore with its own file.
    """


class OptionError(ConfigurationError):
    """An unknown option, a bad value, or an impossible combination of options. The error names the option and the nearest valid
    name.

    Next: write the option as the advice says.
    """


# --- transactions -------------------------------------------------------------------------------------------------


class TxnConflict(TxnSegmentError):
    """The transaction or the write cannot go on: the transaction is no longer OPEN or has ended with the other outcome, its
    parts are out of date, or other processes won every race. The operation was refused and has no effect.

    Next: run the transaction again from its start.
    """


class Fenced(TxnConflict):
    """This attempt can never commit. Another attempt of the same application has fenced it or writes a later version, or an
    operator or the timeout has aborted its transaction.

    Next: find the other driver of the application, and stop one of the two. After a timeout or an abort, run the write again.
    """


class PartsGone(TxnConflict):
    """Files that the transaction was about to commit are missing or incomplete. Nothing was committed; run the write again.

    Next: find what deleted the files. A write must end within half of `orphanAgeMs`.
    """


class TransactionNotFound(TxnSegmentError):
    """No header with this transaction id exists: the id was never used, or its header expired.

    Next: check the id with `txnsegment txns list`. Headers of ended transactions expire after `headerRetentionMs`.
    """


class VersionConflict(TxnSegmentError):
    """The version is not above the last committed version of the application, and the write is not a replay of the same batch
    (A20).

    Next: give a new checkpoint a new `txnAppId`, and a new batch a version above the last one.
    """


class RestoredBehind(VersionConflict):
    """The cluster was restored from a backup that is older than this query's checkpoint. Versions that the query committed
    after the backup was made may be lost.

    Next: write the rows of the lost versions again by other means, and set `afterRestore=continue`; or use a new checkpoint.
    """


class OutcomeUnknown(TxnSegmentError):
    """The outcome of the transaction could not be determined. Nothing was deleted. Running the same version again is safe.

    Next: run the same application and version again: it is skipped if it committed. Without a version, look for the rows first.
    """


class AckConflict(TxnSegmentError):
    """The position is already acknowledged, or it has a pending ack of another transaction.

    Next: go on from the cursor with a new delivery (`consumer.rewind()`, a new transaction); a query needs a new checkpoint.
    """


class NotDelivered(TxnSegmentError):
    """A cumulative acknowledgement names a row that this consumer has not delivered. Also raised after the commit of a
    transaction was skipped, until the rows of this transaction are delivered again. Nothing was acknowledged.

    Next: take the next delivery first, or acknowledge single rows with `ack`.
    """


class ProducerFull(TxnSegmentError):
    """The producer's buffer has reached its limit. The row was not added.

    Next: call `flush()`. If it fails, `discard()` drops and returns the waiting rows.
    """


class SubscriptionMigrated(AckConflict):
    """The persistent topic of the subscription was migrated to a topic://, together with the subscription. The call had no
    effect. Acknowledge on the topic:// instead.

    Next: use the same subscription of the topic that `txnsegment topics describe` names as the successor.
    """


class SubscriptionNotFound(TxnSegmentError):
    """The topic has no subscription of this name, or the subscription was deleted.

    Next: create it (`txnsegment subscriptions create`), or look for its name (`txnsegment subscriptions list`).
    """


class SubscriptionExists(TxnSegmentError):
    """The topic already has a subscription of this name.

    Next: choose another name, or move the subscription with `seek`.
    """


class TransactionUnfinished(TxnSegmentError):
    """The outcome of a marker-based transaction is final, but some topic was sealed and takes no marker. The transaction's rows
    in that topic are not visible.

    Next: write the rows of that topic again, to its successor. Transactions of `topic://` do not have this error.
    """


# --- topics and reading -------------------------------------------------------------------------------------------


class TopicNotFound(TxnSegmentError):
    """The topic does not exist or was deleted.

    Next: create it (`txnsegment topics create`), or look for its name (`txnsegment topics list`).
    """


class TopicExists(TxnSegmentError):
    """A topic of this name already exists.

    Next: choose another name, or use the topic as it is.
    """


class SegmentSealed(TxnSegmentError):
    """A segment is sealed: it takes no new ledger, and it cannot be split or merged again. Also raised if the topic was
    deleted. The operation was refused and has no effect.

    Next: look at the layout (`txnsegment topics describe`), and run the operation again.
    """


class TopicSealed(SegmentSealed):
    """The persistent topic takes no more entries, because it was terminated, deleted or migrated to topic://.

    Next: write to the successor that `txnsegment topics describe` names.
    """


class NotAllowed(TxnSegmentError):
    """An operation that is not allowed: to set or remove a system property, to delete a persistent topic that was migrated, or
    to make a call that does not exist for a Pulsar cluster.

    Next: do what the advice names in its place.
    """


class SchemaChanged(SchemaError):
    """A stream cannot go on, because the columns or the schema version of its topics have changed. No row was lost. The advice
    says how to restart the query.

    Next: restart the query as the advice says.
    """


class OffsetOutOfRange(TxnSegmentError):
    """An offset, number or timestamp cannot be used with this log: it lies beyond the log's present end, belongs to another
    cluster, or was lost by a restore. Also raised for text that is no offset of txnsegment, and for a start above the end.

    Next: give an offset of this cluster, or start with a new checkpoint.
    """


class DataLoss(TxnSegmentError):
    """Rows that the read needs are gone: retention trimmed them, or their topic was deleted. The error names the topic or the
    segment. The option `failOnDataLoss=false` makes Spark's reads leave such rows out.

    Next: start anew from `earliest` with a new checkpoint, or go on without the rows (`failOnDataLoss=false`, or a seek of the
    subscription). Keep rows longer by retention or a subscription.
    """


class SweepIncomplete(TxnSegmentError):
    """A sweep finished with failures. Segments whose files cannot be read are unchanged. `causes` holds the error of each
    failed step.

    Next: repair each named cause (a file from a copy, a full disk), and sweep again.
    """

    @property
    def causes(self) -> tuple[Exception, ...]:
        return self.__cause__.exceptions if isinstance(self.__cause__, ExceptionGroup) else ()
