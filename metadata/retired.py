"""Notes that keep what a changed snapshot no longer lists until nobody can have planned from it (protocol.md section 7, orphans).

Whoever is about to replace a snapshot by one that lists fewer files (compaction, trimming) first publishes a note that names the
head it replaces. While that head and the files of its chain are there, the orphan sweep spares the files that they list; as
superseded snapshot files they themselves go after the grace period. A note whose change never came to be costs a look.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from ledgers import snapshots
from ledgers.errors import CorruptSnapshot, MissingFile
from ledgers.storage import LedgerStorage
from metadata.cluster import Cluster

NOTES = "sweep/retired"


def retire(cluster: Cluster, head: str) -> None:
    """Say that the snapshot is about to be replaced by one that may list fewer files. Before the CAS that does it."""
    cluster.storage.publish(f"{NOTES}-{cluster.unique()}.json", json.dumps({"head": head}).encode())


def spared(storage: LedgerStorage, protected: Collection[str]) -> list[str]:
    """Files that the notes protect. `protected`: what is so anyway, snapshot files among them, of watermarks that were read just
    before: a note is older than the change that it is about.
    """
    found: list[str] = []
    seen: set[str] = set()
    for note in [f.path for f in storage.list("sweep") if f.path.startswith(f"{NOTES}-") and f.path.endswith(".json")]:
        try:
            head = snapshots.read_head(storage, json.loads(storage.read(note))["head"])
            found += (part.path for ledger in head.tail for part in ledger.parts)
            for file in head.files:
                if file.path not in protected and file.path not in seen:
                    seen.add(file.path)
                    with snapshots.open_file(storage, file) as opened:
                        found += {part.path for ledger in opened.ledgers(-1, file.last) for part in ledger.parts}
        except MissingFile:
            continue  # another sweep has just taken the note away
        except CorruptSnapshot as error:
            if not isinstance(error.__cause__, MissingFile):
                raise
            storage.delete(note)  # a file of its chain has gone after the grace period: it was superseded at least that long
    return found
