"""OpenTelemetry spans of commits, micro-batches and plans: names, parents, attributes and status, as a real SDK collects them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from conformance.harness.spark_driver import SparkStreamWrite, SparkWrite, read_batch
from metadata.common.errors import Fenced, StorageError, TxnConflict, UnknownOutcome
from metadata.common.tracing import span
from metadata.records.records import Header, State
from metadata.store.contract import Put, Record, Write
from txnsegment import Cluster

GENERATED = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate.py"))
ROWS = pa.table({"k": ["a", "b"], "n": [1, 2]})


class Spans:
    """The spans that have ended since the last call of `take`."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def take(self) -> list[ReadableSpan]:
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    made = Spans()
    monkeypatch.setattr(trace, "get_tracer", made.provider.get_tracer)
    return made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    cluster.topics.create("t", key="k", schema="k string, n bigint")
    return "topic://public/default/t"


def tree(found: list[ReadableSpan]) -> dict[str, list[str]]:
    """Return the names of the spans below each span, in the order of their ends. Roots are below ""."""
    names = {one.context.span_id: one.name for one in found if one.context is not None}
    below: dict[str, list[str]] = {}
    for one in found:
        below.setdefault("" if one.parent is None else names[one.parent.span_id], []).append(one.name)
    return below


def named(found: list[ReadableSpan], name: str) -> ReadableSpan:
    (one,) = (one for one in found if one.name == f"txnsegment.{name}")
    return one


def attributes(one: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("txnsegment."): value for name, value in (one.attributes or {}).items()}


STEPS = ["txnsegment.open", "txnsegment.register", "txnsegment.record", "txnsegment.decide"]


def test_a_commit_and_its_steps(cluster: Cluster, topic: str, spans: Spans) -> None:
    with cluster.begin(app="loader", version=3) as txn:
        txn.append("t", ROWS)
        done = txn.commit()
    found = spans.take()
    assert tree(found) == {
        "": ["txnsegment.append", "txnsegment.commit"],
        "txnsegment.append": ["txnsegment.upload"],
        "txnsegment.commit": STEPS,
    }
    assert {one.status.status_code for one in found} == {StatusCode.UNSET}
    assert attributes(named(found, "commit")) == {
        "topics": (topic,),
        "application": "loader",
        "version": 3,
        "transaction": done.txn_id,
        "rows": 2,
        "bytes": done.bytes,
        "log_number": done.number,
        "skipped": False,
        "retries": 0,
    }
    assert set(attributes(named(found, "commit"))) == set(GENERATED["COMMIT_ATTRIBUTES"]), "the page of the spans names them"
    assert attributes(named(found, "append")) == {"topic": topic, "rows": 2, "bytes": done.bytes}


def test_spans_are_below_those_of_the_program(cluster: Cluster, topic: str, spans: Spans) -> None:
    with spans.provider.get_tracer("program").start_as_current_span("job"), cluster.producer("t") as producer:
        producer.send({"k": "a", "n": 1})
    assert tree(spans.take())["job"] == ["txnsegment.append", "txnsegment.commit"]


def test_a_transaction_that_is_aborted_has_no_commit(cluster: Cluster, topic: str, spans: Spans) -> None:
    with cluster.begin(app="loader", version=3) as txn:
        txn.append("t", ROWS)
        txn.abort()
    found = spans.take()
    assert tree(found)[""] == ["txnsegment.append", "txnsegment.abort"]
    assert named(found, "abort").status.status_code is StatusCode.UNSET


class Deciding:
    """Calls a function in place of the write that decides a transaction."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = cluster.client.cluster.store
        self._write = self._store.write
        self.losses = 1
        self.aborts = False
        self._cluster = cluster
        monkeypatch.setattr(self._store, "write", self.write)

    def write(self, *writes: Write) -> list[Record | None]:
        headers = [put for put in writes if isinstance(put, Put) and put.key.path.startswith("/txn/id/")]
        decides = [put for put in headers if Header.from_bytes(put.value).state is State.COMMITTED]
        if decides and self.aborts:
            self.aborts = False
            self._cluster.transactions.abort(decides[0].key.partition)
        done = self._write(*writes)
        if decides and self.losses:
            self.losses -= 1
            raise UnknownOutcome("The reply was lost.")
        return done


def test_a_lost_reply_is_resolved_below_the_decision(
    cluster: Cluster, topic: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.begin() as txn:
        txn.append("t", ROWS)
        Deciding(cluster, monkeypatch)
        txn.commit()
    found = spans.take()
    assert tree(found)["txnsegment.decide"] == ["txnsegment.resolve"]
    assert attributes(named(found, "resolve")) == {"step": "decide"}
    assert attributes(named(found, "commit"))["retries"] == 1
    assert named(found, "commit").status.status_code is StatusCode.UNSET


def test_a_commit_that_is_fenced_has_the_status_of_an_error(
    cluster: Cluster, topic: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator aborts the transaction between its registration and its decision."""
    with cluster.begin() as txn:
        txn.append("t", ROWS)
        deciding = Deciding(cluster, monkeypatch)
        deciding.losses, deciding.aborts = 0, True
        with pytest.raises(Fenced):
            txn.commit()
    found = spans.take()
    assert tree(found)["txnsegment.commit"] == STEPS
    failed = {one.name for one in found if one.status.status_code is StatusCode.ERROR}
    assert failed == {"txnsegment.decide", "txnsegment.commit"}
    assert [event.name for event in named(found, "commit").events] == ["exception"]
    assert (named(found, "commit").events[0].attributes or {})["exception.type"].endswith("Fenced")
    assert "rows" not in attributes(named(found, "commit"))


def test_an_upload_that_fails_fails_its_append(cluster: Cluster, topic: str, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageError("The disk is full.")

    monkeypatch.setattr("txnsegment.transaction.close_all", full)
    with cluster.begin() as txn:
        with pytest.raises(StorageError):
            txn.append("t", ROWS)
        txn.abort()
    found = spans.take()
    assert {one.name: one.status.status_code is StatusCode.ERROR for one in found} == {
        "txnsegment.upload": True,
        "txnsegment.append": True,
        "txnsegment.abort": False,
    }


def test_rows_of_a_split_segment_are_uploaded_again_below_the_commit(cluster: Cluster, topic: str, spans: Spans) -> None:
    with cluster.begin() as txn:
        txn.append("t", ROWS)
        cluster.topics.split("t", 0)
        spans.take()
        txn.commit()
    found = spans.take()
    below = tree(found)
    assert "txnsegment.resolve" in below["txnsegment.commit"]
    assert below["txnsegment.resolve"] == ["txnsegment.upload"]
    assert attributes(named(found, "resolve")) == {"step": "route"}
    assert below["txnsegment.commit"][-4:] == STEPS


def test_a_micro_batch_and_a_write_have_their_commit_below(cluster: Cluster, topic: str, spans: Spans) -> None:
    write = SparkWrite({"serviceUrl": cluster.url, "path": "t"}, ROWS)
    write.commit(write.run())
    found = spans.take()
    assert tree(found)["txnsegment.write"] == ["txnsegment.commit"]
    assert attributes(named(found, "write")) | {"bytes": 0} == {
        "topic": topic,
        "version": 1,
        "tasks": 2,
        "rows": 2,
        "bytes": 0,
        "skipped": False,
    }
    stream = SparkStreamWrite({"serviceUrl": cluster.url, "path": "t"}, ROWS, "query-1", 7)
    stream.commit(stream.run())
    found = spans.take()
    assert tree(found)[""] == ["txnsegment.micro_batch"]
    assert attributes(named(found, "micro_batch"))["version"] == 7
    with pytest.raises(TxnConflict):
        stream.commit([stream.run()[0], None])
    (failed,) = spans.take()
    assert (failed.name, failed.status.status_code) == ("txnsegment.micro_batch", StatusCode.ERROR)


def test_a_read_has_a_span_of_its_plan(cluster: Cluster, topic: str, spans: Spans) -> None:
    with cluster.producer("t") as producer:
        producer.send({"k": "a", "n": 1})
    spans.take()
    read_batch({"serviceUrl": cluster.url, "topic": "t"})
    assert attributes(named(spans.take(), "plan")) == {"tasks": 1}


def test_a_persistent_topic_has_the_same_spans(cluster: Cluster, spans: Spans) -> None:
    cluster.topics.create("persistent://public/default/p", schema="k string, n bigint")
    with cluster.begin() as txn:
        txn.append("persistent://public/default/p", ROWS)
        txn.commit()
    found = spans.take()
    assert tree(found)["txnsegment.commit"] == ["txnsegment.open", "txnsegment.register", "txnsegment.decide"]
    assert attributes(named(found, "commit"))["topics"] == ("persistent://public/default/p",)


def test_without_the_api_nothing_is_imported_and_nothing_is_traced() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from metadata.common.tracing import is_traced, note, span, traced\n"
        "assert not is_traced()\n"
        "with span('commit', rows=1) as one: one.set(rows=2)\n"
        "note(rows=1)\n"
        "assert traced('x')(lambda a: a + 1)(1) == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    alone = (
        "import sys, spark_txn_source.stream, spark_txn_sink.writer, metadata.client.client, txnsegment.transaction\n"
        "from metadata.common.tracing import span\n"
        "with span('commit'): assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", alone], check=True, timeout=60)


def test_a_span_keeps_the_types_of_its_attributes(spans: Spans) -> None:
    with span("plan", topics=("a", "b"), rows=3, none=None, skipped=True):
        pass
    assert attributes(spans.take()[0]) == {"topics": ("a", "b"), "rows": 3, "skipped": True}


class Broken(SpanProcessor):
    """A processor that raises at the start or the end of the spans of one name."""

    def __init__(self, name: str, *, at_end: bool) -> None:
        self.name, self.at_end, self.raised = f"txnsegment.{name}", at_end, 0

    def _raise(self, name: str, *, at_end: bool) -> None:
        if (name, at_end) == (self.name, self.at_end):
            self.raised += 1
            raise RuntimeError("a broken processor of spans")

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._raise(span.name, at_end=False)

    def on_end(self, span: ReadableSpan) -> None:
        self._raise(span.name, at_end=True)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("name", ["append", "commit", "open", "decide"])
def test_a_processor_that_raises_breaks_no_commit(cluster: Cluster, topic: str, spans: Spans, name: str, at_end: bool) -> None:
    """Without the guard a commit raises after its header is COMMITTED, and the caller takes its rows for lost."""
    broken = Broken(name, at_end=at_end)
    spans.provider.add_span_processor(broken)
    with cluster.begin() as txn:
        txn.append("t", ROWS)
        assert txn.commit().rows == 2
    assert broken.raised == 1
    assert cluster.topics.read("t").read_all().num_rows == 2
    spans.take()
    with cluster.begin() as txn:
        txn.append("t", ROWS)
        txn.abort()
    assert named(spans.take(), "abort").parent is None  # the lost span did not stay the current one


def test_an_error_of_the_work_passes_a_processor_that_raises(spans: Spans) -> None:
    spans.provider.add_span_processor(Broken("work", at_end=True))
    with pytest.raises(StorageError, match="the disk is full"), span("work"):
        raise StorageError("the disk is full")


def test_a_provider_that_cannot_be_loaded_breaks_no_commit(cluster: Cluster, topic: str) -> None:
    """The variable of OpenTelemetry may name a provider that is not installed. Each use of the API then raises."""
    program = f"""
import txnsegment
cluster = txnsegment.connect({cluster.url!r})
with cluster.begin() as txn:
    txn.append("t", [{{"k": "a", "n": 1}}])
    assert txn.commit().rows == 1
cluster.close()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ, OTEL_PYTHON_TRACER_PROVIDER="no_such_provider"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert cluster.topics.read("t").read_all().num_rows == 1
