"""``finetti status``: how a study stands, also while it runs."""

import json

import typer

from finetti.cli.console import make_console
from finetti.cli.options import Debug, Json
from finetti.cli.studies import Place, ScaleName, StoreFile, StudySeed, private_stdout, study_at


def status(
    place: Place,
    store: StoreFile = None,
    scale: ScaleName = None,
    seed: StudySeed = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Trials done, failed and pending, who is running them, and why some failed."""
    from finetti.studies.status import store_status

    study = study_at(place, scale, seed, store)
    with private_stdout():
        found = store_status(place) if study is None else study.status()
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        make_console().print(found)
