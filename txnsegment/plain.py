"""Rows for a persistent topic outside of any transaction, as `cluster.producer(topic, plain=True)` sends them."""

from __future__ import annotations

from metadata.client.client import Client
from metadata.common.errors import TopicSealed
from metadata.records.names import PersistentName, TopicName, persistent_name
from metadata.write.write_set import Committed, refuse_missing
from txnsegment.transaction import Transaction


class PlainSend(Transaction):
    """Appends like a transaction; `commit` sends what was appended, one entry of the log for each topic, which is seen at once."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, app=None, version=None, timeout_ms=client.cluster.settings.txn_timeout_ms)

    def _check_takes(self, given: str, name: TopicName) -> None:
        """Raises TopicSealed if the topic was migrated: what goes on for it takes rows in transactions alone."""
        if not isinstance(name, PersistentName):
            raise TopicSealed(
                f"The topic {given} was migrated to {name}, which takes rows in transactions alone.",
                advice="Make the producer again without plain=True; nothing of this flush was sent.",
            )

    def commit(self) -> Committed:
        """Raises OutcomeUnknown when a reply was lost and the entry is not there (yet): sent again, it may be there twice. Else as
        `Transaction.commit`; TopicSealed: the topic takes no more.
        """
        if self._committed is None:
            self._check_open("send")
            parts = {persistent_name(name): found for name, found in self._parts().items()}
            refuse_missing(self._client.cluster, self._application, {str(name): some for name, some in parts.items()})
            numbers = self._client.instream.coordinator.append(None, parts) if parts else {}
            found = [part for some in parts.values() for part in some]
            number = next(iter(numbers.values()), None)
            self._committed = Committed(None, number, sum(p.rows for p in found), sum(p.bytes for p in found))
        return self._committed
