"""A write that is part of a transaction over several topics: it only stages, and leaves a manifest of its parts (protocol.md 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledgers.storage import LedgerStorage
from metadata.write.staging_manifests import StagingArea, StagingManifest
from spark_txn_sink.commit import agreed_key, query, reported
from spark_txn_sink.plan import WritePlan
from spark_txn_sink.staging import Staged


@dataclass(frozen=True)
class StagedWrite:
    """Begun on the driver when Spark plans the write; ended in the process that Spark commits or aborts in, which needs the
    storage and no metadata store. `order`: among the writes of its transaction.
    """

    plan: WritePlan
    token: str
    write: str
    order: int

    @classmethod
    def begin(cls, plan: WritePlan, token: str, write: str) -> StagedWrite:
        """Raises TxnConflict: no such transaction in this cluster, or it is at its end."""
        return cls(plan, token, write, StagingArea(LedgerStorage(plan.storage_uri), token).begin(write, str(plan.topic)))

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Leave what the accepted attempts staged, in the order of the tasks. Nothing is registered. Raises TxnConflict."""
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
                execution=next((m.execution[1] for m in staged if m.execution is not None and m.execution[0] == self.token), None),
            )
        )

    def abort(self) -> None:
        """Spark gave the write up, perhaps after it left its manifest: it does not count. Deletes no file."""
        self._area().withdraw(self.write)

    def _area(self) -> StagingArea:
        return StagingArea(LedgerStorage(self.plan.storage_uri), self.token)
