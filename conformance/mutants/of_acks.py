"""Faults of acknowledgements: claims, conflicts, settling, cursors (protocol.md section 7, Acks)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="acking")
_TESTS = "tests/metadata/cursors/test_pending_ack.py"
_ACKNOWLEDGED = "metadata.rules.acks:acknowledged"
_CONFLICTS = (f"{_TESTS}::test_two_transactions_one_message_one_wins",)
_STEPS = (f"{_TESTS}::test_all_or_nothing_at_every_step[acks-Fate.CRASH_AFTER]",)
_SWEEPER = (f"{_TESTS}::test_a_sweeper_that_stops_anywhere_applies_each_ack_once[Fate.CRASH_BEFORE]",)

MUTANTS = (
    mutant(
        "subscriptions-of-an-earlier-life",
        "8.11",
        "A topic that was made again has no subscription of the one that was deleted.",
        ("metadata.topics.subscriptions:Subscriptions.list", "if s in segments", "if s"),
        tests=("tests/metadata/maintenance/test_torn_trims.py",),
    ),
    mutant(
        "claims-hold-nobody-off",
        "8.11",
        "What an OPEN transaction claims is a conflict for everybody else.",
        (_ACKNOWLEDGED, "other != txn and", "False and"),
        tests=_CONFLICTS,
    ),
    mutant(
        "ack-again",
        "8.11",
        "What is acknowledged is refused, and leaves nothing behind.",
        (_ACKNOWLEDGED, "if twice := common(wanted, behind):", "if twice := ():"),
        tests=(f"{_TESTS}::test_what_was_acked_is_refused_and_leaves_nothing_behind",),
    ),
    mutant(
        "acks-forgotten-at-recovery",
        "A22, 8.11",
        "Whoever settles a committed transaction moves its claims into the cursor, also after its owner died.",
        ("metadata.rules.acks:settled", "if committed else after", ""),
        ("metadata.rules.acks:settled", "with_done(after, union(done(after), claimed))", "after"),
        tests=_STEPS,
    ),
    mutant(
        "ops-thrown-away",
        "A23, 8.11",
        "An unsettled ack op of a committed transaction is settled, then deleted.",
        ("metadata.maintenance.sweeper:Sweeper._delete_ops", "committed=state is State.COMMITTED", "committed=False"),
        tests=_SWEEPER,
    ),
    mutant(
        "cursor-without-cas",
        "A33, 8.11",
        "Cursor and claims are one record, changed by CAS: of two who saw the same one wins.",
        ("metadata.cursors.pending_ack:PendingAcks._change", "expect=ABSENT if record is None else record", "expect=None"),
        tests=(f"{_TESTS}::test_a_claim_made_in_between_is_seen",),
    ),
    mutant(
        "aborted-acks-applied",
        "8.11",
        "Acks of an aborted transaction are dropped, and their rows come again.",
        ("metadata.rules.acks:resolved", "committed=states[txn] is State.COMMITTED", "committed=True"),
        tests=(f"{_TESTS}::test_whoever_meets_a_claim_past_its_deadline_ends_it",),
    ),
    mutant(
        "children-without-cursors",
        "8.11",
        "A child's cursors are made with the layout that shows it.",
        (
            "metadata.cursors.cursors:make_children",
            "make_missing(store, [(name, subscription) for subscription in made])",
            "made = []",
        ),
        tests=(f"{_TESTS}::test_children_have_their_cursors_when_the_layout_shows_them[split-Fate.CRASH_BEFORE]",),
        kind="splitting",
    ),
    mutant(
        "subscriptions-by-prefix",
        "A14, 8.11",
        "A subscription whose name begins as another's is another one.",
        ("metadata.cursors.pending_ack:_by_cursor", "(ack.segment, ack.subscription)", "(ack.segment, ack.subscription[:1])"),
        tests=(f"{_TESTS}::test_names_that_begin_alike_are_strangers",),
    ),
    mutant(
        "lost-race-taken-for-ours",
        "A33, 8.11",
        "Who lost a race has not written, even if the winner has written the very same cursor.",
        ("metadata.cursors.pending_ack:PendingAcks._change", "if isinstance(error, UnknownOutcome):", "if True:"),
        tests=(f"{_TESTS}::test_of_two_plain_acks_of_one_row_one_wins",),
    ),
    mutant(
        "open-claims-are-void",
        "8.11",
        "Only claims of decided transactions are dropped by whoever writes the record.",
        ("metadata.rules.acks:resolved", "txn in states and states[txn] is not State.OPEN", "txn in states"),
        tests=_CONFLICTS,
    ),
    mutant(
        "forgotten-claims-believed",
        "A27, 8.11",
        "A claim whose header is gone is read again: it may have been settled and forgotten in between.",
        ("metadata.cursors.pending_ack:PendingAcks._resolved", "if None in states.values():", "if False:"),
        tests=("tests/scripts/test_scripts.py::test_script[acks_of_a_forgotten_transaction]",),
    ),
    mutant(
        "claims-outlive-their-deadline",
        "A4, 8.10",
        "Whoever meets a claim of a transaction past its deadline ends it.",
        ("metadata.cursors.pending_ack:PendingAcks._states", "if transitions.expired(", "if False and transitions.expired("),
        tests=(f"{_TESTS}::test_whoever_meets_a_claim_past_its_deadline_ends_it",),
    ),
    mutant(
        "refused-claims-stay",
        "8.11",
        "A transaction that meets an AckConflict gives back at once what it held elsewhere.",
        ("metadata.cursors.pending_ack:PendingAcks.claim", "self.settle(txn_id, by_cursor, committed=False)", "self.read(())"),
        tests=(f"{_TESTS}::test_what_was_acked_is_refused_and_leaves_nothing_behind",),
    ),
    mutant(
        "cursor-of-a-deleted-subscription",
        "8.14",
        "What a split made for a subscription that was deleted meanwhile is taken back until nothing of it is seen.",
        ("metadata.cursors.cursors:_bury", "return None if left else True", "return True"),
        tests=(f"{_TESTS}::test_a_deleted_subscription_leaves_no_cursor_on_a_child[Fate.LOSE_REQUEST]",),
    ),
    mutant(
        "seek-drops-claims",
        "8.11",
        "Moving a subscription leaves the claims of OPEN transactions as they are.",
        (
            "metadata.rules.acks:sought",
            "return with_done(cursor, acked)",
            'return with_done(cursor, acked).model_copy(update={"claims": {}})',
        ),
        tests=("tests/scripts/test_scripts.py::test_script[seek_and_claims]",),
    ),
    mutant(
        "acked-rows-of-the-next-batch",
        "8.11",
        "A stream on a subscription remembers what was acknowledged beyond its micro-batch.",
        ("spark_txn_source.offsets:StreamOffset.after", "self.acked if needed else ()", "()"),
        tests=("tests/scripts/test_scripts.py::test_script[subscribed_reads]",),
    ),
    mutant(
        "whole-entries-again",
        "8.11",
        "Single rows are acknowledged: of an entry only the others come again.",
        ("metadata.read.backlog:left_in", "first.batch_index, end.batch_index, size", "0, size, size"),
        tests=("tests/scripts/test_scripts.py::test_script[ack_single_rows]",),
    ),
    mutant(
        "watched-too-late",
        "8.16",
        "What comes between the first reading and its watches wakes whoever waits for the next one.",
        ("spark_txn_source.following:Following._watch", "self.wake()", "self._woken.is_set()"),
        tests=("tests/metadata/read/test_following.py",),
    ),
    mutant(
        "subscription-made-blindly",
        "8.11",
        "Who makes a subscription looks whether it is there, in every segment, before it says so.",
        ("metadata.topics.subscriptions:Subscriptions.create", "return None", "return True"),
        tests=(f"{_TESTS}::test_a_subscription_is_there_once_its_maker_was_told_so[0-Fate.LOSE_REQUEST]",),
    ),
)
