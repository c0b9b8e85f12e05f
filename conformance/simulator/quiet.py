"""Runs thousands of schedules fast, without log lines and metrics, and with caches for pure decoding and encoding."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

from conformance.simulator.casts import pasts
from conformance.simulator.seen import observer
from conformance.simulator.store import keyed
from conformance.simulator.store.storage import GatedStorage
from conformance.simulator.world import stage
from ledgers import snapshot_files, snapshots
from ledgers.model import Ledger
from ledgers.snapshot_files import Block
from ledgers.snapshots import SnapshotHead
from ledgers.storage import LedgerStorage
from metadata.common import metrics
from metadata.log import live_log as log
from metadata.records.json_records import JsonRecord

KEPT = 20_000
_forever = ExitStack()
_remembering: list[bool] = []


@contextmanager
def quiet() -> Iterator[None]:
    """A context in which schedules run faster, with the same results. Within another `quiet` it has no effect.

    The caches are cleared at the end, since the code may change afterwards: a mutant may be planted or removed.
    """
    if _remembering:
        yield
        return
    logger = logging.getLogger("txnsegment")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    decode = JsonRecord.__dict__["from_bytes"]
    changed: list[tuple[Any, str, Any]] = [
        *((metrics, name, metrics.Uncounted()) for name in metrics.__annotations__),
        (JsonRecord, "from_bytes", classmethod(lru_cache(KEPT)(decode.__func__))),  # type: ignore[arg-type]
        (snapshots, "read_head", _heads(snapshots.read_head)),
        (snapshot_files, "_directory", lru_cache(KEPT)(snapshot_files._directory)),
        (snapshot_files, "_decode_block", _blocks(snapshot_files._decode_block)),
        (log, "_parts", lru_cache(KEPT)(log._parts)),
        (snapshots, "encode_block", _encoded(snapshot_files.encode_block)),
    ]
    metrics.declare()
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    _remembering.append(True)
    _forget()
    gc.disable()
    tidy()
    try:
        yield
    finally:
        _remembering.clear()
        _forget()
        gc.unfreeze()
        gc.enable()
        for owner, name, value in before:
            setattr(owner, name, value)
        logger.setLevel(level)


def _forget() -> None:
    """Clear the cached worlds and the cached results of pure functions."""
    for remembering in (stage.made, pasts.made, pasts.more, keyed.place, observer.decoded, observer.read_json):
        remembering.cache_clear()


def quiet_forever() -> None:
    """Enter `quiet` for the rest of the process, so that the caches of one chunk of schedules also serve the next."""
    _forever.enter_context(quiet())


def tidy() -> None:
    """Collect the garbage of finished worlds. The remaining objects belong to code and caches. They are frozen, so that later
    collections skip them.
    """
    gc.collect()
    gc.freeze()


def _heads(read_head: Callable[[LedgerStorage, str], SnapshotHead]) -> Callable[[LedgerStorage, str], SnapshotHead]:
    """Return `read_head` with a cache for simulated storages: equal bytes are decoded once. Reading the file is still a step."""
    known: dict[tuple[str, bytes], SnapshotHead] = {}

    def read(storage: LedgerStorage, path: str) -> SnapshotHead:
        if not isinstance(storage, GatedStorage):
            return read_head(storage, path)
        data = storage.disk.files.get(path, (b"", 0))[0]
        if (path, data) not in known or not data:
            if len(known) > KEPT:
                known.clear()
            known[path, data] = read_head(storage, path)
        else:
            storage.read(path)
        return known[path, data]

    return read


def _blocks(decode: Callable[[bytes, Any], dict[str, Any]]) -> Callable[[bytes, Any], dict[str, Any]]:
    """Return `decode` with a cache, so that equal bytes are decoded once. The cache ignores the schema, because all blocks in the
    simulator have the same one: the current code wrote them.
    """
    known: dict[bytes, dict[str, Any]] = {}

    def decoded(raw: bytes, schema: Any) -> dict[str, Any]:
        if len(known) > KEPT:
            known.clear()
        if raw not in known:
            known[raw] = decode(raw, schema)
        return known[raw]

    return decoded


def _encoded(encode: Callable[[Sequence[Ledger]], tuple[Block, bytes]]) -> Callable[[Sequence[Ledger]], tuple[Block, bytes]]:
    remembered = lru_cache(KEPT)(encode)
    return lambda ledgers: remembered(tuple(ledgers))
