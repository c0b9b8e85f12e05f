"""The transactions of both models, as their records say. The high part of a transaction's id says its model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from metadata.client.client import Client
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TransactionNotFound
from metadata.instream import rules as marker_rules
from metadata.instream.transaction_log import TransactionLog
from metadata.instream.txn_records import Txn
from metadata.instream.txn_records import TxnState as TxnState
from metadata.instream.txn_rules import COORDINATOR, expired
from metadata.records import paths
from metadata.records.records import Header, Op, State
from metadata.rules import transitions
from metadata.store.contract import Record, View, decide

_LAST = "9" * 20


@dataclass(frozen=True)
class TransactionDescription:
    """One transaction as its header says, or the transaction log of the marker-based model. Times are ms since 1970 by the store's
    clock; `deadline_ms` is when an OPEN one may be aborted by anybody. `app` None: opened by another program without one; `topic`
    empty: over several topics. `commit`: the number of the registration that it committed. `segments`: what its op records name
    (they go when it is settled); of a transaction over `persistent://` topics its participants. COMMITTING and ABORTING are of that
    kind alone: decided, with markers still to come.
    """

    id: str
    state: State | TxnState
    app: str | None
    topic: str | None
    version: int | None
    owner: str | None
    created_ms: int
    deadline_ms: int
    finalized_ms: int | None
    commit: int | None
    segments: tuple[str, ...] = ()

    @property
    def has_participants(self) -> bool:
        """Whether `segments` are its participants, and not what its op records name."""
        return isinstance(self.state, TxnState)


class TransactionsProvider(Protocol):
    """The transactions of one model."""

    def list(self, state: TxnState | None) -> Iterator[TransactionDescription]:
        """All that are known, of one state or of all."""

    def get(self, txn_id: str) -> TransactionDescription:
        """One by its id. Raises TransactionNotFound."""

    def abort(self, txn_id: str) -> None:
        """End it ABORTED. Raises TxnConflict if it has committed, TransactionNotFound."""


def of_id(client: Client, txn_id: str) -> TransactionsProvider:
    """What serves the transaction of an id."""
    return _Logged(client) if marker_rules.txn_id(txn_id).most >= COORDINATOR else _Headed(client)


def of_all(client: Client) -> tuple[TransactionsProvider, ...]:
    """What serves transactions of each model, that of topic:// first."""
    return _Headed(client), _Logged(client)


def overdue(cluster: Cluster) -> tuple[int, list[str]]:
    """How many transactions are OPEN, and the ids of those past their deadline."""
    view = cluster.store.view()
    records, now_ms, allowance_ms = _of_state(view, State.OPEN), view.now_ms(), cluster.settings.deadline_allowance_ms
    late = [r.key.partition for r in records if transitions.expired(Header.of(r), now_ms, allowance_ms)]
    log = TransactionLog(cluster)
    live = [t for t in log.live() if t.state is TxnState.OPEN]  # what is decided and not finished has no deadline
    return len(records) + len(live), [*late, *(f"{log.most}_{t.least}" for t in live if expired(t, now_ms, allowance_ms))]


@dataclass(frozen=True)
class _Headed:
    """Those of topic://, which have headers."""

    client: Client

    def list(self, state: TxnState | None) -> Iterator[TransactionDescription]:
        wanted = [one for one in State if state is None or one.value == state.value]

        def body(view: View) -> list[Record]:
            return [record for one in wanted for record in _of_state(view, one)]

        return (_described(record) for record in decide(self.client.cluster.store, body))

    def get(self, txn_id: str) -> TransactionDescription:
        def body(view: View) -> TransactionDescription:
            record = view.get(paths.header(txn_id))
            if record is None:
                raise _not_found(txn_id)
            return _described(record, tuple(Op.of(op).segment for op in view.scan(paths.ops(txn_id).range())))

        return decide(self.client.cluster.store, body)

    def abort(self, txn_id: str) -> None:
        self.client.coordinator.abort(txn_id)


@dataclass(frozen=True)
class _Logged:
    """Those of persistent topics, which the transaction log has."""

    client: Client

    def list(self, state: TxnState | None) -> Iterator[TransactionDescription]:
        log = self.client.instream.coordinator.log
        return (_of_log(log.most, txn) for txn in log.txns() if state in (None, txn.state))

    def get(self, txn_id: str) -> TransactionDescription:
        log, ident = self.client.instream.coordinator.log, marker_rules.txn_id(txn_id)
        txn = log.txn(ident.least) if ident.most == log.most else None
        if txn is None:
            raise _not_found(txn_id)
        return _of_log(log.most, txn)

    def abort(self, txn_id: str) -> None:
        self.client.instream.coordinator.end(txn_id, commit=False)


def _not_found(txn_id: str) -> TransactionNotFound:
    return TransactionNotFound(
        f"There is no transaction {txn_id}.", advice="The id was never used, or its header expired after the retention."
    )


def _of_state(view: View, state: State) -> list[Record]:
    if state is State.OPEN:
        return view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), _LAST)
    return view.scan_index(paths.TXN_BY_FINAL_STATE, f"{state}:{paths.pad20(0)}", f"{state}:{_LAST}")


def _of_log(most: int, txn: Txn) -> TransactionDescription:
    app, _, topic = (txn.app or "").partition(":")
    return TransactionDescription(
        id=f"{most}_{txn.least}",
        state=txn.state,
        app=None if txn.app is None else paths.decode(app),
        topic=None if txn.app is None else paths.decode(topic),
        version=txn.version,
        owner=txn.owner,
        created_ms=txn.created_ms,
        deadline_ms=txn.deadline_ms,
        finalized_ms=txn.ended_ms,
        commit=None,
        segments=tuple(dict.fromkeys([*txn.topics, *(topic for topic, _ in txn.subscriptions)])),
    )


def _described(record: Record, segments: tuple[str, ...] = ()) -> TransactionDescription:
    header = Header.of(record)
    app, _, topic = (header.app or "").partition(":")
    return TransactionDescription(
        id=record.key.partition,
        state=header.state,
        app=None if header.app is None else paths.decode(app),
        topic=None if header.app is None else paths.decode(topic),
        version=header.version,
        owner=header.owner,
        created_ms=header.created_at // 1_000_000,
        deadline_ms=header.deadline_ms,
        finalized_ms=None if header.finalized_at is None else header.finalized_at // 1_000_000,
        commit=header.commit,
        segments=segments,
    )
