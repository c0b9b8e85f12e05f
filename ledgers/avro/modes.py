"""The compatibility modes of schemas, as Confluent and Pulsar name them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Compatibility(StrEnum):
    """The requirement on a new schema. A transitive mode compares it with every earlier schema version of the topic. The other
    modes compare it with the latest version only. `NONE` allows every schema.
    """

    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"

    @property
    def reads_old(self) -> bool:
        """Return whether the new schema must read data written with an earlier one."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def read_by_old(self) -> bool:
        """Return whether earlier schemas must read data written with the new one."""
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")


DEFAULT: Final = Compatibility.BACKWARD
