"""Acknowledgements on persistent topics. After a migration the acknowledgements on the topic are redirected to its successor, in
which the rows have the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from metadata.common.errors import SubscriptionMigrated
from metadata.cursors.cursors import Where
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.redirect import Redirect
from metadata.records.records import Cursor
from metadata.records.row_ranges import Rows
from metadata.rules.acks import Ack, merged


@dataclass(frozen=True)
class RedirectedAcks:
    """Acknowledges rows of persistent topics without a transaction. It implements `PendingAckProvider`. After a migration all
    methods except `read` act on the successor. `InStreamCoordinator.commit` redirects acknowledgements within a transaction.
    """

    acks: InStreamAcks
    redirect: Callable[[], Redirect]

    def acknowledge(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge without a transaction. After an error some acks may have taken effect. The errors are AckConflict and
        SubscriptionNotFound.
        """
        left = self._each(self.acks.acknowledge, merged(wanted))
        if left:
            self.redirect().coordinator.acks.acknowledge(left)

    def advance(self, wanted: Sequence[Ack]) -> None:
        """Acknowledge cumulatively. An ack whose rows are all acknowledged already is skipped, so the call is idempotent. Raises
        AckConflict, SubscriptionNotFound.
        """
        left = self._each(self.acks.advance, wanted)
        if left:
            self.redirect().coordinator.acks.advance(left)

    def seek(self, to: Mapping[Where, Rows]) -> None:
        """Make exactly the given rows of each subscription count as acknowledged. Raises SubscriptionNotFound."""
        for where, rows in to.items():
            try:
                self.acks.seek({where: rows})
            except SubscriptionMigrated:
                self.redirect().migrator.cursor_successor(where)
                self.redirect().coordinator.acks.seek({where: rows})

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]:
        """Return the cursors. This call is not redirected. For a migrated subscription it returns the last cursor in the
        subscription's own pending-ack log, as it was when that log was sealed. Raises SubscriptionNotFound.
        """
        return self.acks.read(where)

    def _each(self, call: Callable[[Sequence[Ack]], None], wanted: Iterable[Ack]) -> list[Ack]:
        """Call `call` for each ack separately. Return the acks of migrated subscriptions, for which `call` did nothing."""
        left = []
        for ack in wanted:
            try:
                call([ack])
            except SubscriptionMigrated:
                self.redirect().migrator.cursor_successor((ack.segment, ack.subscription))
                left.append(ack)
        return left
