"""The conditions of a filter of Spark, which Spark itself parses, resolves and simplifies.

The filter is put on an empty relation with the columns of a read. The conjuncts of the optimized plan that compare a column with
constants become conditions. All others are left to Spark, which evaluates the whole filter in any case.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import FloatType, StructType

from spark_txn_source import skipping
from spark_txn_source.skipping import Condition, kind_of_column

log = logging.getLogger("txnsegment.skipping")

_COMPARISONS: Final = {
    "EqualTo": skipping.EQUAL,
    "EqualNullSafe": skipping.EQUAL,
    "LessThan": skipping.LESS,
    "LessThanOrEqual": skipping.LESS_OR_EQUAL,
    "GreaterThan": skipping.GREATER,
    "GreaterThanOrEqual": skipping.GREATER_OR_EQUAL,
    "StartsWith": skipping.STARTS,
}
_FLIPPED: Final = {
    skipping.EQUAL: skipping.EQUAL,
    skipping.LESS: skipping.GREATER,
    skipping.LESS_OR_EQUAL: skipping.GREATER_OR_EQUAL,
    skipping.GREATER: skipping.LESS,
    skipping.GREATER_OR_EQUAL: skipping.LESS_OR_EQUAL,
}
_CHANGING: Final = ("Current", "Now", "LocalTimestamp")
"""How the names of the expressions begin whose value is another one at a later time."""
_NOW: Final = re.compile(r"\b(now|today|tomorrow|yesterday)\b|\\", re.IGNORECASE)
"""The words that Spark's parser takes for the time of the parse, as in `timestamp 'now'` and `date "today"`. A backslash may
escape a letter of such a word.
"""


def conditions(spark: SparkSession, where: str | Column, columns: StructType) -> list[Condition]:
    """Return conditions that all rows meet for which the filter `where` is true. `columns`: the columns of the read.

    There is none for a filter whose value depends on the time, because it is evaluated after the read was planned. There is none in
    Spark Connect, where a client cannot look at plans. Raises the errors of Spark for a filter that it refuses.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        log.info("Spark Connect shows no plans: no part is skipped")
        return []
    rows = session.createDataFrame(spark.sparkContext._jsc.emptyRDD(), session.parseDataType(columns.json()))
    made = rows.filter(where) if isinstance(where, str) else rows.filter(where._jc)
    plan = made.queryExecution()
    if _NOW.search(str(where)) or _changing(plan.analyzed()):
        return []
    optimized = plan.optimizedPlan()
    if _name(optimized) != "Filter":
        return []
    found = (_condition(one, columns) for one in _conjuncts(optimized.condition()))
    return [one for one in found if one is not None]


def _changing(plan: Any) -> bool:
    """Return whether an expression of the plan depends on the time, or on chance, or on a query."""
    waiting = list(_each(plan.expressions()))
    while waiting:
        one = waiting.pop()
        if _name(one).startswith(_CHANGING) or not one.deterministic() or _name(one).endswith("Subquery"):
            return True
        waiting += _each(one.children())
    return False


def _each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    return (sequence.apply(i) for i in range(sequence.size()))


def _name(node: Any) -> str:
    """Return the simple name of the class of a Scala object."""
    return str(node.getClass().getSimpleName())


def _conjuncts(expression: Any) -> Iterator[Any]:
    if _name(expression) == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _condition(expression: Any, columns: StructType) -> Condition | None:
    name = _name(expression)
    if name == "AttributeReference":  # a boolean column alone
        return _compared(expression, skipping.EQUAL, [1], columns)
    if name == "Not":
        return _negated(expression.child(), columns)
    if name in ("IsNull", "IsNotNull"):
        column = _column(expression.child(), columns)
        return None if column is None else Condition(column, skipping.NULL if name == "IsNull" else skipping.NOT_NULL)
    if name in _COMPARISONS:
        left, right, operator = expression.left(), expression.right(), _COMPARISONS[name]
        if _name(left) == "Literal" and operator in _FLIPPED:
            left, right, operator = right, left, _FLIPPED[operator]
        return _compared(left, operator, _constants([right]), columns)
    if name == "In":
        return _compared(expression.value(), skipping.EQUAL, _constants(_each(expression.list())), columns)
    if name == "InSet":
        values = [_constant(value, expression.child().dataType()) for value in _each(expression.hset().toSeq())]
        return _compared(expression.child(), skipping.EQUAL, values, columns)
    return None


def _negated(child: Any, columns: StructType) -> Condition | None:
    """Return the condition of a negated expression. Spark turns a negated `<` into `>=`, and so on."""
    if _name(child) == "EqualTo":
        return _compared(child.left(), skipping.DIFFERS, _constants([child.right()]), columns)
    if _name(child) == "AttributeReference":
        return _compared(child, skipping.EQUAL, [0], columns)
    return None


def _compared(left: Any, operator: str, values: list[Any], columns: StructType) -> Condition | None:
    column = _column(left, columns)
    kind = "" if column is None else kind_of_column(columns[column].dataType)
    if column is None or not kind or not values or any(value is None or value != value for value in values):
        return None
    if isinstance(columns[column].dataType, FloatType):
        # A float comes as the shortest text that gives this float. As a double, such a text gives another number.
        values = [float(np.float32(value)) for value in values]
    return Condition(column, operator, kind, tuple(values))


def _column(expression: Any, columns: StructType) -> str | None:
    name = str(expression.name()) if _name(expression) == "AttributeReference" else None
    return name if name in columns.fieldNames() else None


def _constants(expressions: Any) -> list[Any]:
    return [_constant(one.value(), one.dataType()) if _name(one) == "Literal" else None for one in expressions]


def _constant(value: Any, kind: Any) -> Any:
    """Return the raw value of a literal, or None if it is null or of another type than bounds have."""
    name = str(kind.typeName())
    if value is None or isinstance(value, int | float | bytes | bytearray):
        return bytes(value) if isinstance(value, bytearray) else value
    if name == "string":
        return str(value.toString()).encode()
    if name.startswith("decimal"):
        return Decimal(str(value.toString()))
    return None
