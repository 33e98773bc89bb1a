"""``finetti merge``: bring the stores of several machines into one."""

import json
from pathlib import Path
from typing import Annotated

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json
from finetti.cli.studies import Wait


def merge(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Made if it is not there.")],
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Only read.")],
    wait: Wait = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Add the trials of other stores to TARGET. Doing it twice changes nothing."""
    from finetti.studies.merge import merge_stores

    done = merge_stores(target, sources, wait)
    if as_json:
        typer.echo(json.dumps({**vars(done), "store": str(done.store)}, indent=1))
    else:
        make_console().print(done)
