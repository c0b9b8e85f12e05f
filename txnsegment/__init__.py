"""The public API of txnsegment: topics with transactions for Spark and for plain Python programs.

    from txnsegment import connect, scan, repartition_by_segment

`spark.read.format("txnsegment")` and `df.write.format("txnsegment")` need no import. Each name of this module is imported on
its first use, so that a Spark write task, for example, does not import the consumer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metadata.backup.restore import Restored
    from metadata.common.errors import TxnSegmentError
    from metadata.maintenance.sweeper import SweepReport
    from metadata.read.backlog import Lag
    from metadata.topics.topic import SegmentsIgnored
    from metadata.write.write_set import Committed
    from spark_txn_sink.repartition import repartition_by_segment
    from spark_txn_source.native_scan import scan
    from txnsegment.backup import BackupDescription, restore
    from txnsegment.cluster import Cluster, connect
    from txnsegment.consumer import Consumer
    from txnsegment.producer import Producer
    from txnsegment.spark_transaction import SparkTransaction
    from txnsegment.subscriptions import CursorDescription, SubscriptionDescription
    from txnsegment.topics import SegmentDescription, TopicDescription
    from txnsegment.transaction import Transaction, UncommittedTransaction
    from txnsegment.transactions import TransactionDescription

__all__ = [
    "BackupDescription",
    "Batch",
    "Cluster",
    "Committed",
    "Consumer",
    "CursorDescription",
    "Lag",
    "Message",
    "Producer",
    "Restored",
    "SegmentDescription",
    "SegmentsIgnored",
    "SparkTransaction",
    "SubscriptionDescription",
    "SweepReport",
    "TopicDescription",
    "Transaction",
    "TransactionDescription",
    "TxnSegmentError",
    "UncommittedTransaction",
    "connect",
    "repartition_by_segment",
    "restore",
    "scan",
]

_MODULE_OF = {
    "BackupDescription": "txnsegment.backup",
    "Restored": "metadata.backup.restore",
    "restore": "txnsegment.backup",
    "Batch": "txnsegment.messages",
    "Cluster": "txnsegment.cluster",
    "Committed": "metadata.write.write_set",
    "Consumer": "txnsegment.consumer",
    "CursorDescription": "txnsegment.subscriptions",
    "Lag": "metadata.read.backlog",
    "Message": "txnsegment.messages",
    "Producer": "txnsegment.producer",
    "SegmentDescription": "txnsegment.topics",
    "SegmentsIgnored": "metadata.topics.topic",
    "SparkTransaction": "txnsegment.spark_transaction",
    "SubscriptionDescription": "txnsegment.subscriptions",
    "SweepReport": "metadata.maintenance.sweeper",
    "TopicDescription": "txnsegment.topics",
    "Transaction": "txnsegment.transaction",
    "TransactionDescription": "txnsegment.transactions",
    "TxnSegmentError": "metadata.common.errors",
    "UncommittedTransaction": "txnsegment.transaction",
    "connect": "txnsegment.cluster",
    "repartition_by_segment": "spark_txn_sink.repartition",
    "scan": "spark_txn_source.native_scan",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
