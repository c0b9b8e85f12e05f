"""The command `txnsegment conformance`. It is registered as an entry point of the group `txnsegment.commands`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

WORDS = "conformance.words"


class Whole(TyperGroup):
    """A command that does not parse its arguments, not even `--help`. It keeps them for `main`, which parses them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        return []


app = typer.Typer(cls=Whole, invoke_without_command=True, add_completion=False)


@app.callback(help="Show that a store, the protocol's code or a whole deployment keeps what is promised.")
def conformance(context: typer.Context) -> None:
    from conformance.command.main import main

    raise typer.Exit(main(context.meta[WORDS], program="txnsegment conformance"))
