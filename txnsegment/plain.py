"""Sends to a marker-based topic (`persistent://`) outside of any transaction: `cluster.producer(topic, plain=True)`."""

from __future__ import annotations

from metadata.client.client import Client
from metadata.common.errors import TopicSealed
from metadata.records.names import PersistentName, TopicName, persistent_name
from metadata.write.write_set import Committed, refuse_missing
from txnsegment.transaction import Transaction


class PlainSend(Transaction):
    """Takes rows as a transaction does. `commit` sends them as one log entry for each topic, and readers see them at once."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, app=None, version=None, timeout_ms=client.cluster.settings.txn_timeout_ms)

    def _check_takes(self, given: str, name: TopicName) -> None:
        """Raise TopicSealed if the topic was migrated: its successor `topic://` takes rows in transactions only."""
        if not isinstance(name, PersistentName):
            raise TopicSealed(
                f"The topic {given} was migrated to {name}, which takes rows in transactions alone.",
                advice="Nothing of this flush was sent. Make the producer again without plain=True.",
            )

    def commit(self) -> Committed:
        """Send the appended rows. Another call returns the same result.

        Raises OutcomeUnknown if a reply was lost and the entry is not in the log. The entry may still arrive, so another `commit`
        may write its rows twice. Raises TopicSealed if the topic takes no more rows, and the errors of `Transaction.commit`.
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
