"""`cluster.retention`: how long and how much topics keep, and which of them sweepers compact."""

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
    """Policies of topics (`topic://tenant/namespace/name`, or a bare name) and of namespaces (`namespace://tenant/namespace`)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, name: str) -> Policies:
        """What holds for a topic: its own policies, else its namespace's; or what a namespace says. None is no limit.

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
        """Say how long (`keep`; `timedelta.max`: no limit) and how much (`keep_bytes`; -1: no limit) a topic, or each topic of a
        namespace, keeps; whether also what a subscription still needs goes; and from how many small files in a row sweepers compact
        it (-1: never). What is left out stays as it is; `clear` takes all back.

        Sweepers that stay, and `cluster.sweep()`, trim. Rows that were trimmed are gone: a read that needs them raises DataLoss.
        Raises TopicNotFound, OptionError (also for compacting a persistent topic: nobody does).
        """
        name = self._held(name)
        if compact_files is not None and is_persistent(name):
            raise no_segments(any_topic_name(name), "It is not compacted")
        change: dict[str, int | bool | None] = {}
        if keep is not None:
            if keep <= timedelta(0):
                raise OptionError("keep must be longer than nothing.", advice="Delete the topic to lose all of its rows.")
            change["retention_ms"] = NO_LIMIT if keep == timedelta.max else keep // timedelta(milliseconds=1)
        for field, value, least in (("retention_bytes", keep_bytes, 1), ("compact_files", compact_files, 2)):
            if value is not None:
                if value < least and value != NO_LIMIT:
                    raise OptionError(f"{field} is {value}.", advice=f"Give at least {least}, or -1 for none.")
                change[field] = value
        if despite_subscriptions is not None:
            change["despite_subscriptions"] = despite_subscriptions
        return policies.put(self._client.cluster, name, change)

    def clear(self, name: str) -> Policies:
        """Take back what was said of a topic or a namespace. Raises TopicNotFound."""
        return policies.put(self._client.cluster, self._held(name), dict.fromkeys(FIELDS))

    def trim(self, name: str) -> Trimmed:
        """Trim a topic now, as sweepers do; what this call took away itself. Raises TopicNotFound, StorageError, CorruptSnapshot,
        TxnConflict.
        """
        topic = any_topic_name(self._held(name))
        if not isinstance(topic, PersistentName):
            return Trimmer(self._client.cluster, self._client.buffer).trim(topic)
        taken = self._client.instream.sweeper.trimmer.trim(topic)
        return Trimmed(int(bool(taken.rows)), taken.rows, taken.bytes)

    def _held(self, name: str) -> str:
        """The name under which it is said what holds: of a migrated topic that of the topic:// that it became."""
        return str(Providers(self._client).resolve(name)) if is_persistent(name) else name
