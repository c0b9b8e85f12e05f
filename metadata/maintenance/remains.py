"""Deletion of records of deleted topics after the grace period (protocol.md section 8.14).

The segments of a deleted topic leave the layout after the grace period (`Topics.forget_deleted`). From then on no running read was
planned from these segments, and the remaining records of the topic are deleted: watermarks, cursors, and the schemas of earlier
topics of the same name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, is_persistent, persistent_name, segment_name, topic_name
from metadata.records.paths import Key
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Cursor, Layout, TopicSchema
from metadata.rules.migrated import let_go
from metadata.store.contract import Delete, MetadataStore, View, decide, in_groups


def collect_remains(store: MetadataStore, grace_period_ms: int) -> int:
    """Delete watermarks and cursors that no layout names, schemas of earlier topics, and old tombstones. Return the number of
    deleted records, without tombstones. Any number of processes may call this function at the same time.
    """

    def body(view: View) -> int:
        # The keys are listed before the layouts are read. So if the layout lacks the segment of a listed key, the segment has left
        # the layout, or it is a new child that the layout does not show yet (`_left` tells which).
        watermarks = [paths.decode(path.rpartition("/")[2]) for path in view.keys(paths.WATERMARKS)]
        schemas: dict[TopicName, list[Key]] = defaultdict(list)
        for path in view.keys(paths.SCHEMAS):
            topic = path.split("/")[2]
            if is_persistent(paths.decode(topic)):
                continue  # a persistent topic cannot be created again, so it has no earlier schemas
            schemas[topic_name(paths.decode(topic))].append(Key(path, topic))
        cursors = {path: paths.cursor_of(path)[0] for path in view.keys(paths.CURSORS)}
        tombstones = [Key(path, path.removeprefix("/cursors/")) for path in cursors]
        migrated = {path: cursors.pop(path) for path in list(cursors) if is_persistent(cursors[path])}
        several = {name: keys for name, keys in schemas.items() if len(keys) > 1}
        names = sorted({segment_name(s).topic for s in (*watermarks, *cursors.values())} | several.keys())
        records = view.get_many([paths.topic(n) for n in names]) if names else []
        layouts = {n: Layout.of(r) for n, r in zip(names, records, strict=True) if r is not None}
        doomed = [paths.watermark(s) for s in watermarks if _left(layouts, s)]
        doomed += [Key(path, path.removeprefix("/cursors/")) for path, segment in cursors.items() if _left(layouts, segment)]
        let_go = _let_go(view, {persistent_name(name) for name in migrated.values()})
        doomed += [Key(path, path.removeprefix("/cursors/")) for path, name in migrated.items() if persistent_name(name) in let_go]
        for name, keys in several.items():
            if name in layouts:
                doomed += _earlier(view, layouts[name], keys, grace_period_ms)
        _delete_tombstones(store, view, tombstones, grace_period_ms)
        for some in in_groups(doomed):
            # The deletes need no expected version: ids of segments and schemas are never reused, and `let_go` never becomes false
            # again.
            store.write(*(Delete(key) for key in some))
        return len(doomed)

    return decide(store, body)


def _delete_tombstones(store: MetadataStore, view: View, keys: list[Key], grace_period_ms: int) -> None:
    """Delete cursor tombstones older than the grace period. By then no process still expects a version of the deleted record in a
    CAS.
    """
    for record in view.get_many(keys) if keys else []:
        if record is None:
            continue
        deleted_ms = Cursor.of(record).deleted_ms
        if deleted_ms is not None and deleted_ms + grace_period_ms < view.now_ms():
            try:
                store.delete(record.key, expect=record)
            # the cursor was recreated just now, or another process deleted it: the next sweep checks again
            except (BadVersion, UnknownOutcome):
                continue


def _left(layouts: dict[TopicName, Layout], segment: str) -> bool:
    """Return whether the segment has left the layout of its topic. A child of a split or merge has cursors before a layout shows
    the child. Such a child has not left.
    """
    name = segment_name(segment)
    layout = layouts.get(name.topic)
    return layout is not None and name.segment_id < layout.next_segment_id and str(name.segment_id) not in layout.segments


def _let_go(view: View, migrated: set[PersistentName]) -> set[PersistentName]:
    """Return the persistent topics whose successor does not need their cursors any more (`let_go`). The cursors are
    still needed in two cases. If the successor has no layout, a migration may have just written the cursors: it writes them before
    the layout. If another topic has the successor's name, the migration may continue under another name with the same cursors.
    """
    names = sorted(migrated)
    records = view.get_many([paths.topic(name) for name in names]) if names else []
    said = {n: None if r is None else PersistentLayout.of(r).migrated_to for n, r in zip(names, records, strict=True)}
    successors = {name: topic_name(to) for name, to in said.items() if to is not None}
    found = view.get_many([paths.topic(to) for to in successors.values()]) if successors else []
    layouts = {name: None if record is None else Layout.of(record) for name, record in zip(successors, found, strict=True)}
    return {name for name, layout in layouts.items() if let_go(name, layout)}


def _earlier(view: View, layout: Layout, keys: list[Key], grace_period_ms: int) -> Iterator[Key]:
    """Yield the schemas of earlier topics of the same name. The newest schema stays, so that no id is reused: processes cache
    schemas by id.
    """
    if layout.gone():
        return
    roots = [info.created_at_ms for info in layout.kept() if not info.parent_ids]
    if roots:
        over = min(roots)  # the current topic's schemas are as old as its first segments, or younger
    elif layout.deleted:
        over = view.now_ms() - grace_period_ms  # younger schemas may belong to a topic that is being created
    else:
        return
    old = sorted(keys, key=lambda key: key.path)[:-1]
    for key, record in zip(old, view.get_many(old), strict=True):
        schema_id = paths.sequence_number(key.path)
        if record is not None and schema_id != layout.schema_id and TopicSchema.of(record).created_at_ms < over:
            yield key
