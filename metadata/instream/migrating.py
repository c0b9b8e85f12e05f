"""Migration: a persistent topic becomes the sealed first segment of a topic://, and no row is copied (docs/in_stream.md).

    clear      end the open transactions of the topic, or refuse the migration
    seal       append the SEAL to the topic's own log; it does not count while a transaction is open
    name       name the successor in the topic's record, after which the topic's schema and subscriptions cannot change
    copy       copy cursors, committed versions of applications, and schemas
    create     create the layout record of the successor topic; this CAS decides the migration
    complete   append the seal to the cluster's log and add the child segments, as for any split

Any process that finds the SEAL may do the steps after it. Several processes may do these steps at once, because each step is an
append that counts once, a CAS, or the creation of a record that must be absent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from metadata.cluster.cluster import Cluster
from metadata.common.errors import (
    BadVersion,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TopicSealed,
    TransactionNotFound,
    TransactionUnfinished,
    TxnConflict,
    UnknownOutcome,
)
from metadata.cursors.cursors import Where, make_missing
from metadata.instream import migration_rules as rules
from metadata.instream import paths as instream_paths
from metadata.instream import pending_ack
from metadata.instream.ack_records import SubscriptionRecord
from metadata.instream.rules import txn_id
from metadata.instream.sealing import Sealing
from metadata.instream.steps import TransactionSteps
from metadata.instream.topics import every
from metadata.instream.txn_records import Txn, TxnState
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, even_ranges, persistent_name, topic_name
from metadata.records.persistent_records import LogEntry, PersistentLayout
from metadata.records.records import Application, Cursor, Layout
from metadata.rules import migrated
from metadata.store.contract import ABSENT, Put, View, decide, in_groups, look, until
from metadata.topics.topic import Topic, of_record
from metadata.topics.topics import Topics

log = logging.getLogger("txnsegment.instream")

LOOK_AGAIN_SECONDS = 0.05


@dataclass
class Migrator:
    """Migrates the persistent topics of one cluster. Any number of processes may migrate at once."""

    cluster: Cluster
    coordinator: TransactionSteps
    topics: Topics = field(init=False)
    sealing: Sealing = field(init=False)

    def __post_init__(self) -> None:
        self.topics = Topics(self.cluster)
        self.sealing = Sealing(self.cluster, self.coordinator.buffer, self.coordinator.topics)

    def migrate(self, name: PersistentName, to: TopicName, *, segments: int = 1, wait_ms: int = 0, force: bool = False) -> Topic:
        """Migrate a persistent topic to `to` with `segments` active segments. Return the new topic. Idempotent.

        `wait_ms`: how long to wait for open transactions of the topic. `force`: abort open transactions at once. Raises TxnConflict
        if open or stalled transactions of the topic remain after `wait_ms`. The error names these transactions, and the topic is
        not migrated. Raises TopicExists (`to` is or was another topic), TopicSealed (the topic was terminated, or migrated to
        another name), TopicNotFound, OptionError.
        """
        even_ranges(segments)
        until_s = self.cluster.clock.monotonic() + wait_ms / 1000
        while True:
            if self.successor(name) is not None:
                return self._finish(name, to)
            if not self._may_be_sealed(name, to):
                continue
            self._clear_the_way(name, until_s, force=force)
            self.sealing.seal(name, "migrate", to=str(to), segments=segments)

    def successor(self, name: PersistentName) -> TopicName | None:
        """Return the name of a persistent topic's successor; None if the topic was not migrated. The successor may not exist yet.
        Raises TopicNotFound.
        """
        return self._successor(name, self.coordinator.topics.get(name).layout)

    def _successor(self, name: PersistentName, layout: PersistentLayout) -> TopicName | None:
        if not layout.sealing:
            return None
        found = layout.migrated_to or rules.successor(layout, self._seal(name)[1])
        return None if found is None else topic_name(found)

    def finish(self, name: PersistentName) -> Topic | None:
        """Complete the migration of a sealed topic. Return its successor, or None if the topic has no SEAL of a migration.

        Raises TopicExists if another topic has taken the successor's name meanwhile.
        """
        return None if self.successor(name) is None else self._finish(name, None)

    def cursor_successor(self, where: Where) -> Topic:
        """Return the successor topic of a migrated subscription. If the subscription's cursor in the successor, or the successor
        itself, is missing, create it first. Raises the errors of `finish`.
        """
        self.carry(where)
        to = self.finish(persistent_name(where[0]))
        assert to is not None, f"{where[0]} was migrated"
        return to

    def made(self, name: PersistentName) -> TopicName | None:
        """Return the name of the successor of a persistent topic; None if the topic was not migrated. An unfinished migration is
        completed first.

        The call takes one round trip, or two if the record names the successor, or more if only the SEAL names it. Raises
        TopicNotFound (no such topic, or the successor was deleted), TopicExists (another topic has the successor's name).
        """
        to, topic = self._further(name)
        if to is not None and topic is None:
            raise gone(name, to)
        return to

    def check_there(self, name: PersistentName) -> None:
        """Raise TopicNotFound if the topic does not exist, or if it was migrated and its successor was deleted."""
        self.made(name)

    def named(self, name: PersistentName) -> TopicName | None:
        """Return the successor's name as `made` does, but also if it was deleted. Raises TopicNotFound, TopicExists."""
        return self._further(name)[0]

    def _further(self, name: PersistentName) -> tuple[TopicName | None, Topic | None]:
        """Return the name of the successor and the successor. The name is None if the topic was not migrated. The successor is None
        if it was deleted.
        """
        layout = self.coordinator.topics.get(name).layout
        to = self._successor(name, layout)
        if to is None:
            return None, None
        record = None if layout.migrated_to is None else look(self.cluster.store, paths.topic(to))
        if record is not None and migrated.is_its_own(Layout.of(record), name):
            topic = of_record(to, record)
            if topic is None or topic.layout.unsealed_legacy() is None:
                return to, topic
        made = self._finish(name, None)
        return made.name, made

    def matching(self, pattern: re.Pattern[str]) -> tuple[TopicName, ...]:
        """Return the successors, also deleted ones, of the migrated topics with matching names. Raises TopicExists."""

        def body(view: View) -> list[tuple[PersistentName, TopicName | None]]:
            """Return each sealed topic with the name of its successor. The name is None unless the topic's record has it, and the
            layout record under this name belongs to the successor.
            """
            found = [t for t in every(view, pattern) if t.layout.sealing and not t.layout.deleted]
            said = {t.name: topic_name(t.layout.migrated_to) for t in found if t.layout.migrated_to is not None}
            records = view.get_many([paths.topic(to) for to in said.values()]) if said else []
            layouts = {name: Layout.of(r) for name, r in zip(said, records, strict=True) if r is not None}
            made = {name: said[name] for name, layout in layouts.items() if migrated.is_its_own(layout, name)}
            return [(t.name, made.get(t.name)) for t in found]

        further = (to or self.named(name) for name, to in decide(self.cluster.store, body))
        return tuple(dict.fromkeys(to for to in further if to is not None))

    def _seal(self, name: PersistentName) -> tuple[int, LogEntry | None]:
        found = self.sealing.sealed(name)
        return (0, None) if found is None else found

    def _may_be_sealed(self, name: PersistentName, to: TopicName) -> bool:
        """Check whether the migration may begin. Return False if another process has just migrated the topic. Raises TopicExists,
        TopicSealed.
        """
        if self._is_taken(name, to):
            raise _taken(name, to)
        _, seal = self._seal(name)
        if seal is not None and seal.why != "migrate":
            raise TopicSealed(f"The topic {name} was sealed to {seal.why} it.", advice="It cannot be migrated.")
        return seal is None

    # --- clearing the way ---------------------------------------------------------------------------------------------

    def _clear_the_way(self, name: PersistentName, until_s: float, *, force: bool) -> None:
        ending = self.coordinator.ending
        while True:
            before = self._in_the_way(name)
            ending.resolve(self._ids(before))  # aborts expired transactions and finishes decided ones, except those that stall
            found = self._in_the_way(name)
            open_now = [txn for txn in found if txn.state is TxnState.OPEN]
            if open_now and force:
                self._abort(open_now)
                continue
            if not found and not ending.resolve_topic(name) and not self.coordinator.buffer.state(name).ongoing:
                return
            stalled = rules.stalled(before, found)
            if found and self.cluster.clock.monotonic() >= until_s:
                if stalled:
                    raise self._cannot_end(name, stalled)
                if not force:
                    raise TxnConflict(
                        f"{name} cannot be migrated while transactions are open there: {', '.join(map(self._shown, found))}.",
                        advice="The topic was not sealed. Wait for them (--wait SECONDS), or abort them (--force).",
                    )
            self.cluster.clock.sleep(LOOK_AGAIN_SECONDS if found else 0)

    def _cannot_end(self, name: PersistentName, stalled: Sequence[Txn]) -> TxnConflict:
        others = sorted({topic for txn in stalled for topic in txn.topics} - {str(name)})
        shown = ", ".join(map(self._shown, stalled))
        return TxnConflict(
            f"{name} cannot be migrated: {shown} is decided and cannot end, because a sealed topic takes no marker.",
            advice=f"Delete the terminated topic, which is one of {', '.join(others)}, and migrate again.",
        )

    def _in_the_way(self, name: PersistentName) -> list[Txn]:
        most = self.coordinator.log.most
        ongoing = [ident.least for ident in map(txn_id, self.coordinator.buffer.state(name).ongoing) if ident.most == most]
        return rules.in_the_way(self.coordinator.log.live(), ongoing, name)

    def _ids(self, found: Iterable[Txn]) -> list[str]:
        return [f"{self.coordinator.log.most}_{txn.least}" for txn in found]

    def _shown(self, txn: Txn) -> str:
        whose = "" if txn.app is None else f" of {paths.decode(txn.app.partition(':')[0])} version {txn.version}"
        return f"{self.coordinator.log.most}_{txn.least} ({txn.state}{whose}, begun by {txn.owner} at {txn.created_ms} ms)"

    def _abort(self, found: Iterable[Txn]) -> None:
        for ident in self._ids(found):
            # TransactionUnfinished: the abort is decided but stalls. The other two errors: the transaction has ended meanwhile.
            with suppress(TxnConflict, TransactionNotFound, TransactionUnfinished):
                self.coordinator.end(ident, commit=False)

    # --- after the seal: any process --------------------------------------------------------------------------------------

    def _finish(self, name: PersistentName, wanted: TopicName | None) -> Topic:
        number, seal = self._seal(name)
        assert seal is not None
        to = self._said(name, seal, wanted)
        if wanted is not None and to != wanted:
            self._finish(name, None)
            raise TopicSealed(f"The topic {name} was migrated to {to} already.", advice=f"Use {to}.")
        if not self._is_there(name, to):
            self._carry_over(name, to)
            self._make(name, to, number, seal)
        self.topics.complete(to)
        found = self.topics.find(to)
        if found is None:
            raise gone(name, to)
        return found

    def _said(self, name: PersistentName, seal: LogEntry, wanted: TopicName | None) -> TopicName:
        """Store the successor's name in the topic's record. Afterwards the topic's schema and subscriptions cannot change. Return
        the stored name. It is the name that the record already has, or else the name in the SEAL. If another topic has taken this
        name, `wanted` replaces it.
        """
        before = self.coordinator.topics.get(name).layout
        first = rules.successor(before, seal)
        assert first is not None
        if wanted is not None and topic_name(first) != wanted and self._is_taken(name, topic_name(first)):
            if look(self.cluster.store, paths.topic(wanted)) is not None:
                raise _taken(name, wanted)
            said = str(wanted)
        else:
            said = first

        def say(layout: PersistentLayout) -> PersistentLayout:
            return layout if layout.migrated_to not in (None, first) else layout.model_copy(update={"migrated_to": said})

        after = self.coordinator.topics.change(name, say).layout.migrated_to
        assert after is not None
        return topic_name(after)

    def _is_there(self, name: PersistentName, to: TopicName) -> bool:
        """Return whether the successor was created. Raises TopicExists if another topic has the successor's name."""
        record = look(self.cluster.store, paths.topic(to))
        if record is not None and not migrated.is_its_own(Layout.of(record), name):
            raise _taken(name, to, sealed=True)
        return record is not None

    def _is_taken(self, name: PersistentName, to: TopicName) -> bool:
        record = look(self.cluster.store, paths.topic(to))
        return record is not None and not migrated.is_its_own(Layout.of(record), name)

    def _carry_over(self, name: PersistentName, to: TopicName) -> None:
        """Copy cursors, committed versions and schemas to the successor. The copies must exist before the successor's layout record
        is created, because from then on programs use the copies.
        """
        for where, _ in decide(self.cluster.store, partial(pending_ack.every, topic=str(name))):
            self.carry(where)
        self._abort(rules.of_its_applications(self.coordinator.log.live(), name))
        until(lambda: self._carry_applications(name, to))
        self._copy_schemas(name, to)

    def carry(self, where: Where) -> None:
        """Migrate a subscription of a topic whose record names its successor. Idempotent; any process may do it.

        First this method appends the SEAL to the subscription's log, once no transaction holds a pending ack. Then a CAS marks the
        subscription's record as moved. A concurrent deletion or creation of the subscription is either earlier than this CAS or
        refused. The record of a deleted subscription is marked, too. Last the cursor in the successor is created if it is missing.
        """

        def step() -> bool | None:
            record = look(self.cluster.store, instream_paths.subscription(*where))
            if record is None:
                return True
            found = SubscriptionRecord.of(record)
            if found.deleted_ms is not None:
                return True if found.moved or self.coordinator.acks.close(record) else None
            cursor = self._sealed_cursor(where)
            if cursor is None or not (found.moved or self.coordinator.acks.close(record)):
                return None
            make_missing(self.cluster.store, [where], cursor)
            return True

        until(step)

    def _sealed_cursor(self, where: Where) -> Cursor | None:
        """Seal the subscription's log and return the final cursor. Return None if the subscription was deleted, or if pending acks
        block the SEAL. If pending acks block it, this method ends their transactions, which began after `_clear_the_way`, and the
        caller tries again.
        """
        acks = self.coordinator.acks
        try:
            cursor = acks.seal(where)
            if cursor is None:
                claims = acks.claims(where)
                self._abort(t for t in self.coordinator.log.live() if f"{self.coordinator.log.most}_{t.least}" in claims)
                self.coordinator.ending.resolve(claims)
        except SubscriptionNotFound:
            return None
        return cursor

    def _carry_applications(self, name: PersistentName, to: TopicName) -> bool | None:
        apps = self.coordinator.log.applications()
        wanted = sorted({app for one in apps if (app := rules.application_of(one, name, to)) is not None})
        keys = [paths.application_named(app) for app in wanted]
        records = decide(self.cluster.store, lambda view: view.get_many(keys)) if keys else []
        there = dict(zip(wanted, records, strict=True))
        known = {app: None if record is None else Application.of(record) for app, record in there.items()}
        found = rules.carry(apps, known, name, to)
        for some in in_groups(list(found)):
            puts = [Put(paths.application_named(app), found[app].to_bytes(), expect=there[app] or ABSENT) for app in some]
            try:
                self.cluster.store.write(*puts)
            except (BadVersion, UnknownOutcome):
                return None  # another process has written one of the records, or the reply is lost: compute them again
        return True

    def _copy_schemas(self, name: PersistentName, to: TopicName) -> None:
        """Copy the schemas with their ids, because parts name schemas by id."""

        def body(view: View) -> bool | None:
            for record in view.scan(paths.schemas(str(name))):
                key = paths.schema(str(to), paths.sequence_number(record.key.path))
                if view.get(key) is None:
                    try:
                        self.cluster.store.put(key, record.value, expect=ABSENT)
                    except (BadVersion, UnknownOutcome):
                        return None
            return True

        until(lambda: decide(self.cluster.store, body))

    def _make(self, name: PersistentName, to: TopicName, number: int, seal: LogEntry) -> None:
        """Create the successor's layout record. This is the CAS that decides the migration."""

        def step() -> bool | None:
            old = self.coordinator.topics.get(name).layout
            layout = rules.first_layout(name, old, number, seal.segments or 1)
            try:
                self.cluster.store.put(paths.topic(to), layout.to_bytes(), expect=ABSENT)
            except (BadVersion, UnknownOutcome):
                return True if self._is_there(name, to) else None
            log.info("migrated %s to %s", name, to)
            return True

        until(step)


def gone(name: PersistentName, to: TopicName) -> TopicNotFound:
    """Build the error for a topic whose successor was deleted."""
    return TopicNotFound(
        f"The topic {name} was migrated to {to}, which was deleted, and its rows with it.",
        advice=f"Create {to} again (txnsegment topics create {to}); {name} then refers to it.",
    )


def _taken(name: PersistentName, to: TopicName, *, sealed: bool = False) -> TopicExists:
    if not sealed:
        return TopicExists(
            f"The topic {to} exists already, or did: {name} cannot become it.", advice="Nothing was done. Choose another name."
        )
    return TopicExists(
        f"The topic {to} was created by another process while {name} was migrated to it.",
        advice=f"{name} takes no more writes: migrate it to another name (txnsegment topics migrate {name} --to ...).",
    )
