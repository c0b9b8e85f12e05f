"""`cluster.transactions`: list, look up and abort the transactions of a cluster."""

from __future__ import annotations

import re

from metadata.client.client import Client
from metadata.client.transactions import TransactionDescription as TransactionDescription
from metadata.client.transactions import TxnState, of_all, of_id
from metadata.common.errors import OptionError
from metadata.common.options import one_of
from metadata.records.records import State

_ID = re.compile(r"[0-9]{1,20}_[0-9]{1,20}")


class ClusterTransactions:
    """List, look up and abort transactions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, state: State | TxnState | str | None = None) -> list[TransactionDescription]:
        """List the transactions in one state; None: in any state. Ended transactions are listed as long as their headers are
        retained.

        OPEN transactions come first, by deadline. Ended transactions follow, by the time of their end. Transactions over
        `persistent://` topics come last, in the order in which they began. Raises OptionError for a state that does not exist.
        """
        asked = None if state is None else _state(state)
        return [found for provider in of_all(self._client) for found in provider.list(asked)]

    def get(self, txn_id: str) -> TransactionDescription:
        """Return one transaction, with the segments that its op records name. Raises TransactionNotFound."""
        _check(txn_id)
        return of_id(self._client, txn_id).get(txn_id)

    def abort(self, txn_id: str) -> None:
        """Abort an OPEN transaction. The commit of its owner then fails. Idempotent.

        Raises TxnConflict if the transaction has committed. Raises TransactionNotFound if it does not exist.
        """
        _check(txn_id)
        of_id(self._client, txn_id).abort(txn_id)


def _state(given: State | TxnState | str) -> TxnState:
    return TxnState(one_of(*(s.value for s in TxnState))("state", given))


def _check(txn_id: str) -> None:
    if not _ID.fullmatch(txn_id):
        raise OptionError(f"{txn_id!r} is not a transaction id.", advice="Write it as `txnsegment txns list` does, e.g. 0_977.")
