"""Notes that protect the files of a replaced snapshot until no reader can have planned from it (protocol.md section 7, orphans).

Compaction and trimming replace a snapshot by one that lists fewer files. Before that they publish a note that names the head of the
old snapshot. While this head and its chain of snapshot files exist, the orphan sweep spares the files that they list. The head and
its chain are deleted after the grace period, like all superseded snapshot files. A note whose snapshot was not replaced costs the
sweep one read.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection

from ledgers import snapshots
from ledgers.errors import CorruptSnapshot, MissingFile
from ledgers.json_text import read_json
from ledgers.storage import FileEntry
from metadata.cluster.cluster import Cluster

log = logging.getLogger("txnsegment.orphans")

NOTES = "sweep/retired"
_SNAPSHOT = re.compile(r"(?=.{1,1000}$)([!-.0-~]{1,200}/)*[!-.0-~]{1,200}" + re.escape(snapshots.SUFFIX))
"""The path of a snapshot file, with characters and lengths that every file system accepts."""


def retire(cluster: Cluster, head: str) -> None:
    """Publish a note that names the head of a snapshot. Call it before the CAS that replaces this snapshot by one that may list
    fewer files.
    """
    cluster.storage.publish(f"{NOTES}-{cluster.unique()}.json", json.dumps({"head": head}).encode())


def spared(cluster: Cluster, protected: Collection[str], files: Collection[FileEntry], now_ms: int, gone: list[str]) -> list[str]:
    """Return the paths of the files that the notes protect. `protected`: the paths that are protected already, including the
    snapshot files that the watermarks name. The caller must read the watermarks before this call, because a note is published
    before its watermark changes. Notes that protect nothing are appended to `gone`.

    A damaged note protects all parts among `files`, the files of the ledger root. When the note is older than the grace period, it
    protects nothing and is appended to `gone`.
    """
    storage = cluster.storage
    found: list[str] = []
    seen: set[str] = set()
    for entry in storage.list("sweep"):
        note = entry.path
        if not (note.startswith(f"{NOTES}-") and note.endswith(".json")):
            continue
        try:
            head = snapshots.read_head(storage, _head(storage.read(note)))
            found += (part.path for ledger in head.tail for part in ledger.parts)
            for file in head.files:
                if file.path not in protected and file.path not in seen:
                    seen.add(file.path)
                    with snapshots.open_file(storage, file) as opened:
                        found += {part.path for ledger in opened.ledgers(-1, file.last) for part in ledger.parts}
        except MissingFile:
            continue  # another sweep has just deleted the note
        except (ValueError, RecursionError) as error:
            over = entry.mtime_ms + cluster.settings.grace_period_ms < now_ms
            log.warning(
                "%s/%s is damaged: %s. %s",
                storage.uri,
                note,
                error,
                "It is deleted." if over else "No parts are deleted while it exists.",
            )
            if over:
                gone.append(note)
            else:
                found += (file.path for file in files if file.path.endswith(".parquet"))
        except CorruptSnapshot as error:
            if not isinstance(error.__cause__, MissingFile):
                raise
            # a file of the chain was deleted after the grace period, so the snapshot was replaced at least that long ago
            gone.append(note)
    return found


def _head(data: bytes) -> str:
    """Return the path that a note names. Raises ValueError."""
    found = read_json(data)
    head = found.get("head") if isinstance(found, dict) else None
    if not isinstance(head, str) or not _SNAPSHOT.fullmatch(head) or {"", ".", ".."} & set(head.split("/")):
        raise ValueError("it does not name a snapshot")
    return head
