"""One whole pass of the sweeper. `txnsegment sweep` runs one pass, or pass after pass. A failed step does not stop the others."""

from __future__ import annotations

import dataclasses
import logging

from metadata.client.client import Client
from metadata.client.upkeep import upkeep
from metadata.cluster.cluster import Cluster
from metadata.cluster.reports import delete_old
from metadata.common.errors import Unavailable
from metadata.common.failures import contained
from metadata.instream.model import InStreamModel
from metadata.maintenance import orphans
from metadata.maintenance.autoscaling import Scaled
from metadata.maintenance.orphans import Orphans
from metadata.maintenance.sweeper import SweepReport

log = logging.getLogger("txnsegment.orphans")


def sweep_pass(client: Client, *, files: bool) -> tuple[SweepReport, dict[str, Exception]]:
    """Run one pass. Return its report, and the errors by step or topic. After a failed step the remaining steps run.

    `files`: also trim, compact, and delete unprotected files. On a full disk only the deletion makes room, so it must not depend on
    other steps.
    """
    failed: dict[str, Exception] = {}
    report, scaled, deleted = SweepReport(), Scaled(), Orphans(0, 0)
    with contained("sweep", "the sweep", failed):
        report = client.sweep()
    with contained("scale", "splits and merges", failed):
        scaled = client.autoscaler.scale()
    failed |= {f"splits and merges of {topic}": error for topic, error in scaled.failed.items()}
    with contained("reports", "old reports of drivers", failed):
        delete_old(client.cluster.store)
    if files:
        with contained("upkeep", "the upkeep", failed):
            failed |= {f"the upkeep of {topic}": error for topic, error in upkeep(client).failed.items()}
        with contained("orphans", "the deletion of files", failed):
            deleted = _delete(client.cluster)
    report = dataclasses.replace(
        report, splits=scaled.splits, merges=scaled.merges, orphans_deleted=deleted.files, orphan_bytes=deleted.bytes
    )
    return report, failed


def delete_orphans(cluster: Cluster) -> Orphans:
    """Run the orphan sweep over the files of both models (`sweep_orphans`). Return the count and the bytes of the deleted files."""
    return orphans.sweep_orphans(cluster, InStreamModel(cluster))


def _delete(cluster: Cluster) -> Orphans:
    """Run the orphan sweep, also on a full disk. The sweep must write to the store before it can delete files. If the disk is full,
    the store frees space that is reserved for these writes.
    """
    while True:
        try:
            return delete_orphans(cluster)
        except Unavailable as error:
            if not cluster.store.make_room():
                raise
            log.warning("the orphan sweep uses the space reserved for a full disk: %s", error)
