"""`cluster.retention`: retention policies of topics and namespaces, and the compaction that sweepers run."""

from __future__ import annotations

from datetime import timedelta

from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import OptionError
from metadata.maintenance.trimming import Trimmed, Trimmer
from metadata.records.names import PersistentName, any_topic_name, is_persistent
from metadata.records.records import Policies
from metadata.rules.retention import NO_LIMIT
from metadata.topics import policies
from txnsegment.topics import no_segments

FIELDS = ("retention_ms", "retention_bytes", "despite_subscriptions", "compact_files")


class ClusterRetention:
    """The retention policies of topics (`topic://tenant/namespace/name`, or a bare name) and of namespaces
    (`namespace://tenant/namespace`).

        cluster.retention.set("orders", keep=timedelta(days=7))
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, name: str) -> Policies:
        """Return the effective policies of a topic. A value that the topic does not set comes from its namespace. For a namespace,
        return its own policies. None means no limit.

        Raises TopicNotFound, OptionError.
        """
        return policies.get(self._client.cluster, self._client.topics, self._held(name))

    def set(
        self,
        name: str,
        *,
        keep: timedelta | None = None,
        keep_bytes: int | None = None,
        despite_subscriptions: bool | None = None,
        compact_files: int | None = None,
    ) -> Policies:
        """Set policies of a topic, or of each topic of a namespace. A value that is left out does not change; `clear` removes
        all.

        `keep`: how long rows are kept (`timedelta.max`: no limit). `keep_bytes`: how many bytes are kept (-1: no limit).
        `despite_subscriptions`: whether rows that a subscription has not acknowledged are trimmed too. `compact_files`: sweepers do
        not join fewer adjacent small files than this (-1: they never join files).

        Running sweepers and `cluster.sweep()` trim. A read that needs trimmed rows raises DataLoss. Raises TopicNotFound,
        OptionError (for `compact_files` of a marker-based topic, too: its log is never compacted).
        """
        name = self._held(name)
        if compact_files is not None and is_persistent(name):
            raise no_segments(any_topic_name(name), "It is not compacted")
        change: dict[str, int | bool | None] = {}
        if keep is not None:
            if keep <= timedelta(0):
                raise OptionError(
                    f"keep is {keep}, which is not above zero.",
                    advice="Give a longer time, or delete the topic to remove all rows.",
                )
            change["retention_ms"] = NO_LIMIT if keep == timedelta.max else keep // timedelta(milliseconds=1)
        for field, value, least in (("retention_bytes", keep_bytes, 1), ("compact_files", compact_files, 2)):
            if value is not None:
                if value < least and value != NO_LIMIT:
                    raise OptionError(
                        f"{field} is {value}, which is below {least}.", advice=f"Give at least {least}, or -1 for no limit."
                    )
                change[field] = value
        if despite_subscriptions is not None:
            change["despite_subscriptions"] = despite_subscriptions
        return policies.put(self._client.cluster, name, change)

    def clear(self, name: str) -> Policies:
        """Remove the policies that were set for this topic or namespace. Raises TopicNotFound."""
        return policies.put(self._client.cluster, self._held(name), dict.fromkeys(FIELDS))

    def trim(self, name: str) -> Trimmed:
        """Trim a topic now, as sweepers do. Return how many segments lost rows, and the rows and bytes that this call removed.
        Raises TopicNotFound, StorageError, CorruptSnapshot, TxnConflict.
        """
        topic = any_topic_name(self._held(name))
        if not isinstance(topic, PersistentName):
            return Trimmer(self._client.cluster, self._client.buffer).trim(topic)
        taken = self._client.instream.sweeper.trimmer.trim(topic)
        return Trimmed(int(bool(taken.rows)), taken.rows, taken.bytes)

    def _held(self, name: str) -> str:
        """Return the name whose record holds the policies. For a migrated topic this is its successor `topic://`."""
        return str(Providers(self._client).resolve(name)) if is_persistent(name) else name
