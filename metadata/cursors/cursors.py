"""The cursors of a topic's segments, and the creation of cursors for the children of a split or merge (protocol.md section 5)."""

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
"""The place of a cursor: the full name of a segment, and the name of a subscription."""


def live(view: View, segment: str) -> dict[str, Cursor]:
    """Return the cursors of a segment by subscription, without tombstones."""
    where = [paths.cursor_of(path) for path in view.keys(paths.cursors(segment))]
    records = view.get_many([paths.cursor(*w) for w in where]) if where else []
    found = {w[1]: Cursor.of(r) for w, r in zip(where, records, strict=True) if r is not None}
    return {subscription: cursor for subscription, cursor in found.items() if cursor.deleted_ms is None}


def make_children(store: MetadataStore, view: View, topic: TopicName, before: Layout, after: Layout) -> None:
    """Create the cursors of each segment that `after` has and `before` lacks, one for each subscription of its parents. The cursors
    begin at the first row.

    The caller stores the new layout after this call, and the children get rows only then. A process that creates a subscription
    meanwhile reads the layout again at the end. Then it finds the children, and creates their cursors itself.
    """
    for key in sorted(after.segments.keys() - before.segments.keys()):
        child = after.segments[key]
        parents = [after.segments[str(i)] for i in child.parent_ids]
        above = [p.full_name(topic) for p in parents]
        name = child.full_name(topic)
        made = sorted({subscription for parent in above for subscription in live(view, parent)})
        make_missing(store, [(name, subscription) for subscription in made])
        made += sorted(live(view, name).keys() - set(made))  # cursors that another process created before it crashed
        if made:
            until(partial(decide, store, partial(_bury, store, name, above, made)))


def _bury(store: MetadataStore, child: str, parents: Sequence[str], made: Sequence[str], view: View) -> bool | None:
    """Replace new cursors by tombstones if their subscription was deleted meanwhile. The deletion may have missed these cursors,
    because it listed the cursors before they existed. Return None if such a cursor was found, so that the caller checks again.
    """
    # A new subscription of the same name writes the parents' cursors before the child's. Here the child's cursors are read first.
    # So if the new subscription's cursor in the child is found, its cursors in the parents are found, too, and none is replaced.
    records = dict(zip(made, view.get_many([paths.cursor(child, s) for s in made]), strict=True))
    still = {subscription for parent in parents for subscription in live(view, parent)}
    left = [r for s, r in records.items() if r is not None and s not in still and Cursor.of(r).deleted_ms is None]
    for record in left:
        with suppress(BadVersion, UnknownOutcome):
            store.put(record.key, Cursor(deleted_ms=view.now_ms()).to_bytes(), expect=record)
    return None if left else True


def make_missing(store: MetadataStore, wanted: Iterable[Where], cursor: Cursor | None = None) -> None:
    """Create the cursors that do not exist. Existing ones, tombstones too, stay unchanged.

    Raises BadVersion if the outcome of a write stays unknown.
    """
    body = (cursor or Cursor()).to_bytes()
    for some in in_groups(list(wanted)):
        puts = [Put(paths.cursor(*where), body, expect=ABSENT) for where in some]
        try:
            store.write(*puts)
        except (BadVersion, UnknownOutcome):  # Some cursors exist, or the reply was lost: write one by one.
            for put in puts:
                _make(store, put)


def _make(store: MetadataStore, put: Put) -> None:
    def step() -> bool | None:
        try:
            store.write(put)
        except BadVersion:
            return True  # the cursor exists
        except UnknownOutcome:
            return None  # write again: with ABSENT two writes create the cursor only once
        return True

    until(step)


def not_found(topic: object, subscription: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(
        f"The topic {topic} has no subscription {subscription!r}.",
        advice=f"Create it (txnsegment subscriptions create {topic} {subscription}), or look for its name (subscriptions list).",
    )
