"""A write in a transaction over several topics. It stages parts and publishes a manifest of them (protocol.md section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledgers.storage import LedgerStorage
from metadata.write.staging_manifests import StagingArea, StagingManifest
from spark_txn_sink.commit import agreed_key, query, reported
from spark_txn_sink.planned import WritePlan
from spark_txn_sink.staging import Staged


@dataclass(frozen=True)
class StagedWrite:
    """One write of a transaction. It begins on the driver when Spark plans the write. It ends in the process in which Spark commits
    or aborts the write. That process opens the ledger root but not the metadata store. `order`: how many writes of the transaction
    had begun before this write.
    """

    plan: WritePlan
    token: str
    write: str
    order: int

    @classmethod
    def begin(cls, plan: WritePlan, token: str, write: str) -> StagedWrite:
        """Begin a write in the transaction of `token`. Raises TxnConflict if this cluster has no such transaction, or if the
        transaction is closed.
        """
        return cls(plan, token, write, StagingArea(LedgerStorage(plan.storage_uri), token).begin(write, str(plan.topic)))

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Publish a manifest of the parts of all tasks, in the order of the tasks. `messages`: the reports of the task attempts
        that Spark accepted. Nothing is registered. Raises TxnConflict if a task did not report.
        """
        staged = reported(messages)
        self._area().leave(
            StagingManifest(
                write=self.write,
                order=self.order,
                topic=str(self.plan.topic),
                types=self.plan.types.json(),
                key=agreed_key(self.plan, staged),
                staged_ms=self.plan.staged_ms,
                parts=tuple(part for message in staged for part in message.parts),
                query=query(staged),
                grows=self.plan.grows,
                execution=next((m.execution[1] for m in staged if m.execution is not None and m.execution[0] == self.token), None),
            )
        )

    def abort(self) -> None:
        """Withdraw a write that Spark gave up, so that its rows do not count. No part is deleted."""
        self._area().withdraw(self.write)

    def _area(self) -> StagingArea:
        return StagingArea(LedgerStorage(self.plan.storage_uri), self.token)
