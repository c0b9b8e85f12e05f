"""Tests of the schemas of topics: versions, compatibility, changes by writes; `cluster.topics` and `txnsegment topics schema`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from typer.testing import CliRunner, Result

from metadata.common.errors import OptionError, SchemaError, TopicNotFound
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import TopicSchema
from metadata.store.contract import ABSENT, decide
from txnsegment import Cluster
from txnsegment.cli.app import build

Run = Callable[..., Result]
T_NAME = topic_name("t")


@pytest.fixture
def run(url: str, cluster: Cluster) -> Run:
    def call(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(build(), ["--service-url", url, "topics", "schema", *arguments])
        assert done.exit_code == code, f"{done.output}\n{done.stderr}\n{done.exception!r}"
        return done

    return call


def avro(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "r") -> dict[str, Any]:
    made = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) == 3 else {})} for f in fields]
    return {"type": "record", "name": name, "fields": made}


def write(cluster: Cluster, **columns: Any) -> None:
    with cluster.begin() as txn:
        txn.append("t", pa.table(columns), merge_schema=True)
        txn.commit()


def part_schemas(cluster: Cluster) -> list[int]:
    """Return the schema ids of the parts in the log, in order."""
    listing = decide(cluster.client.cluster.store, cluster.client.buffer.log.list)
    return [p.schema for e in listing.entries for w in e.registration.segments.values() for p in w.parts]


def test_a_schema_is_registered_and_versions_are_kept(cluster: Cluster) -> None:
    cluster.topics.create("t")
    assert cluster.topics.schema("t") is None
    assert cluster.topics.schemas("t") == ()
    first = cluster.topics.set_schema("t", avro(("x", "int")))
    assert (first.version, first.registered, first.columns) == (0, True, T.StructType().add("x", T.IntegerType()))
    assert cluster.topics.set_schema("t", json.dumps(avro(("x", "int")), indent=4)) == first  # a repetition changes nothing
    second = cluster.topics.set_schema("t", avro(("x", "long"), ("y", "string", "none")))
    assert second.version == 1
    assert second.columns.simpleString() == "struct<x:bigint,y:string>"
    assert cluster.topics.schemas("t") == (first, second)
    assert cluster.topics.schema("t", 0) == first
    assert cluster.topics.describe("t").schema == second.columns
    with pytest.raises(SchemaError, match=r"no schema version 7.*versions are: 0, 1\."):
        cluster.topics.schema("t", 7)
    with pytest.raises(TopicNotFound):
        cluster.topics.set_schema("u", avro(("x", "int")))


def test_a_column_left_out_of_a_schema_stays_a_column(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", avro(("x", "int"), ("y", "int", 0)))
    found = cluster.topics.set_schema("t", avro(("x", "int")))
    assert json.loads(found.avro or "") == avro(("x", "int"))
    assert found.columns.simpleString() == "struct<x:int,y:int>"
    with pytest.raises(SchemaError, match="column y is string in this write, but int in the topic"):
        cluster.topics.set_schema("t", avro(("x", "int"), ("y", "string", "")))  # this schema could not read the existing rows


def test_the_topic_s_key_stays_in_the_schema(cluster: Cluster) -> None:
    cluster.topics.create("t", key="k")
    with pytest.raises(OptionError, match="k"):
        cluster.topics.set_schema("t", avro(("x", "int")))
    cluster.topics.set_schema("t", avro(("x", "int"), ("k", "string")))


def test_backward_is_the_default_and_refusals_leave_no_version(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", avro(("x", "int")))
    assert cluster.topics.compatibility("t") == "backward"
    with pytest.raises(SchemaError, match=r"t: .*not compatible \(backward\) with version 0: .*column y is not there"):
        cluster.topics.set_schema("t", avro(("x", "int"), ("y", "int")))
    assert len(cluster.topics.schemas("t")) == 1
    assert cluster.topics.set_compatibility("t", "NONE") == "none"
    assert cluster.topics.set_schema("t", avro(("x", "int"), ("y", "int"))).version == 1
    assert cluster.topics.set_compatibility("t", "full_transitive") == "full_transitive"
    with pytest.raises(SchemaError, match=r"full_transitive\) with version 0"):
        cluster.topics.set_schema("t", avro(("x", "int"), ("y", "int"), ("z", "int", 0)))
    with pytest.raises(OptionError, match="Did you mean backward"):
        cluster.topics.set_compatibility("t", "backwards")


def test_writes_grow_topics_as_ever_until_a_mode_is_set(cluster: Cluster) -> None:
    cluster.topics.create("t", schema="x int, d decimal(4,2)")
    write(cluster, x=pa.array([1], pa.int64()), y=["new"])
    write(cluster, d=pa.array([None], pa.decimal128(6, 3)))  # the mode `backward` would refuse this write, but no mode is set
    assert [s.columns.simpleString() for s in cluster.topics.schemas("t")] == [
        "struct<x:int,d:decimal(4,2)>",
        "struct<x:bigint,d:decimal(4,2),y:string>",
        "struct<x:bigint,d:decimal(6,3),y:string>",
    ]
    cluster.topics.set_compatibility("t", "backward")
    write(cluster, z=[1.5])
    with pytest.raises(SchemaError, match=r"column d is decimal\(6,3\), not decimal\(7,4\)"):
        write(cluster, d=pa.array([None], pa.decimal128(7, 4)))
    cluster.topics.set_compatibility("t", "full")
    write(cluster, more=pa.array([1], pa.int32()))
    with pytest.raises(
        SchemaError, match=r"full\) with version 4: version 4 cannot read what it writes: the column more is long, not int"
    ):
        write(cluster, more=pa.array([1], pa.int64()))
    cluster.topics.set_compatibility("t", "none")
    write(cluster, d=pa.array([None], pa.decimal128(7, 4)))
    assert part_schemas(cluster)[-1] == 5


def test_a_registered_schema_grows_with_writes(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", avro(("x", "int"), name="shop.Order"))
    write(cluster, x=pa.array([1], pa.int64()), y=["a"])
    found = cluster.topics.schema("t")
    assert found is not None
    assert (found.version, found.registered) == (1, True)
    assert json.loads(found.avro or "") == avro(("x", "long"), ("y", ["null", "string"], None), name="shop.Order")
    assert part_schemas(cluster) == [1]


def test_columns_that_avro_does_not_have(cluster: Cluster) -> None:
    cluster.topics.create("t", schema=T.StructType().add("m", T.MapType(T.LongType(), T.LongType())))
    found = cluster.topics.schema("t")
    assert found is not None
    assert found.avro is None
    assert "column m" in (found.why or "")
    cluster.topics.set_compatibility("t", "backward")
    with pytest.raises(SchemaError, match="column m"):
        write(cluster, x=[1])
    cluster.topics.set_compatibility("t", "none")
    with pytest.raises(SchemaError, match="column m"):
        cluster.topics.set_schema("t", avro(("m", "int")))
    write(cluster, x=[1])


def test_a_lost_race_leaves_an_unreferenced_version(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", avro(("x", "int")))
    stray = TopicSchema(spark=T.StructType().add("no", T.LongType()).json(), created_at_ms=1, follows=0)
    cluster.client.cluster.store.put(paths.schema(str(T_NAME), 1), stray.to_bytes(), expect=ABSENT)
    assert cluster.topics.set_schema("t", avro(("x", "long"))).version == 2
    assert [s.version for s in cluster.topics.schemas("t")] == [0, 2]
    with pytest.raises(SchemaError, match=r"no schema version 1.*0, 2"):
        cluster.topics.schema("t", 1)


def test_a_recreated_topic_has_no_earlier_schema(cluster: Cluster) -> None:
    cluster.topics.create("t")
    cluster.topics.set_schema("t", avro(("x", "int")))
    cluster.topics.set_compatibility("t", "full")
    cluster.topics.delete("t")
    cluster.topics.create("t")
    assert cluster.topics.compatibility("t") == "backward"
    assert cluster.topics.schemas("t") == ()
    assert cluster.topics.set_schema("t", avro(("x", "string"))).version == 1  # ids are not reused
    assert [s.version for s in cluster.topics.schemas("t")] == [1]


# --- the command --------------------------------------------------------------------------------------------------


def test_the_schema_command_sets_and_shows_versions(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster.topics.create("t")
    assert "t has no schema yet" in run("t").stdout
    assert json.loads(run("t", "--json").stdout) is None
    assert "no schema yet" in run("t", "--history").stdout
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(avro(("x", "int"))))
    assert run("t", "--set", str(file)).stdout == "The schema of topic://public/default/t is version 0 now.\n"
    shown = run("t").stdout
    assert "compatibility  backward" in shown
    assert "avro           registered" in shown
    assert json.loads(shown[shown.index("{") :]) == avro(("x", "int"))
    file.write_text(json.dumps(avro(("x", "int"), ("y", "int"))))
    refused = run("t", "--set", str(file), code=1).stderr
    assert "Error: topic://public/default/t: The schema is not compatible (backward) with version 0" in refused
    assert "--compatibility" in refused
    done = run("t", "--set", str(file), "--compatibility", "none").stdout
    assert done.splitlines() == [
        "New schemas of t are checked by none from now on.",
        "The schema of topic://public/default/t is version 1 now.",
    ]
    listed = run("t", "--history").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["VERSION", "0", "1"]
    assert "x int, y int" in listed[2]
    answers = json.loads(run("t", "--history", "--json").stdout)
    assert [(a["version"], a["avro"], a["compatibility"]) for a in answers] == [
        (0, avro(("x", "int")), "none"),
        (1, avro(("x", "int"), ("y", "int")), "none"),
    ]
    assert json.loads(run("t", "--version", "0", "--json").stdout)["columns"]["fields"][0]["name"] == "x"
    for wrong in (
        ("--version", "0", "--history"),
        ("--set", str(file), "--history"),
        ("--version", "5"),
        ("--set", "nowhere.avsc"),
    ):
        assert "Error" in run("t", *wrong, code=1).stderr
    assert "Error: There is no topic" in run("u", code=1).stderr


def test_the_schema_command_shows_a_schema_made_from_columns(run: Run, cluster: Cluster) -> None:
    cluster.topics.create("t", schema="a bigint, m map<int, int>")
    assert "none: The column m" in run("t").stdout
    cluster.topics.create("u", schema="a bigint")
    shown = run("u").stdout
    assert "made from the columns" in shown
    assert '"name": "public.default.u"' in shown
