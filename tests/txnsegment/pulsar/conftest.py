from __future__ import annotations

from tests.support.pulsar_clusters import cluster

__all__ = ["cluster"]
