"""The list of the errors (metadata/common/errors.py)."""

from __future__ import annotations

import inspect

from metadata.common import errors
from metadata.common.errors import TxnSegmentError


def test_the_module_exports_every_error_in_it() -> None:
    found = [name for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TxnSegmentError)]
    assert sorted(errors.__all__) == found
