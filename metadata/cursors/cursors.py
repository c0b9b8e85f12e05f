"""Which cursors there are: of a topic's segments, and those that a split's or a merge's children get (protocol.md section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from metadata.common.errors import BadVersion, SubscriptionNotFound, UnknownOutcome
from metadata.records import paths
from metadata.records.names import TopicName
from metadata.records.records import Cursor, Layout
from metadata.store.contract import ABSENT, MetadataStore, Put, View, decide, in_groups, until

Where = tuple[str, str]
"""A segment by its full name, and a subscription."""


def live(view: View, segment: str) -> dict[str, Cursor]:
    """The cursors of a segment by subscription; no tombstones."""
    where = [paths.cursor_of(path) for path in view.keys(paths.cursors(segment))]
    records = view.get_many([paths.cursor(*w) for w in where]) if where else []
    found = {w[1]: Cursor.of(r) for w, r in zip(where, records, strict=True) if r is not None}
    return {subscription: cursor for subscription, cursor in found.items() if cursor.deleted_ms is None}


def make_children(store: MetadataStore, view: View, topic: TopicName, before: Layout, after: Layout) -> None:
    """Give each segment that `after` has beyond `before` a cursor at its first row for every subscription of its parents.

    A child has no row before the layout shows it, and a subscription that is made meanwhile looks at the layout again.
    """
    for key in sorted(after.segments.keys() - before.segments.keys()):
        child = after.segments[key]
        parents = [after.segments[str(i)] for i in child.parent_ids]
        above = [p.full_name(topic) for p in parents]
        name = child.full_name(topic)
        made = sorted({subscription for parent in above for subscription in live(view, parent)})
        make_missing(store, [(name, subscription) for subscription in made])
        made += sorted(live(view, name).keys() - set(made))  # by one who died before he could take them back
        if made:
            until(partial(decide, store, partial(_bury, store, name, above, made)))


def _bury(store: MetadataStore, child: str, parents: Sequence[str], made: Sequence[str], view: View) -> bool | None:
    """Take back what was made for a subscription that was deleted meanwhile: who deleted it may have looked before it was there.
    None: look again, until nothing of it is seen any more.
    """
    # The child's before the parents': who makes a subscription again writes the parents' first, so a record of theirs is not taken.
    records = dict(zip(made, view.get_many([paths.cursor(child, s) for s in made]), strict=True))
    still = {subscription for parent in parents for subscription in live(view, parent)}
    left = [r for s, r in records.items() if r is not None and s not in still and Cursor.of(r).deleted_ms is None]
    for record in left:
        with suppress(BadVersion, UnknownOutcome):
            store.put(record.key, Cursor(deleted_ms=view.now_ms()).to_bytes(), expect=record)
    return None if left else True


def make_missing(store: MetadataStore, wanted: Iterable[Where], cursor: Cursor | None = None) -> None:
    """Make the cursors that do not exist; those that do (tombstones too) stay as they are.

    Raises BadVersion if the store never says what became of one.
    """
    body = (cursor or Cursor()).to_bytes()
    for some in in_groups(list(wanted)):
        puts = [Put(paths.cursor(*where), body, expect=ABSENT) for where in some]
        try:
            store.write(*puts)
        except (BadVersion, UnknownOutcome):  # some are there already: one by one
            for put in puts:
                _make(store, put)


def _make(store: MetadataStore, put: Put) -> None:
    def step() -> bool | None:
        try:
            store.write(put)
        except BadVersion:
            return True  # it is there
        except UnknownOutcome:
            return None  # with ABSENT it is done once at most
        return True

    until(step)


def not_found(topic: object, subscription: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(
        f"The topic {topic} has no subscription {subscription!r}.",
        advice=f"Create it (txnsegment subscriptions create {topic} {subscription}), or look for its name (subscriptions list).",
    )
