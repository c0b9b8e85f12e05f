"""Faults of the migration of persistent topics to topic://, and of migrated topics: their rows, their retention, their old names
(docs/in_stream.md, Migration).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from conformance.mutants import planting
from ledgers.model import Ledger

fault = partial(planting.fault, kind="migrating")
Real = Callable[..., Any]

_MIGRATOR = "metadata.instream.migrating:Migrator"
_RULES = "metadata.rules.migrated"
_TESTS = "tests/metadata/instream/test_migration.py"
_KEPT = "tests/metadata/instream/test_migrated_remains.py"

# --- during a migration ----------------------------------------------------------------------------------------------


@fault(
    "8.8",
    "A migration carries over the last version of each application. A replay is then skipped, and an older version refused.",
    at=f"{_MIGRATOR}._carry_applications",
    by="script instream_migrate",
)
def migration_forgets_what_applications_committed(real: Real, *rest: Any) -> bool:
    return True


@fault(
    "8.11",
    "A migration carries over the final cursor of each subscription.",
    at="metadata.cursors.cursors:make_missing",
    within=f"{_MIGRATOR}.carry",
    by="script instream_migrate_subscriptions",
)
def subscriptions_of_a_migrated_topic_begin_anew(real: Real, store: Any, wanted: Any, cursor: Any) -> Any:
    return real(store, wanted)


@fault(
    "8.11",
    (
        "A migration moves a subscription by a CAS of its record. If the subscription was deleted or created again before, the "
        "CAS fails."
    ),
    at="metadata.instream.pending_ack:InStreamAcks.close",
    within=f"{_MIGRATOR}.carry",
    by="tests/metadata/instream/test_subscriptions_while_migrating.py::test_a_subscription_call_at_each_step_of_a_migration_takes_effect_once[delete]",
)
def migration_revives_a_deleted_subscription(real: Real, *rest: Any) -> bool:
    return True


@fault(
    "8.12",
    "The SEAL names the successor of a topic. Another successor replaces it only if an unrelated topic has the successor's name.",
    at=f"{_MIGRATOR}._is_taken",
    within=f"{_MIGRATOR}._said",
    by="script instream_migrate",
)
def two_migrations_two_names(real: Real, *rest: Any) -> bool:
    return True


# --- rows of a migrated topic ----------------------------------------------------------------------------------------


@fault(
    "8.9",
    "No limit of a micro-batch separates two entries that one transaction appended to a migrated topic.",
    at=f"{_RULES}:whole_transactions",
    by="script instream_migrated_retention",
)
def limits_split_migrated_transactions(real: Real, ledgers: Iterable[Ledger]) -> Any:
    return ([ledger] for ledger in ledgers)


@fault(
    "7",
    "Retention keeps the rows of a migrated topic that a subscription has not acknowledged.",
    at=f"{_RULES}:first_needed",
    by="script instream_migrated_retention",
)
def migrated_rows_trimmed_past_a_subscription(real: Real, *rest: Any) -> None:
    return None


@fault(
    "8.5",
    "A migrated segment leaves the layout only after it has no rows left.",
    at="metadata.rules.retention:is_drained",
    within="metadata.maintenance.trimming:Trimmer._drained_migrated",
    by=f"{_KEPT}::test_the_new_topic_s_retention_takes_the_oldest_rows_and_no_more",
)
def migrated_segment_leaves_with_its_rows(real: Real, info: Any, mark: Any, empty: bool, needed: Any, **options: Any) -> Any:
    return real(info, mark, True, needed, **options)


# --- the old name -------------------------------------------------------------------------------------------------


@fault(
    "8.4",
    "Deleting the successor deletes the rows of the migrated topic, which is then no longer listed.",
    at=f"{_RULES}:went_with",
    by=f"{_KEPT}::test_deleting_the_successor_deletes_the_migrated_topic",
)
def rows_of_a_deleted_topic_under_its_old_name(real: Real, *rest: Any) -> bool:
    return False


@fault(
    "8.4",
    "The name of a migrated topic refers to its successor only, never to another topic that was made under the successor's name.",
    at=f"{_RULES}:is_its_own",
    by=f"{_TESTS}::test_a_topic_never_redirects_to_an_unrelated_topic_made_meanwhile",
)
def old_name_stands_for_a_topic_of_somebody_else(real: Real, *rest: Any) -> bool:
    return True


@fault(
    "8.14",
    "If the successor needs no rows of the migrated topic any more, only the name of the migrated topic is kept.",
    at=f"{_RULES}:let_go",
    by="script instream_migrated_deletion",
)
def what_was_migrated_stays_for_ever(real: Real, *rest: Any) -> bool:
    return False
