"""Leader election: an ephemeral record on a session of the store (protocol.md sections 3 and 4, `/txn/tc/leader/<n>`).

Leadership only saves work. Two processes may believe that they lead, for example if the session of one has just ended. So the
changes of a leader are compare-and-sets like those of any other process.
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
    """A process that may become the leader. `number`: the last part of the key of the leader record. Each kind of work has its own
    leader record. A leader leads until its session ends or it resigns. Then the next process that calls `leads` becomes the leader.
    """

    cluster: Cluster
    number: int = 0
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.cluster.unique()

    def leads(self) -> bool:
        """Return whether this process leads. If no process leads, take the leadership. The call costs the leader one read.

        Any other process also tries to write the record, even if the read shows a leader, because some stores end lapsed sessions
        only on a write. Raises StoreError.
        """
        key = paths.leader(self.number)

        def body(view: View) -> bool:
            record = view.get(key)
            if record is not None and Leader.of(record).token == self.token:
                return True
            mine = Leader(owner=self.cluster.owner, token=self.token, since_ms=view.now_ms())
            try:
                self.cluster.store.put(key, mine.to_bytes(), expect=ABSENT, ephemeral=True)
            except (BadVersion, UnknownOutcome):  # another process leads, or the reply was lost: the next call finds the record
                return False
            return True

        return decide(self.cluster.store, body)

    def resign(self) -> None:
        """Give up the leadership. Another process can then lead before the session ends. Idempotent."""
        key = paths.leader(self.number)

        def body(view: View) -> None:
            record = view.get(key)
            if record is not None and Leader.of(record).token == self.token:
                try:
                    self.cluster.store.delete(key, expect=record)
                except (BadVersion, UnknownOutcome):  # the end of the session deletes the record
                    return

        decide(self.cluster.store, body)
