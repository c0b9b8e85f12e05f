"""What a task of a write learns from the driver's thread that runs the write: Spark's local properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

TRANSACTION: Final = "txnsegment.transaction"
"""The name of a Spark local property, which belongs to one thread of the driver. The `options` of a transaction over several topics
set the property to the token of the transaction.
"""


def execution_of(given: Callable[[str], str | None]) -> tuple[str, int] | None:
    """Return the token of the transaction over several topics, and the number of Spark's SQL execution. Return None outside of
    such a transaction. `given`: returns the value of a local property.
    """
    token, number = given(TRANSACTION), given("spark.sql.execution.id")
    return None if token is None or number is None else (token, int(number))
