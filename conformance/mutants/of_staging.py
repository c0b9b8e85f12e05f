"""Faults of staged rows: which of them a commit takes, and into which segments they go (protocol.md sections 2, 5 and 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.mutants.planting import Real, fault
from ledgers.model import Part
from metadata.client.client import Client
from metadata.records.names import segment_name
from metadata.topics.routing import Target
from metadata.write.rerouting import Written
from metadata.write.write_set import WriteSet
from spark_txn_sink.planned import WritePlan
from spark_txn_sink.staging import Staged

_COORDINATOR = "metadata.write.coordinator:Coordinator"
_OPENER = "metadata.write.opening:Opener"


@fault(
    "5, 8.5",
    "Parts older than half the orphan age are refused, since the orphan sweep may delete them.",
    at="metadata.write.write_set:refuse_old",
    within=f"{_OPENER}.open",
    by="script late_commit_of_old_parts",
)
def old_parts_are_committed(real: Real, work: WriteSet, now_ms: int, settings: Any) -> None:
    return


@fault(
    "8.12",
    "A writer that meets a seal whose segment left the layout long ago gets an error about old parts, not about a deleted topic.",
    at="metadata.write.write_set:refuse_old",
    within=(f"{_COORDINATOR}._routed_on", f"{_COORDINATOR}._sealed_below"),
    by="tests/metadata/maintenance/test_trimming.py::"
    "test_a_writer_suspended_until_its_segment_left_the_layout_gets_a_too_old_error",
)
def who_slept_is_told_of_a_deletion(real: Real, work: WriteSet, now_ms: int, settings: Any) -> None:
    return


@fault(
    "5, 8.5",
    "A commit fails if one of its files is missing. A sweep may have deleted it while a clock was ahead.",
    at="metadata.write.write_set:refuse_missing",
    by="tests/metadata/write/test_parts_gone.py::test_files_that_a_sweep_took_while_the_clock_was_ahead_are_not_committed",
)
def files_are_not_looked_at(real: Real, cluster: Any, app: str, parts: Any) -> None:
    return


@fault(
    "staged parts of a failed attempt counted, 8.4",
    "A commit takes the parts that the accepted task attempts report, and never lists a folder for parts.",
    at="spark_txn_sink.commit:commit",
    by="seed 0",
)
def failed_attempts_count(
    real: Real, client: Client, plan: WritePlan, identity: Any, timeout_ms: int, messages: Sequence[Staged | None]
) -> Any:
    def more(segment: str, part: Part) -> list[tuple[str, Part]]:
        folder, _, name = part.path.rpartition("/")
        files = [file.path for file in client.cluster.storage.list(folder.rpartition("/")[0])]
        others = [path for path in files if path.endswith(f"/{name}") and path != part.path]
        return [(segment, part), *((segment, dataclasses.replace(part, path=path)) for path in others)]

    found = [m and dataclasses.replace(m, parts=tuple(one for s, p in m.parts for one in more(s, p))) for m in messages]
    return real(client, plan, identity, timeout_ms, found)


@fault(
    "8.13",
    "Rows staged for a segment precede rows staged for its children, so that the rows of each key keep their order.",
    at="metadata.write.rerouting:rerouted",
    by="tests/spark_txn_sink/test_key_order.py::test_rows_of_a_key_keep_their_order_over_any_splits_and_merges",
)
def children_before_parents(
    real: Real, parts: Mapping[str, Sequence[Part]], to: Sequence[Target], key: str | None, rewrite: Written
) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for segment in sorted(parts, key=lambda name: segment_name(name).segment_id, reverse=True):
        for target, made in real({segment: parts[segment]}, to, key, rewrite).items():
            found.setdefault(target, []).extend(made)
    return found


@fault(
    "8.13",
    "Rows of a split segment are routed to its children by their keys.",
    at="metadata.write.rerouting:rerouted",
    kind="splitting",
    by="seed 3",
)
def first_child_takes_all(
    real: Real, parts: Mapping[str, Sequence[Part]], to: Sequence[Target], key: str | None, rewrite: Written
) -> Any:
    return real(parts, to, None, rewrite)


# --- writes of a transaction over several topics (protocol.md sections 2 and 7) -------------------------------------


@fault(
    "2, 8.4",
    "A transaction commits only the manifests with its own token.",
    at="metadata.write.staging_manifests:StagingArea.files",
    kind="moving",
    by="script together_abort",
)
def manifest_of_another_transaction(real: Real, self: Any) -> list[str]:
    return [file.path for file in self.storage.list("staging")]


@fault(
    "2, 8.5",
    "The manifest of a write that Spark gave up, perhaps to repeat it, is not committed.",
    at="metadata.write.staging_manifests:counted",
    kind="moving",
    by="script together_runs_twice",
)
def given_up_write_counts(real: Real, paths: Sequence[str]) -> Any:
    return real([path for path in paths if not path.endswith(".withdrawn")])


@fault(
    "2, 8.5",
    "A transaction cannot commit while one of its writes is unfinished.",
    at="metadata.write.staging_manifests:counted",
    kind="moving",
    by="script together_runs_twice",
)
def running_write_left_out(real: Real, paths: Sequence[str]) -> Any:
    return real([path for path in paths if not path.endswith(".begun")])


@fault(
    "2, 8.4",
    "An exception in a transaction's block commits nothing.",
    at="txnsegment.spark_transaction:SparkTransaction.__exit__",
    kind="moving",
    by="script together_abort",
)
def exception_commits(real: Real, self: Any, kind: Any, error: BaseException | None, trace: Any) -> Any:
    return real(self, None, None, None)
