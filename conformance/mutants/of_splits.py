"""Faults of splits, merges and seals (protocol.md section 5, Sealing), of the leader record, and of schemas (section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.planting import Real, fault
from metadata.maintenance.leading import Leadership
from metadata.records.names import TopicName
from metadata.records.paths import Key
from metadata.records.records import Layout, Registration, SegmentInfo
from metadata.store.contract import MetadataStore, Record
from metadata.topics.schemas import TopicSchemas
from metadata.topics.topics import Topic, Topics

_SEALED_LAYOUT = "metadata.rules.transitions:sealed_layout"
_TOPICS = "metadata.topics.topics:Topics"
_SCALING = "tests/metadata/maintenance/test_scaling.py"


@fault(
    "A35, 8.13",
    "A seal made from an outdated layout is void.",
    at=("metadata.rules.transitions:seal_counts", "metadata.rules.transitions:unfinished"),
    by="script a35_two_splits_of_one_layout",
)
def seal_of_an_old_layout(
    real: Real, number: int, seal: Registration, layout: Layout | None, log_seals: Mapping[int, Registration]
) -> Any:
    if layout is not None:
        seal = seal.model_copy(update={"epoch": layout.epoch})
    return real(number, seal, layout, log_seals)


@fault(
    "8.12, 8.13",
    "Only an active segment can be split or merged. A sealed segment is never sealed again.",
    at=f"{_TOPICS}._active",
    kind="splitting",
)
def sealed_segment_is_split_again(real: Real, self: Topics, topic: Topic, segment_id: int) -> SegmentInfo:
    return topic.layout.segments[str(segment_id)]


@fault(
    "8.13, A35",
    "Each split or merge raises the layout's epoch, which identifies the seals of older layouts.",
    at=_SEALED_LAYOUT,
    kind="splitting",
    by="script a35_two_splits_of_one_layout",
)
def epoch_stays(real: Real, layout: Layout, number: int, seal: Registration, *, now_ms: int) -> Any:
    return real(layout.model_copy(update={"epoch": layout.epoch - 1}), number, seal, now_ms=now_ms)


@fault(
    "A24, 8.12",
    "A writer that finds a seal which the layout does not show yet completes the layout and continues.",
    at=f"{_TOPICS}.finish_seals",
    within="metadata.write.coordinator:Coordinator._routed_on",
    kind="splitting",
)
def broken_off_seal_refuses_writers(real: Real, self: Topics) -> int:
    return 0


@fault(
    "8.13, A6",
    "A leader's decision is applied only to the layout that it was made for, since two processes may believe that they lead.",
    at=f"{_TOPICS}._seal",
    by=f"{_SCALING}::test_a_split_decided_by_another_epoch_is_refused",
    kind="splitting",
)
def stale_leader_acts(real: Real, self: Topics, name: TopicName, segment_ids: tuple[int, ...], why: str, epoch: int | None) -> Any:
    return real(self, name, segment_ids, why, None)


@fault(
    "3, A6",
    "Only the owner of the leader record leads, as long as its session lasts.",
    at="metadata.maintenance.leading:Leadership.leads",
    by=f"{_SCALING}::test_only_the_current_leader_scales",
)
def everybody_leads(real: Real, self: Leadership) -> bool:
    real(self)
    return True


# --- schemas --------------------------------------------------------------------------------------------------------


@fault("4", "A schema that violates the compatibility mode is not registered.", at="metadata.topics.schemas:TopicSchemas._check")
def schemas_are_not_judged(real: Real, self: TopicSchemas, topic: Topic, mode: Any, new: Any) -> None:
    return


@fault(
    "4",
    "If two schemas are registered at the same time, the second one is checked against the first.",
    at="metadata.store.contract:MetadataStore.put",
    within="metadata.topics.schemas:TopicSchemas._change",
)
def judged_by_what_was_there(
    real: Real, self: MetadataStore, key: Key, value: bytes, *, expect: Record | int | None, **options: Any
) -> Any:
    return real(self, key, value, **options)


@fault(
    "4",
    "Values are read with the schema version that they were written with.",
    at="metadata.topics.schemas:TopicSchemas.version",
    within="spark_txn_sink.plan:_plan_values",
    by="tests/spark_txn_source/test_values.py::test_values_are_read_by_the_version_they_were_written_in",
)
def values_by_another_version(real: Real, self: TopicSchemas, topic: Topic, version: int) -> Any:
    return self.latest(topic)
