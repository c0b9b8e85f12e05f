"""The layout record of a topic as Apache Pulsar 5.0 writes it.

Pulsar adds five fields to each segment. Their values follow from the other fields. Pulsar ignores the five fields when it reads.
Our own layouts do not have them. A layout that Pulsar wrote and that is changed must pass through this module, or the five fields
keep their old values.
"""

from __future__ import annotations

from metadata.records.records import Layout, SegmentInfo, SegmentState


def with_pulsar_fields(layout: Layout) -> Layout:
    """Return the layout with the five fields in each segment. Its `to_bytes` then gives Pulsar's bytes, if the layout has none of
    the fields that are additions to Pulsar's record.

    If the layout has the five fields already, their order does not change. Otherwise they get the order of the broker whose records
    are in tests/pulsar. Another broker may have another order, because Java does not define it.
    """
    return layout.model_copy(update={"segments": {number: _completed(info) for number, info in layout.segments.items()}})


def _completed(info: SegmentInfo) -> SegmentInfo:
    return info.model_copy(
        update={
            "sealed": info.state is SegmentState.SEALED,
            "active": info.state is SegmentState.ACTIVE,
            "root": not info.parent_ids,
            "leaf": not info.child_ids,
            "legacy": info.legacy_topic_name is not None,
        }
    )
