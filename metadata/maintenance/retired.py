"""Notes that keep what a changed snapshot no longer lists until nobody can have planned from it (protocol.md section 7, orphans).

Whoever is about to replace a snapshot by one that lists fewer files (compaction, trimming) first publishes a note that names the
head it replaces. While that head and the files of its chain are there, the orphan sweep spares the files that they list; as
superseded snapshot files they themselves go after the grace period. A note whose change never came to be costs a look.
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
"""A path that any file system takes."""


def retire(cluster: Cluster, head: str) -> None:
    """Say that the snapshot is about to be replaced by one that may list fewer files. Before the CAS that does it."""
    cluster.storage.publish(f"{NOTES}-{cluster.unique()}.json", json.dumps({"head": head}).encode())


def spared(cluster: Cluster, protected: Collection[str], files: Collection[FileEntry], now_ms: int, gone: list[str]) -> list[str]:
    """Of all `files`, those that the notes protect. `protected`: what is so anyway, snapshot files among them, of watermarks that
    were read just before: a note is older than the change that it is about. `gone` gets the notes that protect nothing any more.

    A damaged note does not say what it spares, so it spares all parts. It goes after the grace period, as what it was about did.
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
            continue  # another sweep has just taken the note away
        except (ValueError, RecursionError) as error:
            over = entry.mtime_ms + cluster.settings.grace_period_ms < now_ms
            log.warning(
                "%s/%s is damaged: %s. %s",
                storage.uri,
                note,
                error,
                "It is deleted." if over else "No parts are deleted until it goes.",
            )
            if over:
                gone.append(note)
            else:
                found += (file.path for file in files if file.path.endswith(".parquet"))
        except CorruptSnapshot as error:
            if not isinstance(error.__cause__, MissingFile):
                raise
            gone.append(note)  # a file of its chain has gone after the grace period: it was superseded at least that long
    return found


def _head(data: bytes) -> str:
    """The path that a note names. Raises ValueError."""
    found = read_json(data)
    head = found.get("head") if isinstance(found, dict) else None
    if not isinstance(head, str) or not _SNAPSHOT.fullmatch(head) or {"", ".", ".."} & set(head.split("/")):
        raise ValueError("it names no snapshot")
    return head
