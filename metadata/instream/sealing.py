"""Sealing a persistent topic: its last word (docs/in_stream.md, Seals). Whoever appends a seal says so in the record first, so that
others, who read the record after their own appends, know whether they have to look for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from metadata.cluster.cluster import Cluster
from metadata.common.errors import NotAllowed, OptionError
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.topics import PersistentTopics
from metadata.records.names import PersistentName
from metadata.records.persistent_records import EntryKind, LogEntry, PersistentLayout
from metadata.store.contract import time_ms

WHY = ("migrate", "terminate", "delete")


@dataclass(frozen=True)
class Sealing:
    """What seals the persistent topics of a cluster."""

    cluster: Cluster
    buffer: InStreamBuffer
    topics: PersistentTopics

    def seal(self, name: PersistentName, why: str, *, to: str | None = None, segments: int | None = None) -> int | None:
        """Append the topic's last word; its number, also of one that is there already. Everything above it is void. None: a
        `migrate` seal did not count, because transactions were ongoing; end them (or wait) and try again.

        `terminate` and `delete` ask nobody: transactions that are ongoing can never end here, and their rows are never seen. That
        is how the older model stalls. `to`, `segments`: the topic:// that a migration goes on with, and how many it has.
        Raises TopicNotFound, OptionError.
        """
        if why not in WHY:
            raise OptionError(f"A topic is not sealed to {why!r}.", advice=f"Say one of {', '.join(WHY)}.")
        self.topics.change(name, lambda layout: layout.model_copy(update={"sealing": True}))
        found = self.sealed(name)
        if found is not None:
            return found[0]
        now_ms = time_ms(self.cluster.store)
        entry = LogEntry(kind=EntryKind.SEAL, id=self.cluster.unique(), publish_ms=now_ms, why=why, to=to, segments=segments)
        self.buffer.log(name).append_again(entry)
        found = self.sealed(name)
        return None if found is None else found[0]

    def sealed(self, name: PersistentName) -> tuple[int, LogEntry] | None:
        """The seal that counts, with its number; None: there is none. Raises TopicNotFound."""
        sealed_at = self.buffer.state(name).sealed_at
        return None if sealed_at is None else self.buffer.entries(name, [sealed_at])[0]

    def terminate(self, name: PersistentName) -> int:
        """Let nothing more be written to a topic; the number of its seal. Idempotent. Raises TopicNotFound."""
        number = self.seal(name, "terminate")
        assert number is not None
        return number

    def delete(self, name: PersistentName) -> None:
        """Seal a topic and leave a tombstone; its name is not used again, since its log goes on. Raises TopicNotFound."""
        to = self.topics.get(name).layout.migrated_to
        if to is not None:
            raise NotAllowed(
                f"{name} was migrated: its rows belong to {to}.", advice=f"Delete that one (txnsegment topics delete {to})."
            )
        self.seal(name, "delete")
        self._bury(name)

    def finish(self, name: PersistentName) -> None:
        """Leave the tombstone that whoever deleted a topic has not got to. Raises TopicNotFound."""
        found = self.sealed(name)
        if found is not None and found[1].why == "delete":
            self._bury(name)

    def _bury(self, name: PersistentName) -> None:
        now_ms = time_ms(self.cluster.store)

        def gone(layout: PersistentLayout) -> PersistentLayout:
            return layout if layout.deleted else layout.model_copy(update={"deleted": True, "deleted_ms": now_ms})

        self.topics.change(name, gone, deleted=True)
