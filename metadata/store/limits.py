"""Checks that every backend makes before it sends a write."""

from __future__ import annotations

from collections.abc import Sequence

from metadata.common.errors import ValueTooLarge
from metadata.store.contract import MAX_VALUE, Append, Delete, Write


def check_writes(writes: Sequence[Write]) -> None:
    """Check a group before the backend sends it. Raises ValueTooLarge for a value above MAX_VALUE, and ValueError for a malformed
    key or an empty value, which are bugs of the caller.
    """
    for write in writes:
        path = write.prefix.path if isinstance(write, Append) else write.key.path
        if not path.startswith("/"):
            raise ValueError(f"the key {path!r} does not begin with a slash")
        if isinstance(write, Delete):
            continue
        if not write.value:
            raise ValueError(f"{path}: a record is never empty")
        if len(write.value) > MAX_VALUE:
            raise ValueTooLarge(
                f"{path}: {len(write.value)} bytes do not fit into one record (at most {MAX_VALUE}).",
                advice="Keep large content in a file of the ledger storage and its name in the record.",
            )
