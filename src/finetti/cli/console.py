"""Where text for people goes."""

import os
from typing import Any

import typer

from finetti.core.text import clean_text


def make_console(stderr: bool = False) -> Any:
    """A Rich console. Logs and pipes have no width of their own and get a roomy one."""
    from finetti.display.clean_console import CleanConsole

    console = CleanConsole(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = CleanConsole(stderr=stderr, width=120)
    return console


def say(text: object, err: bool = False) -> None:
    """Print a line to stdout or stderr. What may come from files of others cannot steer it."""
    typer.echo(clean_text(str(text)), err=err)
