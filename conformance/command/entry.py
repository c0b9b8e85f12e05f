"""`txnsegment conformance ...`: the same command, behind the entry point of the group `txnsegment.commands`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

WORDS = "conformance.words"


class Whole(TyperGroup):
    """Takes all arguments after its name unparsed, `--help` too: `main` parses them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        return []


app = typer.Typer(cls=Whole, invoke_without_command=True, add_completion=False)


@app.callback(help="Show that a store, the protocol's code or a whole deployment keeps what is promised.")
def conformance(context: typer.Context) -> None:
    from conformance.command.main import main

    raise typer.Exit(main(context.meta[WORDS], program="txnsegment conformance"))
