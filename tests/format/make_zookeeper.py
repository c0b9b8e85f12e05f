"""Make the ZooKeeper part of a fixture: the snapshot of a real server and the ledger root, as the checked-out version writes them.

    .venv/bin/python -m tests.format.make_zookeeper tests/format/v<format version>/<commit>

The program adds `zookeeper.tar.gz` (`data`: the files of the server, `root`: the ledgers) and `zookeeper.json` (the rows of the
topics). The cluster has the topics of `make.py` and a persistent topic that was migrated. The program can also be run in a checkout
of an earlier version.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from conformance.zookeeper_server import ZooKeeperServer
from tests.format.make import TOPICS, fill, leave_open, shown, table, write
from txnsegment import Cluster, connect
from txnsegment.rows import committed_rows

CHROOT = "/made"
BEFORE, MIGRATED = "persistent://public/default/moved", "onward"


def fill_with_a_migration(cluster: Cluster) -> None:
    fill(cluster)
    cluster.topics.create(BEFORE, schema="n bigint")
    cluster.subscriptions.create(BEFORE, "reader")
    write(cluster, "moved", 0, {BEFORE: table(BEFORE, 0, 5)})
    with cluster.consumer(BEFORE, "reader") as consumer:
        consumer.ack(next(consumer.messages(timeout=0)))
    cluster.topics.migrate(BEFORE, MIGRATED)
    write(cluster, "moved", 1, {BEFORE: table(BEFORE, 5, 2)})


def all_shown(cluster: Cluster) -> dict[str, list[Any]]:
    rows = [dict(row) for row in committed_rows(cluster.client, MIGRATED, 100_000).rows]
    return {**shown(cluster), MIGRATED: rows}


def main(target: Path) -> None:
    place = Path(tempfile.mkdtemp())
    server = ZooKeeperServer(place / "server").start()
    try:
        with connect(f"zk://{server.hosts}{CHROOT}", ledgers=f"file://{place}/root") as cluster:
            fill_with_a_migration(cluster)
            cluster.client.finish()
            lags = {t: cluster.subscriptions.describe(t, "reader").lag.rows for t in ("numbers", "plain", TOPICS[3], MIGRATED)}
            open_ids, rows = leave_open(cluster), all_shown(cluster)
        server.stop()
        server.start()  # a starting server writes a snapshot of its log; the archive below needs it
    finally:
        server.stop()
    expected = {"rows": rows, "lags": lags, "open": open_ids, "ledgers": f"file://{place}/root"}
    (target / "zookeeper.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    snapshot = max((place / "server" / "data" / "version-2").glob("snapshot.*"), key=lambda file: int(file.suffix[1:], 16))
    with tarfile.open(target / "zookeeper.tar.gz", "w:gz") as packed:
        packed.add(snapshot, f"data/version-2/{snapshot.name}")
        packed.add(place / "root", "root")
    shutil.rmtree(place)
    sys.stdout.write(f"{target}: {(target / 'zookeeper.tar.gz').stat().st_size} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
