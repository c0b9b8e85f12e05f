"""The `with` blocks of transactions over several Spark writes. Such transactions do not nest."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from metadata.common.errors import TxnConflict


class Block(Protocol):
    """A transaction that is the context manager of a block."""

    @property
    def id(self) -> str | None: ...


_inside: ContextVar[tuple[tuple[Block, str], ...]] = ContextVar("inside", default=())
"""The transactions in whose blocks the current thread runs, outermost first, each with the URL of its cluster."""


def entered(block: Block, url: str) -> None:
    """Note that the current thread enters a block. `url`: that of the cluster. Raises TxnConflict inside another block of the same
    cluster.
    """
    for outer, its_url in _inside.get():
        if its_url == url:
            raise TxnConflict(
                f"A transaction begins inside the block of transaction {outer.id}, but transactions do not nest: the inner one "
                "would commit on its own.",
                advice="Use one transaction for all writes, or end the outer block first.",
            )
    _inside.set((*_inside.get(), (block, url)))


def left(block: Block) -> None:
    """Note that the current thread leaves a block."""
    _inside.set(tuple(one for one in _inside.get() if one[0] is not block))
