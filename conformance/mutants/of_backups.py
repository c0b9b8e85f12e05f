"""Faults of backups and restores (docs/operations.md, Backup)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="backing")
_TESTS = "tests/metadata/backup/test_backups.py::"
_IN_STREAM = "tests/metadata/instream/test_instream_backups.py::"
_KILLS = "tests/metadata/backup/test_restore_kills.py::"
_HOSTILE = "tests/metadata/backup/test_hostile_backups.py::"
_EVERY_MOMENT = (
    f"{_IN_STREAM}test_backups_at_any_moment_of_simulated_worlds",
    f"{_IN_STREAM}test_a_backup_at_every_moment_of_a_transaction",
)
_MOMENTS = (f"{_TESTS}test_backups_at_any_moment_are_states_that_could_have_been",)
# No script shows those that name no test: the simulator has to catch them.

MUTANTS = (
    mutant(
        "backup-knows-later-versions",
        "8.8, A16",
        "An application in a backup has committed what is visible there, and no more: a replay would be skipped, its rows lost.",
        ("metadata.rules.consistent_cut:application_at", "one.visible and one.number <= number and", "one.visible and"),
        tests=(f"{_TESTS}test_what_commits_above_something_undecided_while_it_waits_is_not_in_it",),
    ),
    mutant(
        "backup-forgets-versions",
        "8.8, A16",
        "An application in a backup has committed all that is visible there: a replay would write its rows twice.",
        ("metadata.rules.consistent_cut:application_at", "for one in written:", "for one in written[:0]:"),
    ),
    mutant(
        "backup-takes-acks-as-they-come",
        "8.11",
        "Acknowledgements in a backup are those of its own transactions, not of later ones.",
        ("metadata.rules.consistent_cut:cursor_at", "if unexplained:", "if False:"),
        ("metadata.rules.consistent_cut:cursor_at", "acked = [was]", "acked = [now]"),
    ),
    mutant(
        "backup-takes-a-dropped-claim-for-a-settled-one",
        "8.11",
        "What an aborted transaction had claimed was acknowledged by somebody else, who has to be known.",
        ("metadata.rules.consistent_cut:cursor_at", " if told(txn).has_committed", ""),
        tests=(f"{_TESTS}test_a_cursor_at_a_number",),
    ),
    mutant(
        "backup-misses-what-left-the-log",
        "8.8, A28",
        "What came into the log and left it again while a backup was read is known to its application, too.",
        ("metadata.backup.backup:BackupReader._watermarks", "if now.ledger_id > since:", "if put_back:"),
        tests=(f"{_TESTS}test_what_comes_and_leaves_the_log_at_any_step_of_a_backup",),
    ),
    mutant(
        "backup-does-not-wait",
        "8.5, 8.6",
        "A backup reaches beyond everything that was registered when it began: what applications and cursors say is in its log.",
        ("metadata.backup.backup:BackupReader._log", "if number >= first:", "if True:"),
        tests=_MOMENTS,
    ),
    mutant(
        "backup-of-a-later-watermark",
        "8.6, A29",
        "A watermark in a backup never lies beyond its log.",
        ("metadata.backup.backup:BackupReader._watermarks", "put_back = now.ledger_id > log.number", "put_back = False"),
    ),
    mutant(
        "restore-gives-numbers-again",
        "8.7",
        "Numbers go on above all that the lost cluster can have given out.",
        ("metadata.backup.backup_file:Heading.following", "(last // ERA + 1) * ERA", "last + 1"),
        tests=(f"{_TESTS}test_what_is_restored_reads_the_same_sweeps_the_same_and_goes_on_above",),
    ),
    mutant(
        "restore-gives-numbers-of-a-lost-restore-again",
        "8.7",
        "Numbers go on above those of a cluster that was restored itself, though its backup has none of its own numbers.",
        ("metadata.backup.backup_file:Heading.following", "*(lost.before for lost in self.restored or ())", "0"),
        tests=(f"{_TESTS}test_numbers_of_a_restored_cluster_are_not_given_again_though_its_backup_knows_none_of_them",),
    ),
    mutant(
        "restore-gives-ids-again",
        "8.3",
        "Transaction ids go on above all that the lost cluster can have given out.",
        ("metadata.backup.restore:Restoration._records", "(self.backup.heading.next_txn // TXN_IDS + 1) * TXN_IDS", "0"),
        tests=_MOMENTS,
    ),
    mutant(
        "restore-goes-on-when-overtaken",
        "8.5",
        "Whose restore was taken over writes nothing any more: the cluster may be in use by now.",
        ("metadata.backup.restore:Restoration._put", "now is None or now.value != claim.value", "False"),
        (
            "metadata.backup.restore:Restoration._put",
            "Put(paths.RESTORING, now.value, expect=now)",
            "Put(paths.RESTORING, claim.value)",
        ),
        ("metadata.backup.restore:Restoration._put", "return now", "return claim"),
        tests=(f"{_TESTS}test_who_was_overtaken_stops",),
    ),
    mutant(
        "replaced-file-has-one-temporary-name",
        "issue 13, 9",
        "A restore that died while it marked the root is finished by running it again: what is half written is in nobody's way.",
        (
            "ledgers.local_files:LocalFiles.replace",
            "temporary = temporary_of(path)",
            'temporary = path.with_name(f".{path.name}.tmp")',
        ),
        tests=(f"{_KILLS}test_a_mark_that_is_half_written_does_not_stop_a_restore",),
    ),
    mutant(
        "restore-forgets-whose-the-root-was",
        "issue 13, 9",
        "A restore that lost the root's mark on its way still writes whose the root was: the backup may be restored once more.",
        ("metadata.backup.restore:Restoration._take_over", "*(restoring.was or ())", ""),
        tests=(f"{_KILLS}test_a_restore_whose_root_lost_its_mark_still_knows_whose_it_was",),
    ),
    mutant(
        "restore-makes-a-store-before-it-looks",
        "issue 13, 12",
        "A restore that is refused leaves no store where there was none.",
        ("metadata.backup.restore:restore", "rehearsed.check()", "pass"),
        tests=(f"{_KILLS}test_a_refusal_leaves_no_store_where_there_was_none",),
    ),
    mutant(
        "backup-bombs-are-unpacked",
        "issue 13, 21",
        "A backup file unpacks to no more than a backup of its size can have.",
        ("metadata.backup.backup_file:_unpacked", "if total > most:", "if False:"),
        tests=(f"{_HOSTILE}test_a_bomb_is_refused_in_bounded_memory",),
    ),
    mutant(
        "backup-lines-in-any-order",
        "issue 13, 21",
        "The records of a backup are in the order of their keys, and each is there once.",
        ("metadata.backup.backup_file:_check", "key <= before", "False"),
        tests=(f"{_HOSTILE}test_a_key_twice_or_out_of_order_is_refused",),
    ),
    mutant(
        "settings-need-not-fit",
        "issue 13, 21",
        "Settings that would lose files are refused wherever they are read.",
        (
            "metadata.records.cluster_records:Settings._fit_together",
            "if self.orphan_age_ms < 4",
            "if False and self.orphan_age_ms < 4",
        ),
        tests=(f"{_HOSTILE}test_forged_settings_are_refused_wherever_they_are_read",),
    ),
    mutant(
        "restored-stream-skips-what-was-lost",
        "8.5, A20",
        "A stream whose checkpoint is newer than the backup says so, and does not go on without the versions in between.",
        ("metadata.rules.transitions:opening", " and not claim.accepts_loss", " and False"),
        tests=(f"{_TESTS}test_a_stream_beyond_the_backup_fails_loudly_and_one_within_it_goes_on",),
    ),
    mutant(
        "restored-log-is-read-from-a-lost-offset",
        "8.5, A31",
        "An offset of the lost history is refused: a read up to it would have fewer rows than the first time.",
        ("metadata.cluster.cluster:check_not_lost", "if lost.after < number < lost.before:", "if False:"),
        tests=(f"{_TESTS}test_offsets_of_the_lost_history_are_refused",),
    ),
    # --- of persistent topics -------------------------------------------------------------------------------------------
    mutant(
        "backup-asks-the-transaction-log-for-each-topic",
        "8.9",
        "What had committed is asked once, before the first topic: else a transaction is in one topic of a backup and not in all.",
        (
            "metadata.backup.in_stream:InStreamReader.read",
            "self._topic(view, topic, decided, now_ms) for",
            "self._topic(view, topic, Decided(self.log.replay.read(view)), now_ms) for",
        ),
        tests=_EVERY_MOMENT,
    ),
    mutant(
        "backup-believes-later-markers",
        "8.9",
        "A marker of a transaction that had not committed when the transaction log was read does not count in a backup.",
        ("metadata.instream.backup_rules:Decided.ended", "if ident.most == COORDINATOR and", "if False and"),
        tests=_EVERY_MOMENT,
    ),
    mutant(
        "backup-waits-for-no-missing-marker",
        "8.5",
        "What had committed is in a backup, also where its marker was still missing.",
        ("metadata.instream.backup_rules:Decided.ongoing", "Fate.COUNTS if participant in", "Fate.NEVER if participant in"),
        tests=(f"{_IN_STREAM}test_what_is_undecided_is_aborted_and_what_is_decided_is_finished",),
    ),
    mutant(
        "backup-takes-plain-acks-of-persistent-topics-as-they-come",
        "8.11",
        "An acknowledgement without a transaction is in a backup with the work for which it was given, or not at all.",
        ("metadata.instream.backup_rules:kept_cursor", "union(*acked)", "union(acks.done(state.cursor), *acked)"),
        tests=(f"{_IN_STREAM}test_acknowledgements_of_before_alone_count",),
    ),
    mutant(
        "backup-hides-what-readers-have-seen",
        "8.5, A31",
        "A reader that has seen what a restore lost is told so, and does not go on as if nothing were missing.",
        ("metadata.instream.backup_rules:kept_log", "whole = min(whole, number - 1)", "whole = whole"),
        tests=(f"{_IN_STREAM}test_readers_beyond_the_backup_are_told_and_others_go_on",),
    ),
    mutant(
        "backup-ends-a-log-with-its-last-data",
        "8.6, A5",
        "A restored log reaches the end that readers have seen, though that was a marker.",
        ("metadata.instream.backup_rules:kept_log", "if whole > last:", "if False:"),
    ),
    mutant(
        "restore-lets-old-transactions-write",
        "8.4, 8.6",
        "What still comes of a transaction of before a restore never counts, and holds no reader up.",
        ("metadata.instream.backup_rules:all_ended", "following - 1", "0"),
        tests=(f"{_IN_STREAM}test_nothing_that_still_comes_of_a_transaction_of_before_counts_and_no_id_is_used_again",),
    ),
    mutant(
        "restore-gives-ids-of-persistent-transactions-again",
        "8.3, A1",
        "Ids of the older model go on above all that the lost cluster can have given out, though its backup has none.",
        ("metadata.backup.restore:Restoration._logs", "in_stream.TRANSACTIONS, ", ""),
    ),
    mutant(
        "restore-gives-positions-of-persistent-topics-again",
        "8.7",
        "Positions of a persistent topic go on above all that the lost cluster can have given out.",
        ("metadata.backup.restore:Restoration._logs", "for kept in self.backup.records for", "for kept in () for"),
        tests=(f"{_IN_STREAM}test_readers_beyond_the_backup_are_told_and_others_go_on",),
    ),
    mutant(
        "restored-cluster-makes-a-lost-topic-anew-at-one",
        "8.7",
        "A topic that was made after the backup, and is made again, gives no position again.",
        ("metadata.instream.topics:PersistentTopics._skip_lost", "if not self._cluster.restored:", "if True:"),
        tests=(f"{_IN_STREAM}test_a_cluster_that_had_none_gives_no_id_again_either",),
    ),
    mutant(
        "restored-query-of-a-persistent-topic-skips-what-was-lost",
        "8.5, A20",
        "A stream whose checkpoint is newer than the backup says so, also where it writes to persistent topics.",
        ("metadata.instream.backup_rules:Decided.kept", '"restored": True', '"restored": None'),
        tests=(f"{_IN_STREAM}test_a_query_beyond_the_backup_fails_loudly_and_one_within_it_goes_on",),
    ),
)
