"""Tests of the command line, run in this process: what each command prints for people and for programs."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from ledgers.model import Part
from metadata.maintenance.sweeper import SweepReport
from metadata.records import paths
from metadata.records.records import Header, Nanos, Registration, SegmentWrite, State
from metadata.rules.scaling import Rule
from txnsegment import Cluster, connect
from txnsegment.cli.app import build
from txnsegment.sweeping import sweep_until

Run = Callable[..., Result]


@pytest.fixture
def run(url: str) -> Run:
    """Return a function that runs a command on the test's cluster and checks its exit code."""

    def call(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, *arguments])
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    return call


def answer(done: Result) -> Any:
    return json.loads(done.stdout)


def write(cluster: Cluster, *tables: pa.Table, topic: str = "t") -> str:
    with cluster.begin() as txn:
        for table in tables:
            txn.append(topic, table)
        txn.commit()
    return txn.id


def test_segments_that_split_and_merge_by_themselves(run: Run, url: str) -> None:
    run("topics", "create", "t", "--key", "k", "--schema", "k string")
    assert run("topics", "scaling", "t").stdout == "t: no scaling policy; segments split and merge by command only.\n"
    run("topics", "scaling", "namespace://public/default", "--bytes-per-second", "5000", "--cool-down", "5m")
    given = ("--rows-per-second", "1000", "--min-segments", "3", "--max-segments", "8")
    shown = "splits above 1000 rows a second or 5000 bytes a second over 300 s, 3 to 8 segments."
    assert run("topics", "scaling", "t", *given).stdout == f"t: a segment {shown}\n"
    assert answer(run("topics", "scaling", "t", "--json")) == {
        "rows": 1000,
        "bytes": 5000,
        "fewest": 3,
        "most": 8,
        "coolDownMs": 300_000,
    }
    assert answer(run("sweep", "--json"))["splits"] == 1
    assert answer(run("sweep", "--json"))["splits"] == 1
    assert answer(run("sweep", "--json"))["splits"] == 0
    with connect(url) as cluster:
        assert len(cluster.topics.describe("t").segments) == 5
        stop, reports = threading.Event(), list[SweepReport]()
        cluster.scaling.set("t", min_segments=4)
        sweep_until(stop, cluster, 0.01, told=lambda report: (reports.append(report), stop.set())[0])
        assert [(r.splits, r.merges) for r in reports] == [(1, 0)]
        cluster.scaling.clear("t")
        cluster.retention.clear("namespace://public/default")
        assert cluster.scaling.get("t") == Rule(None, 5000, None, 64, 300_000)
    bad = run("topics", "scaling", "t", "--min-segments", "9", "--max-segments", "2", code=1).stderr
    assert "min_segments = 9 is above max_segments = 2" in bad
    assert "rows_per_second is 0" in run("topics", "scaling", "t", "--rows-per-second", "0", code=1).stderr


def test_splits_and_merges(run: Run, tmp_path: Path) -> None:
    run("topics", "create", "t", "--segments", "2", "--key", "k", "--schema", "k string")
    assert run("topics", "split", "t", "--segment", "0").stdout == (
        "Sealed segment://public/default/t/0000-7fff-0; active instead: "
        "segment://public/default/t/0000-3fff-2, segment://public/default/t/4000-7fff-3.\n"
    )
    assert "active instead: segment://public/default/t/4000-ffff-4." in run("topics", "merge", "t", "--segments", "1, 3").stdout
    shown = run("topics", "describe", "t", "--svg", str(tmp_path / "t.svg")).stdout
    assert shown[shown.index("topic://public/default/t, epoch 2") :] == (
        "topic://public/default/t, epoch 2\n"
        "├── 0000-7fff-0 SEALED\n"
        "│   ├── 0000-3fff-2 ACTIVE\n"
        "│   └── 4000-7fff-3 SEALED\n"
        "│       └── 4000-ffff-4 ACTIVE, also of 1\n"
        "└── 8000-ffff-1 SEALED\n"
    )
    drawn = ElementTree.fromstring((tmp_path / "t.svg").read_text())
    names = [group.find("{*}title") for group in drawn.iter("{http://www.w3.org/2000/svg}g")]
    assert [name.text.rpartition("/")[2] for name in names if name is not None and name.text] == [
        "0000-7fff-0 SEALED",
        "8000-ffff-1 SEALED",
        "0000-3fff-2 ACTIVE",
        "4000-7fff-3 SEALED",
        "4000-ffff-4 ACTIVE",
    ]
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}line"))) == 4
    assert [s["children"] for s in answer(run("topics", "describe", "t", "--json"))["segments"]] == [[2, 3], [4], [], [4], []]
    for wrong in (("split", "t", "--segment", "0"), ("merge", "t", "--segments", "2,9"), ("merge", "t", "--segments", "2")):
        assert "Error" in run("topics", *wrong, code=1).stderr


def test_the_topics_commands_create_list_describe_and_delete(run: Run) -> None:
    assert (
        "Created topic://public/default/t with 2 segments."
        in run("topics", "create", "t", "--segments", "2", "--key", "k", "--schema", "k string, n int").stdout
    )
    run("topics", "create", "topic://a/b/c")
    listed = answer(run("topics", "list", "--json"))
    assert [t["name"] for t in listed] == ["topic://a/b/c", "topic://public/default/t"]
    assert [t["name"] for t in answer(run("topics", "list", "--json", "--pattern", ".*/c"))] == ["topic://a/b/c"]
    described = answer(run("topics", "describe", "t", "--json"))
    assert described["key"] == "k"
    assert [f["name"] for f in described["schema"]["fields"]] == ["k", "n"]
    assert [(s["start"], s["end"], s["state"]) for s in described["segments"]] == [(0, 32767, "ACTIVE"), (32768, 65535, "ACTIVE")]
    text = run("topics", "describe", "t").stdout
    assert "k string, n int" in text
    assert "segment://public/default/t/8000-ffff-1" in text
    assert "topic://public/default/t" in run("topics", "list").stdout
    run("topics", "delete", "t", "--yes")
    assert [t["name"] for t in answer(run("topics", "list", "--json"))] == ["topic://a/b/c"]


def test_empty_lists_are_reported_as_empty(run: Run, cluster: Cluster) -> None:
    assert "There are no topics." in run("topics", "list").stdout
    assert answer(run("topics", "list", "--json")) == []
    assert "There are no transactions." in run("txns", "list").stdout
    assert "No transaction is OPEN." in run("txns", "list", "--state", "open").stdout
    cluster.topics.create("t")
    assert "has no committed rows" in run("topics", "read", "t").stdout
    assert run("topics", "read", "t", "--json").stdout == ""


def test_reading_shows_committed_rows_in_the_order_of_their_transactions(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t", segments=4, key="k")
    for i in range(5):
        write(cluster, pa.table({"k": [f"a{i}", f"b{i}"], "n": [2 * i, 2 * i + 1]}))
    cluster.begin().append("t", pa.table({"k": ["never"], "n": [99]}))
    lines = run("topics", "read", "t", "--limit", "100", "--json").stdout.splitlines()
    found = [json.loads(line)["n"] for line in lines]
    assert sorted(found) == list(range(10))
    assert [n // 2 for n in found] == sorted(n // 2 for n in found)
    assert len(run("topics", "read", "t", "--limit", "3", "--json").stdout.splitlines()) == 3
    with_ids = [json.loads(line) for line in run("topics", "read", "t", "--message-ids", "--json").stdout.splitlines()]
    assert {row["__messageId"].partition(":")[0] for row in with_ids} == {"1", "2", "3", "4", "5"}
    segment = cluster.topics.describe("t").segments[0].name
    part = [json.loads(line) for line in run("topics", "read", segment, "--json").stdout.splitlines()]
    assert 0 <= len(part) < 10
    assert "b4" in run("topics", "read", "t").stdout


def test_rows_of_every_type_are_printed_as_json(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t")
    moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
    value = {
        "b": b"\x00\xff",
        "d": Decimal("1.50"),
        "t": moment,
        "ntz": moment.replace(tzinfo=None),
        "day": moment.date(),
        "f": float("nan"),
        "i": datetime.timedelta(days=1, seconds=2),
        "m": [("x", 1)],
        "mi": [(1, "x")],
        "s": {"a": [1, None], "b": b"x"},
        "none": None,
        "ü [x]": "[red]markup[/red]",
    }
    types = {
        "m": pa.map_(pa.string(), pa.int64()),
        "mi": pa.map_(pa.int64(), pa.string()),
        "none": pa.string(),
        "t": pa.timestamp("us", "UTC"),
    }
    write(cluster, pa.table({name: pa.array([v], types.get(name)) for name, v in value.items()}))
    assert answer(run("topics", "read", "t", "--json")) == {
        "b": "AP8=",
        "d": "1.50",
        "t": "2024-02-29T12:30:00Z",
        "ntz": "2024-02-29T12:30:00",
        "day": "2024-02-29",
        "f": "nan",
        "i": "1 day, 0:00:02",
        "m": {"x": 1},
        "mi": [{"key": 1, "value": "x"}],
        "s": {"a": [1, None], "b": "eA=="},
        "none": None,
        "ü [x]": "[red]markup[/red]",
    }
    assert "[red]markup[/red]" in run("topics", "read", "t").stdout


def undecided(cluster: Cluster, txn: str, *, deadline_in_ms: int) -> int:
    """Register a row of `t` in a transaction, and leave the transaction undecided, like a driver that crashes during a commit.
    Return the log number.
    """
    store = cluster.client.cluster.store
    now = store.view().now_ms()
    header = Header(
        state=State.OPEN, timeout=Nanos(1_000_000_000), created_at=Nanos((now + deadline_in_ms - 1000) * 1_000_000), owner="dead:1"
    )
    store.put(paths.header(txn), header.to_bytes(), expect=-1, indexes=header.indexes())
    segment = cluster.topics.describe("t").segments[0].name
    part = Part("public/default/t/x/y.parquet", 1, 10, 7, (1,), 0)
    write_set = SegmentWrite(parts=(part,), rows=1, bytes=10, entries=1)
    return store.append(paths.LOG, Registration(txn=txn, publish_ms=now, segments={segment: write_set}).to_bytes()).number


def test_the_transactions_commands_list_show_and_abort(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t")
    done = write(cluster, pa.table({"n": [1]}))
    undecided(cluster, "0_9999", deadline_in_ms=60_000)
    assert [(t["id"], t["state"]) for t in answer(run("txns", "list", "--json"))] == [("0_9999", "OPEN"), (done, "COMMITTED")]
    assert [t["id"] for t in answer(run("txns", "list", "--state", "OPEN", "--json"))] == ["0_9999"]
    shown = answer(run("txns", "show", "0_9999", "--json"))
    assert (shown["state"], shown["owner"], shown["finalizedMs"]) == ("OPEN", "dead:1", None)
    assert "dead:1" in run("txns", "show", "0_9999").stdout
    assert "0_9999 is ABORTED" in run("txns", "abort", "0_9999").stdout
    run("txns", "abort", "0_9999")
    assert answer(run("txns", "show", "0_9999", "--json"))["state"] == "ABORTED"
    assert "COMMITTED" in run("txns", "list").stdout


def test_segments_show(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t", segments=2, key="k")
    write(cluster, pa.table({"k": [f"k{i}" for i in range(40)], "n": range(40)}))
    cluster.sweep()
    write(cluster, pa.table({"k": [f"k{i}" for i in range(40)], "n": range(40)}))
    number = undecided(cluster, "0_9999", deadline_in_ms=60_000)
    shown = answer(run("segments", "show", "t", "--json"))
    assert shown["cut"] == number - 1
    first, second = shown["segments"]
    assert first["undecided"] == [[number, "0_9999"]]
    assert second["undecided"] == []
    assert first["rows"] + second["rows"] == 80
    assert (first["ledgers"], first["maxReadPosition"]) == (2, "2:0")
    assert first["watermark"] in ("1:0", "2:0")  # the second commit's share of the sweeping may have folded ledger 2 as well
    text = run("segments", "show", "t").stdout
    assert f"{number} (0_9999)" in text


def test_the_sweep_command_ends_transactions_past_their_deadline(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t")
    undecided(cluster, "0_9999", deadline_in_ms=-60_000)
    assert "past their deadline: 0_9999" in run("doctor").stdout
    assert answer(run("sweep", "--once", "--json"))["timedOut"] == 1
    assert "Swept" in run("sweep").stdout
    assert answer(run("txns", "list", "--state", "open", "--json")) == []
    assert "none is past its deadline" in run("doctor").stdout


def test_init_remembers_settings_and_ledgers(tmp_path: Path) -> None:
    url, ledgers = f"file://{tmp_path}/c", f"file://{tmp_path}/elsewhere"

    def init(*more: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["init", url, *more])
        assert done.exit_code == code, done.output
        return done

    assert "txnTimeoutMs=2000" in init("--ledgers", ledgers, "--set", "txnTimeoutMs=2000", "--set", "FOLD_AFTER_MS=5").stdout
    assert "txnTimeoutMs=2000" in init().stdout  # a repetition changes nothing
    init("--ledgers", ledgers, "--set", "txnTimeoutMs=2000", "--set", "foldAfterMs=5")
    assert "other settings" in init("--set", "txnTimeoutMs=3000", code=1).stderr
    assert "keeps its ledgers in" in init("--ledgers", f"file://{tmp_path}/third", code=1).stderr
    with connect(url) as cluster:
        assert (cluster.ledgers, cluster.settings.txn_timeout_ms, cluster.settings.fold_after_ms) == (ledgers, 2000, 5)


def test_doctor_reports_a_healthy_cluster(run: Run, cluster: Cluster) -> None:
    found = {f["check"]: f for f in answer(run("doctor", "--json"))}
    assert set(found) == {"java", "spark", "door", "store", "storage", "clock", "transactions", "log", "records"}
    assert {f["health"] for f in found.values()} == {"ok"}
    assert not any("doctor" in f.path for f in cluster.client.cluster.storage.list())


def test_doctor_without_a_cluster_names_the_next_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = run("doctor", code=1)
    assert "fail java" in done.stdout
    assert "Install Java 17" in done.stdout
    assert "fail store" in done.stdout
    assert "storage" not in done.stdout


def test_doctor_reports_a_storage_that_cannot_be_written(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    ledgers = tmp_path / "cluster" / "ledgers"
    for path in sorted(ledgers.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    ledgers.rmdir()
    ledgers.write_text("a file in the way")
    (storage,) = [f for f in answer(run("doctor", "--json", code=1)) if f["check"] == "storage"]
    assert storage["health"] == "fail"
    assert storage["nextStep"]


def damage(cluster: Cluster, what: str) -> str:
    """Damage the only part of the second transaction on disk. Return its path."""
    files = sorted((f for f in cluster.client.cluster.storage.list() if f.path.endswith(".parquet")), key=lambda f: f.mtime_ms)
    root = Path(cluster.ledgers.removeprefix("file://"))
    path = root / files[-1].path
    data = bytearray(path.read_bytes())
    match what:
        case "missing":
            path.unlink()
            return files[-1].path
        case "short":
            data = data[:-20]
        case "page":
            data[len(data) // 8] ^= 1
        case "footer":
            data[-30] ^= 1
        case "other":
            other = next(f for f in files[:-1])
            data = bytearray((root / other.path).read_bytes())
    path.chmod(0o644)
    path.write_bytes(data)
    return files[-1].path


@pytest.mark.parametrize("what", ["missing", "short", "page", "footer", "other"])
def test_verify_lists_damaged_parts(run: Run, cluster: Cluster, what: str) -> None:
    cluster.topics.create("t")
    write(cluster, pa.table({"n": range(1000)}))
    for file in Path(cluster.ledgers.removeprefix("file://")).rglob("*.parquet"):
        os.utime(file, (1, 1))  # the part of the first write is now older than that of the second write
    write(cluster, pa.table({"n": range(5000)}))
    sound = answer(run("verify", "t", "--json"))
    assert (sound["parts"], sound["rows"], sound["damaged"]) == (2, 6000, [])
    assert "All are sound." in run("verify", "t").stdout
    path = damage(cluster, what)
    (found,) = answer(run("verify", "t", "--json", code=1))["damaged"]
    assert (found["path"], found["first"], found["last"], found["rows"]) == (path, "2:0", "2:0", 5000)
    assert found["segment"] == cluster.topics.describe("t").segments[0].name
    assert path in run("verify", "t", code=1).stdout
    assert path in run("topics", "read", "t", "--limit", "2000", code=1).stderr


def test_verify_reports_a_damaged_index(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t")
    write(cluster, pa.table({"n": [1]}))
    cluster.client.finish()
    cluster.sweep()
    (mark,) = cluster.client.cluster.store.view().get_many([paths.watermark(cluster.topics.describe("t").segments[0].name)])
    assert mark is not None
    root = Path(cluster.ledgers.removeprefix("file://"))
    (snapshot,) = [f.path for f in cluster.client.cluster.storage.list() if f.path.endswith(".avro")]
    (root / snapshot).chmod(0o644)
    (root / snapshot).write_bytes(b"not avro")
    done = run("verify", "t", code=1)
    assert snapshot in done.output + done.stderr
