"""Ctrl-C ends every command alike: one sentence, and the exit code 130."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from finetti.cli.console import say
from finetti.cli.options import INTERRUPTED
from finetti.studies.interruption import ignore_interruptions

AGAIN = "Interrupted. Rerun the same command."
NOTHING_KEPT = "Interrupted before anything was written. The same command starts over."


@contextmanager
def ends_with(sentence: str) -> Iterator[None]:
    """Around what Ctrl-C may stop: ``sentence`` says what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        ignore_interruptions()  # one more, and the exit code would be the signal
        say(sentence, err=True)
        raise typer.Exit(INTERRUPTED) from None
