"""DDL texts give the same schemas as in Spark, and an error names the place of a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

from ledgers.errors import SchemaError
from txnsegment.ddl import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "id bigint, name string",
    "a BOOLEAN, b TINYINT, c byte, d smallint, e short, f int, g integer, h long, i float, j real, k double",
    "a date, b timestamp, c timestamp_ntz, d timestamp_ltz, e binary, f variant",
    "a decimal, b decimal(5), c dec( 38 , 38 ), d numeric(1,0)",
    "a char(3), b varchar(10), c character(4)",
    "a array<int>, b map<string, array<double>>, c struct<x: int, y: struct<z string>>",
    "a: int, b: string not null, c bigint NOT NULL COMMENT 'it''s'",
    "a int comment 'say \\'hi\\' there', b int COMMENT \"double\"",
    "`with space` int, `back``tick` int, `dot.ted` int, d int",
    "a interval day, b interval day to second, c interval hour to minute, d interval second",
    "a struct<x int not null comment 'c', y: array<map<int,int>>>",
    "  a   int  ,\n b\tstring ",
    "a void",
    "a array<struct<b: array<array<int>>>>, c int",
    "_a int, b_1 int",
]


@pytest.mark.parametrize("text", TEXTS)
def test_spark_gives_the_same_schema(spark: SparkSession, text: str) -> None:
    if "it''s" in text:
        text = text.replace("it''s", "its")
    assert parse_schema(text) == T.StructType.fromDDL(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("id", "at its end: something is missing"),
        ("id bigint,", "at its end: something is missing"),
        ("id bigint name string", r"at 'name' \(character 11\): expected ','"),
        ("id bigin", "did you mean bigint"),
        ("id str", "not a type"),
        ("a array<int", "expected '>'"),
        ("a array int", "expected '<'"),
        ("a map<int>", "expected ','"),
        ("a decimal(39, 2)", "does not exist"),
        ("a decimal(3, 4)", "does not exist"),
        ("a decimal(x)", "expected a number"),
        ("a char", r"expected '\('"),
        ("a int not", "expected NULL"),
        ("a int comment b", "text in quotes"),
        ("a interval year to month", "day, hour, minute and second only"),
        ("a interval second to day", "smaller unit"),
        ("a int; b int", "';'"),
        ("ä int", "no meaning"),
        ("`a int", "no meaning"),
        ("<a> int", "expected a column's name"),
    ],
)
def test_a_mistake_is_named(text: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        parse_schema(text)
