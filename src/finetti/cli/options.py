"""Options that commands share, so that they read and work the same everywhere."""

from typing import Annotated

import typer

DEBUG = "finetti.debug"


def _remember_debug(context: typer.Context, value: bool) -> bool:
    # `meta` is shared by a command and the group above it, so both places accept the option.
    context.meta[DEBUG] = value or context.meta.get(DEBUG, False)
    return value


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show the traceback of an error.", callback=_remember_debug, is_eager=True
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; text for people on stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the summary.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="All randomness follows from it.")]
