"""The compatibility modes of schemas, as Confluent and Pulsar name them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Compatibility(StrEnum):
    """What a new schema must be able to do. Transitive: with every earlier version of the topic, not with the last one alone."""

    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"

    @property
    def reads_old(self) -> bool:
        """Whether the new schema must read what was written with an earlier one."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def read_by_old(self) -> bool:
        """Whether earlier schemas must read what is written with the new one."""
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        return self.name.endswith("_TRANSITIVE")


DEFAULT: Final = Compatibility.BACKWARD
