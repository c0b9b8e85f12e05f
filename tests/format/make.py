"""Make a fixture of `tests/format`: a small cluster as the checked-out version writes it, and the rows of its topics.

.venv/bin/python tests/format/make.py tests/format/v<format version>/<commit>

The program uses only functions that all versions have, so it can be run in a checkout of an earlier version. The outputs are
`cluster.tar.gz` (the folder of an embedded cluster, with metadata.db and the ledgers), `backup.gz`, `records.json.gz` (the records
with their index entries) and `expected.json` (the rows of the topics). `make_zookeeper.py` adds the data of a ZooKeeper server. A
fixture is made once, when the format changes, and is never made again.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from metadata.records.names import persistent_name
from txnsegment import Cluster, connect
from txnsegment.rows import committed_rows

TOPICS = ("numbers", "words", "plain", "persistent://public/default/older")
SCHEMAS = {
    "numbers": "k string, n bigint",
    "words": "word string, at timestamp, tags array<string>, pair struct<a:int,b:double>",
    "plain": "n bigint",
    "persistent://public/default/older": "n bigint",
}


def table(topic: str, first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    if topic == "numbers":
        return pa.table({"k": [f"key-{n % 5}" for n in numbers], "n": numbers})
    if topic == "words":
        return pa.table(
            {
                "word": [f"word {n} \u00fc" for n in numbers],
                "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", tz="UTC")),
                "tags": [[f"t{n}"] * (n % 3) for n in numbers],
                "pair": [{"a": n, "b": n / 2} if n % 4 else None for n in numbers],
            }
        )
    return pa.table({"n": numbers})


def write(cluster: Cluster, app: str, version: int, topics: dict[str, pa.Table]) -> None:
    with cluster.begin(app=app, version=version) as txn:
        for topic, rows in topics.items():
            txn.append(topic, rows)
        txn.commit()


def fill(cluster: Cluster) -> None:
    older = TOPICS[3]
    cluster.topics.create("numbers", segments=2, key="k", schema=SCHEMAS["numbers"])
    for topic in TOPICS[1:]:
        cluster.topics.create(topic, schema=SCHEMAS[topic])
    cluster.topics.create("gone", schema="n bigint")
    for topic in ("numbers", "plain", older):
        cluster.subscriptions.create(topic, "reader")
    for version in range(6):
        write(cluster, "both", version, {"numbers": table("numbers", version * 10, 10), "words": table("words", version * 3, 3)})
        write(cluster, "older", version, {older: table(older, version * 4, 4)})
        write(cluster, "plain", version, {"plain": table("plain", version, 1)})
        if version == 2:
            cluster.topics.split("numbers", 0)
        cluster.sweep()
    cluster.compact("plain")
    for topic, acks in (("numbers", 7), ("plain", 2), (older, 5)):
        with cluster.consumer(topic, "reader") as consumer:
            for taken, message in enumerate(consumer.messages(timeout=0), 1):
                consumer.ack(message)
                if taken == acks:
                    break
    aborted = cluster.begin()
    aborted.append("plain", table("plain", 900, 2))
    aborted.abort()
    cluster.topics.delete("gone")
    # No sweep follows these two writes, so they are not folded, and their registrations stay in the logs.
    write(cluster, "both", 6, {"numbers": table("numbers", 60, 10), "words": table("words", 18, 3)})
    write(cluster, "older", 6, {older: table(older, 24, 4)})


class Died(BaseException):
    """An error that stands for the end of the process. No code catches it and continues the commit."""


def leave_open(cluster: Cluster) -> list[str]:
    """Leave an OPEN transaction of each model. The `topic://` transaction registers its rows, and the process dies before the
    decision. Return the id of this transaction.
    """
    cluster.client.instream.coordinator.begin(topics=[persistent_name(TOPICS[3])])
    txn = cluster.begin(timeout=300)
    txn.append("plain", table("plain", 700, 2))

    def dies(*_: object) -> None:
        raise Died

    cluster.client.coordinator._decide = dies  # type: ignore[method-assign, assignment]
    with suppress(Died):
        txn.commit()
    return [txn.id]


def shown(cluster: Cluster) -> dict[str, list[Any]]:
    """Return all committed rows by topic, in a form that JSON can store."""
    found = {topic: [dict(row) for row in committed_rows(cluster.client, topic, 100_000).rows] for topic in TOPICS}
    return json.loads(json.dumps(found, default=str, sort_keys=True))


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all records except ephemeral ones, each with its index entries. The form is the same for every metadata store."""
    with closing(sqlite3.connect(folder / "metadata.db")) as database:
        found = database.execute(
            "SELECT path, partition, value, indexes FROM records WHERE session IS NULL ORDER BY path, partition"
        )
        return [
            {"path": path, "partition": partition, "value": bytes(value).decode(), "indexes": json.loads(indexes or "[]")}
            for path, partition, value, indexes in found
        ]


def main(target: Path) -> None:
    target.mkdir(parents=True)
    place = Path(tempfile.mkdtemp())
    url = f"file://{place}/cluster"
    with connect(url) as cluster:
        fill(cluster)
        cluster.client.finish()
        cluster.backup(target / "backup.gz")
        open_ids = leave_open(cluster)
        rows = shown(cluster)
        lags = {t: cluster.subscriptions.describe(t, "reader").lag.rows for t in ("numbers", "plain", TOPICS[3])}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True).stdout.strip()
    expected = {"made_by": commit, "rows": rows, "lags": lags, "open": open_ids, "ledgers": f"file://{place}/cluster/ledgers"}
    (target / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    for file in (place / "cluster").glob("metadata.reserve-*"):
        file.unlink()
    with tarfile.open(target / "cluster.tar.gz", "w:gz") as packed:
        packed.add(place / "cluster", "cluster")
    dump = json.dumps(records(place / "cluster"), indent=0).encode()
    (target / "records.json.gz").write_bytes(gzip.compress(dump, mtime=0))
    shutil.rmtree(place)
    sys.stdout.write(f"{target}: {sum(file.stat().st_size for file in target.iterdir())} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
