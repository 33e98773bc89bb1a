"""``finetti merge``: bring the stores of several machines into one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import Debug, Json
from finetti.cli.studies import Wait


def merge(
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="Store to merge into; created if it does not exist."),
    ],
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE", help="Stores to merge; never changed.")
    ],
    wait: Wait = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add the trials of other stores to TARGET.

    Merging the same stores again changes nothing. Damaged rows are left out, and named; then it
    exits with 1.
    """
    from finetti.studies.store.merging import merge_stores

    done = merge_stores(target, sources, wait)
    if as_json:
        say(json.dumps({**vars(done), "store": str(done.store)}, indent=1))
    else:
        make_console().print(done)
    raise typer.Exit(1 if done.damaged else 0)
