"""Faults of backups and restores (docs/operations.md, Backup), and of the ownership of ledger roots."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.mutants.planting import Real, fault
from ledgers.storage import LedgerStorage
from metadata.backup.backup import BackupReader, _Log, _records
from metadata.backup.backup_file import Heading, Kept
from metadata.backup.restore import Restoration
from metadata.instream.backup_rules import KeptLog
from metadata.records import paths
from metadata.records.cluster_records import Restoring
from metadata.records.paths import Key
from metadata.records.persistent_records import EntryKind
from metadata.records.records import Application, Cursor, Header, TcSequence, Watermark
from metadata.rules import acks
from metadata.rules.consistent_cut import Teller, Written
from metadata.rules.transitions import Claim, Gone, Verdict, cut
from metadata.store.contract import MetadataStore, Record, View, look

_TESTS = "tests/metadata/backup/test_backups.py::"
_IN_STREAM = "tests/metadata/instream/test_instream_backups.py::"
_KILLS = "tests/metadata/backup/test_restore_kills.py::"
_HOSTILE = "tests/metadata/backup/test_hostile_backups.py::"
_COPIES = "tests/metadata/cluster/test_copied_clusters.py::"
_MOMENTS = f"{_TESTS}test_backups_at_any_moment_are_states_that_could_have_been"
_RESTORATION = "metadata.backup.restore:Restoration"
_LEDGER_ROOT = "metadata.cluster.ledger_root"


# --- what a backup takes --------------------------------------------------------------------------------------------


@fault(
    "8.8, A16",
    (
        "The last committed version of an application in a backup is the last one visible in the backup. With a later one, a "
        "restored cluster would skip a replay and lose its rows."
    ),
    at="metadata.rules.consistent_cut:application_at",
    by=f"{_TESTS}test_a_commit_above_an_undecided_registration_is_not_in_the_backup",
    kind="backing",
)
def backup_knows_later_versions(
    real: Real, number: int, before: Application, after: Application, written: Sequence[Written], told: Teller
) -> Any:
    return real(max([number, *(one.number for one in written)]), before, after, written, told)


@fault(
    "8.11",
    "A cursor in a backup has the acknowledgements of the backup's transactions only, not those of later transactions.",
    at="metadata.rules.consistent_cut:cursor_at",
    kind="backing",
    by="seed 11",
)
def backup_takes_acks_as_they_come(real: Real, number: int, before: Cursor, after: Cursor, told: Teller) -> Any:
    return acks.with_done(after.model_copy(update={"claims": {}}), acks.done(after))


@fault(
    "8.5, 8.6",
    (
        "A backup waits until its log covers every registration that existed when it began, since applications and cursors refer "
        "to them."
    ),
    at="metadata.backup.backup:BackupReader._log",
    by=_MOMENTS,
    kind="backing",
)
def backup_does_not_wait(real: Real, self: BackupReader, view: View) -> _Log:
    listing = self._buffer.log.list(view, again=self._buffer.still_open)
    verdicts = self._buffer.verdicts(view, listing)
    undecided = (number for number, verdict in verdicts.items() if verdict is Verdict.UNDECIDED)
    return _Log(cut(undecided, listing.end), listing.entries, verdicts)


@fault(
    "8.6, A29",
    "A watermark in a backup never lies beyond the backup's log.",
    at="metadata.backup.backup:BackupReader._watermarks",
    kind="backing",
    by="seed 5",
)
def backup_of_a_later_watermark(real: Real, self: BackupReader, view: View, log: _Log, begun: int, before: Any) -> Any:
    now = {key: Watermark.of(record) for key, record in _records(view, paths.WATERMARKS).items()}
    return real(self, view, log, begun, before) | now


@fault(
    "8.6, A5",
    "A restored log ends at the number that readers have seen, even if the entry of that number was a marker.",
    at="metadata.instream.backup_rules:kept_log",
    kind="backing",
    by="seed 1",
)
def backup_ends_a_log_with_its_last_data(real: Real, *arguments: Any, **options: Any) -> KeptLog:
    found: KeptLog = real(*arguments, **options)
    data = {number: entry for number, entry in found.entries.items() if entry.kind is not EntryKind.ABORT}
    return dataclasses.replace(found, entries=data)


@fault(
    "issue 13, 21",
    "Unpacking a backup file stops at the largest size that a backup of this compressed size can have.",
    at="metadata.backup.backup_file:_most",
    by=f"{_HOSTILE}test_a_bomb_is_refused_in_bounded_memory",
)
def backup_bombs_are_unpacked(real: Real, packed: int) -> int:
    return 2**62


# --- what a restore writes ------------------------------------------------------------------------------------------


@fault(
    "8.7",
    "A restored cluster allocates log numbers above every number that the lost cluster can have allocated.",
    at="metadata.backup.backup_file:Heading.following",
    by=f"{_TESTS}test_a_restored_cluster_reads_and_sweeps_alike_and_continues_above_the_backup",
    kind="backing",
)
def restore_gives_numbers_again(real: Real, self: Heading) -> int:
    return max(self.number, self.in_stream or 0) + 1


@fault(
    "8.7",
    "No migration takes the cluster's log to the numbers that a restore of an older backup allocates.",
    at="metadata.rules.strides:room",
    by="tests/metadata/backup/test_backup_stores.py::test_a_migration_that_could_leave_the_stride_of_the_log_is_refused",
)
def migration_leaves_the_stride(real: Real, end: int, restored: Sequence[Any]) -> int:
    return 10**18


@fault(
    "8.3, A1",
    "A restored cluster allocates transaction ids above every id that the lost cluster can have allocated.",
    at=f"{_RESTORATION}._records",
    by=_MOMENTS,
    kind="backing",
)
def restore_gives_ids_again(real: Real, self: Restoration) -> list[Kept]:
    *records, ids = real(self)
    return [*records, Kept(ids.key, TcSequence(next=0).to_bytes())]


@fault(
    "8.4, 8.6",
    "Data that a transaction of the lost cluster writes after a restore is void and does not delay readers.",
    at="metadata.instream.backup_rules:all_ended",
    by=f"{_IN_STREAM}test_late_data_of_transactions_before_a_restore_is_void_and_no_id_is_reused",
    kind="backing",
)
def restore_lets_old_transactions_write(real: Real, following: int) -> Any:
    return real(1)


@fault(
    "8.5",
    "A restore that another restore has taken over stops writing, since the cluster may already be in use.",
    at=f"{_RESTORATION}._put",
    by=f"{_TESTS}test_a_restore_that_was_taken_over_stops",
    kind="backing",
)
def restore_goes_on_when_overtaken(real: Real, self: Restoration, claim: Record, some: Sequence[Kept]) -> Record:
    for kept in some:
        if look(self.store, kept.key) is None:
            self.store.put(kept.key, kept.value)
    return claim


@fault(
    "issue 13, 9",
    "A restore that died while it marked the root can be run again. The half-written temporary file does not block it.",
    at="ledgers.local_files:temporary_of",
    within="ledgers.local_files:LocalFiles.replace",
    by=f"{_KILLS}test_a_mark_that_is_half_written_does_not_stop_a_restore",
)
def replaced_file_has_one_temporary_name(real: Real, path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


@fault(
    "issue 13, 12",
    "A refused restore creates no metadata store.",
    at=f"{_RESTORATION}.check",
    by=f"{_KILLS}test_a_refused_restore_creates_no_store",
)
def restore_makes_a_store_before_it_looks(real: Real, self: Restoration) -> None:
    return


@fault(
    "issue 13, 10",
    "A restore checks for its files once more after it has made sure that no other cluster can delete them.",
    at=f"{_RESTORATION}._check_files",
    by=f"{_COPIES}test_a_restore_beside_a_sweep_has_all_files_or_names_the_missing_ones",
)
def restore_looks_for_files_once(real: Real, self: Restoration, records: Sequence[Kept], *, changed: bool) -> Any:
    return None if changed else real(self, records, changed=changed)


@fault(
    "4, The ledger root",
    "A restore fails if another cluster took over its ledger root meanwhile.",
    at=f"{_RESTORATION}._check_taken",
    by=f"{_KILLS}test_one_of_two_concurrent_restores_over_a_root_is_refused",
)
def restore_without_its_root(real: Real, self: Restoration, restoring: Restoring) -> None:
    return


@fault(
    "8.5, A20",
    "A stream whose checkpoint is newer than the restored backup fails. It does not continue without the lost versions.",
    at="metadata.rules.transitions:opening",
    by=f"{_TESTS}test_a_stream_beyond_the_backup_fails_and_a_stream_within_it_continues",
    kind="backing",
)
def restored_stream_skips_what_was_lost(real: Real, app: Application, claim: Claim, predecessor: Header | Gone) -> Any:
    return real(app, dataclasses.replace(claim, accepts_loss=True), predecessor)


# --- ownership of ledger roots ---------------------------------------------------------------------------------------


@fault(
    "4",
    "Opening a folder whose metadata store was lost creates nothing there that would make a restore refuse the folder.",
    at="metadata.store.contract:look",
    within="metadata.cluster.cluster:_found",
    by="tests/metadata/backup/test_backup_stores.py::test_a_folder_opened_without_its_store_blocks_no_restore",
)
def founding_left_beside_a_lost_store(real: Real, store: MetadataStore, key: Key) -> Any:
    found = real(store, key)
    return Record(key, b"", 0) if found is None and key == paths.FOUNDING else found


@fault(
    "issue 13, 1",
    "A metadata store is refused if the ledger root's mark names another location of the store.",
    at=f"{_LEDGER_ROOT}:_is_here",
    by=f"{_COPIES}test_a_copy_that_shares_the_root_is_refused_with_the_take_over_command",
)
def copied_store_opens_the_root(real: Real, *arguments: Any) -> bool:
    return True


@fault(
    "issue 13, 1",
    "A copied folder of an older version uses the ledgers in the copy, not those of the original.",
    at=f"{_LEDGER_ROOT}:marked",
    within=f"{_LEDGER_ROOT}:located",
    by=f"{_COPIES}test_a_copied_folder_is_a_cluster_of_its_own",
)
def copied_folder_uses_the_recorded_root(real: Real, storage: LedgerStorage) -> None:
    return


@fault(
    "issue 13, 1",
    "A take-over of a ledger root waits until no sweep is deleting files there.",
    at=f"{_LEDGER_ROOT}:wait_for_deletes",
    within=f"{_LEDGER_ROOT}:take_over",
    by=f"{_COPIES}test_a_take_over_waits_for_a_sweep_that_died_for_a_bounded_time",
)
def take_over_does_not_wait(real: Real, storage: LedgerStorage, clock: Any) -> None:
    return


@fault(
    "issue 13, 24",
    "A ledger root inside another cluster's ledger root is refused.",
    at=f"{_LEDGER_ROOT}:_above",
    by="tests/metadata/cluster/test_ledger_root.py::test_a_root_within_another_clusters_root_is_refused",
)
def root_within_a_root(real: Real, storage: LedgerStorage) -> Iterator[str]:
    return iter(())


@fault(
    "issue 13, 24",
    "A percent-encoded credential in a URL is recognised and hidden.",
    at="ledgers.credentials:_readings",
    by="tests/metadata/common/test_credentials_in_urls.py",
)
def encoded_credential_shown(real: Real, uri: str) -> list[str]:
    return [uri]
