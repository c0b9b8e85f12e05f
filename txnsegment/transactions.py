"""The transactions of a cluster, as their records say: `cluster.transactions`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metadata.client.client import Client
from metadata.common.errors import OptionError, TransactionNotFound
from metadata.common.options import one_of
from metadata.instream import rules as txn_rules
from metadata.instream.txn_records import Txn, TxnState
from metadata.instream.txn_rules import COORDINATOR
from metadata.records import paths
from metadata.records.records import Header, Op, State
from metadata.store.contract import Record, View, decide

_ID = re.compile(r"[0-9]{1,20}_[0-9]{1,20}")
_LAST = "9" * 20


@dataclass(frozen=True)
class TransactionDescription:
    """One transaction as its header says, or the transaction log of the older model. Times are ms since 1970 by the store's clock;
    `deadline_ms` is when an OPEN one may be aborted by anybody. `app` None: opened by another program without one; `topic` empty:
    over several topics. `commit`: the number of the registration that it committed. `segments`: what its op records name (they go
    when it is settled); of a transaction over `persistent://` topics those that take part. COMMITTING and ABORTING are of that kind
    alone: decided, with markers still to come.
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


class ClusterTransactions:
    """List, look up and abort transactions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, state: State | TxnState | str | None = None) -> list[TransactionDescription]:
        """All that have a header (OPEN, or ended within the header retention), of one state or of all: OPEN ones by deadline, then
        the ended ones by the time they ended; behind them those over `persistent://` topics, in the order in which they began.
        Raises OptionError for a state that does not exist.
        """
        asked = None if state is None else _state(state)
        wanted = [one for one in State if asked is None or one.value == asked.value]

        def body(view: View) -> list[Record]:
            return [record for one in wanted for record in _of_state(view, one)]

        older = self._client.instream.coordinator.log
        return [
            *(_described(r) for r in decide(self._client.cluster.store, body)),
            *(_of_log(older.most, txn) for txn in older.txns() if asked in (None, txn.state)),
        ]

    def get(self, txn_id: str) -> TransactionDescription:
        """One transaction with the segments that its op records name. Raises TransactionNotFound."""
        _check(txn_id)
        if _is_older(txn_id):
            log, ident = self._client.instream.coordinator.log, txn_rules.txn_id(txn_id)
            txn = log.txn(ident.least) if ident.most == log.most else None
            if txn is None:
                raise _not_found(txn_id)
            return _of_log(log.most, txn)

        def body(view: View) -> TransactionDescription:
            record = view.get(paths.header(txn_id))
            if record is None:
                raise _not_found(txn_id)
            return _described(record, tuple(Op.of(op).segment for op in view.scan(paths.ops(txn_id).range())))

        return decide(self._client.cluster.store, body)

    def abort(self, txn_id: str) -> None:
        """End an OPEN transaction ABORTED, for ever; its owner's commit then fails. Idempotent.

        Raises TxnConflict if it has committed, TransactionNotFound if there is none.
        """
        _check(txn_id)
        if _is_older(txn_id):
            self._client.instream.coordinator.end(txn_id, commit=False)
        else:
            self._client.coordinator.abort(txn_id)


def _is_older(txn_id: str) -> bool:
    """Whether it is the id of a transaction over persistent topics: the high part says it."""
    return txn_rules.txn_id(txn_id).most >= COORDINATOR


def _not_found(txn_id: str) -> TransactionNotFound:
    return TransactionNotFound(
        f"There is no transaction {txn_id}.", advice="The id was never used, or its header expired after the retention."
    )


def _state(given: State | TxnState | str) -> TxnState:
    return TxnState(one_of(*(s.value for s in TxnState))("state", given))


def _of_state(view: View, state: State) -> list[Record]:
    if state is State.OPEN:
        return view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), _LAST)
    return view.scan_index(paths.TXN_BY_FINAL_STATE, f"{state}:{paths.pad20(0)}", f"{state}:{_LAST}")


def _check(txn_id: str) -> None:
    if not _ID.fullmatch(txn_id):
        raise OptionError(f"{txn_id!r} is not a transaction id.", advice="Write it as `txnsegment txns list` does, e.g. 0_977.")


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
