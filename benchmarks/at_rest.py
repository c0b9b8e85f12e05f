"""Measures the records and the bytes of storage that 10,000 old commits leave on each store (protocol.md section 8.14)."""

from __future__ import annotations

import uuid
from pathlib import Path

from benchmarks.measure import Report, folder
from conformance.at_rest import AtRest
from conformance.servers import ZooKeeperServer
from metadata.store.sqlite_database import FILE

COMMITS = 10_000
SQLITE_MB = 16.0
"""Largest allowed size, in MB, of the database with its write-ahead log after these commits."""


def run() -> Report:
    report = Report(f"What {COMMITS:,} commits of every kind leave behind")
    with folder() as root, ZooKeeperServer(root / "server") as server:
        sqlite = root / "sqlite"
        for name, url in (
            ("memory", f"memory://{uuid.uuid4().hex}"),
            ("SQLite", f"file://{sqlite}"),
            ("ZooKeeper", f"zk://{server.hosts}/at-rest"),
        ):
            _one(report, name, url, root / f"ledgers-{name}")
        size = sum(file.stat().st_size for file in sqlite.glob(f"{FILE}*")) / 1e6
        report.claim("SQLite: the database with its log", size, SQLITE_MB, at_least=False, unit="MB")
    return report


def _one(report: Report, name: str, url: str, root: Path) -> None:
    left = AtRest(url, root, COMMITS).run()
    report.claim(f"{name}: records at rest", left.records, left.allowed, at_least=False, unit="")
    report.claim(f"{name}: most records meanwhile", left.most_records, left.allowed_meanwhile, at_least=False, unit="")
    report.claim(f"{name}: storage / committed data and snapshots", left.bytes / left.needed, 1.05, at_least=False)
    report.figures.append((f"{name}, records at rest", ", ".join(f"{kind} {n}" for kind, n in sorted(left.kinds.items()))))
