"""Tests of what a notebook shows of a cluster, a topic, a transaction and a lag, and of examples/notebook.ipynb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from txnsegment import Cluster

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def html(shown: Any) -> str:
    found: str = shown._repr_html_()
    assert found.startswith("<table>")
    assert found.endswith("</table>")
    return found


def test_a_notebook_shows_clusters_topics_transactions_and_lags(cluster: Cluster) -> None:
    with cluster.begin(app="<b>loader", version=3) as txn:
        assert "not committed" in html(txn)
        txn.append("t", [{"<i>k": "a", "n": 1}, {"<i>k": "b", "n": 2}], segments=2)
        assert "<td>topic://public/default/t</td><td>2</td>" in html(txn)
        assert "&lt;b&gt;loader" in html(txn)
        committed = txn.commit()
        assert "<td>committed</td>" in html(txn)
    assert cluster.url in html(cluster)
    assert "<td>topic://public/default/t</td><td>2</td><td></td><td>&lt;i&gt;k string, n bigint</td>" in html(cluster)
    described = html(cluster.topics.describe("t"))
    assert "<td>ACTIVE</td>" in described
    assert "<i>" not in described
    assert str(committed.rows) in html(committed)
    assert "COMMITTED" in html(cluster.transactions.get(txn.id))
    schema = cluster.topics.schema("t")
    assert "n bigint" in html(schema)
    subscription = cluster.subscriptions.create("t", "s")
    assert "rows 2, bytes" in html(subscription)
    assert "<tr><th>rows</th><td>2</td></tr>" in html(subscription.lag)
    assert html(cluster.segments("t")).count("<tr>") == 6
    cluster.topics.create("persistent://public/default/old", schema="n bigint")
    assert "__contains_txn_messages=false" in html(cluster.topics.describe("persistent://public/default/old"))


def test_transactions_that_end_otherwise_say_so(cluster: Cluster) -> None:
    with cluster.begin(app="a", version=1) as txn:
        txn.append("t", [{"n": 1}])
        txn.commit()
    with cluster.begin(app="a", version=1) as again:
        again.append("t", [{"n": 1}])
        assert again.commit().skipped
        assert "<td>skipped</td>" in html(again)
    with cluster.begin() as dropped:
        dropped.abort()
    assert "<td>aborted</td>" in html(dropped)


def test_the_example_notebook_runs_from_top_to_bottom() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit the notebook without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    committed, _, described, read, large, lag = [found["text/html"] for found in shown]
    assert "<td>4</td>" in committed
    assert described.count("<td>ACTIVE</td>") == 2
    assert read.count("<td>ann</td>") == 2
    assert "<td>120.0</td>" in large
    assert "<td>250.0</td>" in large
    assert "rows 1, bytes" in lag
