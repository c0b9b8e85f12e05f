"""Faults of who owns a ledger root, and of what is shown of its URI."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_COPIES = "tests/metadata/cluster/test_copied_clusters.py::"
_ROOTS = "tests/metadata/cluster/test_ledger_root.py::"
_URLS = "tests/metadata/common/test_credentials_in_urls.py"

MUTANTS = (
    mutant(
        "founding-left-beside-a-lost-store",
        "4",
        "Who opens a folder whose store was lost leaves nothing there that a restore would refuse.",
        ("metadata.cluster.cluster:_found", "(other := marked(storage)) is not None and", "(other := None) is not None and"),
        tests=("tests/metadata/backup/test_backup_stores.py::test_opening_a_folder_whose_store_was_lost_is_in_no_restores_way",),
    ),
    mutant(
        "copied-store-opens-the-root",
        "issue 13, 1",
        "A store at another place than the mark names is refused.",
        ("metadata.cluster.ledger_root:_checked", "mark.place is not None and not _is_here(mark.place, ours, store)", "False"),
        tests=(f"{_COPIES}test_a_copy_that_shares_the_root_is_refused_and_told_how_to_take_it_over",),
    ),
    mutant(
        "previous-owner-goes-on",
        "issue 13, 1",
        "After a take-over the store that owned the root before is refused.",
        ("metadata.cluster.ledger_root:_checked", "mark.owner != known.owner", "False"),
        tests=(f"{_COPIES}test_a_root_in_its_folder_that_another_store_takes_over_is_refused",),
    ),
    mutant(
        "embedded-root-recorded-as-absolute",
        "issue 13, 1",
        "A root in the folder of its store is recorded relative to it: a copy without its root does not use the original's.",
        ("metadata.cluster.ledger_root:recorded", 'service.scheme == "file" and', "False and"),
        tests=(f"{_COPIES}test_a_new_embedded_cluster_records_its_root_relative_to_its_folder",),
    ),
    mutant(
        "copied-folder-uses-the-recorded-root",
        "issue 13, 1",
        "A copied folder of an older version uses its own ledgers.",
        ("metadata.cluster.ledger_root:located", "if marked(own) != known.id:", "if True:"),
        tests=(f"{_COPIES}test_a_copied_folder_is_a_cluster_of_its_own",),
    ),
    mutant(
        "two-files-of-one-number",
        "issue 13, 1",
        "A store counts as moved only if nothing is at its old place.",
        ("metadata.cluster.places:same_place", "and not os.path.lexists(marked.path)", ""),
        tests=(f"{_COPIES}test_places",),
    ),
    mutant(
        "sweep-looks-at-the-root-once",
        "issue 13, 1 and 10",
        "A sweep looks at the root again before each batch of deletes.",
        ("metadata.maintenance.deleting:Deleter.delete", "self._left == 0 or", "self._note is None or 0 * self._left or"),
        tests=(f"{_COPIES}test_a_sweep_deletes_nothing_once_a_take_over_is_complete",),
    ),
    mutant(
        "sweep-does-not-look-before-it-deletes",
        "issue 13, 10",
        "A sweep that was under way during a restore deletes nothing.",
        ("metadata.maintenance.deleting:Deleter._check", "self._cluster.check_root()", "pass"),
        tests=(f"{_COPIES}test_a_sweep_that_was_under_way_during_a_restore_deletes_nothing_of_it",),
    ),
    mutant(
        "slow-batch-without-end",
        "issue 13, 1",
        "A batch of deletes ends after its seconds, too.",
        ("metadata.maintenance.deleting:Deleter.delete", "self._cluster.clock.monotonic() >= self._until", "False"),
        tests=(f"{_COPIES}test_a_slow_batch_of_deletes_ends_after_its_seconds",),
    ),
    mutant(
        "take-over-does-not-wait",
        "issue 13, 1",
        "A take-over waits until no sweep deletes any more.",
        ("metadata.cluster.ledger_root:take_over", "    wait_for_deletes(storage, clock)\n", ""),
        tests=(f"{_COPIES}test_a_sweep_deletes_nothing_once_a_take_over_is_complete",),
    ),
    mutant(
        "take-over-does-not-read-back",
        "issue 13, 1",
        "Of two take-overs at once the one whose mark was replaced fails.",
        ("metadata.cluster.ledger_root:take_over", "found is None or found.owner != nonce", "False"),
        tests=(f"{_COPIES}test_a_take_over_whose_mark_is_replaced_meanwhile_fails",),
    ),
    mutant(
        "restore-looks-for-files-once",
        "issue 13, 10",
        "A restore looks for its files again once no other cluster can delete them.",
        ("metadata.backup.restore:Restoration.run", "self._check_files(records, changed=True)", "pass"),
        tests=(f"{_COPIES}test_a_restore_beside_a_sweep_has_all_files_or_says_which_are_missing",),
    ),
    mutant(
        "root-within-a-root",
        "issue 13, 24",
        "A root that lies in another cluster's root is refused.",
        ("metadata.cluster.ledger_root:check_not_nested", "outer is not None", "False"),
        tests=(f"{_ROOTS}test_a_root_within_another_clusters_root_is_refused",),
    ),
    mutant(
        "root-around-a-root",
        "issue 13, 24",
        "A root that has another cluster's root in it is refused, and that one is named.",
        ("metadata.cluster.ledger_root:check_not_nested", 'file.path.endswith(f"/{MARK}")', "False"),
        tests=(f"{_ROOTS}test_a_root_that_has_another_clusters_root_in_it_is_refused",),
    ),
    mutant(
        "encoded-credential-shown",
        "issue 13, 24",
        "A credential is found though it is percent-encoded.",
        ("ledgers.credentials:_readings", "len(found) < 4", "False"),
        tests=(_URLS,),
    ),
    mutant(
        "password-with-a-slash-shown",
        "issue 13, 24",
        "A password may have a slash in it.",
        ("ledgers.credentials:has_password", 'if scheme == "file":', "if True:"),
        tests=(_URLS,),
    ),
    mutant(
        "unnamed-parameter-shown",
        "issue 13, 24",
        "What stands without a name behind the path of a URL is not shown.",
        ("ledgers.credentials:shown", "re.split('[?#]', uri, maxsplit=1)[0]", "uri"),
        tests=(_URLS,),
    ),
    mutant(
        "restore-without-its-root",
        "4, The ledger root",
        "A restore whose root somebody else took over meanwhile is not complete.",
        ("metadata.backup.restore:Restoration.run", "self._check_taken(restoring)", "pass"),
        tests=(
            "tests/metadata/backup/test_restore_kills.py::test_of_two_restores_over_one_root_at_once_one_is_told_that_it_has_not_got_it",
        ),
    ),
)
