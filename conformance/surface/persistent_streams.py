"""Streams of persistent names. They continue in the successors after a migration."""

from __future__ import annotations

from conformance.surface.batches import undecided_from
from conformance.surface.common import PERSISTENT_NAMES, PERSISTENT_PATTERN
from conformance.surface.model import Fault, Topic
from conformance.surface.streaming import Query
from conformance.surface.world import World
from metadata.common.errors import AckConflict, OffsetOutOfRange, SchemaError, SubscriptionNotFound, TopicNotFound


def certain(world: World, topic: Topic) -> set[int]:
    """Return the rows of a topic that every read must return, unless they were trimmed. Rows that lie above an undecided
    transaction, and so may be hidden, are left out.
    """
    model = world.model
    rows = {row.n for row in model.rows_of(topic)}
    if not topic.persistent:
        edge = undecided_from(world)
        rows = {n for n in rows if (model.committed[n].number or 0) < edge}
    for one in world.holding:
        if one.before is not None:
            rows &= one.before
    return rows


class PersistentQuery(Query):
    """A stream of persistent names, which continues in the successors after a migration.

    The offsets of such a stream have positions as well as log numbers. The model knows which rows lie between two log numbers, but
    not which rows lie between two such offsets. So this class does not predict the rows of each micro-batch, only those of all
    micro-batches together. If the query starts at the latest offset, `shown` has the rows that certainly lie before its start, and
    `perhaps` all rows that may lie before its start.
    """

    persistent = True

    def __init__(self, world: World, options: dict[str, str], names: tuple[str, ...], subscription: str | None) -> None:
        super().__init__(world, options, names, subscription)
        self.latest = "startingOffsets" not in options and subscription is None
        self.shown: set[int] = set()
        self.perhaps: set[int] = set()

    def given(self) -> tuple[str, ...]:
        return (
            tuple(name for name in PERSISTENT_NAMES if name in self.world.model.made)
            if self.names == (PERSISTENT_PATTERN,)
            else self.names
        )

    def topics(self) -> list[Topic]:
        model = self.world.model
        found = dict.fromkeys(model.persistent.named(name) for name in self.given())
        return [model.topics[name] for name in found if name in model.topics]

    def stage(self) -> str | None:
        if self.over:
            return None
        must = {n for topic in self.topics() for n in certain(self.world, topic)}
        done = super().stage()
        if self.latest and done == "looked":
            self.shown, self.perhaps = must, set(self.world.model.committed)
        return done

    def sought(self, found: tuple[str, str]) -> None:
        """Stop predicting what this query does if a seek moved its cursor. `found`: topic and subscription of the seek."""
        if found[1] == self.subscription and found[0] in {self.world.model.persistent.named(name) for name in self.names}:
            self.over = True

    def _acked(self) -> set[int]:
        model = self.world.model
        if self.subscription is None:
            return set()
        return {n for name in self.names for n in model.acked.get((model.persistent.named(name), self.subscription), ())}

    def _acknowledge(self, text: str) -> None:
        model = self.world.model
        done = {n for batch, rows in self.output.items() if batch < self.engine.batch for n in rows}
        for topic in self.topics():
            if self.subscription is not None and (topic.name, self.subscription) in model.acked:
                model.acked[topic.name, self.subscription] |= done & {row.n for row in model.rows_of(topic)}

    def _check(self, found: list[int]) -> None:
        model, batch = self.world.model, self.engine.batch
        model.check_real(found, self.where)
        model.check_once(found, self.where)
        names = model.persistent.all_names(name for one in self.given() for name in (one, model.persistent.named(one)))
        rows = [row for n in found for row in model.committed[n].rows if row.n == n]
        more = {row.n for row in rows if row.topic.partition("#")[0] not in names} | set(found) & (self.begun | self.shown)
        if more:
            raise Fault("stream: more", f"{self.where} shows rows {sorted(more)}, of other topics or from before it began")
        others = {n for number, rows in self.output.items() if number != batch for n in rows}
        if others & set(found):
            raise Fault("stream: twice", f"{self.where} shows rows {sorted(others & set(found))} in two batches")
        if not self.begun:
            model.check_whole(found, self.where)
        earlier = self.output.get(batch)
        if earlier is not None and sorted(earlier) != sorted(found):
            raise Fault("stream: replay", f"{self.where} had rows {sorted(earlier)}, and has {sorted(found)} when it is run again")
        self.output[batch] = found

    def check_ended(self, rows: set[int]) -> None:
        model = self.world.model
        if self.since is None or self.over:
            return
        there = {n for found in self.output.values() for n in found}
        missing = rows - there - self.begun - self.perhaps - model.gone.keys()
        if missing:
            raise Fault("stream: lost", f"{self.where} ended without rows {sorted(missing)}; its batches have {self.output}")

    def justified(self, error: object) -> bool:
        model = self.world.model
        given = [model.persistent.named(name) for name in self.given()]
        if isinstance(error, OffsetOutOfRange):
            return False
        if isinstance(error, SchemaError):
            return True
        if isinstance(error, AckConflict):
            return self.subscription is not None
        if isinstance(error, TopicNotFound | SubscriptionNotFound):
            return any(name not in model.topics or (name, self.subscription) not in model.acked for name in given)
        names = model.persistent.all_names([*given, *self.given()])
        if any(self.world.forgotten(name) for name in names) or any(self._let_go(name) for name in self.given()):
            return True
        return any(row.topic.partition("#")[0] in names for n in model.gone for row in model.committed[n].rows if row.n == n)

    def _let_go(self, name: str) -> bool:
        """Return whether a topic is migrated and may be without old rows: all of them may have been removed, or it never had any. A
        stream of such a topic may fail with DataLoss, because after the grace period the product cannot tell whether rows were
        lost.
        """
        model = self.world.model
        return name in model.persistent.onto and all(
            row.n in model.gone for written in model.transactions() for row in written.rows if row.topic.partition("#")[0] == name
        )
