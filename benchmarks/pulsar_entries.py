"""Measures how many rows a second one core converts from Pulsar entries to Arrow batches, and from batches to entries.

`python -m benchmarks.pulsar_entries` runs it.

An entry has 1,000 rows with keys. A row has about 100 bytes. To read an entry is to parse it, check its checksum, decode its values
and make the batch. To write an entry is the reverse. The baseline in the same run is plain Python, which makes an object for each
message and converts the values one by one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from pulsar_protocol.entries import Message, Rows, encode_batch, parse
from pulsar_protocol.messages import Schema
from pulsar_protocol.values import Values, codec, codec_for

ROWS = 1000
_RECORD = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("flag", pa.bool_())])


def cases() -> dict[str, tuple[Values, pa.RecordBatch]]:
    """Return the value format and the rows of each case."""
    text = [f"{n:0100d}" for n in range(ROWS)]
    record = {"id": range(ROWS), "name": [f"{n:080d}" for n in range(ROWS)], "price": [n / 7 for n in range(ROWS)]}
    flags = [None if n % 5 == 0 else n % 2 == 0 for n in range(ROWS)]
    return {
        "none": (codec(None), pa.RecordBatch.from_pydict({"value": pa.array(text).cast(pa.binary())})),
        "STRING": (codec(Schema(type=1)), pa.RecordBatch.from_pydict({"value": text})),
        "AVRO": (codec_for(_RECORD), pa.RecordBatch.from_pydict({**record, "flag": flags}, _RECORD)),
        "JSON": (codec_for(_RECORD, "json"), pa.RecordBatch.from_pydict({**record, "flag": flags}, _RECORD)),
    }


def plain_read(values: Values) -> Callable[[bytes], pa.RecordBatch]:
    """Return the baseline for reading. It makes an object for each message, and converts the values one by one."""
    of = _plain_value(values)
    return lambda data: pa.RecordBatch.from_pylist([of(one.value) for one in parse(data).messages()], values.columns)


def _plain_value(values: Values) -> Callable[[Any], dict[str, Any]]:
    given: Any = values.schema
    kind = 0 if given is None else given.type
    if kind == 4:
        schema = fastavro.parse_schema(json.loads(given.schema_data))
        return lambda value: fastavro.schemaless_reader(BytesIO(value), schema, None)
    if kind == 2:
        return lambda value: dict(json.loads(value))
    return lambda value: {"value": value.decode() if kind else value}


def plain_write(values: Values, keys: list[bytes]) -> Callable[[pa.RecordBatch], bytes]:
    given: Any = values.schema
    kind = 0 if given is None else given.type
    schema = fastavro.parse_schema(json.loads(given.schema_data)) if kind == 4 else None

    def one(row: dict[str, Any]) -> bytes:
        if kind == 4:
            stream = BytesIO()
            fastavro.schemaless_writer(stream, schema, row)
            return stream.getvalue()
        if kind == 2:
            return json.dumps(row).encode()
        return row["value"].encode() if kind else row["value"]  # type: ignore[no-any-return]

    def write(batch: pa.RecordBatch) -> bytes:
        messages = [Message(one(row), key) for row, key in zip(batch.to_pylist(), keys, strict=True)]
        return encode_batch(messages, producer="p", sequence=10**6, publish_ms=0)

    return write


def rate(work: Callable[[], object], seconds: float) -> float:
    """Return how many rows `work` converts in a second of processor time. `work` is repeated for about `seconds`, which are divided
    into five parts. The fastest part counts.
    """
    work()
    best, count = float("inf"), max(1, int(seconds / 5 / _once(work)))
    for _ in range(5):
        begun = time.process_time()
        for _ in range(count):
            work()
        best = min(best, (time.process_time() - begun) / count)
    return ROWS / best


def _once(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return max(time.process_time() - begun, 1e-6)


def measure(seconds: float) -> dict[str, dict[str, int]]:
    """Return for each case how many rows a second are read and written, by the code of `pulsar_protocol` and by the baseline."""
    found = {}
    keys = [f"key-{n}".encode() for n in range(ROWS)]
    for name, (values, batch) in cases().items():

        def write(values: Values = values, batch: pa.RecordBatch = batch) -> bytes:
            rows = Rows(values.encode(batch), range(ROWS), keys)
            return encode_batch(rows, producer="p", sequence=10**6, publish_ms=0)

        def read(data: bytes, values: Values = values) -> pa.RecordBatch:
            rows = parse(data).rows()
            return values.decode(rows.values, rows.keys)

        baseline_read, baseline_write, data = plain_read(values), plain_write(values, keys), write()
        assert read(data).equals(batch)
        assert baseline_read(data).equals(batch)
        found[name] = {
            "read": round(rate(lambda data=data, read=read: read(data), seconds)),  # type: ignore[misc]
            "read_baseline": round(rate(lambda data=data, read=baseline_read: read(data), seconds)),  # type: ignore[misc]
            "write": round(rate(write, seconds)),
            "write_baseline": round(rate(lambda write=baseline_write, batch=batch: write(batch), seconds)),  # type: ignore[misc]
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pulsar_entries", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of processor time for each number (default 2)")
    for name, rates in measure(parser.parse_args().seconds).items():
        sys.stdout.write(json.dumps({"schema": name, **rates}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
