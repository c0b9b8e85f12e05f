"""Redirect of write sets on migrated persistent topics to their successors (topic://).

A write set on a migrated topic commits nothing in the marker-based model: if its transaction has begun, the transaction is aborted.
The write set is then committed in the successor topic under the same application and version. The application's committed versions
were copied before the successor was created, so no version commits twice (8.8).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import cycle, islice

from ledgers.model import Part
from metadata.common.errors import OptionError
from metadata.instream.migrating import Migrator
from metadata.instream.steps import TransactionSteps
from metadata.records.names import TopicName, is_persistent, persistent_name
from metadata.rules import transitions
from metadata.topics.routing import Target, targets
from metadata.topics.topics import Topic
from metadata.write.coordinator import Coordinator
from metadata.write.rerouting import Written
from metadata.write.write_set import Committed, WriteSet

log = logging.getLogger("txnsegment.instream")


class Redirect:
    """Redirects the writers of one process. Safe for several threads."""

    def __init__(self, steps: TransactionSteps, background: Callable[[Callable[[], None]], None]) -> None:
        self.cluster, self.migrator = steps.cluster, Migrator(steps.cluster, steps)
        self._background = background

    @cached_property
    def coordinator(self) -> Coordinator:
        """The coordinator of topic://."""
        return Coordinator(self.cluster, self._background)

    def redirected(self, work: WriteSet) -> WriteSet | None:
        """Return the write set `work` with successors in place of the persistent topics; None if none of the topics was migrated.
        Unfinished migrations are completed first.

        Raises OptionError if only some of the topics were migrated, because one transaction never spans both models.
        """
        named = dict.fromkeys([*work.parts, *(ack.segment for ack in work.acks), work.app_topic])
        found = {name: self._topic(name) for name in named if is_persistent(name)}
        to = {name: topic for name, topic in found.items() if topic is not None}
        if not to:
            return None
        left = [name for name, topic in found.items() if topic is None]
        if left:
            moved = ", ".join(f"{name} to {topic.name}" for name, topic in to.items())
            raise OptionError(
                f"{moved} was migrated, {left[0]} was not, and one transaction never spans both kinds.",
                advice=f"Nothing was committed. Migrate {left[0]}, too (txnsegment topics migrate), or use two transactions.",
            )
        topic_of = {name: topic.name for name, topic in to.items()}
        parts: dict[str, list[Part]] = {}
        for name, some in work.parts.items():
            for segment, more in routed(some, name, targets(to[name]), to[name].layout.key, self.coordinator.rewrite).items():
                parts.setdefault(segment, []).extend(more)
        return dataclasses.replace(
            work,
            parts=parts,
            app_topic=str(topic_of.get(work.app_topic, work.app_topic)),
            keys={str(topic.name): topic.layout.key for topic in to.values()},
            txn_id=None,
        )

    def commit(self, work: WriteSet) -> Committed:
        log.info("on app=%s version=%s segments=%s: the topic was migrated", work.app, work.claim.version, len(work.parts))
        return self.coordinator.commit(work)

    def abort_attempt(self, app: str, app_topic: str, claim: transitions.Claim) -> None:
        """Abort, on behalf of Spark, an attempt that may have been redirected to the successor."""
        topic = self._topic(app_topic) if is_persistent(app_topic) else None
        self.coordinator.abort_attempt(app, app_topic if topic is None else str(topic.name), claim)

    def _topic(self, name: str) -> Topic | None:
        return self.migrator.finish(persistent_name(name))

    def name(self, name: str) -> TopicName | None:
        """Return the successor of a persistent topic; None if it was not migrated. Raises TopicNotFound, TopicExists."""
        topic = self._topic(name)
        return None if topic is None else topic.name


def routed(parts: Sequence[Part], name: str, to: Sequence[Target], key: str | None, rewrite: Written) -> dict[str, list[Part]]:
    """Return the parts of a persistent topic by active segment of its successor (`to`). Without a key column, or with a single
    segment, the segments get the parts in turn, unchanged. Otherwise `rewrite` writes the rows of each part again, each row into
    the segment of its key. A freshly migrated topic has no key column.
    """
    found: dict[str, list[Part]] = {}
    if key is None or len(to) == 1:
        for part, target in zip(parts, islice(cycle(to), len(parts)), strict=True):
            found.setdefault(target.segment, []).append(part)
        return found
    for part in parts:
        for segment, made in rewrite(part, name, key, to):
            found.setdefault(segment, []).append(made)
    return found
