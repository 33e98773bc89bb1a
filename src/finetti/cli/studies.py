"""What the commands of studies share: a study or a store on the command line, and its options."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from finetti.core.errors import InputError

if TYPE_CHECKING:
    from finetti.studies.study import Study

Place = Annotated[Path, typer.Argument(metavar="STUDY", help="A study.toml, its name, or a store.")]
StoreFile = Annotated[
    Path | None,
    typer.Option("--store", metavar="FILE", help="The results; beside the study by default."),
]
ScaleName = Annotated[
    str | None, typer.Option("--scale", metavar="NAME", help="A preset of the study.")
]
StudySeed = Annotated[
    int | None, typer.Option("--seed", min=0, help="In the place of the study's own seed.")
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for another process that writes to the store.")
]


def study_at(
    place: Path, scale: str | None, seed: int | None, store: Path | None
) -> "Study | None":
    """The study in ``place``; None if it is a store."""
    from finetti.studies.shipped import is_shipped
    from finetti.studies.study import Study

    if place.suffix.lower() == ".toml" or is_shipped(place):
        return Study.from_toml(place, scale=scale, seed=seed, store=store)
    if (scale, seed, store) != (None, None, None):
        raise InputError("--scale, --seed and --store go with a study.toml, not with a store.")
    return None


@contextmanager
def private_stdout() -> Iterator[None]:
    """Around anything that may load a user's kind: stdout is for results only.

    Also what other programs, or libraries below Python, write there ends up on stderr.
    """
    sys.stdout.flush()
    try:
        results = os.dup(1)
    except OSError:
        results = None  # closed by whoever started us: nothing can get there
    try:
        if results is not None:
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if results is not None:
            os.dup2(results, 1)
            os.close(results)
