"""Interprets the entries of a pending-ack log by arithmetic of its own. An acknowledgement takes effect if its rows are neither
acknowledged nor pending in another transaction. A marker ends the pending acks of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.history.format import Place
from conformance.simulator.seen.cursors import Covered, common, covered, join, minus, positions


@dataclass
class AckLog:
    """The state of one subscription after the entries of its pending-ack log that were passed to `entry` so far."""

    done: Covered = field(default_factory=list)
    claims: dict[str, Covered] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    low_water: dict[str, int] = field(default_factory=dict)
    sealed: bool = False
    """Whether the log has a SEAL that took effect. All entries after it are void."""

    def entry(self, body: Any) -> Iterator[tuple[str, tuple[tuple[Place, Place], ...], str | None]]:
        """Yield the changes that an entry makes, each as (state, positions, transaction) of an `Ack`."""
        kind, txn = body["kind"], body.get("txn")
        if self.sealed:
            return
        if kind == "SEAL":
            self.sealed = not self.claims
        elif kind == "ACK":
            if (wanted := self._wanted(body, txn)) is None:
                return
            if txn is None:
                self.done = join([*self.done, *wanted])
            else:
                self.claims[txn] = join([*self.claims.get(txn, []), *wanted])
            yield "acked" if txn is None else "pending", positions(wanted), txn
        elif kind == "SEEK":
            self.done = covered(body["rows"])
            yield "moved", positions(self.done), None
        else:
            if not self._has_ended(txn):
                self.ended.add(txn)
                yield from self._settle(txn, kind == "COMMIT")
            most, told = txn.partition("_")[0], body.get("lowWater", -1)
            self.low_water[most] = max(told, self.low_water.get(most, -1))
            for other in [t for t in self.claims if self._has_ended(t)]:
                yield from self._settle(other, committed=False)

    def _wanted(self, body: Any, txn: str | None) -> Covered | None:
        if txn is not None and self._has_ended(txn):
            return None
        wanted = covered(body["rows"])
        if body.get("cumulative"):
            wanted = minus(wanted, self.done)
        elif common(wanted, self.done):
            return None
        others = [held for other, held in self.claims.items() if other != txn]
        return None if not wanted or any(common(wanted, held) for held in others) else wanted

    def _settle(self, txn: str, committed: bool) -> Iterator[tuple[str, tuple[tuple[Place, Place], ...], str | None]]:
        held = self.claims.pop(txn, [])
        if held:
            if committed:
                self.done = join([*self.done, *held])
            yield "acked" if committed else "released", positions(held), txn

    def _has_ended(self, txn: str) -> bool:
        most, _, least = txn.partition("_")
        return txn in self.ended or int(least) <= self.low_water.get(most, -1)
