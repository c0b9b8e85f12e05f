"""Who leads: an ephemeral record on a session of the store (protocol.md sections 3 and 4, `/txn/tc/leader/<n>`).

Leading saves work and nothing depends on it: two may believe it at once, one whose session has just ended among them. What a leader
does is a compare-and-set all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.records import paths
from metadata.records.cluster_records import Leader
from metadata.store.contract import ABSENT, View, decide


@dataclass
class Leadership:
    """One candidate for the place `number`. It leads while its session lasts, or until it resigns; then whoever asks next does."""

    cluster: Cluster
    number: int = 0
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.cluster.unique()

    def leads(self) -> bool:
        """Whether we lead: also takes the place if it is free. Costs a leader one read, and anybody else one write that is refused:
        a store may end the sessions that have lapsed only when somebody writes. Raises what the store does.
        """
        key = paths.leader(self.number)

        def body(view: View) -> bool:
            record = view.get(key)
            if record is not None and Leader.of(record).token == self.token:
                return True
            mine = Leader(owner=self.cluster.owner, token=self.token, since_ms=view.now_ms())
            try:
                self.cluster.store.put(key, mine.to_bytes(), expect=ABSENT, ephemeral=True)
            except (BadVersion, UnknownOutcome):  # somebody else was faster; or it is ours, as we shall see when we ask again
                return False
            return True

        return decide(self.cluster.store, body)

    def resign(self) -> None:
        """Leave the place, if it is ours, so that nobody has to wait for our session to end. Idempotent."""
        key = paths.leader(self.number)

        def body(view: View) -> None:
            record = view.get(key)
            if record is not None and Leader.of(record).token == self.token:
                try:
                    self.cluster.store.delete(key, expect=record)
                except (BadVersion, UnknownOutcome):  # gone with our session; or it goes with it soon
                    return

        decide(self.cluster.store, body)
