"""The page of metrics, the alert rules and the dashboard name series that exist, with labels that they have."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from metadata.read.backlog import Lag
from metadata.records.driver_records import DriverReport
from tests.txnsegment.ui.test_ui_pages import HOSTILE, board
from txnsegment.look.driver_series import DriverCollector
from txnsegment.look.drivers import drivers
from txnsegment.look.seen import SubscriptionSeen
from txnsegment.look.series import exposition
from txnsegment.look.watcher import Board, Trouble

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "examples" / "monitoring"
GENERATED = runpy.run_path(str(ROOT / "docs" / "generate.py"))
NAME = re.compile(r"\b(?:txnsegment|pulsar)_[a-z_]+\b")


def known() -> dict[str, set[str]]:
    """Return the names of all series as Prometheus stores them, each with its labels."""
    found: dict[str, set[str]] = {}
    for one in [*GENERATED["cluster_series"](), *GENERATED["process_series"]()]:
        labels = set(getattr(one, "_labelnames", ()))
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(one.type, [""])
        found |= {one.name + end: labels | ({"le"} if end == "_bucket" else set()) for end in ends}
    return found


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == GENERATED["metrics_page"](), "run: python docs/generate.py"
    assert all(f"| `{name}` |" in page for name in known() if not name.endswith(("_sum", "_count")) or "lag" in name)


def test_a_look_serves_exactly_the_series_of_the_page() -> None:
    full = board("topic://a/b/c")
    shown = Board(**{**vars(full), "trouble": None, "subscriptions": (SubscriptionSeen("t", "s", Lag(5, 50, 1.5)),)})
    families = {f.name: f for f in text_string_to_metric_families(exposition(lambda: shown, lambda: 12.0).decode())}
    assert set(families) == {one.name for one in GENERATED["cluster_series"]()}
    assert all(family.samples for family in families.values())
    labels = known()
    for family in families.values():
        for sample in family.samples:
            assert set(sample.labels) == labels[sample.name]


def test_the_values_are_those_of_the_look() -> None:
    lines = exposition(lambda: Board(**{**vars(board("t")), "trouble": None}), lambda: 12.0).decode().splitlines()
    for line in (
        "txnsegment_cluster_up 1.0",
        "txnsegment_cluster_open_transactions 1.0",
        "txnsegment_cluster_overdue_transactions 1.0",
        "txnsegment_cluster_oldest_open_transaction_seconds 99.0",
        "txnsegment_cluster_log_length 3.0",
        "txnsegment_cluster_last_sweep_age_seconds 1.0",
        'txnsegment_cluster_topic_rows{topic="t"} 4.0',
        'txnsegment_cluster_topic_unreadable{topic="t2"} 1.0',
        'txnsegment_cluster_topic_undecided{topic="t"} 1.0',
        'txnsegment_subscription_lag_rows{subscription="t",topic="t"} 5.0',
        'txnsegment_driver_commits_total{driver="t"} 4.0',
        'txnsegment_driver_silent{driver="t"} 1.0',
        'txnsegment_driver_open_transactions{driver="t"} 1.0',
        'txnsegment_driver_report_age_seconds{driver="t"} 60.0',
        'txnsegment_driver_lag_rows{driver="t"} 78.0',
        'txnsegment_driver_commit_seconds_bucket{driver="t",le="0.02"} 2.0',
        'txnsegment_driver_commit_seconds_bucket{driver="t",le="+Inf"} 4.0',
        'txnsegment_driver_commit_seconds_sum{driver="t"} 2.0',
        'txnsegment_driver_info{application="t",driver="t",program="t",state="silent"} 1.0',
        'txnsegment_cluster_health{check="log"} 1.0',
        'txnsegment_cluster_health{check="x"} 2.0',
    ):
        assert line in lines
    assert not [line for line in lines if 'topic_rows{topic="t2"}' in line]  # it could not be read, so its rows are not known


def test_the_buckets_of_another_version_are_not_mixed_up() -> None:
    report = DriverReport(owner="h", program="p", since_ms=1, at_ms=1, every_ms=1, commits=3, buckets=(1, 1, 1))
    registry = CollectorRegistry()
    registry.register(DriverCollector(lambda: (drivers([report], [], 1), 1)))
    lines = generate_latest(registry).decode().splitlines()
    assert 'txnsegment_driver_commit_seconds_bucket{driver="h",le="5.0"} 0.0' in lines
    assert 'txnsegment_driver_commit_seconds_count{driver="h"} 3.0' in lines


def test_a_cluster_is_down_in_trouble_and_when_it_does_not_answer() -> None:
    full = board("t")
    assert full.trouble is not None
    sound = Board(**{**vars(full), "trouble": None})
    for shown, now_s, up in (
        (sound, 12.0, 1),
        (sound, 500.0, 0),
        (full, 12.0, 0),
        (Board(), 0.0, 0),
        (Board(trouble=Trouble("x", "", 0)), 0.0, 0),
    ):
        assert f"txnsegment_cluster_up {up}.0" in exposition(lambda shown=shown: shown, lambda now_s=now_s: now_s).decode()


def test_hostile_names_stay_within_their_labels() -> None:
    lines = exposition(lambda: board(HOSTILE + "\n"), lambda: 12.0).decode().split("\n")
    assert all(re.match(r"(?:# (?:HELP|TYPE) )?txnsegment_[a-z_]+[ {]", line) for line in lines if line)


def expressions() -> list[tuple[str, str]]:
    """Return the expressions of the alert rules and of the dashboard, each with its place."""
    rules = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", rules)
    dashboard: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    assert rules.count("expr:") == len(alerts) == rules.count("alert:")
    return [*alerts, *((panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"])]


@pytest.mark.parametrize(("place", "expression"), expressions(), ids=lambda one: None)
def test_alerts_and_panels_name_series_and_labels_that_exist(place: str, expression: str) -> None:
    series, names = known(), NAME.findall(expression)
    assert names, place
    assert [name for name in names if name not in series] == []
    for name, selectors in re.findall(r"(\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=", selectors)) <= series[name], place
    for labels in re.findall(r"by \(([^)]*)\)", expression):
        assert set(labels.replace(" ", "").split(",")) <= series[names[0]], place


def test_the_texts_of_alerts_and_panels_name_labels_that_their_series_have() -> None:
    rules = (MONITORING / "alerts.yml").read_text(encoding="utf-8").split("- alert: ")[1:]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    texts = [(NAME.findall(rule)[0], re.findall(r"\$labels\.(\w+)", rule)) for rule in rules]
    texts += [
        (NAME.findall(target["expr"])[0], re.findall(r"{{(\w+)}}", target["legendFormat"]))
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    series = known()
    assert sum(len(labels) for _, labels in texts) > 20
    assert [(name, label) for name, labels in texts for label in labels if label not in series[name]] == []


def test_panels_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
