"""Sealing of persistent topics (docs/in_stream.md, Seals). Before a SEAL is appended, the flag `sealing` is set in the topic's
record. Every other writer reads the record after its own append. If the flag is set, the writer looks for a SEAL in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from metadata.cluster.cluster import Cluster
from metadata.common.errors import NotAllowed, OptionError
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.topics import PersistentTopics
from metadata.log.live_log import LiveLog
from metadata.records.names import PersistentName
from metadata.records.persistent_records import EntryKind, LogEntry, PersistentLayout
from metadata.rules import strides
from metadata.store.contract import decide, time_ms

WHY = ("migrate", "terminate", "delete")


@dataclass(frozen=True)
class Sealing:
    """Seals the persistent topics of a cluster."""

    cluster: Cluster
    buffer: InStreamBuffer
    topics: PersistentTopics

    def seal(self, name: PersistentName, why: str, *, to: str | None = None, segments: int | None = None) -> int | None:
        """Append a SEAL to the topic's log, unless the log has one that counts. Return the number of the SEAL that counts; every
        entry above it is void. Return None if the appended SEAL does not count, because it is a `migrate` SEAL and transactions
        were open. The caller must then end these transactions or wait for them, and call again.

        `why`: `migrate`, `terminate` or `delete`. `terminate` and `delete` do not wait for transactions. A transaction that is open
        in the topic then stalls: it can never end in this topic, and its rows in this topic are never visible. `to`, `segments`:
        the successor topic:// of a migration, and its number of segments. Raises TopicNotFound, OptionError, NotAllowed (the
        cluster's log has no room for the numbers of a migration).
        """
        if why not in WHY:
            raise OptionError(f"{why!r} is not a reason to seal a topic.", advice=f"Use one of {', '.join(WHY)}.")
        if why == "migrate":
            self._check_room(name)
        self.topics.change(name, lambda layout: layout.model_copy(update={"sealing": True}))
        found = self.sealed(name)
        if found is not None:
            return found[0]
        now_ms = time_ms(self.cluster.store)
        entry = LogEntry(kind=EntryKind.SEAL, id=self.cluster.unique(), publish_ms=now_ms, why=why, to=to, segments=segments)
        self.buffer.log(name).append_again(entry)
        found = self.sealed(name)
        return None if found is None else found[0]

    def _check_room(self, name: PersistentName) -> None:
        """Raise NotAllowed if a migration of the topic could leave the stride of the cluster's log (`metadata.rules.strides`). A
        backup of this cluster may then not be restored safely.
        """
        needed, end = self.buffer.state(name).at, decide(self.cluster.store, LiveLog().list).end
        if needed >= strides.room(end, self.cluster.restored):
            raise NotAllowed(
                f"{name} cannot be migrated: its rows take {needed} numbers of the log of {self.cluster.url}, which ends at {end}, "
                f"and a cluster has {strides.STRIDE} numbers, of which the last tenth is kept free.",
                advice="The topic was not sealed. Back the cluster up and restore it: its log then has as many numbers again.",
            )

    def sealed(self, name: PersistentName) -> tuple[int, LogEntry] | None:
        """Return the number and the entry of the SEAL that counts; None if no SEAL counts. Raises TopicNotFound."""
        sealed_at = self.buffer.state(name).sealed_at
        return None if sealed_at is None else self.buffer.entries(name, [sealed_at])[0]

    def terminate(self, name: PersistentName) -> int:
        """Seal a topic, so that it takes no further entries. Return the number of its SEAL. Idempotent. Raises TopicNotFound."""
        number = self.seal(name, "terminate")
        assert number is not None
        return number

    def delete(self, name: PersistentName) -> None:
        """Seal a topic and leave a tombstone. The names of deleted persistent topics cannot be used again, because a new topic
        would continue the old log. Raises TopicNotFound.
        """
        to = self.topics.get(name).layout.migrated_to
        if to is not None:
            raise NotAllowed(
                f"{name} was migrated: its rows belong to {to}.", advice=f"Delete that one (txnsegment topics delete {to})."
            )
        self.seal(name, "delete")
        self._bury(name)

    def finish(self, name: PersistentName) -> None:
        """Write the tombstone of a topic whose deletion was interrupted. Raises TopicNotFound."""
        found = self.sealed(name)
        if found is not None and found[1].why == "delete":
            self._bury(name)

    def _bury(self, name: PersistentName) -> None:
        now_ms = time_ms(self.cluster.store)

        def gone(layout: PersistentLayout) -> PersistentLayout:
            return layout if layout.deleted else layout.model_copy(update={"deleted": True, "deleted_ms": now_ms})

        self.topics.change(name, gone, deleted=True)
