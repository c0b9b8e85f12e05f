"""Look up, list and abort transactions of both models. The high part of a transaction id tells its model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from metadata.client.client import Client
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TransactionNotFound
from metadata.common.html import Shown
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
class TransactionDescription(Shown):
    """One transaction, from its header or, if it is marker-based, from the transaction log. Times are ms since 1970 by the store's
    clock.

    - `state`: COMMITTING and ABORTING mean that a marker-based transaction is decided, but not all of its markers are written.
    - `app`: the application id; None if the transaction was opened without an application.
    - `topic`: the topic of the application; empty if the application writes several topics.
    - `deadline_ms`: after this time any process may abort the transaction while it is OPEN.
    - `commit`: the log number of the registration, if the transaction has committed; None for a marker-based transaction.
    - `segments`: the segments that the transaction's op records name; none after settling, which deletes the op records. For a
      marker-based transaction: the topics that are participants, and the topics of the subscriptions that are participants.
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
        """Return whether this is a marker-based transaction, so that `segments` has the topics of its participants."""
        return isinstance(self.state, TxnState)


class TransactionsProvider(Protocol):
    """The transactions of one model."""

    def list(self, state: TxnState | None) -> Iterator[TransactionDescription]:
        """Yield the transactions in one state, or all transactions if `state` is None."""

    def get(self, txn_id: str) -> TransactionDescription:
        """Return one transaction by its id. Raises TransactionNotFound."""

    def abort(self, txn_id: str) -> None:
        """Abort a transaction. Raises TransactionNotFound. Raises TxnConflict if the transaction has committed."""


def of_id(client: Client, txn_id: str) -> TransactionsProvider:
    """Return the provider of the model that a transaction id belongs to."""
    return _Logged(client) if marker_rules.txn_id(txn_id).most >= COORDINATOR else _Headed(client)


def of_all(client: Client) -> tuple[TransactionsProvider, ...]:
    """Return the providers of both models, that of topic:// first."""
    return _Headed(client), _Logged(client)


def recent(client: Client, since_ms: int) -> list[TransactionDescription]:
    """Return the transactions of both models that are not final, and those that became final at or after a time (ms) by the store's
    clock. Reads no earlier transaction of `topic://`.
    """

    def body(view: View) -> list[Record]:
        ended = (s for s in State if s is not State.OPEN)
        return _of_state(view, State.OPEN) + [record for state in ended for record in _of_state(view, state, since_ms)]

    found = [_described(record) for record in decide(client.cluster.store, body)]
    log = client.instream.coordinator.log
    live = {txn.least for txn in log.live()}
    marker_based = [txn for txn in log.txns() if txn.least in live or (txn.ended_ms or 0) >= since_ms]
    return [*found, *(_of_log(log.most, txn) for txn in marker_based)]


def overdue(cluster: Cluster) -> tuple[int, list[str]]:
    """Return how many transactions of both models are OPEN, and the ids of those past their deadline plus the allowance."""
    view = cluster.store.view()
    records, now_ms, allowance_ms = _of_state(view, State.OPEN), view.now_ms(), cluster.settings.deadline_allowance_ms
    late = [r.key.partition for r in records if transitions.expired(Header.of(r), now_ms, allowance_ms)]
    log = TransactionLog(cluster)
    live = [t for t in log.live() if t.state is TxnState.OPEN]  # COMMITTING and ABORTING transactions have no deadline
    return len(records) + len(live), [*late, *(f"{log.most}_{t.least}" for t in live if expired(t, now_ms, allowance_ms))]


@dataclass(frozen=True)
class _Headed:
    """The transactions over topic:// topics. Each has a header."""

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
    """The transactions over persistent:// topics. The transaction log has them."""

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


def _of_state(view: View, state: State, since_ms: int = 0) -> list[Record]:
    if state is State.OPEN:
        return view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), _LAST)
    return view.scan_index(paths.TXN_BY_FINAL_STATE, f"{state}:{paths.pad20(since_ms)}", f"{state}:{_LAST}")


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
