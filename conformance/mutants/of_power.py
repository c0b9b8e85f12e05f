"""Faults that only a power cut shows: a file, a folder or a name that something counts on before it is durable."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/conformance/power/test_power.py::"
_PUBLISHED = (f"{_TESTS}test_a_power_cut_after_a_decision_loses_no_file",)
_KILLED = (f"{_TESTS}test_a_cluster_that_was_killed_and_opened_again_outlives_a_power_cut",)
_RESTORED = (f"{_TESTS}test_a_restore_that_was_killed_and_run_again_outlives_a_power_cut",)
_BACKUP = (f"{_TESTS}test_a_backup_outlives_a_power_cut_and_can_be_written_again_after_one",)

MUTANTS = (
    mutant(
        "published-file-not-synced",
        "8.5",
        "The content of a file is durable before it gets the name by which records name it.",
        ("ledgers.local_files:publish_file", "disk.sync(temporary)", "pass"),
        tests=_PUBLISHED,
    ),
    mutant(
        "published-name-not-synced",
        "8.5",
        "The name of a file is durable before a record names it.",
        ("ledgers.local_files:publish_file", "disk.sync_folder(path.parent)", "pass"),
        tests=_PUBLISHED,
    ),
    mutant(
        "replaced-file-not-synced",
        "8.5",
        "A file that replaces another one is durable before it takes the other one's name.",
        ("ledgers.local_files:LocalFiles.replace", "self._disk.sync(temporary)", "pass"),
        tests=_RESTORED,
    ),
    mutant(
        "replaced-name-not-synced",
        "8.5",
        "A file that replaces another one is durable under its name before a record counts on it.",
        ("ledgers.local_files:LocalFiles.replace", "self._disk.sync_folder(path.parent)", "pass"),
        tests=_RESTORED,
    ),
    mutant(
        "new-folder-not-synced",
        "8.5",
        "The folder of a cluster is durable before anything is written in it.",
        ("ledgers.local_files:make_folders", "disk.sync_folder(parent)", "pass"),
        tests=(f"{_TESTS}test_an_embedded_cluster_outlives_a_power_cut_once_a_commit_has_returned",),
    ),
    mutant(
        "found-mark-not-synced",
        "8.5",
        "A founder that finds a mark makes it durable before it writes the cluster record: its writer may have died before that.",
        ("metadata.cluster.cluster:_found", "if found in (None, identity):", "if found is None:"),
        tests=_KILLED,
    ),
    mutant(
        "restore-counts-on-a-mark-that-it-finds",
        "issue 13, 9",
        "A restore that is run again writes the mark again: the one that it finds may not be durable.",
        (
            "metadata.backup.restore:Restoration._take_over",
            "self.storage.replace(MARK",
            "heirs(self.storage)[:1] == [restoring.id] or self.storage.replace(MARK",
        ),
        tests=_RESTORED,
    ),
    mutant(
        "restore-counts-on-a-file-that-it-finds",
        "issue 13, 9",
        "A restore that is run again writes its file of records again: the one that it finds may not be durable.",
        (
            "metadata.backup.restore:Restoration._publish",
            "self.storage.replace(path, content)",
            "self.storage.info(path) or self.storage.replace(path, content)",
        ),
        tests=_RESTORED,
    ),
    mutant(
        "temporary-name-used-twice",
        "issue 13, 9",
        "What a writer left whose power failed is in nobody's way.",
        ("ledgers.local_files:temporary_of", "{uuid.uuid4().hex}", "x"),
        tests=_BACKUP,
    ),
    mutant(
        "real-disk-syncs-nothing",
        "8.5",
        "The disk under real clusters asks the system to make files and folders durable.",
        ("ledgers.disk:LocalDisk.sync", "os.fsync(handle)", "pass"),
        tests=("tests/ledgers/test_disk.py",),
    ),
)
