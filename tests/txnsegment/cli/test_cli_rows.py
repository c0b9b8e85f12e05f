"""Tests of `topics read` and `topics write`: rows as JSON lines and CSV, following, and the ends of pipes."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from tests.support.rows import rows
from tests.txnsegment.cli.test_cli_process import PROGRAM, environment
from txnsegment import Cluster, connect
from txnsegment.cli.app import build

Run = Callable[..., Result]


@pytest.fixture
def run(url: str) -> Run:
    def call(*arguments: str, code: int = 0, given: str | bytes = "") -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, "topics", *arguments], input=given)
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    return call


def lines(*given: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in given)


ROWS = [{"k": "a", "n": 1}, {"k": "b", "n": None}]


def test_rows_go_out_and_in_again_in_both_forms(run: Run, cluster: Cluster) -> None:
    assert run("write", "t", "--key", "k", "--segments", "2", given=lines(*ROWS)).stdout == "Wrote 2 rows to t in 1 transaction.\n"
    assert cluster.topics.describe("t").key == "k"
    assert run("read", "t", "--format", "json").stdout == lines(*ROWS)
    assert run("read", "t", "--format", "csv").stdout == "k,n\na,1\nb,\n"
    assert run("read", "t", "--format", "csv", "--columns", "n, k", "--limit", "1").stdout == "n,k\n1,a\n"
    for form in ("json", "csv"):
        text = run("read", "t", "--format", form).stdout
        run("write", form, "--format", form, given=text)
        assert run("read", form, "--format", form).stdout == text


VALUE = {
    "b": b"\x00\xff",
    "d": Decimal("1.50"),
    "t": datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
    "ntz": datetime.datetime(2024, 2, 29, 12, 30, 0, 5),
    "day": datetime.date(2024, 2, 29),
    "f": float("inf"),
    "i": datetime.timedelta(days=-1, seconds=2, microseconds=5),
    "m": [("x", 1)],
    "mi": [(1, "x")],
    "s": {"a": [1, None], "b": b"x"},
    "none": None,
    "yes": True,
    "text": 'a "quoted", text\nof two lines',
}
TYPES = {"m": pa.map_(pa.string(), pa.int64()), "mi": pa.map_(pa.int64(), pa.string()), "none": pa.string()}


@pytest.mark.parametrize("form", ["json", "csv"])
def test_values_of_every_type_survive_a_copy(run: Run, cluster: Cluster, form: str) -> None:
    table = pa.table({name: pa.array([value], TYPES.get(name)) for name, value in VALUE.items()})
    with cluster.begin() as txn:
        txn.append("t", table)
        txn.append("copy", table.slice(1))
        txn.commit()
    run("write", "copy", "--format", form, given=run("read", "t", "--format", form).stdout)
    assert rows(cluster, "copy") == rows(cluster, "t")


def test_a_variant_is_copied(run: Run, cluster: Cluster) -> None:
    for name in ("t", "copy"):
        cluster.topics.create(name, schema="v variant")
    given = lines({"v": {"a": [1, "x"]}}, {"v": None})
    run("write", "t", given=given)
    assert run("read", "t", "--format", "json").stdout == given


def test_each_number_of_rows_is_a_transaction(run: Run, cluster: Cluster) -> None:
    assert "in 3 transactions" in run("write", "t", "--rows", "2", given=lines(*({"n": n} for n in range(5)))).stdout
    assert len(cluster.transactions.list("committed")) == 3
    assert [row["n"] for row in rows(cluster, "t")] == [0, 1, 2, 3, 4]


def test_a_version_of_an_application_is_written_once(run: Run, cluster: Cluster) -> None:
    given = lines(*({"n": n} for n in range(5)))
    once = ("write", "t", "--rows", "2", "--app", "loader", "--version", "1")
    assert "Wrote 5 rows to t in 1 transaction." in run(*once, given=given).stdout
    assert "Version 1 of loader is committed already; nothing was written." in run(*once, given=given).stdout
    assert len(rows(cluster, "t")) == 5
    assert "app is given without version" in run("write", "t", "--app", "loader", code=1, given=given).stderr


@pytest.mark.parametrize(
    ("form", "given", "says"),
    [
        ("json", '{"n": 1}\n{"n": \n', "Line 2 cannot be written: it is no JSON"),
        ("json", '{"n": 1}\n[1]\n', "Line 2 cannot be written: it is no JSON object but list"),
        ("json", b'{"n": 1}\n\xff\n', "Line 2 cannot be written: it is no JSON"),
        ("json", '{"n": 1}\n\n{"n": "x"}\n', "Line 3 cannot be written: the value of the column n is no bigint"),
        ("json", '{"n": 1}\n{"n": 1.5}\n', "Line 2 cannot be written: the value of the column n is no bigint"),
        ("json", '{"n": 1}\n{"n": true}\n', "Line 2 cannot be written: the value of the column n is no bigint"),
        (
            "json",
            '{"n": 1}\n{"n": 9223372036854775808}\n',
            "the number 9223372036854775808 has more than 64 bits",
        ),
        ("csv", "n\n1\n9223372036854775808\n", "Line 3 cannot be written: the value of the column n is no bigint"),
        ("json", '{"n": 1}\n{"x": 1}\n', "Line 2 cannot be written: the topic has no column x"),
        ("csv", "n\n1\nx\n", "Line 3 cannot be written: the value of the column n is no bigint"),
        ("csv", "n,k\n1,2\n1\n", "Line 3 cannot be written: it has 1 fields, and the first line names 2 columns"),
        ("csv", "n,n\n1,2\n", "Line 1 cannot be written: it names a column twice"),
        ("csv", 'n\n"1\n', "it is no CSV"),
        ("csv", b"n\n\xff\n", "Line 2 cannot be written: it is not UTF-8"),
    ],
)
def test_a_bad_line_is_named_and_its_transaction_writes_nothing(
    run: Run, cluster: Cluster, form: str, given: str | bytes, says: str
) -> None:
    cluster.topics.create("t", schema="n bigint, k string")
    told = run("write", "t", "--format", form, code=1, given=given).stderr
    assert says in told
    assert "No row was written before." in told
    assert rows(cluster, "t") == []


def test_an_error_says_how_much_was_committed_before(run: Run, cluster: Cluster) -> None:
    told = run("write", "t", "--rows", "1", code=1, given='{"n": 1}\n{"n": 2}\n{"n": "x"}\n').stderr
    assert "Before that, 2 rows were committed, in 2 transactions." in told
    assert [row["n"] for row in rows(cluster, "t")] == [1, 2]


def test_a_new_topic_gets_the_types_of_its_first_rows(run: Run, cluster: Cluster) -> None:
    run("write", "t", "--format", "csv", given="i,f,b,s,z\n1,1.5,true,x,007\n,2,false,,1\n")
    schema = cluster.topics.describe("t").schema
    assert schema is not None
    assert schema.simpleString() == "struct<i:bigint,f:double,b:boolean,s:string,z:string>"
    assert rows(cluster, "t")[1] == {"i": None, "f": 2.0, "b": False, "s": None, "z": "1"}
    assert "has no value, so its type is not known" in run("write", "u", code=1, given='{"n": null}\n').stderr
    assert run("write", "v", given="").stdout == "Wrote 0 rows to v in 0 transactions.\n"


def test_message_ids_leave_no_column_of_the_topic_out(run: Run, cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("t", [{"__own": 1}])
        txn.commit()
    (row,) = map(json.loads, run("read", "t", "--format", "json", "--message-ids").stdout.splitlines())
    assert list(row) == ["__messageId", "__own"]


def test_a_value_that_python_cannot_represent_is_an_error(run: Run, cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"day": pa.array([-800_000], pa.date32()), "n": [1]}))
        txn.commit()
    assert "a value that Python cannot represent" in run("read", "t", code=1).stderr
    assert run("read", "t", "--columns", "n", "--json").stdout == lines({"n": 1})


def test_what_cannot_be_read_is_refused(run: Run, cluster: Cluster) -> None:
    assert "--json and --format csv are both given" in run("read", "t", "--json", "--format", "csv", code=1).stderr
    assert "There is no topic" in run("read", "t", "--follow", code=1).stderr


# --- as processes ---------------------------------------------------------------------------------------------------


def process(url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "topics", *arguments],
        env=environment(TXNSEGMENT_SERVICE_URL=url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_following_prints_rows_as_they_come_and_ends_with_ctrl_c(url: str, cluster: Cluster) -> None:
    with cluster.begin() as txn:
        txn.append("t", [{"n": 1}])
        txn.commit()
    with process(url, "read", "t", "--follow") as reading:
        assert reading.stdout is not None
        assert json.loads(reading.stdout.readline()) == {"n": 1}
        with process(url, "write", "t") as writing:
            assert "Wrote 1 rows" in writing.communicate(lines({"n": 2}), timeout=60)[0]
        assert json.loads(reading.stdout.readline()) == {"n": 2}
        reading.send_signal(signal.SIGINT)
        out, err = reading.communicate(timeout=60)
    assert (reading.returncode, out, err) == (0, "", "")
    with connect(url) as again:
        assert again.subscriptions.list() == []


@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_a_closed_pipe_ends_the_command_without_a_word(url: str, cluster: Cluster, more: tuple[str, ...]) -> None:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": range(50_000)}))
        txn.commit()
    with process(url, "read", "t", "--format", "csv", *more) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline() for _ in range(2)] == ["n\n", "0\n"]
        reading.stdout.close()
        assert reading.stderr is not None
        assert reading.stderr.read() == ""
    assert reading.returncode == 0


def test_ctrl_c_while_rows_wait_says_what_was_committed(url: str, cluster: Cluster) -> None:
    with process(url, "write", "t", "--rows", "2") as writing:
        assert writing.stdin is not None
        writing.stdin.write(lines({"n": 1}, {"n": 2}, {"n": 3}))
        writing.stdin.flush()
        while not cluster.topics.list():
            os.sched_yield()
        while len(list(cluster.rows("t").rows)) < 2:
            os.sched_yield()
        writing.send_signal(signal.SIGINT)
        _, err = writing.communicate(timeout=60)
    assert writing.returncode == 130
    assert "Before that, 2 rows were committed, in 1 transaction." in err
    assert "Traceback" not in err
    assert [row["n"] for row in rows(cluster, "t")] == [1, 2]


def test_csv_has_what_a_reader_of_csv_reads(run: Run, cluster: Cluster) -> None:
    text = 'a "quoted", text\nof two lines'
    with cluster.begin() as txn:
        txn.append("t", [{"s": text, "l": [1, 2]}])
        txn.commit()
    assert list(csv.DictReader(io.StringIO(run("read", "t", "--format", "csv").stdout))) == [{"s": text, "l": "[1, 2]"}]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_carriage_return_and_a_large_field_go_out_and_in_again(run: Run, cluster: Cluster, form: str) -> None:
    given = [{"i": 1, "s": "a\rb"}, {"i": 2, "s": "end\r"}, {"i": 3, "s": "x" * 200_000}]
    with cluster.begin() as txn:
        txn.append("t", given)
        txn.commit()
    run("write", "u", "--format", form, given=run("read", "t", "--format", form).stdout_bytes)
    assert rows(cluster, "u") == given


def test_a_number_of_json_keeps_all_digits_in_a_decimal(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t", schema="d decimal(38,2), n struct<x: decimal(38,19)>")
    run("write", "t", given='{"d": 12345678901234567890.12, "n": {"x": 0.1234567890123456789}}\n')
    assert rows(cluster, "t") == [{"d": Decimal("12345678901234567890.12"), "n": {"x": Decimal("0.1234567890123456789")}}]


def test_a_number_too_large_for_a_float_is_refused(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t", schema="f float")
    assert "the value of the column f is no float (1e+300 is too large)" in run("write", "t", given='{"f": 1e300}\n', code=1).stderr
    assert rows(cluster, "t") == []


@pytest.mark.parametrize("number", ["1e-9999999", '"1e-9999999"', '"1e9999999"'])
def test_a_decimal_of_millions_of_digits_is_refused(run: Run, cluster: Cluster, number: str) -> None:
    cluster.topics.create("t", schema="d decimal(10,2)")
    assert "the value of the column d is no decimal(10,2)" in run("write", "t", given=f'{{"d": {number}}}\n', code=1).stderr


def test_a_topic_that_is_not_there_is_told_with_the_nearest_one_and_the_cluster(run: Run, cluster: Cluster, url: str) -> None:
    cluster.topics.create("topic://shop/eu/Orders", schema="n int")
    for command in ("describe", "read", "delete"):
        told = run(command, "order", code=1).stderr
        assert "There is no topic topic://public/default/order." in told
        assert "Did you mean topic://shop/eu/Orders? Create it (txnsegment topics create topic://public/default/order)" in told
        assert f"The cluster is {url}." in told
    assert "Did you mean" not in run("describe", "payments", code=1).stderr
