"""The plan of one write to Pulsar. The driver makes it before a task runs. It opens the transaction, unless the write is a part of
a transaction over several topics, which is open already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from metadata.topics.routing import check_key
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Compression
from pulsar_protocol.errors import PulsarError
from pulsar_protocol.layout import Bits, Layout, bits_of
from pulsar_protocol.log_holding import hold
from spark_txn_sink.pulsar.admin import found_or_created, when_created
from spark_txn_sink.pulsar.attempts import Opened, opened
from spark_txn_sink.pulsar.journal import begin_write
from spark_txn_sink.pulsar.options import HashBits, PulsarWriteOptions
from spark_txn_sink.pulsar.rows import RowFormat, check_new_topic, row_format

log = logging.getLogger("txnsegment.sink.pulsar")


@dataclass(frozen=True)
class PulsarPlan:
    """The plan of one write. It is pickled to the tasks. `layout`: the segments at the start of the write. `rows`: how
    rows become messages. `opened`: the transaction that takes the rows. `write`: the id of the write if it is a part of a
    transaction over several topics, otherwise None.
    """

    service_url: str
    topic: str
    layout: Layout
    bits: Bits
    rows: RowFormat
    compression: Compression
    entry_bytes: int
    entry_rows: int
    opened: Opened
    write: str | None = None


def plan_write(client: PulsarClient, options: PulsarWriteOptions, schema: StructType, unique: str) -> PulsarPlan:
    """Return the plan of a write, with an open transaction. Raises SchemaError, OptionError, TopicMissing, WriteRefused, or another
    error of the broker.
    """
    check_key_column(options, schema)
    admin = options.admin_url if options.auto_create else None
    columns = arrow_schema(schema)

    def check() -> None:
        check_new_topic(options.topic, columns, options.key_column, options.value_format)

    def layout() -> Layout:
        return found_or_created(client, options.topic, admin, options.segments, check)

    if (part_of := options.part_of) is not None:
        found = _plan(client, options, columns, layout(), lambda: part_of.txn, unique, unique)
        begin_write(client, part_of, unique, options.topic)
        return found
    with ThreadPoolExecutor(1) as beside:
        beginning = beside.submit(client.begin, options.txn_timeout_ms)
        try:
            return _plan(client, options, columns, layout(), beginning.result, unique, None)
        except BaseException:
            if beginning.exception() is None:
                _abort(client, beginning.result())
            raise


def _plan(
    client: PulsarClient,
    options: PulsarWriteOptions,
    columns: pa.Schema,
    layout: Layout,
    txn: Callable[[], TxnId],
    unique: str,
    write: str | None,
) -> PulsarPlan:
    """Return the plan of a write to a topic that exists. `txn`: waits for the id of the transaction."""
    opening = opened(client, options.topic, options.admin_url, txn(), unique)
    when_created(lambda: hold(client, options.topic, opening.segment))
    return PulsarPlan(
        service_url=options.service_url,
        topic=options.topic,
        layout=layout,
        bits=hash_bits(options.hash_bits, client),
        rows=when_created(
            lambda: row_format(client, options.topic, layout.active[0].name, columns, options.key_column, options.value_format)
        ),
        compression=options.compression,
        entry_bytes=options.entry_bytes,
        entry_rows=options.entry_rows,
        opened=opening,
        write=write,
    )


def _abort(client: PulsarClient, txn: TxnId) -> None:
    try:
        client.end(txn, commit=False)
    except PulsarError as error:
        log.warning("the transaction %s of a failed write ends by its timeout: %s", txn.text, error.message)


def check_key_column(options: PulsarWriteOptions, schema: StructType) -> None:
    """Check that the rows have the key column, and that its type is allowed for a key. Raises OptionError."""
    if options.key_column is not None:
        check_key(options.key_column, arrow_schema(schema))


def hash_bits(option: HashBits, client: PulsarClient) -> Bits:
    """Return which bits of a key's hash choose its segment. The option `auto` takes the bits that Pulsar's own clients use with the
    broker's version. Raises UnknownVersion if `auto` meets a version whose bits are not known.
    """
    return bits_of(client.channel().ready.server) if option == "auto" else option
