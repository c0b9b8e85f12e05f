"""A broker with Pulsar's default retention, which removes entries after seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SETTINGS: Final = {
    "defaultRetentionTimeInMinutes": 0,
    "defaultRetentionSizeInMB": 0,
    "retentionCheckIntervalInSeconds": 2,
    "managedLedgerMaxEntriesPerLedger": 4,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
"""The settings of the broker. A ledger has four entries."""


def until(true: Callable[[], bool], seconds: float = 150) -> None:
    """Wait until something is true that the broker tells no other way."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)
