"""``finetti status``: how a study stands, also while it runs."""

import json
from typing import Annotated

import typer

from finetti.cli.console import make_console, say
from finetti.cli.options import Debug, Json
from finetti.cli.studies import Place, ScaleName, StoreFile, StudySeed, private_stdout, study_at


def status(
    place: Place,
    details: Annotated[
        bool, typer.Option("--details", help="Show the traceback of each kind of failure.")
    ] = False,
    store: StoreFile = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how many trials are done, failed, and pending, the time left, and why trials failed.

    Exits with 1 if all stored trials come from an earlier version of the code or the seeding.
    """
    from finetti.studies.study_status import store_status

    study = study_at(place, scale, seed, store)
    with private_stdout():
        found = store_status(place) if study is None else study.status()
    if as_json:
        say(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        people = make_console()
        people.print(found)
        for failure in found.failures if details else ():
            people.print(f"{failure.error}\n{failure.traceback or 'No traceback.'}", soft_wrap=True)
    raise typer.Exit(1 if found.earlier and not found.trials else 0)
